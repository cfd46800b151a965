"""Two sides of a partition: what differs between them is named, and nothing else."""

from collections.abc import Iterator, Sequence
from itertools import cycle, groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.batches import Batches, walk
from kbackup.batches.decoding import decoded
from kbackup.records import SCHEMA
from kbackup.runs.compare import (
    ASIDE_MOST,
    DISAGREED_MOST,
    InBatches,
    Part,
    RecordsCompared,
    by_offset,
    in_order,
)
from tests.support.encoded import Sent, batch

Row = dict[str, Any]


def record(number: int, **other: Any) -> Row:
    """A record that no other number has."""
    return {
        "offset": number, "timestamp": 1_700_000_000_000 + number, "timestamp_type": 0,
        "key": b"k%d" % number, "value": b"v%d" % number,
        "headers": [{"key": "n", "value": b"%d" % number}, {"key": "n", "value": None}],
        **other,
    }  # fmt: skip


def batches(rows: Sequence[Row], size: int = 3) -> Iterator[pa.RecordBatch]:
    """The rows, a few a batch."""
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA)


def sent(rows: Sequence[Row]) -> bytes:
    """The rows as a batch."""
    return batch(rows[0]["offset"], [
        Sent(
            row["value"], row["key"],
            [(each["key"].encode(), each["value"]) for each in row["headers"]], row["timestamp"],
        )
        for row in rows
    ])  # fmt: skip


def in_batches(
    rows: Sequence[Row], sizes: Sequence[int], unpacked: list[int] | None = None
) -> Iterator[Part]:
    """The rows in batches of so many in turn, three a part; 0 for one that is in none.

    *unpacked* takes the offsets of batches that are read as rows.
    """

    def unpack(found: Batches) -> Iterator[pa.RecordBatch]:
        if unpacked is not None:
            unpacked.extend(found.headers["base_offset"].to_pylist())
        return decoded(found)

    cut, turn = list[tuple[int, Sequence[Row]]](), cycle(sizes)
    while rows:
        size = next(turn)
        cut.append((size, rows[: size or 1]))
        rows = rows[size or 1 :]
    for is_packed, group in groupby(cut, lambda one: one[0] > 0):
        some = [each for _, each in group]
        if not is_packed:
            yield from (pa.RecordBatch.from_pylist(each, SCHEMA) for each in some)
            continue
        for at in range(0, len(some), 3):
            data = b"".join(map(sent, some[at : at + 3]))
            yield InBatches(walk(pa.py_buffer(data)).check(), unpack)


def named(found: RecordsCompared) -> list[tuple[int | None, int | None, str]]:
    """The differences."""
    return [(one.offset, one.kafka_offset, one.what) for one in found.named]


ALTERED: dict[str, tuple[str, Any]] = {
    "one byte of the value": ("value", b"w7"),
    "no value": ("value", None),
    "an empty value": ("value", b""),
    "one byte of the key": ("key", b"k8"),
    "an empty key": ("key", b""),
    "a millisecond": ("timestamp", 1_700_000_000_008),
    "whose time it is": ("timestamp_type", 1),
    "a header's value": (
        "headers", [{"key": "n", "value": b"8"}, {"key": "n", "value": None}]
    ),
    "a header's name": ("headers", [{"key": "m", "value": b"7"}, {"key": "n", "value": None}]),
    "null and empty in a header": (
        "headers", [{"key": "n", "value": b"7"}, {"key": "n", "value": b""}]
    ),
    "the order of headers": (
        "headers", [{"key": "n", "value": None}, {"key": "n", "value": b"7"}]
    ),
    "a header more": (
        "headers",
        [{"key": "n", "value": b"7"}, {"key": "n", "value": None}, {"key": "n", "value": None}],
    ),
    "no header": ("headers", []),
}  # fmt: skip


@pytest.mark.parametrize("compare", [by_offset, in_order])
@pytest.mark.parametrize("altered", ALTERED)
@pytest.mark.parametrize("at", [0, 7, 19])
def test_an_altered_record_is_named_by_its_offset_and_column(
    compare: Any, altered: str, at: int
) -> None:
    """Whichever column, wherever it stands; all others are equal."""
    column, value = ALTERED[altered]
    rows = [record(7, offset=n) for n in range(20)]
    other = [*rows]
    other[at] = {**rows[at], column: value}

    found = compare(batches(rows), batches(other, 5))

    assert RecordsCompared(19, 1) == RecordsCompared(found.same, found.different)
    assert [(at, at, column)] == named(found)


