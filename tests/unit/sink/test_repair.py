"""Objects that are written again: ``sink repair``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog.ledger.rows import OBJECTS, REMOVED, of_object, table
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock
from kbackup.errors import ConfigurationError
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.runs.backup_state import read
from kbackup.runs.report import Summary
from kbackup.sink.maintenance import RepairRun
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store
from kbackup.verify.run import LedgerRepair
from tests.support.bench import leave_to_another_tool
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink, sink_settings

ORDERS = TopicPartition("orders", 0)
JSON = {"format_class": "json", "value_converter": "json"}


class KafkaWithGroups(FakeKafka):
    """A cluster whose other groups have positions of their own."""

    def positions(self, group: str) -> Any:
        """The group's positions."""
        return FakeKafka().positions(group) if "-repair-" in group else super().positions(group)


@dataclass
class Bucket:
    """A sink of three objects of ten records, and its repairs."""

    options: dict[str, str] = field(default_factory=dict)  # what else its configuration says
    kafka: FakeKafka = field(default_factory=KafkaWithGroups)  # the cluster
    # the store's
    settings: StoreSettings = field(default_factory=lambda: StoreSettings(f"memory://{uuid4()}"))
    paths: tuple[Path, ...] = ()  # the configuration's files

    def __post_init__(self) -> None:
        self.store = open_store(self.settings)
        self.kafka.create("orders", 25, 25)
        assert 0 == self.run(SinkRun)["exit_code"]

    def run(self, kind: type[SinkRun] | type[RepairRun], **given: Any) -> dict[str, Any]:
        """Run to the end; return the summary."""
        options: dict[str, Any] = {"topics": "orders", "flush_size": 10} | self.options | given
        return run_sink(self.kafka, self.settings, *self.paths, kind=kind, **options)

    def repair(self, *places: str, **given: Any) -> dict[str, Any]:
        """Write objects again."""
        return self.run(RepairRun, repair=places, **given)

    def lose(self, part: str) -> str:
        """Delete an object that has this in its name; its key."""
        key = next(key for key in self.objects() if part in key)
        self.store.delete(key)
        return key

    def digests(self) -> dict[str, str]:
        """What objects say of their records."""
        heads = {entry.key: self.store.head(entry.key) for entry in self.store.list("topics/")}
        return {key: head.metadata["digest"] for key, head in heads.items() if head is not None}

    def objects(self) -> dict[str, bytes]:
        """What there is."""
        found = {}
        for entry in self.store.list("topics/"):
            with self.store.open(entry.key) as body:
                found[entry.key] = body.read()
        return found


@pytest.mark.parametrize("size", [10, 4], ids=["", "with a smaller flush.size"])
@pytest.mark.parametrize("options", [{}, JSON], ids=["full records", "values"])
def test_missing_objects_come_back_as_they_were(options: dict[str, str], size: int) -> None:
    """With the same names and bytes, several of one partition too; the sink's group stays."""
    bucket = Bucket(options)
    before, group = bucket.objects(), dict(bucket.kafka.positions_)
    digests = bucket.digests()
    for key in before:
        if "partition=0" in key or "+0000000020" in key:
            bucket.store.delete(key)

    places = "orders:0:0,orders:0:10", "orders:0:20,orders:1:20,orders:0:10"
    summary = bucket.repair(*places, flush_size=size)

    assert (0, []) == (summary["exit_code"], summary["errors"])
    assert before == bucket.objects()
    assert digests == bucket.digests()
    assert group == bucket.kafka.positions_
    assert 4 == len(summary["partitions"])


def test_a_damaged_object_is_written_again_once_it_is_moved_away(tmp_path: Path) -> None:
    """What is there is not replaced, and a repair that has changed nothing says so."""
    bucket = Bucket(settings=StoreSettings(f"file://{tmp_path}"))
    before = bucket.objects()
    key = next(key for key in before if "orders+0+0000000010" in key)
    (tmp_path / key).write_bytes(b"x" * len(before[key]))

    refused = bucket.repair("orders:0:10")
    bucket.store.delete(key)
    summary = bucket.repair("orders:0:10")

    assert (7, 0) == (refused["exit_code"], summary["exit_code"])
    assert "sha256" in refused["errors"][0]["why"]
    assert before == bucket.objects()


@pytest.mark.parametrize(
    ("lost", "is_rebuilt", "code"),
    [
        pytest.param("orders+0+0000000010", False, "topic_changed", id="the objects around say it"),
        pytest.param("/orders/", False, "refused", id="nothing says it"),
        pytest.param("/orders/", True, "refused", id="a ledger built anew does not say it"),
    ],
)
def test_another_topic_of_that_name_repairs_nothing(lost: str, is_rebuilt: bool, code: str) -> None:
    """Where the ledger no longer says which topic it was, its objects do, or nothing is stored."""
    bucket = Bucket()
    for entry in list(bucket.store.list("_kbackup/")):
        if "/topics/" in entry.key or "/runs/" in entry.key:
            bucket.store.delete(entry.key)
    gone = [key for key in bucket.objects() if lost in key]
    for key in gone:
        bucket.store.delete(key)
    if is_rebuilt:
        summary = Summary("r", "restore verify")
        [*_] = LedgerRepair(bucket.store, Layout(), ReadOptions(), summary, SystemClock()).rebuild()
    bucket.kafka.ids["orders"] = "another"

    ended = bucket.repair("orders:0:10")

    assert (4, [code]) == (ended["exit_code"], [error["code"] for error in ended["errors"]])
    assert gone
    assert not {*gone} & {*bucket.objects()}


