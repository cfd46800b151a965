"""Captures of where consumer groups stood: which count, and what reading them costs."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.catalog import groups
from kbackup.catalog.groups import GROUPS, OFFSET, TOPIC, GroupEntry, group_stream
from kbackup.catalog.ledger.rows import table
from kbackup.naming import Layout
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.hand_clock import HandClock

MINUTE = 60_000
DAY = 1440 * MINUTE
NOW = 1_800_000_000_000


def capture(taken: int, topic: str = "orders", offset: int = 7) -> list[GroupEntry]:
    """A capture of a group in one partition."""
    head = GroupEntry(TOPIC, taken, topic, topic_id="id", is_complete=True, run="r")
    place = GroupEntry(
        OFFSET, taken, topic, group="billing", partition=0, offset=offset, metadata=b"\xff\0x"
    )
    return [head, replace(place, run="r")]


def numbered(entries: list[GroupEntry], counter: int) -> pa.Table:
    return table([replace(one, counter=counter) for one in entries], GROUPS)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings("memory://captures"))


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


def test_a_capture_is_read_as_it_was_stored(store: MemoryStore, clock: HandClock) -> None:
    """What consumers keep beside an offset comes back byte for byte, zero bytes and all."""
    group_stream(store, Layout("captured"), clock).append(table(capture(NOW), GROUPS))

    found = groups.read(store, Layout("captured"), clock).newest["orders"]
    assert [(7, b"\xff\0x")] == [(one.offset, one.metadata) for one in found.offsets]


def test_each_topic_has_its_own_newest_capture(store: MemoryStore, clock: HandClock) -> None:
    """Sinks of different topics in one topics.dir do not hide each other's captures."""
    stream = group_stream(store, Layout("two"), clock)
    stream.append(table(capture(NOW - 5 * MINUTE, "payments", 3), GROUPS))
    stream.append(table(capture(NOW - MINUTE, "orders", 5), GROUPS))
    stream.append(table(capture(NOW, "orders", 6), GROUPS))

    newest = groups.read(store, Layout("two"), clock).newest
    then = groups.read(store, Layout("two"), clock, until_ms=NOW - MINUTE).newest
    assert {"payments": 3, "orders": 6} == {
        name: one.offsets[0].offset for name, one in newest.items()
    }
    assert 5 == then["orders"].offsets[0].offset


def of_part(taken: int, partition: int, offset: int) -> list[GroupEntry]:
    """A capture of one partition alone."""
    return [replace(one, partition=partition) for one in capture(taken, offset=offset)]


def test_each_partition_has_its_own_newest_capture(store: MemoryStore, clock: HandClock) -> None:
    """That of a sink of some partitions hides no other, and is hidden by a later one of all."""
    stream = group_stream(store, Layout("parts"), clock)
    whole = capture(NOW - 4 * MINUTE, offset=1)
    stream.append(table([*whole, replace(whole[1], partition=1)], GROUPS))
    stream.append(table(of_part(NOW - 5 * MINUTE, 1, 9), GROUPS))
    stream.append(table(of_part(NOW - 3 * MINUTE, 0, 2), GROUPS))
    stream.append(table(of_part(NOW - 2 * MINUTE, 0, 3), GROUPS))
    stream.append(table(of_part(NOW, 2, 5), GROUPS))

    found = groups.read(store, Layout("parts"), clock)
    then = groups.read(store, Layout("parts"), clock, until_ms=NOW - 3 * MINUTE)

    assert [[(0, 3), (1, 1), (2, 5)], [(0, 2), (1, 1)]] == [
        [(row.partition, row.offset) for row in each.newest["orders"].offsets]
        for each in (found, then)
    ]
    assert (NOW, NOW - 5 * MINUTE) == (
        found.newest["orders"].topic.taken, found.newest["orders"].since,
    )  # fmt: skip


def of_groups(taken: int, pattern: str, *stood: tuple[str, int]) -> list[GroupEntry]:
    """A capture of the groups that a pattern matches."""
    head, row = capture(taken)
    rows = [replace(row, group=name, offset=offset) for name, offset in stood]
    return [replace(head, groups=pattern), *rows]


