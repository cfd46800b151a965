"""A topic that was deleted and created again is not mixed into the backup of the old one."""

import pytest
from backup_samples import RECORD, Backup, batch

from kbackup.clock import SystemClock
from kbackup.errors import TopicChangedError
from kbackup.kafka import Position
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.runs.position import SinkPosition
from kbackup.sink.job import SinkUnit
from kbackup.sink.plan import SinkPartitionPlan, make_plan
from tests.support.configurations import WHOLE, load
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import FakePositions, FakeReader, SilentLine, run_task

WHERE = TopicPartition("orders", 0)
OLD = TopicIdentity("cluster-1", "old-id")


def planned(backup: Backup, cluster: FakeKafka) -> SinkPartitionPlan:
    """What a sink of ``orders`` would do with partition 0."""
    settings = load("sink", **WHOLE).settings
    return make_plan(settings, cluster, backup.store, SystemClock()).partitions[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("end", [100, 300, 5000], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("keeps_position", [False, True])
def test_a_recreated_topic_is_refused_without_any_run_record(
    end: int, keeps_position: bool
) -> None:
    """A recreated topic is refused, however long its log, and with a group or without."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(300), identity=OLD)
    cluster = FakeKafka({"orders": "new-id"}, {WHERE: Span(0, end)})
    if keeps_position:
        cluster.positions_[WHERE] = Position(300, SinkPosition(key, 299).to_metadata())

    at = planned(backup, cluster)

    assert (None, None) == (at.start, at.unit())
    assert isinstance(at.refusal, TopicChangedError)


def test_the_position_alone_knows_which_topic_it_is_of() -> None:
    """If nothing could be stored of a topic, its position alone says which topic it is."""
    kept = SinkPosition(identity=OLD, run="r1").to_metadata()
    cluster = FakeKafka({"orders": "new-id"}, {WHERE: Span(0, 500)}, {WHERE: Position(10, kept)})

    assert isinstance(planned(Backup(), cluster).refusal, TopicChangedError)


@pytest.mark.parametrize("topic_id", ["old-id", ""], ids=["the same", "broker without ids"])
def test_the_same_topic_goes_on(topic_id: str) -> None:
    """The same topic continues, and an unknown id is taken for the same topic."""
    backup = Backup()
    backup.put("orders", 0, range(300), identity=OLD)

    at = planned(backup, FakeKafka({"orders": topic_id}, {WHERE: Span(0, 400)}))

    assert at.refusal is None
    assert at.start is not None
    assert 300 == at.start.offset


def test_another_cluster_is_another_topic_where_ids_are_missing() -> None:
    """Without topic ids, as before 2.8, another cluster's topic is another topic."""
    assert TopicIdentity("one").conflicts(TopicIdentity("two", "id"))
    assert not TopicIdentity("one", "id").conflicts(TopicIdentity("two", "id"))
    assert not TopicIdentity("one", "id").conflicts(UNKNOWN)


def test_objects_and_positions_say_which_topic_they_are_of() -> None:
    """A run's objects carry the ids in their metadata, its committed offset carries them too."""
    backup, positions = Backup(), FakePositions()
    unit = SinkUnit(WHERE, Span(0, 20), identity=OLD)

    run_task(backup, unit, FakeReader(batch(range(20))), positions, SilentLine(), RECORD)

    (entry,) = backup.store.list("topics/")
    head = backup.store.head(entry.key)
    last = SinkPosition.read(positions.positions[WHERE].metadata)
    assert head is not None
    assert last is not None
    assert (OLD, OLD) == (TopicIdentity.from_metadata(head.metadata), last.identity)


def test_an_object_of_another_topic_is_not_replaced() -> None:
    """An object of another topic is not replaced, even if it begins with the same records."""
    backup = Backup()
    backup.put("orders", 0, range(10), identity=OLD)

    with pytest.raises(TopicChangedError, match="another topic"):
        backup.put("orders", 0, range(20), identity=TopicIdentity("cluster-1", "new-id"))