def test_records_under_other_names_are_no_repair() -> None:
    """A sink whose settings have changed cuts elsewhere: the object asked for is missed."""
    bucket = Bucket()
    key = bucket.lose("orders+0+0000000010")

    summary = bucket.repair("orders:0:10", **JSON)

    assert 7 == summary["exit_code"]
    assert key in {one["what"] for one in summary["errors"]}


@pytest.mark.parametrize("left", [range(13, 20), range(0)], ids=["some", "none"])
def test_a_repair_after_compaction_says_what_compaction_did(left: range) -> None:
    """An object is named after its first record: compaction took it, no setting is to blame."""
    bucket = Bucket()
    key = bucket.lose("orders+0+0000000010")
    bucket.kafka.compacted = {(ORDERS, at) for at in range(10, 20) if at not in left}

    summary = bucket.repair("orders:0:10")

    (error,) = summary["errors"]
    assert (7, key) == (summary["exit_code"], error["what"])
    assert "removed by compaction" in error["why"]
    assert "kbackup sink accept" in error["do"]
    assert bool(left) == any("orders+0+0000000013" in key for key in bucket.objects())


def test_what_was_removed_on_purpose_is_not_written_again() -> None:
    """Neither before it is deleted nor after: the mark would have to be taken back first."""
    bucket = Bucket()
    key = next(key for key in bucket.objects() if "orders+0+0000000010" in key)
    row = read(bucket.store, Layout(), SystemClock()).ledger(ORDERS).objects[key]
    ledger = topic_stream(bucket.store, Layout(), "orders", SystemClock())
    ledger.append(table([of_object(REMOVED, row, "e1", 1)], OBJECTS))

    summaries = [bucket.repair("orders:0:10")]
    bucket.store.delete(key)
    summaries.append(bucket.repair("orders:0:10"))

    assert [4, 4] == [one["exit_code"] for one in summaries]
    assert all("expire --undo" in one["errors"][0]["do"] for one in summaries)
    assert key not in bucket.objects()


def test_another_topic_of_the_name_is_refused() -> None:
    """A topic that was created again holds other records."""
    bucket = Bucket()
    bucket.kafka.ids["orders"] = "id-of-another"

    summary = bucket.repair("orders:0:10")

    assert 4 == summary["exit_code"]


def test_a_dry_run_writes_nothing() -> None:
    """A dry run of a repair shows which offsets it would read, and writes nothing."""
    bucket = Bucket()
    stored = sum(map(len, bucket.objects().values()))
    for key in bucket.objects():
        bucket.store.delete(key)

    summary = bucket.repair("orders:0:10", dry_run=True)

    assert (0, {}) == (summary["exit_code"], bucket.objects())
    assert round(stored / 50 * 10) == summary["estimate"]["bytes"]
    assert [(10, 20)] == [(row["start"], row["end"]) for row in summary["partitions"]]


@pytest.mark.parametrize("text", ["orders", "orders:0", "orders:x:1", "a/b:0:1", "", " ,"])
def test_a_place_has_three_parts(text: str) -> None:
    """As restore verify prints it; of none at all, no sink is run instead."""
    with pytest.raises(ConfigurationError, match="TOPIC:PARTITION:OFFSET"):
        sink_settings(repair=text, topics="t")


def test_the_ledger_knows_a_repaired_object() -> None:
    """A repaired object is entered into the ledger, so that the next repair finds it."""
    bucket = Bucket()
    lost = bucket.lose("orders+0+0000000010")
    rows = [each.key for each in bucket.store.list("_kbackup/ledger/") if "/objects/" in each.key]

    bucket.repair("orders:0:10")

    for key in rows:  # what is left is the repair's own
        bucket.store.delete(key)
    ledger = read(bucket.store, Layout(), SystemClock(), TopicFilter(["orders"])).ledger(ORDERS)
    assert [lost] == list(ledger.objects)
    assert [] == ledger.missing(set(bucket.objects()))


def as_another_tool(bucket: Bucket) -> None:
    """Let what is stored be a connector's: names and bytes alone, which a sink then takes over."""
    leave_to_another_tool(bucket.store)
    bucket.kafka.positions_ = {where: Position(25) for where in bucket.kafka.positions_}
    assert 0 == bucket.run(SinkRun)["exit_code"]


