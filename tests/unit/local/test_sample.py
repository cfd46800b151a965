"""The sample: the same records each time, and every kind of them, however few."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.local.sample import BATCH_RECORDS, MIN_BATCHES, TOPICS, SampleTopic
from kbackup.records import SCHEMA

SMALLEST = 1000
PLACES = [
    pytest.param(topic, partition, id=f"{topic.name}-{partition}")
    for topic in TOPICS
    for partition in range(topic.partitions)
]
BY_NAME = {topic.name: topic for topic in TOPICS}


def table(topic: str, partition: int = 0) -> pa.Table:
    return pa.Table.from_batches(BY_NAME[topic].batches(partition, SMALLEST), SCHEMA)


@pytest.mark.parametrize(("topic", "partition"), PLACES)
def test_batches_are_records_in_offset_order(topic: SampleTopic, partition: int) -> None:
    """A partition's batches have the schema of all stages, are small, and leave no offset out."""
    batches = list(topic.batches(partition, SMALLEST))

    assert {SCHEMA} == {batch.schema for batch in batches}
    assert MIN_BATCHES <= len(batches)
    assert BATCH_RECORDS >= max(map(len, batches))
    offsets = pa.Table.from_batches(batches)["offset"].to_pylist()
    assert list(range(topic.records(partition, SMALLEST))) == offsets


def test_the_same_seed_makes_the_same_records() -> None:
    """Two demos write the same records, another seed and another partition different ones."""
    first, again, other_seed, other_partition = (
        pa.Table.from_batches(BY_NAME["orders"].batches(partition, SMALLEST, seed))
        for partition, seed in ((0, 7), (0, 7), (0, 8), (1, 7))
    )

    assert first.equals(again)
    assert not first.equals(other_seed)
    assert not first.equals(other_partition)


@given(st.integers(0, 10**7))
def test_every_record_belongs_to_one_partition(records: int) -> None:
    """The partitions share the records that were asked for, but for the rest of a division."""
    shares = [
        topic.records(partition, records)
        for topic in TOPICS
        for partition in range(topic.partitions)
    ]

    assert records - len(TOPICS) < sum(shares) <= records


def test_timestamps_are_set_and_out_of_order() -> None:
    """Timestamps are real, as the client takes 0 for "now", and some lie before the last one."""
    times = table("orders")["timestamp"].to_pylist()

    assert min(times) > 0
    assert any(later < earlier for earlier, later in pairwise(times))


def test_orders_have_what_is_null_empty_and_repeated() -> None:
    """Keys are null, empty and present, values may be empty, and a header comes four times."""
    orders = table("orders")
    headers = [[(h["key"], h["value"]) for h in row] for row in orders["headers"].to_pylist()]

    assert {None, b""} < set(orders["key"].to_pylist())
    assert (0, True) == (orders["value"].null_count, b"" in orders["value"].to_pylist())
    assert [("tag", b"new"), ("tag", None), ("tag", b""), ("tag", b"new")] in headers
    assert [] in headers


def test_clicks_are_binary_with_newlines_and_have_no_key() -> None:
    """Sample values contain line separators, and bytes that are not text."""
    rows = table("clicks")

    assert len(rows) == rows["key"].null_count
    assert all(b"\n" in value for value in rows["value"].to_pylist())
    with pytest.raises(UnicodeDecodeError):
        b"".join(rows["value"].to_pylist()).decode()


def test_profiles_have_tombstones_and_repeated_keys() -> None:
    """There is something to compact, and tombstones that compaction leaves."""
    rows = table("profiles")

    assert 0 < rows["value"].null_count < len(rows)
    assert len(set(rows["key"].to_pylist())) < len(rows)
