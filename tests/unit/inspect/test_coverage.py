"""Which offsets and days are in the bucket, and which are not."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.catalog.ledger.rows import ACCEPTED, OBJECT, Entry, PartitionLedger, of_object
from kbackup.catalog.listing import BackupFile, FileSet
from kbackup.inspect import NOTHING_KNOWN, PART, Days, MapRange, MapState, cells, day, merged
from kbackup.inspect.topics import coverage
from kbackup.naming import View
from kbackup.records import Span, TopicPartition

ORDERS = TopicPartition("orders", 0)
DAY_MS = 86_400_000
STORED, NAMED, MISSING = MapState.STORED, MapState.NAMED, MapState.MISSING


def files(start: int, directory: str = "partition=0") -> FileSet:
    """A set of one object of full records."""
    key = f"topics/orders/{directory}/orders+0+{start:010}.rec.parquet"
    file = BackupFile(key, View.RECORD, ".parquet", "parquet", 1, 0.0)
    return FileSet(ORDERS, start, directory, main=file)


def values(start: int) -> BackupFile:
    """An object of values."""
    key = f"topics/orders/partition=0/orders+0+{start:010}.json"
    return BackupFile(key, View.VALUE, ".json", "json", 1, 0.0)


def entry(first: int, last: int, directory: str = "partition=0", **more: Any) -> Entry:
    """What the ledger says of it."""
    main = files(first, directory).main
    assert main is not None
    return Entry(OBJECT, 0, first, last, main.key, "record", last - first + 1, **more)


def ledger(*entries: Entry, accepted: tuple[Entry, ...] = ()) -> PartitionLedger:
    """The ledger of the partition."""
    return PartitionLedger({one.key or "": one for one in entries}, accepted=list(accepted))


def shown(
    sets: list[FileSet], said: PartitionLedger, gaps: tuple[Span, ...] = ()
) -> list[tuple[str, int, int]]:
    """The ranges by offset."""
    present = {file.key for each in sets for file in each.files}
    found = coverage(ORDERS, sets, replace(said, gaps=[*gaps]), present)
    return [(one.state, one.first, one.last) for one in found.offsets]


def test_a_cut_accounts_for_offsets_without_a_record() -> None:
    """Compaction and transaction markers leave holes in a log that nobody has to look for."""
    said = ledger(entry(3, 7, cut_start=0, next_offset=10), entry(12, 19))

    assert [(STORED, 0, 9), (STORED, 12, 19)] == shown([files(3), files(12)], said)


def test_names_alone_reach_to_the_next_object() -> None:
    """The connector's objects do not say where they end; of the last one only its start is sure."""
    assert [(NAMED, 0, 10)] == shown([files(0), files(10)], ledger())


def test_what_is_missing_shows_among_directories() -> None:
    """The offsets of a cut are in several directories; one object of it that is gone is seen."""
    cut = {"cut_start": 0, "next_offset": 10}
    said = ledger(entry(0, 8, "a=1", **cut), entry(1, 9, "a=2", **cut))

    assert [(STORED, 0, 0), (MISSING, 1, 9)] == shown([files(0, "a=1")], said)


def test_what_was_removed_on_purpose_is_not_missing() -> None:
    """What was removed on purpose is not reported as lost again."""
    gone = entry(0, 9)
    accepted = of_object(ACCEPTED, gone, "v1", 1)

    assert [(MapState.REMOVED, 0, 9), (STORED, 10, 19)] == shown(
        [files(10)], ledger(gone, entry(10, 19), accepted=(accepted,))
    )


def test_what_a_restore_refuses_is_disputed() -> None:
    """Values that hold the same offsets are seen in the map, by what the ledger says of them."""
    sets = [replace(files(at), main=values(at)) for at in (0, 6, 20)]
    said = ledger(
        *(
            replace(entry(at, at + 9), key=values(at).key, view="value", bytes=1)
            for at in (0, 6, 20)
        )
    )

    assert [
        (STORED, 0, 5), (MapState.DISPUTED, 6, 9), (STORED, 10, 15), (STORED, 20, 29)
    ] == shown(sets, said)  # fmt: skip


