"""Plans of restores of very many topics and partitions."""

import cProfile
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from record_samples import batch_of

from kbackup.errors import ConfigurationError, KafkaError, KbackupError
from kbackup.kafka import NewTopic
from kbackup.records import TopicPartition
from kbackup.restore.routing import NOTHING, RecordRoutes, Survey
from kbackup.restore.target import begin
from tests.support.target import FakeTarget, Restoring

BY_HEADER = {
    "transforms": "kind",
    "transforms.kind.type": "io.confluent.connect.transforms.ExtractTopic$Header",
    "transforms.kind.field": "kind",
}


class Counting(FakeTarget):
    """A cluster that counts the requests to create topics."""

    requests = 0

    def create_topics(
        self, topics: Sequence[NewTopic], *, only_validate: bool = False
    ) -> dict[str, str | KbackupError]:
        """Create topics."""
        self.requests += 1
        return super().create_topics(topics, only_validate=only_validate)


def one_of(*kinds: str, first: int = 0) -> pa.RecordBatch:
    """Return a record for each kind, which its header names."""
    return batch_of(
        [
            {"offset": at, "value": b"v", "headers": [{"key": "kind", "value": kind.encode()}]}
            for at, kind in enumerate(kinds, first)
        ]
    )


def topics(count: int) -> Restoring:
    """Return a backup of topics with a partition each, some of which the target has."""
    found = Restoring()
    for at in range(count):
        found.backup.put(f"t{at}", 0, one_of("a"))
        if at % 2:
            found.cluster.create_topic(f"copy_of_t{at}", 1, 1, {})
    return found


def partitions(count: int) -> Restoring:
    """Return a backup of a topic with so many partitions."""
    found = Restoring()
    for at in range(count):
        found.backup.put("orders", at, one_of("a"))
    return found


def kinds(count: int) -> Restoring:
    """Return a backup of a topic whose records go to so many others."""
    found = Restoring(properties=BY_HEADER)
    names = [f"k{at}" for at in range(count)]
    cuts = (one_of(*names[at : at + 10], first=at) for at in range(0, count, 10))
    found.backup.put("orders", 0, *cuts)
    return found


@pytest.mark.parametrize("made", [topics, partitions, kinds])
def test_a_plan_grows_with_the_number_of_its_parts_and_no_faster(
    made: Callable[[int], Restoring],
) -> None:
    """Three times as many topics, partitions or chosen topics cost three times the calls."""

    def calls(count: int) -> int:
        found, profile = made(count), cProfile.Profile()
        profile.runcall(found.plan)
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)  # what is read once in a process is read now

    assert calls(240) < 3.3 * calls(80)


def test_topics_are_created_together() -> None:
    """A restore of many topics creates them with one request, and each has its own id."""
    found = topics(50)
    found.cluster = Counting()

    _, units = begin(found.plan(), found.cluster, None, exactly_once=True)

    assert (1, 50) == (found.cluster.requests, len(units))
    assert {TopicPartition(name, 0): id_ for name, id_ in found.cluster.ids.items()} == {
        unit.target: unit.position.target_id for unit in units
    }


class Refusing(FakeTarget):
    """A cluster that has no room for topics when they are created."""

    def create_topics(
        self, topics: Sequence[NewTopic], *, only_validate: bool = False
    ) -> dict[str, str | KbackupError]:
        """Refuse each topic."""
        del only_validate
        error = ConfigurationError if len(topics) == 2 else KafkaError
        return {
            topic.name: KafkaError(f"creating topic {topic.name}", "no room", "add brokers")
            if at
            else error(f"creating topic {topic.name}", "no room", "add brokers")
            for at, topic in enumerate(topics)
        }


@pytest.mark.parametrize(
    ("count", "named", "more"), [(4, 2, False), (20, 10, False), (22, 10, True)]
)
def test_all_topics_that_are_refused_are_named(count: int, named: int, more: bool) -> None:
    """One error names the topics that were not created: the first ten, and how many more."""
    found = topics(count)
    found.cluster = Refusing(ids=found.cluster.ids, logs=found.cluster.logs)

    with pytest.raises(KafkaError) as refused:
        begin(found.plan(), found.cluster, None, exactly_once=True)

    why = refused.value.why
    assert f"{count // 2} topics were not created" == refused.value.what
    assert (named, more) == (why.count("no room"), why.endswith("; and 1 more"))
    assert "add brokers" == refused.value.do


def test_the_topics_that_records_go_to_are_not_gathered_for_each() -> None:
    """The plan of each of many topics asks for all of them: they are put together once."""
    where = TopicPartition("orders", 0)
    found = topics(1)
    routes = RecordRoutes(found.settings(), found.store)
    routes.take(Survey(where, {f"k{at}": NOTHING for at in range(1000)}))

    assert 1000 == len(routes.targets("orders"))
    assert routes._by_target("orders") is routes._by_target("orders")
