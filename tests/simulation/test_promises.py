"""The checker finds what is planted in a history, and nothing in a good one."""

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.events import (
    NO_TYPE,
    Begun,
    Committed,
    Ended,
    Entered,
    Event,
    GapKept,
    Gone,
    Keyed,
    Moved,
    Produced,
    Removed,
    Row,
    Ruled,
    StandsBy,
    Stored,
    TargetShows,
    Touched,
    Unfit,
    Vouched,
)
from tests.simulation.product import TopicPartition
from tests.simulation.promises import CANARY, Checker, check

WHERE, COPY = TopicPartition("alpha", 0), TopicPartition("copy-alpha", 0)
FIRST = "topics/alpha/partition=0/alpha+0+0000000000.record.zstd.parquet"
SECOND = "topics/alpha/partition=0/alpha+0+0000000002.record.zstd.parquet"


def row(offset: int, topic: str = "alpha", partition: int = 0) -> Row:
    """A record."""
    name = f"{topic}/{partition}/{offset}/id".encode()
    return Row(offset, 1000 + offset, 1, None, b"", (("name", name), ("h", None)))


def rows(*offsets: int) -> tuple[Row, ...]:
    """Records."""
    return tuple(map(row, offsets))


def ended(
    kind: str, code: int = 0, *, records: int = 0, requests: int = 9, text: str = ""
) -> Ended:
    """The end of a run that did what it said."""
    planned = {WHERE: ("id", 4)} if kind == "sink" else {}
    targets = {WHERE: COPY} if kind == "restore" else {}
    return Ended(kind, code, planned, records, records, targets, requests, text)


GOOD: list[Event] = [
    Ruled(2),
    Produced("id", WHERE, rows(0, 1, 2, 3)),
    Begun("id", WHERE, 0),
    Stored(FIRST, rows(0, 1)),
    Touched("object", FIRST),
    Committed("id", WHERE, 2),
    Stored(SECOND, rows(2, 3)),
    Committed("id", WHERE, 4, 7),
    Touched("group", "kbackup-sink"),
    ended("sink", records=4),
    ended("verify"),
    ended("verify --deep"),
    Touched("topic", "copy-alpha"),
    TargetShows(COPY, rows(0, 1)),
    TargetShows(COPY, tuple(one._replace(offset=one.offset + 1) for one in rows(0, 1, 2, 3))),
    ended("restore", records=4),
]
"""All that is promised."""


def without(kind: type[Event], count: int = 1) -> list[Event]:
    """The good history without its last events of a kind."""
    kept = list(GOOD)
    for _ in range(count):
        kept.remove(next(event for event in reversed(kept) if isinstance(event, kind)))
    return kept


def instead(old: Event, *new: Event) -> list[Event]:
    """The good history with something else in place of an event."""
    at = GOOD.index(old)
    return [*GOOD[:at], *new, *GOOD[at + 1 :]]


def shown(*found: Row) -> list[Event]:
    """The good history with a target that shows something else at its end."""
    return [*GOOD[:-2], TargetShows(COPY, found), GOOD[-1]]


SINK: Any = GOOD[9]
RESTORE: Any = GOOD[-1]
STANDBY, LATER = (StandsBy(until, {WHERE: COPY}) for until in (5, 9))


def test_a_good_history_breaks_nothing() -> None:
    """A history without faults breaks no promise."""
    assert [] == check(GOOD)