def test_what_expired_before_it_was_backed_up_is_a_state_of_its_own() -> None:
    """Offsets that expired before they were backed up are shown as expired, not as missing."""
    assert [(MapState.EXPIRED, 0, 4), (STORED, 5, 9)] == shown(
        [files(5)], ledger(entry(5, 9)), (Span(0, 5),)
    )


def test_as_of_a_time_what_was_stored_later_is_not_missing() -> None:
    """With --as-of, objects stored later are neither shown nor missed."""
    rows = [
        entry(at, at + 9, time=time, first_stored=time)
        for at, time in ((0, 100), (10, 200), (20, 100))
    ]

    said = ledger(*rows).before(150)

    assert [(STORED, 0, 9), (MISSING, 20, 29)] == shown([files(0)], said)


def test_days_are_those_of_the_records() -> None:
    """The map shows the days of records, for objects whose timestamps are known."""
    times: dict[str, Any] = {"min_timestamp": 3 * DAY_MS - 1, "max_timestamp": 3 * DAY_MS}
    said = ledger(entry(0, 9, **times), entry(10, 19), entry(20, 29, min_timestamp=9 * DAY_MS))
    sets = [files(0), files(10)]
    present = {file.key for each in sets for file in each.files}

    found = coverage(ORDERS, sets, said, present)

    assert (Days(STORED, day(2), day(3)), Days(MISSING, day(9), day(9))) == found.days


STATES = st.sampled_from(list(MapState))
RANGES = st.tuples(STATES, st.integers(0, 60), st.integers(0, 20)).map(
    lambda one: MapRange(one[0], one[1], one[1] + one[2])
)


@given(st.lists(RANGES, max_size=12))
def test_each_number_has_the_first_of_its_states(given: list[MapRange]) -> None:
    """Overlapping ranges become ones that do not overlap and say the same."""
    found = merged(given)

    by_number = {at: one.state for one in found for at in range(one.first, one.last + 1)}
    expected = {
        at: min((o.state for o in given if o.first <= at <= o.last), key=list(MapState).index)
        for at in range(100)
        if any(o.first <= at <= o.last for o in given)
    }
    assert expected == by_number
    assert all(a.last < b.first for a, b in pairwise(found))
    assert all(a.state != b.state or a.last + 1 < b.first for a, b in pairwise(found))


@given(st.lists(RANGES, min_size=1, max_size=12), st.integers(1, 200))
def test_what_is_missing_is_seen_in_any_width(given: list[MapRange], width: int) -> None:
    """One lost record among millions still has a cell."""
    found = merged(given)

    drawn = cells(found, found[0].first, found[-1].last, width)

    assert len(drawn) == min(width, found[-1].last - found[0].first + 1)
    assert (MISSING in drawn) == any(one.state == MISSING for one in found)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param([(STORED, 0, 9)], [STORED, STORED], id="all"),
        pytest.param([(STORED, 0, 6)], [STORED, PART], id="in part"),
        pytest.param([(STORED, 0, 4)], [STORED, NOTHING_KNOWN], id="nothing"),
        pytest.param([(STORED, 0, 4), (NAMED, 5, 9)], [STORED, NAMED], id="by names"),
        pytest.param([(NAMED, 0, 1), (STORED, 2, 9)], [NAMED, STORED], id="partly by names"),
        pytest.param(
            [(MapState.EXPIRED, 0, 6), (STORED, 7, 9)], [MapState.EXPIRED, PART], id="expired"
        ),
        pytest.param([(MapState.REMOVED, 0, 1)], [MapState.REMOVED, NOTHING_KNOWN], id="removed"),
        pytest.param([(STORED, 0, 8), (MISSING, 9, 9)], [STORED, MISSING], id="missing"),
    ],
)
def test_a_cell_is_what_is_true_of_all_of_it(
    ranges: list[tuple[MapState, int, int]], expected: list[str]
) -> None:
    """A cell is drawn full only if all of it is stored."""
    assert expected == cells([MapRange(*one) for one in ranges], 0, 9, 2)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "1970-01-01"), (20_000, "2024-10-04"), (10**12, "9999-12-31"), (-(10**12), "0001-01-01")],
)
def test_a_day_of_any_timestamp_has_a_text(number: int, text: str) -> None:
    """A day of any timestamp, even outside the years 1 to 9999, has a text."""
    assert text == day(number)