def test_each_group_has_its_own_newest_capture(store: MemoryStore, clock: HandClock) -> None:
    """That of some groups hides no other, and is hidden by a later one of all."""
    stream = group_stream(store, Layout("some"), clock)
    head, row = capture(NOW - 4 * MINUTE, offset=1)
    others = [replace(row, group=name) for name in ("audit", "audit2", "bonus")]
    lack = replace(head, kind=groups.UNSETTLED, partition=0, why="tail")
    stream.append(table(of_groups(NOW - 5 * MINUTE, "old.*", ("old", 9)), GROUPS))
    stream.append(table([head, row, *others, lack], GROUPS))
    stream.append(table(of_groups(NOW - 3 * MINUTE, "b.*", ("billing", 2)), GROUPS))
    stream.append(table(of_groups(NOW - 2 * MINUTE, "audit.*", ("audit2", 5)), GROUPS))
    stream.append(table(of_groups(NOW, "audit", ("audit", 6)), GROUPS))

    found = groups.read(store, Layout("some"), clock).newest["orders"]
    then = groups.read(store, Layout("some"), clock, until_ms=NOW - 3 * MINUTE).newest["orders"]

    assert [
        [("audit", 6), ("audit2", 5), ("billing", 2)],
        [("audit", 1), ("audit2", 1), ("billing", 2)],
    ] == [[(row.group, row.offset) for row in each.offsets] for each in (found, then)]
    assert {} == found.unsettled
    assert NOW == found.topic.taken


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(lambda at: of_groups(at, "b.*", ("billing", 2)), id="groups"),
        pytest.param(lambda at: of_part(at, 0, 2), id="partitions"),
        pytest.param(
            lambda at: [replace(one, partition=0) for one in of_groups(at, "b.*", ("billing", 2))],
            id="groups of partitions",
        ),
    ],
)
def test_captures_of_some_push_out_none_of_all(some: Callable[[int], list[GroupEntry]]) -> None:
    """Of each day the last one of either stays."""
    day = (NOW // DAY - 20) * DAY
    every = [capture(day + 7), some(day + 8), some(day + 9), some(NOW), capture(NOW)]
    rows = pa.concat_tables([numbered(one, counter) for counter, one in enumerate(every)])

    kept = GROUPS.merged(rows)["taken"].to_pylist()

    assert {7, 9, NOW - day} == {taken - day for taken in kept}


def test_a_year_of_minutes_costs_no_more_to_read_than_a_day() -> None:
    """Captures are thinned out as they are folded: few are kept, and the newest always."""
    half_hours = [NOW - at * 30 * MINUTE for at in range(365 * 48, 48, -1)]
    minutes = [NOW - at * MINUTE for at in range(1439, -1, -1)]
    year = GROUPS.schema.empty_table()
    for counter in range(0, len(half_hours), 1_500):
        part = [one for at in half_hours[counter : counter + 1_500] for one in capture(at)]
        year = GROUPS.merged(pa.concat_tables([year, numbered(part, counter)]))
    day = numbered([one for at in minutes for one in capture(at)], 10**6)
    year = GROUPS.merged(pa.concat_tables([year, day]))

    assert len(year) < len(day) / 4
    assert NOW == max(year["taken"].to_pylist())
    assert NOW - 358 * DAY > min(year["taken"].to_pylist())


def test_the_newest_two_hours_are_kept_whole() -> None:
    """A restore to a moment of the last two hours finds the capture of that minute."""
    rows = [one for at in range(120) for one in capture(NOW - at * MINUTE)]

    assert 240 == len(GROUPS.merged(numbered(rows, 1)))


@given(
    st.lists(st.integers(0, 100 * DAY // MINUTE), min_size=1, max_size=60, unique=True),
    st.data(),
)
def test_it_does_not_matter_in_how_many_folds_captures_came(
    minutes: list[int], data: st.DataObject
) -> None:
    """Rows that were folded before come to the same as all rows at once, in any order."""
    minutes = sorted(minutes)
    cut = data.draw(st.integers(0, len(minutes)))
    first, second = (
        numbered([one for at in part for one in capture(at * MINUTE)], 1)
        for part in (minutes[:cut], minutes[cut:])
    )

    at_once = GROUPS.merged(pa.concat_tables([second, first, second]))
    in_folds = GROUPS.merged(pa.concat_tables([GROUPS.merged(first), second]))
    assert sorted(at_once["taken"].to_pylist()) == sorted(in_folds["taken"].to_pylist())


def test_rows_of_a_kind_that_comes_later_stay(store: MemoryStore, clock: HandClock) -> None:
    """What a later version has added to a capture is kept in a fold, and does not disturb."""
    stream = group_stream(store, Layout("later"), clock)
    later = GroupEntry("members", NOW, "orders", group="billing", run="r")
    stream.append(table([*capture(NOW), later], GROUPS))
    stream.fold(1)

    assert 3 == len(stream.read().rows)
    assert 1 == len(groups.read(store, Layout("later"), clock).newest["orders"].offsets)
