"""Look at a backup, and at what a run needs: lists, maps, records, queries, tables, checks.

Owns what these commands find, and how a query is planned.  It never changes Kafka, or an object of
a backup.  ``restore thaw`` asks the store for copies that can be read, and the doctor stores a
probe, which it deletes.

A topic is one table of full records.  Object names and the ledger decide which objects are opened
at all; Spark does the rest.

`ddl` makes a statement of what a backup holds and of the configuration that writes it.  Formats and
partitioners say what files and directories are to the engines: see `kbackup.connect.tables`.

What the screens show is here itself: a `Check` of the doctor's, whose `host` and `examination`
connect to what they check; and what became of ranges of offsets or days, to be drawn in few cells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

from kbackup.config import ConfigIssue
from kbackup.errors import ConfigurationError, Issue, KbackupError
from kbackup.events import INLINE, NOT_SHOWN, NULL_IF_EMPTY


class MapState(StrEnum):
    """What became of a range; where several are true of one offset, the first of them counts."""

    MISSING = "missing"
    """It was stored and is gone, and nobody declared that this was on purpose."""

    DISPUTED = "disputed"
    """Several objects hold it, and nothing shows how to restore each record once: it is refused."""

    STORED = "stored"
    """It is in an object whose extent is known."""

    NAMED = "named"
    """It is between the first offsets of two objects: the extent of the first is not known."""

    EXPIRED = "expired"
    """The cluster had deleted it before it was backed up."""

    REMOVED = "removed"
    """It was stored, and removed on purpose."""


@dataclass(frozen=True, slots=True)
class MapRange:
    """Numbers, from *first* to *last* inclusive, of which one thing is true.

    They are offsets, or days since 1970-01-01.
    """

    state: MapState
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Days:
    """Days, from *first* to *last* inclusive, of which one thing is true."""

    state: MapState
    first: str
    last: str


def merged(ranges: Iterable[MapRange]) -> tuple[MapRange, ...]:
    """Return *ranges* in order and without overlap, neighbours of one state made one."""
    bounds: dict[int, dict[MapState, int]] = {}
    for one in ranges:
        for at, step in ((one.first, 1), (one.last + 1, -1)):
            steps = bounds.setdefault(at, {})
            steps[one.state] = steps.get(one.state, 0) + step
    found: list[MapRange] = []
    depth = dict.fromkeys(MapState, 0)
    for at, end in pairwise(sorted(bounds)):
        for state, step in bounds[at].items():
            depth[state] += step
        now = next((state for state, count in depth.items() if count), None)
        if now is None:
            continue
        if found and found[-1].state == now and found[-1].last == at - 1:
            found[-1] = MapRange(now, found[-1].first, end - 1)
        else:
            found.append(MapRange(now, at, end - 1))
    return tuple(found)


PART: Final = "part"
"""A cell of which some is there, and of the rest nothing is known."""

NOTHING_KNOWN: Final = "nothing"
"""A cell of which nothing is known."""

_NOT_THERE: Final = (MapState.EXPIRED, MapState.REMOVED)


def cells(ranges: Sequence[MapRange], low: int, high: int, width: int) -> list[str]:
    """Return *low* to *high*, both included, in at most *width* cells of the same size.

    A cell is a `MapState`, `PART` or `NOTHING_KNOWN`.  What is missing shows in its cell, however
    small it is.
    """
    total = high - low + 1
    count = min(width, total)
    found, begin = [], 0
    for at in range(count):
        first, end = low + total * at // count, low + total * (at + 1) // count
        while begin < len(ranges) and ranges[begin].last < first:
            begin += 1
        states, covered, number = set(), 0, begin
        while number < len(ranges) and ranges[number].first < end:
            one = ranges[number]
            states.add(one.state)
            covered += min(one.last + 1, end) - max(one.first, first)
            number += 1
        found.append(_cell(states, is_full=covered == end - first))
    return found


def _cell(states: set[MapState], *, is_full: bool) -> str:
    if not states:
        return NOTHING_KNOWN
    for alarming in (MapState.MISSING, MapState.DISPUTED):
        if alarming in states:
            return alarming
    if states <= {*_NOT_THERE}:
        return next(state for state in _NOT_THERE if state in states)
    if not is_full or states & {*_NOT_THERE}:
        return PART
    return MapState.NAMED if MapState.NAMED in states else MapState.STORED


def day(number: int) -> str:
    """Return a day since 1970-01-01 as text, the nearest in years 1 to 9999."""
    ordinal = date(1970, 1, 1).toordinal() + number
    return date.fromordinal(min(max(1, ordinal), date.max.toordinal())).isoformat()


Area = Literal["configuration", "disk", "store", "kafka", "registry", "spark"]
Level = Literal["ok", "warn", "fail"]

EXIT_CODES: Final[dict[Area, int]] = {
    "configuration": 2,
    "disk": 2,
    "store": 6,
    "kafka": 5,
    "registry": 5,
    "spark": 9,
}
"""The exit code of a failed check, by area."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    Attributes:
        level: ``ok``, ``warn`` (a run would continue) or ``fail``.
        text: What was found; what cannot be checked is reported as such, never as ``ok``.
        code: The code of the error that made it fail.
        place: Further fields, as plain JSON values.
        is_made: Whether it was checked at all, as it was asked for.
    """

    HEAD: ClassVar = {"type": "check"}

    area: Area
    name: str
    level: Level
    text: str
    do: str = field(default="", metadata=NULL_IF_EMPTY)
    code: str = field(default="check", metadata=NOT_SHOWN)
    place: dict[str, Any] = field(default_factory=dict, metadata=INLINE)
    is_made: bool = field(default=True, metadata=NOT_SHOWN)

    def issue(self) -> Issue:
        """Return a failed check as one of a summary's errors."""
        place = {**self.place, "area": self.area, "name": self.name}
        what = f"{self.area} {self.name}"
        return Issue(self.code, what, self.text, self.do, place, exit_code=EXIT_CODES[self.area])


def not_made(area: Area, name: str, why: str, do: str = "") -> Check:
    """Return the check that could not be made."""
    return Check(area, name, "warn", f"not checked: {why}", do, is_made=False)


def failed(area: Area, name: str, error: KbackupError) -> Check:
    """Return the check that *error* makes fail."""
    return Check(area, name, "fail", str(error), error.do, error.code)


def doubt(found: ConfigIssue) -> Check:
    """Return a doubt as a check."""
    return Check(
        "configuration",
        found.name or found.code,
        "fail" if found.level == "error" else "warn",
        _text(found),
        found.do,
        ConfigurationError.code,
        {"code": found.code, "origin": found.origin or None},
    )


def doubts(error: ConfigurationError) -> list[ConfigIssue]:
    """Return the doubts that `kbackup.config.loading.load` combined into one error."""
    listed = error.place.get("errors")
    if not listed:
        return [ConfigIssue("error", "configuration", "", "", error.what, error.why, error.do)]
    return [ConfigIssue("error", **entry) for entry in listed]


def _text(found: ConfigIssue) -> str:
    """Return value, reason and origin; the name precedes them already."""
    origin = f"({found.origin})"
    subject = found.what.removeprefix(found.name).removesuffix(origin).strip().removeprefix("=")
    text = ": ".join(filter(None, (subject, found.why)))
    place = found.origin.partition(" ")[2]
    is_said = not found.origin or (place != "" and place in text)
    return text if is_said else f"{text} {origin}"