@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_missing_record_is_named_and_what_follows_is_equal(at: int) -> None:
    """At head, in the middle and at the end."""
    rows = [record(n) for n in range(20)]
    other = [row for row in rows if row["offset"] != at]

    for compare in (by_offset, in_order):
        found = compare(batches(rows), batches(other, 4))

        assert (19, 0, 1, 0) == counts(found)
        assert [(at, None, "only in the backup")] == named(found)


@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_doubled_record_is_named(at: int) -> None:
    """By the offset it has in Kafka."""
    rows = [record(n) for n in range(20)]
    other = [*rows[: at + 1], *rows[at:]]
    placed = [{**row, "offset": place} for place, row in enumerate(other)]

    found = in_order(batches(rows), batches(placed, 4))

    assert (20, 0, 0, 1) == counts(found)
    assert [(None, at + 1, "only in Kafka")] == named(found)


@pytest.mark.parametrize("at", [0, 7, 18])
def test_two_that_are_swapped_are_named(at: int) -> None:
    """Both of them, in the columns that differ."""
    rows = [record(n) for n in range(20)]
    other = [*rows]
    other[at], other[at + 1] = other[at + 1], other[at]
    placed = [{**row, "offset": place} for place, row in enumerate(other)]

    found = in_order(batches(rows), batches(placed, 4))

    assert (18, 2, 0, 0) == counts(found)
    assert [at, at + 1] == [one.offset for one in found.named]


def test_more_that_are_missing_than_are_looked_for_still_differ() -> None:
    """Nothing is called equal that is not; what follows is found again, or not compared."""
    rows = [record(n) for n in range(3 * ASIDE_MOST)]

    found = in_order(batches(rows, 500), batches(rows[2 * ASIDE_MOST :], 500))

    assert found.different + found.backup_only + found.unread >= 2 * ASIDE_MOST
    assert found.same + found.different + found.backup_only + found.unread == 3 * ASIDE_MOST


def test_a_side_that_has_nothing_in_common_is_not_read_record_by_record() -> None:
    """What is left after many differences is counted, not compared."""
    rows = [record(n) for n in range(900)]
    other = [row if n % 3 else {**row, "value": b"-"} for n, row in enumerate(rows)]

    found = in_order(batches(rows, 100), batches(other, 100))

    assert DISAGREED_MOST == found.different
    assert 900 == found.same + found.different + found.unread


def counts(found: RecordsCompared) -> tuple[int, int, int, int]:
    """The four numbers."""
    return found.same, found.different, found.backup_only, found.kafka_only


@given(
    left=st.lists(st.integers(0, 4), max_size=30), right=st.lists(st.integers(0, 4), max_size=30),
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 7)),
)  # fmt: skip
def test_sides_are_equal_only_if_their_records_are(
    left: list[int], right: list[int], sizes: tuple[int, int]
) -> None:
    """However alike their records are, and however they are split into batches."""
    mine, theirs = (
        [record(number, offset=at) for at, number in enumerate(side)] for side in (left, right)
    )

    found = in_order(batches(mine, sizes[0]), batches(theirs, sizes[1]))

    same, different, backup_only, kafka_only = counts(found)
    assert (left == right) == (different + backup_only + kafka_only == 0)
    assert len(left) == same + different + backup_only + found.unread
    assert found.unread or len(right) == same + different + kafka_only


CUTS = st.lists(st.integers(0, 6), min_size=1, max_size=4)
"""How many records each batch has, in turn."""


