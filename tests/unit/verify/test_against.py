"""A backup beside the topics that it is of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from kbackup.errors import ConfigurationError, KafkaError, KbackupError, RefusedError
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.runs import known
from kbackup.runs.compare import PartitionCompared
from kbackup.runs.context import Environment, Stop
from kbackup.runs.report import Summary
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store
from kbackup.stores.memory import MemoryStore
from kbackup.verify import against
from kbackup.verify.against import against_source
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.in_threads import InThreads

WHERE = TopicPartition("orders", 0)
VALUES: dict[str, Any] = {"format_class": "json", "value_converter": "json", "flush_size": "10"}
"""Objects as the connectors write them, ten records each."""


@dataclass
class Beside:
    """What comparing has come to."""

    rows: Sequence[PartitionCompared]
    exit_code: int
    skipped: Mapping[str, int]
    errors: Sequence[str]

    @property
    def row(self) -> PartitionCompared:
        """The first partition."""
        return self.rows[0]


@dataclass
class Source:
    """A topic of 100 records, and its backup."""

    kafka: FakeKafka = field(default_factory=FakeKafka)
    place: StoreSettings = field(default_factory=lambda: StoreSettings(f"memory://{uuid4()}"))
    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        self.kafka.create("orders", 100)

    def environment(self) -> Environment:
        """What a run works with."""
        return Environment(self.kafka, self.place, InThreads(), self.clock)  # type: ignore[arg-type]

    def sink(self, **options: Any) -> None:
        """Back it up."""
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "no_lock": True, **options}
        settings = load("sink", topics=["orders"], **given).settings
        assert SinkRun(settings, lambda _: None, Stop(), self.environment())().exit_code in (0, 3)

    def compared(self, *, is_strict: bool = False, **options: Any) -> Beside:
        """Compare it."""
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", **options}
        settings = load("against", **{"topics": ["orders"]} | given).settings
        said = known.read(open_store(self.place), Layout(), self.clock, settings.asked)
        summary = Summary("r", "restore verify")
        rows = [
            *against_source(
                settings, self.environment(), said, summary, Event(), is_strict=is_strict
            )
        ]
        ended = summary.finish()
        return Beside(rows, ended.exit_code, ended.skipped, [str(one) for one in ended.errors])


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of what is read of a store from now on."""
    keys: list[str] = []
    really = MemoryStore.open

    def watched(self: MemoryStore, key: str) -> Any:
        keys.append(key)
        return really(self, key)

    monkeypatch.setattr(MemoryStore, "open", watched)
    return keys


def test_an_unchanged_topic_is_proved_without_reading_an_object(
    source: Source, opened: list[str]
) -> None:
    """By the digests that the ledger keeps."""
    source.sink(flush_size="10")
    opened.clear()
    found = source.compared()

    assert (0, 100, 10, "same") == (
        found.exit_code, found.row.records, found.row.proven, found.row.state
    )  # fmt: skip
    assert not [key for key in opened if key.startswith("topics/")]


def test_batches_are_proved_as_they_are(source: Source, opened: list[str]) -> None:
    """Objects of batches have a digest of these, and the source's records are not unpacked."""
    source.sink(flush_size="10")
    source.kafka.append(WHERE, 100)
    source.sink(format_class="log", flush_size="20")
    source.kafka.append(WHERE, 5)
    opened.clear()
    found = source.compared()

    assert (0, 200, 15, "same, 5 behind") == (
        found.exit_code, found.row.records, found.row.proven, found.row.state
    )  # fmt: skip
    assert not [key for key in opened if key.startswith("topics/")]


@pytest.mark.parametrize("at", [100, 155, 199])
def test_a_record_that_was_altered_in_a_batch_is_named(source: Source, at: int) -> None:
    """The other objects are proved; of this one, each record is compared."""
    source.kafka.append(WHERE, 100)
    source.sink(format_class="log", flush_size="20")
    source.kafka.values[WHERE, at] = b"other"

    found = source.compared()

    assert (7, 199, 9) == (found.exit_code, found.row.records, found.row.proven)
    assert f"the first is offset {at} of the backup, {at} in Kafka: value" in found.errors[0]


def test_batches_between_objects_are_counted(source: Source) -> None:
    """What the backup lacks is found where the objects on both sides are proved."""
    source.kafka.compacted |= {(WHERE, at) for at in range(40, 60)}
    source.sink(format_class="log", flush_size="20")
    source.kafka.compacted.clear()

    found = source.compared()

    assert (7, 80, 4, 20) == (
        found.exit_code, found.row.records, found.row.proven, found.row.kafka_only
    )  # fmt: skip
    assert {*range(40, 60)} >= {one.kafka_offset for one in found.row.differences}


