"""The judge of the demo: it lets nothing pass, and says where the difference is."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from kbackup.errors import AuditError
from kbackup.local.sample import compare_topics
from kbackup.records import SCHEMA, Span, TimestampType, TopicPartition
from tests.support.fake_kafka import FakeKafka

Row = dict[str, Any]

ORIGINAL, COPY = TopicPartition("orders", 0), TopicPartition("copy_of_orders", 0)


@dataclass
class Kafka(FakeKafka):
    """A cluster with these records."""

    rows: dict[TopicPartition, list[Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, original: list[Row], copy: list[Row]) -> "Kafka":
        """One partition, and its copy."""
        kafka = cls(rows={ORIGINAL: original, COPY: copy})
        for where, rows in kafka.rows.items():
            kafka.create(where.topic, len(rows))
        return kafka

    def reader(self, _group: str, **_: Any) -> "Kafka":  # type: ignore[override]
        """Itself."""
        return self

    def read(self, where: TopicPartition, _span: Span) -> Iterator[pa.RecordBatch]:
        """The records, a few a batch."""
        rows, size = self.rows[where], 4 if where == ORIGINAL else 3
        for at in range(0, len(rows), size):
            yield pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA)

    def close(self) -> None:
        """Nothing to leave."""


def record(offset: int, **other: Any) -> Row:
    """A record that no other number has."""
    return {
        "offset": offset, "timestamp": 1_700_000_000_000 + offset, "timestamp_type": 1,
        "key": b"k%d" % offset, "value": b"v%d" % offset,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], **other,
    }  # fmt: skip


ROWS = [record(offset) for offset in range(10)]


def compared(original: list[Row], copy: list[Row]) -> list[tuple[TopicPartition, int]]:
    """What comparing them yields."""
    return list(compare_topics(Kafka.of(original, copy), {"orders": "copy_of_orders"}))  # type: ignore[arg-type]


def test_offsets_and_who_set_the_timestamps_are_the_copys_own() -> None:
    """A copy has offsets of its own, and its producer set the timestamps."""
    copy = [
        {**row, "offset": at + 5, "timestamp_type": int(TimestampType.LOG_APPEND)}
        for at, row in enumerate(ROWS)
    ]

    assert [(ORIGINAL, 10)] == compared(ROWS, copy)


@pytest.mark.parametrize(
    ("copy", "why"),
    [("copy_of_orders", "2 and 1 partitions"), ("nowhere", "no topic nowhere")],
)
def test_a_copy_with_other_partitions_is_no_copy(copy: str, why: str) -> None:
    """Nor is one that is not there."""
    kafka = Kafka.of([], [])
    kafka.create("orders", 0)

    with pytest.raises(AuditError, match=why):
        list(compare_topics(kafka, {"orders": copy}))  # type: ignore[arg-type]


def test_nothing_equals_nothing() -> None:
    """Two empty partitions are equal."""
    assert [(ORIGINAL, 0)] == compared([], [])


@pytest.mark.parametrize("row", [0, 3, 4, 9])
@pytest.mark.parametrize(
    ("column", "value"),
    [("key", None), ("key", b""), ("value", b""), ("timestamp", 1), ("headers", [])],
)
def test_a_damaged_record_is_found(row: int, column: str, value: Any) -> None:
    """Whatever of a record differs, in whichever record, is named with its place."""
    copy = [{**one, column: value} if at == row else one for at, one in enumerate(ROWS)]

    with pytest.raises(AuditError) as caught:
        compared(ROWS, copy)

    assert {"topic": "orders", "partition": 0, "offset": row} == caught.value.place
    assert "copy_of_orders-0 is not equal to orders-0" == caught.value.what
    text = f"at offset {row} of the original, {row} of the copy, they differ in {column}"
    assert text == caught.value.why


@pytest.mark.parametrize(
    ("original", "copy", "why"),
    [
        (ROWS, ROWS[:9], "the original has a record at offset 9, and the copy has none"),
        (ROWS, ROWS[:4] + ROWS[5:], "the original has a record at offset 4, and the copy has none"),
        (ROWS[:9], ROWS, "the copy has a record at offset 9, and the original has none"),
    ],
)
def test_a_record_that_one_side_lacks_is_found(
    original: list[Row], copy: list[Row], why: str
) -> None:
    """Missing at the end or in the middle, or too many."""
    with pytest.raises(AuditError) as caught:
        compared(original, copy)

    assert why == caught.value.why