@pytest.mark.parametrize(
    ("promise", "history"),
    [
        pytest.param("P1", instead(Stored(SECOND, rows(2, 3))), id="committed and not stored"),
        pytest.param("P1", instead(Stored(SECOND, rows(2, 3)), Stored(SECOND, (row(2), row(9)))),
                     id="a record that never was"),
        pytest.param("P1", [*GOOD, Produced("id2", WHERE, rows(4)), Begun("id2", WHERE, 0),
                            Committed("id2", WHERE, 5)], id="another topic of the name"),
        pytest.param("P1", [*GOOD[:1], *GOOD[1:3], Gone("id", WHERE, (0, 1), "expired"),
                            *GOOD[6:8], SINK], id="expired, and in no gap"),
        pytest.param("P2", [*GOOD, Stored(FIRST, rows(0))], id="replaced by fewer"),
        pytest.param("P2", [*GOOD, Stored(FIRST, None)], id="half an object"),
        pytest.param("P3", instead(Stored(SECOND, rows(2, 3)), Stored(SECOND, rows(2))),
                     id="a cut at another place"),
        pytest.param("P3", [*GOOD, Stored(SECOND.replace("2.rec", "1.rec"), rows(1, 2))],
                     id="a cut that begins elsewhere"),
        pytest.param("P4", shown(*rows(0, 1, 2)), id="one is not restored"),
        pytest.param("P4", shown(*rows(0, 1, 1, 2, 3)), id="one is restored twice"),
        pytest.param("P4", shown(*rows(0, 2, 1, 3)), id="out of order"),
        pytest.param("P4", shown(*rows(0, 1, 2), row(3)._replace(key=b"")), id="null is empty"),
        pytest.param("P4", shown(*rows(0, 1, 2), row(3)._replace(headers=row(3).headers[:1])),
                     id="a header is lost"),
        pytest.param("P4", shown(*rows(0, 1, 2, 3), row(4, "beta")), id="another topic's record"),
        pytest.param("P4", shown(*rows(0, 1, 2, 3), row(4, partition=1)),
                     id="another partition's record"),
        pytest.param("P5", [*GOOD, Touched("object", "elsewhere/x")], id="an object elsewhere"),
        pytest.param("P5", [*GOOD, Touched("topic", "alpha")], id="the source is written"),
        pytest.param("P5", [*GOOD, Touched("group", "theirs")], id="a group of somebody else's"),
        pytest.param("P5", [*GOOD, Removed(FIRST)], id="an object is deleted"),
        pytest.param("P6", [*GOOD, Produced("id", WHERE, rows(4)),
                            replace(SINK, planned={WHERE: ("id", 5)})], id="exit 0 and not done"),
        pytest.param("P6", [*GOOD[:7], Removed(SECOND, "person"), SINK],
                     id="people removed what nothing knows of, and it is not stored again"),
        pytest.param("P6", [*GOOD[1:4], Entered(FIRST), Removed(FIRST, "person"),
                            Gone("id", WHERE, (0, 1), "expired"), Begun("id", WHERE, 2),
                            *GOOD[6:8], ended("verify")],
                     id="people removed what a killed first run had entered"),
        pytest.param("P6", [*GOOD[:4], Entered(FIRST), *GOOD[5:9], Removed(FIRST, "person"),
                            Gone("id", WHERE, (0, 1), "expired"), GapKept(WHERE, 0, 2),
                            ended("verify")],
                     id="what was entered and removed is no gap, though it expired"),
        pytest.param("P1", [*GOOD[1:4], Removed(FIRST, "person"), Begun("id", WHERE, 0),
                            *GOOD[6:8], SINK],
                     id="people removed it, it is there to be read, and is not stored again"),
        pytest.param("P6", [*GOOD, Removed(FIRST, "person"), ended("verify")],
                     id="verify misses nothing"),
        pytest.param("P6", [*GOOD, Stored(FIRST, rows(2, 3), "person"), ended("verify --deep")],
                     id="verify takes a copy for the object"),
        pytest.param("P6", [*GOOD, ended("verify", 7)], id="verify finds fault with a whole one"),
        pytest.param("P6", [*GOOD, replace(SINK, records=5)], id="a sink counts wrong"),
        pytest.param("P6", [*GOOD, replace(RESTORE, records=5)], id="a restore counts wrong"),
        pytest.param("P6", [*GOOD, GapKept(WHERE, 0, 2)], id="a gap that is none"),
        pytest.param("P6", [*GOOD, Produced("id", WHERE, rows(4), 5), Vouched(6, {WHERE: "id"})],
                     id="status vouches for what is not stored"),
        pytest.param("P4", [*GOOD[:-2], TargetShows(COPY, rows(0, 1, 2)), LATER],
                     id="a standby says that it is complete, and lacks one"),
        pytest.param("P6", [*GOOD, ended("sink", 2)], id="an exit code that has no business here"),
        pytest.param("P7", [*GOOD, ended("sink", requests=10**6)], id="too many requests"),
        pytest.param("P8", [*GOOD, ended("verify", text=f"password {CANARY}")], id="a secret"),
    ],
)  # fmt: skip
def test_what_is_planted_is_found(promise: str, history: list[Event]) -> None:
    """Each promise is broken in each way that matters, and the checker says which one it was."""
    assert promise in {violation.promise for violation in check(history)}


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*GOOD[:3], Gone("id", WHERE, (0, 1), "expired"), GapKept(WHERE, 0, 2),
                      *GOOD[6:8], SINK], id="expired, and in a gap"),
        pytest.param([*GOOD[:3], Gone("id", WHERE, (0, 1), "compacted"), *GOOD[6:8], SINK],
                     id="compacted before it was read"),
        pytest.param([*GOOD[:2], Gone("id", WHERE, (0, 1), "expired"), Begun("id", WHERE, 2),
                      *GOOD[6:8], SINK], id="expired before the first run"),
        pytest.param([*GOOD, Moved(WHERE), Stored(SECOND.replace("2.rec", "1.rec"), rows(1, 2))],
                     id="other cuts after somebody moved the group"),
        pytest.param([*GOOD, Removed(FIRST, "person"), ended("verify", 7), ended("restore", 7)],
                     id="people removed it, and it is said"),
        pytest.param([*GOOD[:7], Entered(SECOND), Removed(SECOND, "person"), SINK],
                     id="people removed what the ledger knows, though it was never committed"),
        pytest.param([*GOOD[1:4], Removed(FIRST, "person"), Gone("id", WHERE, (0, 1), "expired"),
                      Begun("id", WHERE, 2), *GOOD[6:8], SINK, ended("verify --deep")],
                     id="people removed all that a killed first run had stored"),
        pytest.param([*GOOD[:9], Removed(FIRST, "person"),
                      Gone("id", WHERE, (0, 1), "expired"), GapKept(WHERE, 0, 2), ended("verify")],
                     id="people removed what was never entered, it expired, and is called a gap"),
        pytest.param([*GOOD, Stored(FIRST, rows(0, 1))], id="stored again"),
        pytest.param([*GOOD[:-2], TargetShows(COPY, rows(0, 1)), STANDBY],
                     id="a standby is complete up to what was committed by then"),
        pytest.param([*GOOD, Produced("id", WHERE, rows(4), 5), Vouched(5, {WHERE: "id"})],
                     id="status vouches for what came before"),
    ],
)  # fmt: skip
def test_what_may_be_is_not_found_fault_with(history: list[Event]) -> None:
    """A reported gap, a hole from compaction and named damage are not violations."""
    history = [
        replace(event, records=0, done=0) if isinstance(event, Ended) else event
        for event in history
    ]

    assert [] == check(history)


