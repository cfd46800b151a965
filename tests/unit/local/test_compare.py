"""The judge of the demo: it lets nothing pass, and says where the difference is."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.local.sample import Compared, Difference, compare
from kbackup.records import SCHEMA

HEADERS = [
    {"key": "a", "value": b"1"},
    {"key": "a", "value": None},
    {"key": "b", "value": b""},
]


def record(offset: int) -> dict[str, Any]:
    return {
        "offset": offset,
        "timestamp": 1_700_000_000_000 + offset,
        "timestamp_type": 1,
        "key": b"key %d" % offset,
        "value": b"value %d, long enough to be shown in part only" % offset,
        "headers": HEADERS,
    }


ORIGINAL = [record(offset) for offset in range(10, 20)]


def batches(rows: Sequence[dict[str, Any]], size: int = 4) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[start : start + size]), schema=SCHEMA)


def changed(row: int, **columns: Any) -> list[dict[str, Any]]:
    return [{**entry, **columns} if at == row else entry for at, entry in enumerate(ORIGINAL)]


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 12))
def test_equal_records_are_equal_however_they_are_parted(left: int, right: int) -> None:
    """Equal records are equal, however they are batched."""
    compared = compare(batches(ORIGINAL, left), batches(ORIGINAL, right))

    assert Compared(len(ORIGINAL)) == compared


def test_offsets_and_timestamp_type_are_the_copys_own() -> None:
    """A copy begins at offset 0, and its producer set the timestamps."""
    copy = [{**row, "offset": at, "timestamp_type": 2} for at, row in enumerate(ORIGINAL)]

    assert Compared(len(ORIGINAL)) == compare(batches(ORIGINAL), batches(copy))


def test_nothing_equals_nothing() -> None:
    """Two empty partitions are equal, also where they come as a batch without rows."""
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)

    assert Compared(0) == compare([], [empty, empty])


@pytest.mark.parametrize("row", [0, 3, 4, 9])
@pytest.mark.parametrize(
    ("column", "value", "original", "copy"),
    [
        pytest.param("key", b"kez", "b'key 1", "b'kez' (3 bytes)", id="other key"),
        pytest.param("key", None, "b'key 1", "null", id="null for a key"),
        pytest.param("key", b"", "b'key 1", "empty bytes", id="empty for a key"),
        pytest.param("value", b"", "b'value 1", "empty bytes", id="empty for a value"),
        pytest.param("value", None, "b'value 1", "null", id="null for a value"),
        pytest.param(
            "timestamp", 1_600_000_000_000, "17000000000", "1600000000000", id="other timestamp"
        ),
        pytest.param("timestamp", None, "17000000000", "null", id="no timestamp"),
        pytest.param("headers", [], "header 1 of 3, 'a': b'1'", "no headers", id="no headers"),
        pytest.param(
            "headers", HEADERS[:2], "header 3 of 3, 'b': empty bytes", "2 headers only",
            id="last header missing",
        ),
        pytest.param(
            "headers", [HEADERS[1], HEADERS[0], HEADERS[2]],
            "header 1 of 3, 'a': b'1'", "header 1 of 3, 'a': null", id="header order",
        ),
        pytest.param(
            "headers", [HEADERS[0], {"key": "a", "value": b""}, HEADERS[2]],
            "header 2 of 3, 'a': null", "header 2 of 3, 'a': empty bytes",
            id="empty for a null header",
        ),
        pytest.param(
            "headers", [HEADERS[0], HEADERS[2]],
            "header 2 of 3, 'a': null", "header 2 of 2, 'b': empty bytes",
            id="repeated header missing",
        ),
    ],
)  # fmt: skip
def test_a_damaged_record_is_found(
    row: int, column: str, value: Any, original: str, copy: str
) -> None:
    """Whatever of a record differs, in whichever record, is named with its place and both sides."""
    compared = compare(batches(ORIGINAL), batches(changed(row, **{column: value}), 3))
    found = compared.difference

    assert found is not None
    assert (row, row, 10 + row, 10 + row, column) == (
        compared.records, found.row, found.offset, found.copy_offset, found.column,
    )  # fmt: skip
    assert found.original.startswith(original)
    assert copy == found.copy


def test_one_changed_byte_deep_in_a_value_is_shown() -> None:
    """The part of a long value is shown in which the difference is."""
    value = bytearray(ORIGINAL[5]["value"])
    value[40] ^= 1

    found = compare(batches(ORIGINAL), batches(changed(5, value=bytes(value)))).difference

    assert found == Difference(
        5, 15, 15, "value",
        "b'n in part only' from byte 32 (46 bytes)",
        "b'n in paru only' from byte 32 (46 bytes)",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("original", "copy", "difference"),
    [
        pytest.param(
            ORIGINAL, ORIGINAL[:-1], Difference(9, 19, None, None, "a record", "no more"),
            id="last record missing",
        ),
        pytest.param(
            ORIGINAL, [], Difference(0, 10, None, None, "a record", "no more"), id="empty copy"
        ),
        pytest.param(
            ORIGINAL[:-1], ORIGINAL, Difference(9, None, 19, None, "no more records", "one"),
            id="a record too many",
        ),
    ],
)  # fmt: skip
def test_a_number_of_records_of_its_own_is_found(
    original: list[dict[str, Any]], copy: list[dict[str, Any]], difference: Difference
) -> None:
    """A record missing at the end or too many is a difference too."""
    compared = compare(batches(original), batches(copy))

    assert Compared(difference.row, difference) == compared


def test_the_first_difference_is_the_one_that_is_told() -> None:
    """Of several differences in a batch, the first record's is reported, not the first column's."""
    copy = changed(1, timestamp=1)
    copy[2] = {**copy[2], "key": None}

    found = compare(batches(ORIGINAL), batches(copy)).difference

    assert found is not None
    assert (1, "timestamp") == (found.row, found.column)


def test_a_missing_record_in_the_middle_shifts_the_rest() -> None:
    """Where a record is missing in the middle, the next one stands in its place."""
    compared = compare(batches(ORIGINAL), batches(ORIGINAL[:4] + ORIGINAL[5:]))

    assert compared.difference is not None
    assert (4, 14, 15) == (
        compared.records, compared.difference.offset, compared.difference.copy_offset,
    )  # fmt: skip