def test_an_object_of_another_tool_comes_back_whole() -> None:
    """Another tool's object is repaired whole, from its own offset to the next one's."""
    bucket = Bucket(JSON)
    as_another_tool(bucket)
    before = bucket.objects()
    bucket.lose("orders+0+0000000010")

    summary = bucket.repair("orders:0:10")

    assert (0, []) == (summary["exit_code"], summary["errors"])
    assert before == bucket.objects()


def test_the_newest_object_of_another_tool_is_not_written_again_in_part() -> None:
    """Nothing says where it ended: exit 7, and nothing is stored under its name."""
    bucket = Bucket(JSON)
    as_another_tool(bucket)
    key = bucket.lose("orders+0+0000000020")

    summary = bucket.repair("orders:0:20")

    assert 7 == summary["exit_code"]
    assert "where it ended" in summary["errors"][0]["why"]
    assert key not in bucket.objects()


def test_a_cut_in_several_directories_is_written_again_as_it_was() -> None:
    """With a smaller flush.size too: no value gets into a second object."""
    values: dict[Any, bytes | None] = {
        (ORDERS, offset): b'{"n":%d}' % (offset % 2) for offset in range(25)
    }
    by_field = {"partitioner_class": "field", "partition_field_name": "n"}
    options = JSON | by_field | {"value_converter_schemas_enable": "false"}
    bucket = Bucket(options, KafkaWithGroups(values=values))
    before = bucket.objects()
    bucket.lose("orders+0+0000000011")

    summary = bucket.repair("orders:0:10", flush_size=3)

    assert (0, []) == (summary["exit_code"], summary["errors"])
    assert before == bucket.objects()


def test_a_pointer_keeps_naming_the_newest_object() -> None:
    """In the block-gzip layout: another tool that continues there would store records twice."""
    dated = {"format_class": "block_gzip", "partitioner_class": "upload_date"}
    bucket = Bucket(dated | {"value_converter": "bytes", "topics_dir": "backup"})
    pointer = "backup/last_chunk_index.orders-00000.txt"
    with bucket.store.open(pointer) as body:
        before = body.read()
    places = [one.key for one in bucket.store.list("backup/") if "orders-00000" in one.key]
    key = next(key for key in places if key.endswith("0010.gz"))
    bucket.store.delete(key)

    summary = bucket.repair("orders:0:10")

    assert (0, []) == (summary["exit_code"], summary["errors"])
    assert bucket.store.head(key) is not None
    with bucket.store.open(pointer) as body:
        assert before == body.read()


def test_a_topic_that_the_sink_does_not_back_up_is_refused() -> None:
    """The lock of the sink that backs it up is another, so a repair would run beside it."""
    with pytest.raises(ConfigurationError, match="does not back up: others"):
        Bucket().repair("orders:0:0", "others:0:0")


def test_dead_letters_are_not_written_again() -> None:
    """The sink has written them, and a repair writes objects alone."""
    letters = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    bucket = Bucket({**JSON, **letters})
    bucket.kafka.append(ORDERS, 10)
    bucket.kafka.values[ORDERS, 27] = b"no JSON"
    bucket.run(SinkRun)
    before = bucket.objects()
    bucket.store.delete("topics/orders/partition=0/orders+0+0000000025.json")

    bucket.repair("orders:0:25")

    assert 1 == len(bucket.kafka.letters)
    assert before == bucket.objects()


ROUTED = """
transforms=r
transforms.r.type=org.apache.kafka.connect.transforms.RegexRouter
transforms.r.regex=orders
transforms.r.replacement=stored
"""


@pytest.mark.parametrize("named", ["orders", "stored"])
@pytest.mark.parametrize("asked", [{}, {"topics": None, "topics_regex": "ord.*"}])
def test_a_renamed_topic_is_repaired_by_either_name(
    named: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    """As verify prints it, which is the name in the bucket, or as Kafka has it."""
    path = tmp_path / "sink.properties"
    path.write_text(ROUTED)
    bucket = Bucket(paths=(path,))
    before = bucket.objects()
    bucket.lose("stored+0+0000000010")

    summary = bucket.repair(f"{named}:0:10", **asked)

    assert (0, []) == (summary["exit_code"], summary["errors"])
    assert before == bucket.objects()


def test_a_topic_that_kafka_has_lost_keeps_no_other_from_its_repair() -> None:
    """A sink that chooses topics by an expression backed it up, whatever the cluster has now."""
    bucket = Bucket()
    before = bucket.objects()
    bucket.lose("orders+0+0000000010")

    summary = bucket.repair("ordinary:0:0,orders:0:10", topics=None, topics_regex="ord.*")

    (error,) = summary["errors"]
    assert (7, "ordinary") == (summary["exit_code"], error["topic"])
    assert before == bucket.objects()


def test_a_name_that_stands_for_two_topics_is_refused(tmp_path: Path) -> None:
    """That of one in Kafka and of another in the bucket."""
    path = tmp_path / "sink.properties"
    path.write_text(ROUTED)
    bucket = Bucket(paths=(path,))

    with pytest.raises(ConfigurationError, match="names two topics: orders and stored"):
        bucket.repair("stored:0:10", topics="orders,stored")