def values(*offsets: int) -> tuple[Row, ...]:
    """Records as an object of values alone holds them."""
    return tuple(Row(at, -1, NO_TYPE, None, row(at).name, ()) for at in offsets)


def back(*offsets: int) -> TargetShows:
    """Their copies."""
    return TargetShows(COPY, tuple(one._replace(timestamp=1) for one in values(*offsets)))


ONE = "topics/alpha/hour=1/alpha+0+0000000000.bin"
TWO = "topics/alpha/hour=2/alpha+0+0000000001.bin"
TWICE = "topics/alpha/hour=1/alpha+0+0000000002.bin"
OF_VALUES: list[Event] = [
    Produced("id", WHERE, tuple(one._replace(value=one.name) for one in rows(0, 1, 2, 3))),
    Begun("id", WHERE, 0),
    Stored(ONE, values(0, 2)),
    Stored(TWO, values(1, 3)),
    Committed("id", WHERE, 4),
]
DOUBLED = [*OF_VALUES, Stored(TWICE, values(2))]


def refused(kind: str, code: int, key: str) -> Ended:
    """The end of a run that names an object."""
    return replace(ended(kind, code), planned={}, errors=[{"key": key}])


def set_back(first: int, last: int) -> Ended:
    """The end of a sink that would store a cut of values under other names."""
    what = "alpha-0: the group's offset was set back, and the stored value objects of offsets "
    what += f"{first} to"
    error = {"what": f"{what} {last} would have other names now", "topic": "alpha", "partition": 0}
    return replace(ended("sink", 4), planned={}, errors=[error])


