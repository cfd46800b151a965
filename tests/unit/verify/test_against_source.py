"""A backup beside the topics that it is of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from kbackup.errors import ConfigurationError, KafkaError, KbackupError, RefusedError
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.runs import backup_state
from kbackup.runs.compare import PartitionCompared
from kbackup.runs.context import Environment, Stop
from kbackup.runs.report import Summary
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store
from kbackup.stores.memory import MemoryStore
from kbackup.verify import against_source
from kbackup.verify.against_source import verify_against_source
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.in_threads import InThreads

WHERE = TopicPartition("orders", 0)
VALUES: dict[str, Any] = {"format_class": "json", "value_converter": "json", "flush_size": "10"}
"""Objects as the connectors write them, ten records each."""
TENS: dict[str, Any] = {"flush_size": "10"}
BATCHES: dict[str, Any] = {"format_class": "log", "flush_size": "20"}


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

    def says(self, *names: str) -> tuple[Any, ...]:
        """The exit code, and what the row of the first partition says."""
        return self.exit_code, *(getattr(self.row, name) for name in names)


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

    def lose(self, *starts: int) -> None:
        """Delete the objects that begin at these offsets."""
        store = open_store(self.place)
        names = [f"+{start:010}." for start in starts]
        gone = [one.key for one in store.list("topics/") if any(each in one.key for each in names)]
        assert len(gone) == len(starts)
        for key in gone:
            store.delete(key)

    def compared(self, *, is_strict: bool = False, **options: Any) -> Beside:
        """Compare it."""
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", **options}
        settings = load("against", **{"topics": ["orders"]} | given).settings
        said = backup_state.read(open_store(self.place), Layout(), self.clock, settings.asked)
        summary = Summary("r", "restore verify")
        rows = [
            *verify_against_source(
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
    source.sink(**TENS)
    opened.clear()
    found = source.compared()

    assert (0, 100, 10, "same") == found.says("records", "proven", "state")
    assert not [key for key in opened if key.startswith("topics/")]


def test_batches_are_proved_as_they_are(source: Source, opened: list[str]) -> None:
    """Objects of batches have a digest of these, and the source's records are not unpacked."""
    source.sink(**TENS)
    source.kafka.append(WHERE, 100)
    source.sink(**BATCHES)
    source.kafka.append(WHERE, 5)
    opened.clear()
    found = source.compared()

    assert (0, 200, 15, "same, 5 behind") == found.says("records", "proven", "state")
    assert not [key for key in opened if key.startswith("topics/")]


