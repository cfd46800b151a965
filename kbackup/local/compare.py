"""Compares a copy with its original: every record of each partition, in order, as columns.

It compares key, value, headers (their order, repeated names, null against empty) and timestamp.
It does not compare offsets or who set the timestamp: a copy has its own offsets, and timestamps
that its producer set.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kbackup.errors import AuditError
from kbackup.kafka import Connection, Topic
from kbackup.records import TopicPartition, pairs

COLUMNS: Final = ("key", "value", "headers", "timestamp")
"""The compared columns, in the order of comparison."""

_GROUP: Final = "kbackup-compare"

_SHOWN_BYTES: Final = 24
"""Bytes of a key or value that are shown, starting shortly before the first difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which a copy differs.

    Attributes:
        row: Number of the record in its partition, from 0; the first one that differs.
        offset: Its offset in the original; None if the original has no more records.
        copy_offset: Its offset in the copy; None if the copy has no more records.
        column: One of `COLUMNS`; None if one side has no such record.
        original: A description of what the original has there.
        copy: A description of what the copy has there.
    """

    row: int
    offset: int | None
    copy_offset: int | None
    column: str | None
    original: str
    copy: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing one partition.

    Attributes:
        records: Number of equal records, from the first one on.
        difference: The difference after them; None if there is none.
    """

    records: int
    difference: Difference | None = None


def compare(original: Iterable[pa.RecordBatch], copy: Iterable[pa.RecordBatch]) -> Compared:
    """Compare two partitions, however their records are divided into batches.

    Args:
        original: Batches of ``records.SCHEMA``; read no further than to the first difference.
        copy: The same of the copy.

    Memory: one batch of each.
    """
    records = 0
    for left, right in pairs(original, copy):
        if left is None or right is None:
            return Compared(records, _missing(left, right, records))
        found = _difference(left, right)
        if found is not None:
            row, column = found
            return Compared(records + row, _described(left, right, row, records + row, column))
        records += len(left)
    return Compared(records)


def compare_topics(
    kafka: Connection, names: Mapping[str, str]
) -> Iterator[tuple[TopicPartition, int]]:
    """Compare topics with their copies in one cluster, partition by partition.

    Args:
        kafka: The cluster.
        names: The name of each original's copy.

    Yields:
        Each partition of the originals, and how many records it and its copy have.

    Raises:
        AuditError: At the first difference, with its place and contents.
        KafkaError: If an original does not exist, or something cannot be read.
    """
    cluster = kafka.cluster()
    topics = cluster.topics({*names, *names.values()})
    reader, copy_reader = kafka.reader(_GROUP), kafka.reader(_GROUP)
    try:
        for name, copy_name in names.items():
            partitions = _partitions(name, topics.get(name), copy_name, topics.get(copy_name))
            for partition in range(partitions):
                where, copy = TopicPartition(name, partition), TopicPartition(copy_name, partition)
                spans = cluster.settled_spans([where, copy])
                with (
                    closing(reader.read(where, spans[where])) as records,
                    closing(copy_reader.read(copy, spans[copy])) as copies,
                ):
                    compared = compare(records, copies)
                if compared.difference is not None:
                    raise _error(where, copy, compared.difference)
                yield where, compared.records
    finally:
        reader.close()
        copy_reader.close()


def _partitions(name: str, topic: Topic | None, copy_name: str, copy: Topic | None) -> int:
    if topic is None or copy is None:
        raise AuditError(f"{name} and {copy_name}", f"no topic {copy_name if topic else name}")
    if topic.partitions != copy.partitions:
        raise AuditError(
            f"{name} and {copy_name}", f"{topic.partitions} and {copy.partitions} partitions"
        )
    return topic.partitions


def _error(where: TopicPartition, copy: TopicPartition, found: Difference) -> AuditError:
    record = f"record {found.row + 1}"
    place = f"{record} on" if found.column is None else f"the {found.column} of {record}"
    return AuditError(
        f"{copy} is not equal to {where} {'from' if found.column is None else 'in'} {place}",
        f"the original has {found.original}{_at(found.offset)}, "
        f"the copy has {found.copy}{_at(found.copy_offset)}",
        topic=where.topic,
        partition=where.partition,
        offset=found.offset,
    )


def _at(offset: int | None) -> str:
    return "" if offset is None else f" at offset {offset}"


def _difference(left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[int, str] | None:
    """Return row and column of the first difference of two batches of equal length, if any."""
    found = [
        (_first_row(left[column], right[column]), column)
        for column in COLUMNS
        if not left[column].equals(right[column])
    ]
    return min(found, key=lambda place: place[0], default=None)


def _first_row(left: pa.Array, right: pa.Array) -> int:
    """Return the first row in which two columns differ; they must differ."""

    def differ(rows: int) -> bool:
        return not left.slice(0, rows).equals(right.slice(0, rows))

    return bisect_left(range(1, len(left) + 1), True, key=differ)


def _missing(left: pa.RecordBatch | None, right: pa.RecordBatch | None, row: int) -> Difference:
    if left is not None:
        return Difference(row, _offset(left), None, None, "a record", "no more")
    return Difference(row, None, _offset(right), None, "no more records", "one")


def _described(
    left: pa.RecordBatch, right: pa.RecordBatch, row: int, number: int, column: str
) -> Difference:
    mine, other = left[column][row].as_py(), right[column][row].as_py()
    original, copy = _words(mine, other), _words(other, mine)
    return Difference(number, _offset(left, row), _offset(right, row), column, original, copy)


def _offset(batch: pa.RecordBatch, row: int = 0) -> int:
    return int(batch["offset"][row].as_py())


def _words(value: Any, other: Any) -> str:
    """Describe a value, showing the part in which *other* differs."""
    match value:
        case None:
            return "null"
        case b"":
            return "empty bytes"
        case bytes():
            return _excerpt(value, other or b"")
        case []:
            return "no headers"
        case list():
            return _header(value, other)
    return str(value)


def _excerpt(value: bytes, other: bytes) -> str:
    start = max(0, _first_index(value, other) - _SHOWN_BYTES // 3)
    shown = value[start : start + _SHOWN_BYTES]
    where = f" from byte {start}" if start else ""
    return f"{shown!r}{where} ({len(value)} bytes)"


def _header(headers: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    at = _first_index(headers, others)
    if at == len(headers):
        return f"{at} headers only"
    other = others[at]["value"] if at < len(others) else None
    name, value = headers[at]["key"], _words(headers[at]["value"], other)
    return f"header {at + 1} of {len(headers)}, {name!r}: {value}"


def _first_index(one: Any, other: Any) -> int:
    """Return the first index at which two sequences differ, or the end of the shorter one."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