@pytest.mark.parametrize(
    ("is_broken", "history"),
    [
        pytest.param(False, [*OF_VALUES, back(0, 2, 1, 3), RESTORE], id="two directories"),
        pytest.param(True, [*OF_VALUES, back(2, 0, 1, 3)], id="out of order in a directory"),
        pytest.param(True, [*OF_VALUES, back(0, 2, 2, 1, 3)], id="twice"),
        pytest.param(True, [*OF_VALUES, back(0, 1, 3), RESTORE], id="one is not restored"),
        pytest.param(True, [*OF_VALUES, refused("verify", 7, TWO)], id="whole, and refused"),
        pytest.param(False, [*DOUBLED, refused("verify", 7, TWICE)], id="in two, and named"),
        pytest.param(False, [*DOUBLED, back(0, 2, 2, 1, 3), refused("restore", 3, "")],
                     id="in two, and said"),
        pytest.param(True, [*DOUBLED, back(0, 2, 2, 1, 3), RESTORE], id="in two, and exit 0"),
    ],
)  # fmt: skip
def test_values_alone_are_held_to_what_they_can_keep(is_broken: bool, history: list[Event]) -> None:
    """Order within a directory, and each record once unless two objects hold it, which is said."""
    whole = replace(RESTORE, records=4, done=4)
    history = [whole if one == RESTORE else one for one in history]

    assert is_broken == bool(check(history))


@pytest.mark.parametrize("how", ["compacted", "expired"])
def test_only_compaction_excuses_a_sink_that_stops_before_other_rows(how: str) -> None:
    """A refusal is excused for the object some of whose records compaction has taken, no other."""
    checker = Checker()
    for event in [*OF_VALUES, Gone("id", WHERE, (2,), how)]:
        assert not checker.take(event)

    assert (how == "compacted") == checker.excuses(refused("sink", 4, ONE))
    assert not checker.excuses(refused("sink", 4, TWO))
    assert not checker.excuses(refused("sink", 6, ONE))
    assert (how == "compacted") == checker.excuses(set_back(1, 2))
    assert not checker.excuses(set_back(0, 1))


LETTER = row(1)


@pytest.mark.parametrize(
    ("is_broken", "more"),
    [
        pytest.param(False, [TargetShows(TopicPartition("letters", 0), (LETTER,))], id="a letter"),
        pytest.param(True, [], id="no letter"),
        pytest.param(True, [TargetShows(TopicPartition("letters", 0), rows(0))], id="another's"),
        pytest.param(False, [Gone("id", WHERE, (1,), "expired")], id="gone"),
        pytest.param(False, [Moved(WHERE)], id="people moved the group"),
    ],
)
def test_what_does_not_fit_is_a_dead_letter_before_it_is_passed(
    is_broken: bool, more: list[Event]
) -> None:
    """An offset is committed only once the records below it are stored, or are dead letters."""
    history = [
        Produced("id", WHERE, rows(0)), Unfit("id", WHERE, (LETTER,)), Begun("id", WHERE, 0),
        Stored(FIRST, rows(0)), *more, Committed("id", WHERE, 2),
    ]  # fmt: skip

    assert is_broken == bool(check(history))


@pytest.mark.parametrize(
    ("is_broken", "partition"), [pytest.param(False, 2, id="one"), pytest.param(True, 1, id="two")]
)
def test_records_of_a_key_stand_in_one_partition(is_broken: bool, partition: int) -> None:
    """Where a restore goes by keys, each record is looked for in all partitions of its target."""
    first, second = (one._replace(key=b"k") for one in rows(0, 1))
    copies = [TopicPartition("copy-alpha", at) for at in (2, partition)]
    history: list[Event] = [
        Keyed(), Produced("id", WHERE, (first, second)), Begun("id", WHERE, 0),
        Stored(FIRST, (first, second)), Committed("id", WHERE, 2),
        TargetShows(copies[0], (first,)),
        TargetShows(copies[1], (first, second) if copies[0] == copies[1] else (second,)),
        ended("restore", records=2),
    ]  # fmt: skip

    assert is_broken == bool(check(history))
