"""Tombstones in the connectors' layout, from Kafka to the bucket and back."""

import io
from typing import Any, Final

import pytest

from kbackup.catalog.listing import Catalog
from kbackup.catalog.listing import list_backup as listed
from kbackup.clock import SystemClock
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, IncompleteBackupError
from kbackup.inspect.peek import peek
from kbackup.kafka import Position
from kbackup.naming.renaming import TopicFilter
from kbackup.records import TopicPartition
from kbackup.restore.checks import not_stored
from kbackup.runs import wiring
from kbackup.runs.backup_state import BackupState
from kbackup.runs.backup_state import read as known_of
from kbackup.verify.run import Notes
from tests.support.bench import leave_to_another_tool
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink, sink_settings
from tests.support.target import Restoring
from tests.support.verified import Verified

WHERE: Final = TopicPartition("kv", 0)
OPTIONS: Final[dict[str, Any]] = {
    "topics": "kv", "flush_size": 4,
    "format_class": "json", "value_converter_schemas_enable": False, "store_kafka_keys": True,
    "keys_format_class": "json", "behavior_on_null_values": "write",
    "key_converter": "org.apache.kafka.connect.storage.StringConverter",
}  # fmt: skip
RESTORED: Final = {
    name: OPTIONS[name]
    for name in ("format_class", "value_converter_schemas_enable", "key_converter")
}


def _with_schema(kind: str, text: str) -> str:
    """Return JSON with the envelope of its schema."""
    return f'{{"schema":{{"type":"{kind}"}},"payload":{text}}}'


class Bench:
    """A topic of one partition whose records are keys and whether they are tombstones."""

    def __init__(self, *records: str) -> None:
        self.kafka, self.again = FakeKafka(), Restoring()
        self.backup = self.again.backup
        self.kafka.create("kv", 0)
        self.append(*records)

    def append(self, *records: str) -> None:
        """Write records: ``k`` is a value of key k, ``k-`` its tombstone."""
        first = self.kafka.logs[WHERE].end_offset
        self.kafka.append(WHERE, len(records))
        for at, text in enumerate(records, first):
            self.kafka.keys[WHERE, at] = text.removesuffix("-").encode()
            if text.endswith("-"):
                self.kafka.values[WHERE, at] = None

    def settings(self, **options: Any) -> Settings:
        """What the sink goes by."""
        return sink_settings(**OPTIONS | options)

    def sink(self, **options: Any) -> dict[str, Any]:
        """Back up what is there; the summary."""
        return run_sink(self.kafka, self.backup.settings, **OPTIONS | options)

    def objects(self) -> dict[str, str]:
        """The lines of each object."""
        found = {}
        for one in self.backup.store.list("topics/kv/"):
            with self.backup.store.open(one.key) as body:
                found[one.key.removeprefix("topics/kv/")] = " ".join(body.read().decode().split())
        return found

    def known(self) -> BackupState:
        """What the backup says of itself."""
        return known_of(self.backup.store, self.backup.layout, SystemClock(), TopicFilter(["kv"]))

    def listed(self) -> Catalog:
        """What is in the bucket."""
        options = wiring.format_options(self.settings())
        return listed(self.backup.store, self.backup.layout, options)

    def verified(self) -> Verified:
        """What a deep verification says."""
        reading = wiring.reading(self.settings())
        return Verified(self.backup, deep=True, reading=reading, notes=Notes(self.known()))

    def restored(self) -> list[tuple[bytes, bytes | None]]:
        """The keys and values of a copy."""
        given = {**RESTORED, "bootstrap_servers": "h:1", "s3_bucket_name": "b", "rename": "c_$0"}
        reading = wiring.reading(load("restore", **given).settings)
        self.again.restore(reading=reading, yes=True)
        (log,) = self.again.cluster.logs.values()
        return [(row["key"], row["value"]) for row in log.rows if row]