def test_what_retention_has_taken_of_batches_is_counted(source: Source) -> None:
    """An object that the log holds the end of is compared by records."""
    source.sink(format_class="log", flush_size="20")
    source.kafka.logs[WHERE] = Span(25, 100)

    found = source.compared()

    assert (0, 75, 25, 3) == (
        found.exit_code, found.row.records, found.row.expired, found.row.proven
    )  # fmt: skip


def test_a_source_whose_settings_may_not_be_read_is_not_judged(source: Source) -> None:
    """It may be compacted by now: what it lacks would be called lost."""
    source.sink()
    source.kafka.forbidden = frozenset({"DESCRIBE_CONFIGS"})

    with pytest.raises(KafkaError, match="settings of orders cannot be read"):
        source.compared()


def test_units_are_cut_at_objects(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks compare a partition; each object is in one of them."""
    monkeypatch.setattr(against, "OFFSETS_MOST", 25)
    source.sink(flush_size="10")
    source.kafka.values[WHERE, 77] = b"altered"

    found = source.compared()

    assert (7, 99, 1, 9) == (
        found.exit_code, found.row.records, found.row.different, found.row.proven
    )  # fmt: skip
    assert [(77, 77, "value")] == [
        (one.offset, one.kafka_offset, one.what) for one in found.row.differences
    ]


@pytest.mark.parametrize("at", [0, 55, 99])
def test_an_altered_record_is_named(source: Source, at: int) -> None:
    """By offset and column: 7."""
    source.sink(flush_size="10")
    source.kafka.keys[WHERE, at] = b""

    found = source.compared()

    assert (7, 99) == (found.exit_code, found.row.records)
    assert f"the first is offset {at} of the backup, {at} in Kafka: key" in found.errors[0]


@pytest.mark.parametrize("at", [0, 55, 99])
def test_a_record_that_is_gone_is_named(source: Source, at: int) -> None:
    """Unless the topic is, or was, compacted."""
    source.sink(flush_size="10")
    source.kafka.compacted.add((WHERE, at))

    found = source.compared()

    assert (7, 99, 1) == (found.exit_code, found.row.records, found.row.backup_only)
    source.kafka.configs["orders"] = {"cleanup.policy": "compact"}
    found = source.compared()
    assert (0, "same, 1 compacted") == (found.exit_code, found.row.state)


@pytest.fixture
def compacted(source: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A compacted topic of ten keys, of which each record but the last of a key is gone."""
    monkeypatch.setattr(against, "OFFSETS_MOST", 25)
    source.kafka.configs["orders"] = {"cleanup.policy": "compact"}
    source.kafka.keys |= {(WHERE, at): b"k%d" % (at % 10) for at in range(100)}
    source.sink(flush_size="10")
    source.kafka.compacted |= {(WHERE, at) for at in range(90)}
    return source


def test_what_compaction_has_superseded_is_proved(compacted: Source) -> None:
    """Each record that is gone has a later one of its key."""
    found = compacted.compared(is_strict=True)

    assert (0, 10, 90) == (found.exit_code, found.row.records, found.row.compacted)


@pytest.mark.parametrize("at", [90, 99])
def test_the_last_record_of_a_key_may_not_be_gone(compacted: Source, at: int) -> None:
    """Nothing supersedes it: 7, by its offset; unless it is a tombstone that is old enough."""
    compacted.kafka.compacted.add((WHERE, at))

    found = compacted.compared(is_strict=True)

    assert (7, 90, 1) == (found.exit_code, found.row.compacted, found.row.backup_only)
    assert [(at, None)] == [(one.offset, one.kafka_offset) for one in found.row.differences]
    assert 0 == compacted.compared().exit_code


@pytest.mark.parametrize(("kept_ms", "code"), [("60000", 0), (str(2**40), 7)])
def test_a_tombstone_goes_when_it_is_old(source: Source, kept_ms: str, code: int) -> None:
    """After ``delete.retention.ms``; what it superseded has gone before."""
    source.kafka.configs["orders"] = {
        "cleanup.policy": "compact", "delete.retention.ms": kept_ms
    }  # fmt: skip
    source.kafka.keys |= {(WHERE, at): b"one" for at in (10, 20, 30)}
    source.kafka.values[WHERE, 30] = None
    source.sink(flush_size="10")
    source.kafka.compacted |= {(WHERE, at) for at in (10, 20, 30)}

    found = source.compared(is_strict=True)

    assert (code, 97) == (found.exit_code, found.row.records)
    assert [30] * (code == 7) == [one.offset for one in found.row.differences]


def test_a_record_that_the_backup_lacks_is_named(source: Source) -> None:
    """A hole that was one no longer: an object ends before it, the next one begins behind it."""
    source.kafka.compacted |= {(WHERE, at) for at in (40, 41, 66)}
    source.sink(flush_size="10")
    source.kafka.compacted.clear()

    found = source.compared()

    assert (7, 97, 3) == (found.exit_code, found.row.records, found.row.kafka_only)
    assert {40, 41, 66} == {one.kafka_offset for one in found.row.differences}


def test_what_came_since_is_behind(source: Source) -> None:
    """A live topic is no alarm."""
    source.sink()
    source.kafka.append(WHERE, 7)

    found = source.compared()

    assert (0, 100, "same, 7 behind") == (found.exit_code, found.row.records, found.row.state)


@pytest.mark.parametrize("start", [10, 15, 99])
def test_what_retention_has_taken_is_counted(source: Source, start: int) -> None:
    """The rest is compared: within an object by its records."""
    source.sink(flush_size="10")
    source.kafka.logs[WHERE] = Span(start, 100)

    found = source.compared()

    assert (0, 100 - start, start) == (found.exit_code, found.row.records, found.row.expired)


def test_retention_that_goes_on_meanwhile_is_no_alarm(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's start moves between the plan and the reading, and within it."""
    source.sink(flush_size="10")
    really = type(source.kafka).reader

    def moving(self: FakeKafka, group: str, **asked: Any) -> Any:
        self.logs[WHERE] = Span(34, 100)
        return really(self, group, **asked)

    monkeypatch.setattr(FakeKafka, "reader", moving)
    found = source.compared()

    assert (0, 66, 34) == (found.exit_code, found.row.records, found.row.expired)


def test_values_are_proved_by_their_digest(source: Source) -> None:
    """They have no offsets; their digest is of what was in Kafka, keys and headers too."""
    source.sink(**VALUES)
    found = source.compared()
    assert (0, 100, 10) == (found.exit_code, found.row.records, found.row.proven)

    source.kafka.keys[WHERE, 55] = b"another"
    found = source.compared()

    assert (7, 90) == (found.exit_code, found.row.records)
    assert "offsets 50 to 59: their digest" in found.errors[0]


def test_values_that_the_source_has_in_part_are_not_comparable(source: Source) -> None:
    """A digest is of all of them: 3, never "same"."""
    source.sink(**VALUES)
    source.kafka.logs[WHERE] = Span(15, 100)

    found = source.compared()

    assert ({"partitions_not_compared": 1}, 3) == (found.skipped, found.exit_code)
    assert "not comparable" == found.row.state


def test_records_that_a_sink_left_out_are_not_missed(source: Source) -> None:
    """A tombstone that ``behavior.on.null.values=ignore`` passes is in the ledger as such."""
    source.kafka.values[WHERE, 44] = None
    source.sink(**VALUES | {"flush_size": "1000"}, behavior_on_null_values="ignore")

    found = source.compared()

    assert 0 == found.exit_code, found.errors
    assert 99 == found.row.records


def test_what_transforms_have_changed_cannot_be_compared(source: Source) -> None:
    """The objects hold other records than the topic: 2, before anything is read."""
    source.sink()

    with pytest.raises(ConfigurationError, match="cannot be compared"):
        source.compared(
            transforms="drop",
            is_strict=False,
            **{"transforms.drop.type": "DropHeaders", "transforms.drop.headers": "trace"},
        )


def test_a_topic_that_was_created_again_is_refused(source: Source) -> None:
    """Its records are not those that were backed up."""
    source.sink()
    source.kafka.delete("orders")
    source.kafka.create("orders", 100, topic_id="another")

    with pytest.raises(RefusedError, match="another id"):
        source.compared()


def test_a_topic_that_is_gone_is_refused(source: Source) -> None:
    """Or this is the wrong cluster."""
    source.sink()
    source.kafka.delete("orders")

    with pytest.raises(RefusedError, match="no such topic"):
        source.compared()


def test_a_source_that_ends_before_its_backup_is_named(source: Source) -> None:
    """An unclean leader election loses what was acknowledged."""
    source.sink(flush_size="10")
    source.kafka.logs[WHERE] = Span(0, 95)

    found = source.compared()

    assert 7 == found.exit_code
    assert "orders-0 ends at offset 95, the backup at 100" in found.errors[0]


def test_an_object_that_is_damaged_is_named(source: Source) -> None:
    """Where its digest does not prove the range, its records have to be read."""
    source.sink(flush_size="10")
    source.kafka.values[WHERE, 55] = b"altered"
    store = open_store(source.place)
    (key,) = (one.key for one in store.list("topics/") if "+0000000050." in one.key)
    store.delete(key)

    with_hole = source.compared()

    assert 7 == with_hole.exit_code


@pytest.mark.parametrize("first", [0, 50, 90])
def test_a_backup_that_lacks_an_object_is_never_the_same(source: Source, first: int) -> None:
    """Wherever it stood: the ledger says what the backup had."""
    source.sink(flush_size="10")
    store = open_store(source.place)
    (key,) = (one.key for one in store.list("topics/") if f"+{first:010}." in one.key)
    store.delete(key)

    found = source.compared()

    assert (7, "not comparable") == (found.exit_code, found.row.state)
    assert "the backup lacks objects that it had" in found.errors[0]


def test_a_backup_that_lost_all_objects_is_not_empty(source: Source) -> None:
    """Nothing to compare is not the same as nothing that was there."""
    source.sink(flush_size="10")
    store = open_store(source.place)
    for one in [*store.list("topics/")]:
        store.delete(one.key)

    assert 7 == source.compared().exit_code


def test_a_broker_that_fails_is_no_verdict(source: Source) -> None:
    """5, and the partition is not called anything."""
    source.sink()
    source.kafka.faults[WHERE] = KbackupError("reading orders-0", "no answer")

    found = source.compared()

    assert 1 == found.exit_code
    assert "not comparable" == found.row.state


def test_a_partition_that_is_not_backed_up_yet_is_behind(source: Source) -> None:
    """It came after the last sink."""
    source.sink()
    source.kafka.create("orders", 12)

    found = source.compared()

    assert 0 == found.exit_code
    assert ["same", "empty, 12 behind"] == [row.state for row in found.rows]


def test_what_the_backup_does_not_begin_with_is_said(source: Source) -> None:
    """A sink that began at the end of the log has nothing of what came before."""
    for _ in range(2):
        source.sink(auto_offset_reset="latest")
        source.kafka.append(WHERE, 10)

    found = source.compared()

    assert (0, "same, 100 before, 10 behind") == (found.exit_code, found.row.state)


def test_a_ledger_without_digests_is_read_through(source: Source) -> None:
    """Objects of an earlier version are compared record by record."""
    source.sink(flush_size="10")
    store = open_store(source.place)
    said = known.read(store, Layout(), source.clock)
    assert said.ledger(WHERE).objects
    for entry in said.ledger(WHERE).objects.values():
        object.__setattr__(entry, "digest", None)
    settings = load(
        "against", topics=["orders"], bootstrap_servers="h:1", s3_bucket_name="b"
    ).settings

    (row,) = against_source(settings, source.environment(), said, Summary("r", "v"), Event())

    assert (100, 0, "same") == (row.records, row.proven, row.state)


def test_where_all_has_expired_nothing_was_compared(source: Source) -> None:
    """What nobody has looked at is not called the same: 3."""
    source.sink(flush_size="10")
    source.kafka.logs[WHERE] = Span(100, 100)

    found = source.compared()

    assert (3, "not comparable", 100) == (found.exit_code, found.row.state, found.row.expired)


def test_a_topic_that_is_not_in_the_backup_is_not_passed_over(source: Source) -> None:
    """Of two that were named, one alone would be compared."""
    source.sink()

    with pytest.raises(KbackupError, match="topic payments is not in the backup"):
        source.compared(topics=["orders", "payments"])


def test_a_partition_that_no_topic_has_is_refused(source: Source) -> None:
    """Comparing nothing is not "no difference"."""
    source.sink()

    with pytest.raises(RefusedError, match="nothing of orders is chosen"):
        source.compared(partitions="7")


def test_a_partition_that_the_source_lacks_is_refused(source: Source) -> None:
    """A topic that was created again with fewer, where no id tells it from the first."""
    source.kafka.create("orders", 10)
    source.sink()
    source.kafka.logs.pop(TopicPartition("orders", 1))

    with pytest.raises(RefusedError, match="orders-1 cannot be compared"):
        source.compared()
