"""Make the golden files of version 1: ``PYTHONPATH=tests python -m tests.golden.make LAYOUT``.

Each layout is a bucket that two runs of a sink have written, and a third that died before its
commit: its objects are there, and neither position nor ledger speaks of them.  Where a cut has
objects in several directories, it died before it had stored the last one.  Beside the bucket,
``said.json`` has the positions that the sink committed; those of a restore of what the first two
runs have stored, and where its target ended; the records of the source; and the offsets of those
that the third run had not stored.

They are never made again: a change that cannot read them breaks the backups of others.  The first
three hold plain records of one partition, which this no longer makes.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kbackup.clock import SystemClock
from kbackup.config import Settings
from kbackup.config.loading import Command
from kbackup.events import to_json
from kbackup.kafka import GroupOffset, Position
from kbackup.records import TopicPartition
from kbackup.restore.run import RestoreRun
from kbackup.runs.context import Environment, Stop
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.in_turn import InTurn
from tests.support.target import FakeTarget, KeepingTarget

FOLDER: Final = Path(__file__).parent / "v1"
TOPIC: Final = "orders"
COPY: Final = "copy_of_orders"

_JSON: Final = {
    "format_class": "json", "value_converter_schemas_enable": False,
    "store_kafka_keys": True, "keys_format_class": "json", "store_kafka_headers": True,
    "headers_format_class": "json",
    "key_converter": "org.apache.kafka.connect.storage.StringConverter",
}  # fmt: skip
_TEMPLATE: Final = "{year}/{month}/{day}/{hour}/{topic}-{partition}-{offset}"

READ: Final[Mapping[str, Mapping[str, Any]]] = {
    "records": {},
    "bytes": {"format_class": "bytes"},
    "values": _JSON,
    "log": {"format_class": "log"},
    "dated": {},
    "fields": _JSON,
    "blocks": {"format_class": "block_gzip"},
    "named": {"format_class": "block_gzip", "object_name_template": _TEMPLATE},
}
"""What a sink and a restore of each layout are given."""

_IGNORED: Final = {"behavior_on_null_values": "ignore"}

WRITTEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "values": _IGNORED, "blocks": _IGNORED, "named": _IGNORED,
    "dated": {
        "partitioner_class": "TimeBasedPartitioner", "partition_duration_ms": 86_400_000,
        "path_format": "'year'=YYYY/'month'=MM/'day'=dd", "locale": "en", "timezone": "UTC",
        "timestamp_extractor": "Record",
    },
    "fields": {
        "partitioner_class": "FieldPartitioner", "partition_field_name": "n",
        "behavior_on_null_values": "write",
    },
}  # fmt: skip
"""What a sink is given beside that."""

_SPREAD: Final = ("dated", "fields")
_LINES: Final = ("bytes", "blocks", "named")

Row = tuple[int | None, str | None, str | None, Sequence[Sequence[str | None]]]
"""Timestamp, key, value and headers of a record as JSON has them: a character is a byte."""


def settings(command: Command, name: str, url: str, **more: Any) -> Settings:
    """Return what a sink or a restore of a layout goes by."""
    given = {"bootstrap_servers": "h:1", "store_url": url, "no_lock": True, **READ[name], **more}
    if command == "sink":
        given |= {"topics": TOPIC, "flush_size": 4, "group": "golden", **WRITTEN.get(name, {})}
    else:
        given |= {"rename": "copy_of_$0"}
    return load(command, **given).settings


def sink(kafka: FakeKafka, name: str, url: str) -> dict[str, Any]:
    """Back up what a cluster has; return the summary."""
    environment = Environment(kafka, StoreSettings(url), InTurn(), SystemClock())  # type: ignore[arg-type]
    asked = settings("sink", name, url)
    return to_json(SinkRun(asked, lambda _: None, Stop(), environment)())


def restore(target: FakeTarget, name: str, url: str, **more: Any) -> dict[str, Any]:
    """Restore what a bucket has; return the summary."""
    environment = Environment(target, StoreSettings(url), InTurn(), SystemClock())  # type: ignore[arg-type]
    asked = settings("restore", name, url, **more)
    return to_json(RestoreRun(asked, lambda _: None, Stop(), environment)())


def source(records: Sequence[Sequence[Row]]) -> FakeKafka:
    """Return a cluster that has these records of each partition."""
    kafka = FakeKafka(consumers={"billing": {TopicPartition(TOPIC, 0): GroupOffset(3, b"\xff")}})
    for where, rows in zip(kafka.create(TOPIC, *map(len, records)), records, strict=True):
        for at, (time, key, value, headers) in enumerate(rows):
            kafka.columns[where, at] = {
                "timestamp": time, "key": _bytes(key), "value": _bytes(value),
                "headers": [{"key": name, "value": _bytes(said)} for name, said in headers],
            }  # fmt: skip
    return kafka


def copied(target: FakeTarget) -> list[list[Row]]:
    """Return the records of each partition of the copy."""
    return [
        [
            (
                row["timestamp"], _text(row["key"]), _text(row["value"]),
                [[one["key"], _text(one["value"])] for one in row["headers"]],
            )
            for row in target.logs[at].rows
            if row
        ]
        for at in sorted(target.logs)
    ]  # fmt: skip


def kept(name: str, rows: Sequence[Row]) -> list[Row]:
    """Return what a restore of a layout gives back of records."""
    if name in _LINES:
        return [(None, None, value, []) for _, _, value, _ in rows if value is not None]
    is_json = READ[name] is _JSON
    return [(None if is_json else time, *others) for time, *others in rows]  # type: ignore[misc]


def _text(part: bytes | None) -> str | None:
    return None if part is None else part.decode("latin-1")


def _bytes(part: str | None) -> bytes | None:
    return None if part is None else part.encode("latin-1")


_TIME: Final = 1_700_000_000_000


def _awkward(name: str, at: int) -> Row:
    """Return a record with what is odd and the layout can hold."""
    number, letter = f'{{"n":0,"at":{at}}}', f'{{"n":"\xc3\xbc","at":{at}}}'
    times = 0, _TIME + at, -1, _TIME + at
    keys: Sequence[str | None] = (None, "", "\xff\0", f"k{at}")
    values = number, "", None, letter
    headers: Sequence[Sequence[Sequence[str | None]]] = (
        [], [["", ""], ["null", None]], [["h", "1"], ["h", "2"]], [["bytes", "\xff\0"]],
    )  # fmt: skip
    if name == "dated":  # no date has -1
        times = 0, _TIME + at, 10**11 + at, _TIME + at
    elif name == "fields":
        keys, values = ("", "k", "\xc3\xbc\n", f"k{at}"), (number, number, None, letter)
        headers = [[["h", "1"], ["h", "two"]], [["empty", ""]], [["", "1"]], [["a", "b"]]]
    elif name in _LINES:
        values = number, "0", None, letter
    return times[at % 4], keys[at // 2 % 4], values[at % 4], headers[at % 4]


_FEW: Final = ((6, 4), (11, 4), (14, 8))
_ENDS: Final = {
    "log": ((20, 10), (30, 10), (40, 20)),  # a batch of the fake has ten offsets
    "dated": _FEW,
    "fields": _FEW,
}
"""Where the logs of two partitions end when each run begins."""


def _plain(positions: Mapping[TopicPartition, Position]) -> list[list[Any]]:
    return [[at.topic, at.partition, one.offset, one.metadata] for at, one in positions.items()]


def make(name: str, folder: Path) -> dict[str, Any]:
    """Make one layout in an empty folder; return what is to be said beside it."""
    url = f"file://{folder}"
    store, target, there = open_store(StoreSettings(url)), KeepingTarget(), KeepingTarget()
    positions: dict[TopicPartition, Position] = {}
    ends = _ENDS.get(name, ((13, 6), (22, 6), (25, 10)))

    def run(lengths: tuple[int, ...]) -> list[list[Row]]:
        records = [
            [_awkward(name, at + number) for at in range(length)]
            for number, length in enumerate(lengths)
        ]
        kafka = source(records)
        kafka.positions_ = positions
        done = sink(kafka, name, url)
        assert done["exit_code"] == 0, done
        return records

    run(ends[0])
    run(ends[1])
    committed = _plain(positions)
    assert restore(target, name, url)["exit_code"] == 0
    ((group, restored),) = target.groups.items()
    before = {one.key for one in store.list("")}
    records = run(ends[2])
    new = [one.key for one in store.list("") if one.key not in before]
    objects = [key for key in new if key.startswith("topics/")]
    for key in [*objects[-1:] * (name in _SPREAD), *(key for key in new if key not in objects)]:
        store.delete(key)
    with TemporaryDirectory() as scratch:
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
        restore(there, name, f"file://{scratch}")
    return {
        "committed": committed, "group": group, "restored": _plain(restored),
        "target_id": target.ids[COPY],
        "target_ends": [target.span(at).end_offset for at in sorted(target.logs)],
        "groups": [["billing", 0, 3, "\xff"]],
        "records": records,
        "left": [
            [at for at, row in enumerate(rows) for one in kept(name, [row]) if one not in found]
            for rows, found in zip(records, copied(there), strict=True)
        ],
    }  # fmt: skip


if __name__ == "__main__":
    for each in sys.argv[1:]:
        with TemporaryDirectory() as made:  # a run record names its place
            said = make(each, Path(made))
            shutil.copytree(made, FOLDER / each / "store")
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in said.items())
        (FOLDER / each / "said.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