def test_keys_of_tombstones_are_in_a_directory_of_their_own() -> None:
    """Tombstones count for flush.size as values do, and close no file of them."""
    bench = Bench("a", "b-", "c", "d-", "e-", "f-", "g-", "h-", "i")

    summary = bench.sink()

    assert (0, 9) == (summary["exit_code"], bench.kafka.positions_[WHERE].offset)
    assert {
        "partition=0/kv+0+0000000000.json": '{"n":0} {"n":2}',
        "partition=0/kv+0+0000000000.keys.json": '"a" "c"',
        "tombstone/kv+0+0000000001.keys.json": '"b" "d"',
        "tombstone/kv+0+0000000004.keys.json": '"e" "f" "g" "h"',
        "partition=0/kv+0+0000000008.json": '{"n":8}',
        "partition=0/kv+0+0000000008.keys.json": '"i"',
    } == bench.objects()


def test_all_commands_know_them() -> None:
    """A deep verification is content, peek shows nulls, and a restore keeps each key's order."""
    bench = Bench("a", "b-", "c", "b", "a-", "a-", "b-", "a")
    bench.sink()

    checked = bench.verified()
    shown = peek(bench.backup.store, bench.backup.layout, wiring.reading(bench.settings()), "kv")
    copied = bench.restored()

    assert (0, [], [8]) == (
        checked.exit_code,
        checked.findings,
        [row["records"] for row in checked.summary["partitions"]],
    )
    assert 4 == sum(record["payload"] is None for record in shown)
    for key, expected in {
        b"a": [b'{"n":0}', None, None, b'{"n":7}'], b"b": [None, b'{"n":3}', None],
        b"c": [b'{"n":2}'],
    }.items():  # fmt: skip
        assert expected == [value for name, value in copied if name == key]


@pytest.mark.parametrize(
    ("schemas", "keys", "stored"),
    [
        (False, {"a": '{"id":1}', "b": "1"}, {0: 1, 1: 2, 3: 2}),
        (True, {"a": _with_schema("string", '"1"'), "b": _with_schema("int32", "1")},
         dict.fromkeys(range(5), 1)),
    ],
    ids=["without schemas", "of two types"],
)  # fmt: skip
def test_keys_may_be_json(*, schemas: bool, keys: dict[str, str], stored: dict[int, int]) -> None:
    """Keys without schemas compare as text; a key of another type closes the files."""
    bench = Bench("a", "b-", "a-", "b", "a")
    for at in range(5):
        text = bench.kafka.keys[WHERE, at] or b""
        bench.kafka.keys[WHERE, at] = keys[text.decode()].encode()

    summary = bench.sink(
        key_converter="org.apache.kafka.connect.json.JsonConverter",
        key_converter_schemas_enable=schemas,
    )

    assert 0 == summary["exit_code"]
    assert stored == {
        int(key.rpartition("+")[2].partition(".")[0]): len(lines.split())
        for key, lines in bench.objects().items()
        if ".keys." in key
    }


@pytest.mark.parametrize("size", [2, 4, 100])
@pytest.mark.parametrize("offset", [0, 2, 5, 8])
def test_a_group_that_is_set_back_stores_none_of_them_twice(offset: int, size: int) -> None:
    """Cuts of tombstones are written again where they were, whatever flush.size is now."""
    bench = Bench("a", "b-", "c-", "d-", "e-", "f-", "g-", "h-", "i", "a-")
    bench.sink()
    before = bench.objects()
    bench.kafka.positions_[WHERE] = Position(offset)
    bench.append("z")

    summary = bench.sink(flush_size=size)

    assert 0 == summary["exit_code"]
    assert before.items() <= bench.objects().items()
    assert 11 == sum(
        len(lines.split()) for key, lines in bench.objects().items() if ".keys." in key
    )