@pytest.mark.parametrize("at", [0, 55, 99])
@pytest.mark.parametrize(("options", "proven"), [(TENS, 9), (BATCHES, 4)], ids=["rows", "batches"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_record_that_was_altered_is_named(
    source: Source, part: str, options: dict[str, Any], proven: int, at: int
) -> None:
    """By offset and column; the other objects are proved; of this one, each record is compared."""
    source.sink(**options)
    (source.kafka.keys if part == "key" else source.kafka.values)[WHERE, at] = b""

    found = source.compared()

    assert (7, 99, proven) == found.says("records", "proven")
    assert f"the first is offset {at} of the backup, {at} in Kafka: {part}" in found.errors[0]


@pytest.mark.parametrize(
    ("holes", "options", "proven"),
    [
        pytest.param({40, 41, 66}, TENS, 9, id="between objects, and in one"),
        pytest.param({*range(40, 60)}, BATCHES, 4, id="whole batches, between objects"),
    ],
)
def test_records_that_the_backup_lacks_are_named(
    source: Source, holes: set[int], options: dict[str, Any], proven: int
) -> None:
    """What was a hole is one no longer; the objects on both sides of it are proved."""
    source.kafka.compacted |= {(WHERE, at) for at in holes}
    source.sink(**options)
    source.kafka.compacted.clear()

    found = source.compared()

    expected = 7, 100 - len(holes), proven, len(holes)
    assert expected == found.says("records", "proven", "kafka_only")
    named = {one.kafka_offset for one in found.row.differences}
    assert (min(10, len(holes)), named) == (len(named), named & holes)


@pytest.mark.parametrize(
    ("start", "options", "proven", "code"),
    [
        pytest.param(10, TENS, 9, 0, id="a whole object"),
        pytest.param(15, TENS, 8, 0, id="half of one: it is compared by its records"),
        pytest.param(25, BATCHES, 3, 0, id="some batches of one"),
        pytest.param(99, TENS, 0, 0, id="all but a record"),
        pytest.param(100, TENS, 0, 3, id="all: what nobody has looked at is not called the same"),
    ],
)
def test_what_retention_has_taken_is_counted(
    source: Source, start: int, options: dict[str, Any], proven: int, code: int
) -> None:
    """The rest is compared."""
    source.sink(**options)
    source.kafka.logs[WHERE] = Span(start, 100)

    found = source.compared()

    assert (code, 100 - start, start, proven) == found.says("records", "expired", "proven")
    assert (code == 3) == (found.row.state == "not comparable")


def test_what_came_since_is_behind(source: Source) -> None:
    """A live topic is no alarm."""
    source.sink()
    source.kafka.append(WHERE, 7)

    assert (0, 100, "same, 7 behind") == source.compared().says("records", "state")


def test_units_are_cut_at_objects(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks compare a partition; each object is in one of them."""
    monkeypatch.setattr(against_source, "OFFSETS_MOST", 25)
    source.sink(**TENS)
    source.kafka.values[WHERE, 77] = b"altered"

    found = source.compared()

    assert (7, 99, 1, 9) == found.says("records", "different", "proven")
    assert [(77, 77, "value")] == [
        (one.offset, one.kafka_offset, one.what) for one in found.row.differences
    ]


@pytest.mark.parametrize("at", [0, 55, 99])
def test_a_record_that_is_gone_is_named(source: Source, at: int) -> None:
    """Unless the topic is, or was, compacted."""
    source.sink(**TENS)
    source.kafka.compacted.add((WHERE, at))

    found = source.compared()

    assert (7, 99, 1) == (found.exit_code, found.row.records, found.row.backup_only)
    source.kafka.configs["orders"] = {"cleanup.policy": "compact"}
    found = source.compared()
    assert (0, "same, 1 compacted") == (found.exit_code, found.row.state)


@pytest.fixture
def compacted(source: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A compacted topic of ten keys, of which each record but the last of a key is gone."""
    monkeypatch.setattr(against_source, "OFFSETS_MOST", 25)
    source.kafka.configs["orders"] = {"cleanup.policy": "compact"}
    source.kafka.keys |= {(WHERE, at): b"k%d" % (at % 10) for at in range(100)}
    source.sink(**TENS)
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
    source.sink(**TENS)
    source.kafka.compacted |= {(WHERE, at) for at in (10, 20, 30)}

    found = source.compared(is_strict=True)

    assert (code, 97) == (found.exit_code, found.row.records)
    assert [30] * (code == 7) == [one.offset for one in found.row.differences]


def test_retention_that_goes_on_meanwhile_is_no_alarm(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's start moves between the plan and the reading, and within it."""
    source.sink(**TENS)
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


def test_a_source_that_ends_before_its_backup_is_named(source: Source) -> None:
    """An unclean leader election loses what was acknowledged."""
    source.sink(**TENS)
    source.kafka.logs[WHERE] = Span(0, 95)

    found = source.compared()

    assert 7 == found.exit_code
    assert "orders-0 ends at offset 95, the backup at 100" in found.errors[0]


def test_an_object_that_is_damaged_is_named(source: Source) -> None:
    """Where its digest does not prove the range, its records have to be read."""
    source.sink(**TENS)
    source.kafka.values[WHERE, 55] = b"altered"
    source.lose(50)

    assert 7 == source.compared().exit_code


@pytest.mark.parametrize("starts", [[0], [50], [90], range(0, 100, 10)], ids=str)
def test_a_backup_that_lacks_an_object_is_never_the_same(
    source: Source, starts: Sequence[int]
) -> None:
    """Wherever it stood, or all of them: the ledger says what the backup had."""
    source.sink(**TENS)
    source.lose(*starts)

    found = source.compared()

    assert (7, "not comparable") == found.says("state")
    assert "the backup lacks objects that it had" in found.errors[0]


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
    source.sink(**TENS)
    store = open_store(source.place)
    said = backup_state.read(store, Layout(), source.clock)
    assert said.ledger(WHERE).objects
    for entry in said.ledger(WHERE).objects.values():
        object.__setattr__(entry, "digest", None)
    settings = load(
        "against", topics=["orders"], bootstrap_servers="h:1", s3_bucket_name="b"
    ).settings

    (row,) = verify_against_source(settings, source.environment(), said, Summary("r", "v"), Event())

    assert (100, 0, "same") == (row.records, row.proven, row.state)


def created_again(kafka: FakeKafka) -> None:
    kafka.delete("orders")
    kafka.create("orders", 100, 10, topic_id="another")


def without_its_second_partition(kafka: FakeKafka) -> None:
    kafka.logs.pop(TopicPartition("orders", 1))


def without_its_settings(kafka: FakeKafka) -> None:
    kafka.forbidden = frozenset({"DESCRIBE_CONFIGS"})


@pytest.mark.parametrize(
    ("change", "asked", "error", "text"),
    [
        pytest.param(
            None,
            {"transforms": "drop", "transforms.drop.type": "DropHeaders",
             "transforms.drop.headers": "trace"},
            ConfigurationError, "cannot be compared", id="transforms: the objects hold others",
        ),
        pytest.param(
            created_again, {}, RefusedError, "another id", id="a topic that was created again"
        ),
        pytest.param(
            lambda kafka: kafka.delete("orders"), {}, RefusedError, "no such topic",
            id="a topic that is gone, or another cluster",
        ),
        pytest.param(
            None, {"topics": ["orders", "payments"]}, KbackupError,
            "topic payments is not in the backup", id="a topic that the backup lacks",
        ),
        pytest.param(
            None, {"partitions": "7"}, RefusedError, "no partition of orders is chosen",
            id="a partition that no topic has",
        ),
        pytest.param(
            without_its_second_partition, {}, RefusedError, "orders-1 cannot be compared",
            id="a partition that the source lacks, where no id tells the topics apart",
        ),
        pytest.param(
            without_its_settings, {}, KafkaError, "settings of orders cannot be read",
            id="settings that may not be read: it may be compacted by now",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(
    source: Source,
    change: Callable[[FakeKafka], None] | None,
    asked: dict[str, Any],
    error: type[KbackupError],
    text: str,
) -> None:
    """Before anything is read: comparing nothing, or something else, is not "no difference"."""
    source.kafka.create("orders", 10)
    source.sink()
    if change is not None:
        change(source.kafka)

    with pytest.raises(error, match=text):
        source.compared(**asked)