@given(
    left=st.lists(st.integers(0, 4), max_size=40), cuts=CUTS, others=st.none() | CUTS,
    edits=st.lists(st.tuples(st.sampled_from("-+="), st.integers(0, 40)), max_size=3),
    may_follow=st.booleans(),
)  # fmt: skip
def test_batches_show_what_their_records_do(
    left: list[int], cuts: list[int], others: list[int] | None, edits: list[tuple[str, int]],
    *, may_follow: bool,
) -> None:  # fmt: skip
    """However both sides are packed, and whatever is missing, too many or altered."""
    right = [*left]
    for kind, at in edits:
        if kind == "+":
            right.insert(at, 3)
        elif at < len(right):
            right[at : at + 1] = [] if kind == "-" else [9]
    mine, theirs = (
        [record(number, offset=at, timestamp_type=1) for at, number in enumerate(side)]
        for side in (left, right)
    )

    packed = in_batches(mine, cuts), in_batches(theirs, cuts if others is None else others)
    found = in_order(*packed, may_follow=may_follow)

    assert found == in_order(batches(mine), batches(theirs), may_follow=may_follow)


def test_of_batches_that_are_copies_none_is_unpacked() -> None:
    """Of the others as few as there must be, until both sides have the same again."""
    rows = [record(at, timestamp_type=1) for at in range(40)]
    unpacked: tuple[list[int], list[int]] = [], []

    found = in_order(
        in_batches(rows, [4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4], unpacked[0]),
        in_batches(rows, [4, 4, 4, 3, 1, 4, 4, 4, 4, 4, 4], unpacked[1]),
    )

    assert RecordsCompared(40) == found
    assert ([], [12, 15]) == unpacked


def test_copies_are_found_again_behind_what_was_packed_anew() -> None:
    """A restore that began by records has gone on by batches."""
    rows = [record(at, timestamp_type=1) for at in range(400)]
    unpacked: list[int] = []

    found = in_order(
        in_batches(rows, [4], unpacked), in_batches(rows, [7] * 20 + [4] * 65, [])
    )  # fmt: skip

    assert RecordsCompared(400) == found
    assert max(unpacked) < 160


@given(
    left=st.dictionaries(st.integers(0, 30), st.integers(0, 1)),
    right=st.dictionaries(st.integers(0, 30), st.integers(0, 1)),
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 7)),
)  # fmt: skip
def test_records_are_paired_by_offsets(
    left: dict[int, int], right: dict[int, int], sizes: tuple[int, int]
) -> None:
    """Against sets of pairs."""
    mine, theirs = ([record(side[at], offset=at) for at in sorted(side)] for side in (left, right))

    found = by_offset(batches(mine, sizes[0]), batches(theirs, sizes[1]))

    both = left.keys() & right.keys()
    same = sum(left[at] == right[at] for at in both)
    assert counts(found) == (same, len(both) - same, len(left) - len(both), len(right) - len(both))


def test_a_time_that_was_not_stored_is_not_compared() -> None:
    """Values of the connectors have no timestamps."""
    mine, theirs = [record(n, timestamp=None) for n in range(9)], [record(n) for n in range(1, 9)]

    found = in_order(batches(mine), batches(theirs))

    assert (8, 0, 1, 0) == counts(found)


@pytest.mark.parametrize(
    ("untimed", "at"), [(range(10, 20), 2), (range(10, 20), 7), (range(10), 12), (range(10), 19)]
)
def test_a_time_tells_records_apart_beside_others_without(untimed: range, at: int) -> None:
    """Where a topic's setting has changed: of records that only their times tell apart."""
    mine = [record(0, offset=n, timestamp=n) for n in range(20)]
    theirs = [row | {"timestamp": None} if n in untimed else row for n, row in enumerate(mine)]
    del theirs[at]

    found = in_order(batches(mine), batches(theirs, 4))

    assert (19, 0, 1, 0) == counts(found)
    assert [(at, None, "only in the backup")] == named(found)


def test_large_records_are_not_held_by_their_number() -> None:
    """Where sides differ, a few are looked at: not a thousand records of any size."""
    taken: list[int] = []
    held: list[int] = []

    def large() -> Iterator[pa.RecordBatch]:
        for at in range(100):
            taken.append(at)
            yield next(batches([record(at, value=b"x" * 2**20)]))

    def other() -> Iterator[pa.RecordBatch]:
        yield next(batches([record(0, value=b"y")]))
        held.append(len(taken))

    found = in_order(large(), other())

    assert (1, 99) == (found.different, found.backup_only)
    assert held[0] < 20