def test_a_set_that_is_not_whole_is_no_set() -> None:
    """Keys alone elsewhere are not taken for tombstones; a lost object of tombstones is missed."""
    bench = Bench("a", "b-", "c", "d-", "e")
    bench.sink()
    bench.backup.store.delete("topics/kv/tombstone/kv+0+0000000001.keys.json")
    bench.backup.store.delete("topics/kv/partition=0/kv+0+0000000000.json")

    assert {
        ("missing_object", "topics/kv/partition=0/kv+0+0000000000.json"),
        ("missing_object", "topics/kv/tombstone/kv+0+0000000001.keys.json"),
    } == set(bench.verified().errors)
    with pytest.raises(IncompleteBackupError):
        bench.restored()


def test_tombstones_of_a_connector_are_restored_with_a_warning() -> None:
    """Only kbackup keeps the order of each key's records."""
    bench = Bench("a", "b-")
    bench.sink()
    sets = bench.listed().sets[WHERE]
    facts = bench.known().facts

    ours = not_stored("kv", sets, lambda files: facts(WHERE, files.main) if files.main else None)
    theirs = not_stored("kv", sets, lambda _: None)

    assert ["no_headers", "no_timestamps"] == [code for code, _ in ours]
    assert ["no_headers", "no_timestamps", "order"] == [code for code, _ in theirs]


@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_group_that_is_set_back_before_those_of_a_connector_is_refused(offset: int) -> None:
    """Its objects do not say which of them closed together, so none is stored again by guess."""
    bench = Bench("a", "b-", "c", "d-", "e", "f-")
    bench.sink()
    leave_to_another_tool(bench.backup.store)
    bench.kafka.positions_[WHERE] = Position(6)
    bench.append("g", "h-")
    bench.sink()
    before = bench.objects()
    bench.kafka.positions_[WHERE] = Position(offset)

    refused = bench.sink(flush_size=3)

    assert (4, before) == (refused["exit_code"], bench.objects())


@pytest.mark.parametrize("offset", [None, 0, 2, 3])
def test_what_a_connector_has_stored_is_not_stored_again(offset: int | None) -> None:
    """Where the group's offset is not where its objects end, the run is refused."""
    bench = Bench("a", "b-", "c", "d-", "e", "f-")
    bench.sink()
    leave_to_another_tool(bench.backup.store)
    before = bench.objects()
    bench.kafka.positions_.clear()
    if offset is not None:
        bench.kafka.positions_[WHERE] = Position(offset)

    refused = bench.sink(flush_size=100)
    bench.kafka.positions_[WHERE] = Position(6)
    bench.append("g")
    goes_on = bench.sink(flush_size=100)

    assert (4, 0) == (refused["exit_code"], goes_on["exit_code"])
    assert "stored twice" in refused["errors"][0]["why"]
    assert before.items() <= bench.objects().items()
    assert {*bench.objects()} - {*before} == {
        "partition=0/kv+0+0000000006.json",
        "partition=0/kv+0+0000000006.keys.json",
    }


def test_a_cut_does_not_end_within_objects_of_a_connector() -> None:
    """A connector's files hold values after their tombstones: these are not stored again."""
    bench = Bench("a", "x", "b-", "b")
    for key, text in {
        "partition=0/kv+0+0000000000.json": '{"n":0}\n{"n":1}\n{"n":3}\n',
        "partition=0/kv+0+0000000000.keys.json": '"a"\n"x"\n"b"\n',
        "tombstone/kv+0+0000000002.keys.json": '"b"\n',
    }.items():
        body = io.BytesIO(text.encode())
        bench.backup.store.put(f"topics/kv/{key}", body, sha256="0" * 64, metadata={})
    before = bench.objects()

    refused = bench.sink(flush_size=4)

    assert (4, before) == (refused["exit_code"], bench.objects())


def test_they_are_refused_without_keys() -> None:
    """Nothing else of a tombstone could be stored."""
    with pytest.raises(ConfigurationError, match="nothing but its key"):
        Bench().settings(store_kafka_keys=False, keys_format_class=None)
