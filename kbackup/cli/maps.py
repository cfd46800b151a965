"""Draw what the bucket holds by offset, by day and by directory, with characters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any, Final

from rich.text import Text
from rich.tree import Tree

from kbackup.cli.escape import escape
from kbackup.cli.quantities import count, digits, size
from kbackup.cli.streams import Stream
from kbackup.look.stretches import NOTHING, PART, State, Stretch, cells

Event = Mapping[str, Any]

_WIDEST: Final = 100
"""Cells of a bar at most, also where nothing limits the width."""

_MARGIN: Final = 6

_SIGNS: Final = {
    State.STORED: "\u2588", State.NAMED: "\u2593", PART: "\u2592", State.EXPIRED: "\u2591",
    State.REMOVED: "-", State.MISSING: "X", NOTHING: "\u00b7",
}  # fmt: skip

MEANINGS: Final = {
    State.STORED: "stored",
    State.NAMED: "stored, judging by names alone",
    PART: "stored in part",
    State.EXPIRED: "expired before it was backed up",
    State.REMOVED: "removed on purpose",
    State.MISSING: "MISSING",
    NOTHING: "nothing known",
}
"""What each kind of cell is called."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a map.

    Attributes:
        partition: Of which partition.
        stretches: What is known, in order.
        low: The first number of the line: an offset, or a day since year 1.
        high: The last one.
    """

    partition: int
    stretches: tuple[Stretch, ...]
    low: int
    high: int

    def cells(self, width: int) -> list[str]:
        """Return the line in at most *width* cells."""
        return cells(self.stretches, self.low, self.high, width)


def by_offset(events: Iterable[Event]) -> list[Bar]:
    """Return a line for each partition that has something, from its first offset to its last."""
    found = []
    for event in events:
        stretches = tuple(
            Stretch(State(one["state"]), one["first"], one["last"]) for one in event["offsets"]
        )
        if stretches:
            found.append(Bar(event["partition"], stretches, stretches[0].first, stretches[-1].last))
    return found


def by_day(events: Iterable[Event]) -> list[Bar]:
    """Return a line for each partition that has timestamps, all over the same days."""
    found = [
        (
            event["partition"],
            tuple(
                Stretch(State(one["state"]), _number(one["first"]), _number(one["last"]))
                for one in event["days"]
            ),
        )
        for event in events
        if event["days"]
    ]
    low = min((stretches[0].first for _, stretches in found), default=0)
    high = max((stretches[-1].last for _, stretches in found), default=0)
    return [Bar(partition, stretches, low, high) for partition, stretches in found]


def _number(day: str) -> int:
    return date.fromisoformat(day).toordinal()


def draw(events: Sequence[Event], stream: Stream) -> None:
    """Write the maps of all topics, and a legend."""
    width = min(_WIDEST, max(stream.width - _MARGIN - 30, 10))
    seen: set[str] = set()
    for topic, among in groupby(events, key=lambda event: event["topic"]):
        mine = list(among)
        offsets, days = by_offset(mine), by_day(mine)
        if not offsets:
            continue
        stream.text("")
        stream.line(topic)
        for bar in offsets:
            seen |= _line(bar, width, stream, f"{digits(bar.low)} to {digits(bar.high)}")
        if days:
            first, last = (date.fromordinal(number) for number in (days[0].low, days[0].high))
            stream.line(f"{topic}, by day of the records, {first} to {last}")
            for bar in days:
                seen |= _line(bar, width, stream, "")
    if seen:
        stream.text("")
        named = (f"{sign} {MEANINGS[state]}" for state, sign in _SIGNS.items() if state in seen)
        stream.text("   ".join(named))


def _line(bar: Bar, width: int, stream: Stream, ends: str) -> set[str]:
    found = bar.cells(width)
    text = Text(f"{bar.partition:>{_MARGIN - 2}}  ")
    for state in found:
        text.append(_SIGNS[state], "bold red" if state is State.MISSING else "")
    text.append(f"  {ends}".rstrip())
    stream.text(text)
    return set(found)


def draw_tree(directories: Sequence[Event], stream: Stream) -> None:
    """Write the directories of each topic, with what is in them."""
    for topic, among in groupby(directories, key=lambda event: event["topic"]):
        tree = Tree(Text(escape(topic)))
        nodes: dict[tuple[str, ...], Tree] = {(): tree}
        for event in among:
            path = tuple(event["directory"])
            for depth in range(1, len(path) + 1):
                here = path[:depth]
                if here not in nodes:
                    nodes[here] = nodes[here[:-1]].add(Text(escape(here[-1])))
            nodes[path].label = Text(
                f"{escape((path or (topic,))[-1])}  {count(event['objects'], 'object')}, "
                f"{size(event['bytes'])}"
            )
        stream.text("")
        stream.console.print(tree, soft_wrap=True)
