"""Draw what the bucket holds by offset, day and directory: in characters, or as a page of HTML."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any, Final

from rich.text import Text
from rich.tree import Tree

from kbackup.cli.quantities import count, digits, size
from kbackup.cli.streams import OutputStream, escape
from kbackup.inspect.map import NOTHING, PART, MapState, Stretch, cells

Event = Mapping[str, Any]

_WIDEST: Final = 100
"""Cells of a bar at most, also where nothing limits the width."""

_MARGIN: Final = 6

_SIGNS: Final = {
    MapState.STORED: "\u2588", MapState.NAMED: "\u2593", PART: "\u2592", MapState.EXPIRED: "\u2591",
    MapState.REMOVED: "-", MapState.MISSING: "X", MapState.DISPUTED: "?", NOTHING: "\u00b7",
}  # fmt: skip

MEANINGS: Final = {
    MapState.STORED: "stored",
    MapState.NAMED: "stored, judging by names alone",
    PART: "stored in part",
    MapState.EXPIRED: "expired before it was backed up",
    MapState.REMOVED: "removed on purpose",
    MapState.MISSING: "MISSING",
    MapState.DISPUTED: "in several objects: a restore is refused",
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
            Stretch(MapState(one["state"]), one["first"], one["last"]) for one in event["offsets"]
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
                Stretch(MapState(one["state"]), _number(one["first"]), _number(one["last"]))
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


def draw(events: Sequence[Event], stream: OutputStream) -> None:
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


def _line(bar: Bar, width: int, stream: OutputStream, ends: str) -> set[str]:
    found = bar.cells(width)
    text = Text(f"{bar.partition:>{_MARGIN - 2}}  ")
    for state in found:
        text.append(_SIGNS[state], "bold red" if state is MapState.MISSING else "")
    text.append(f"  {ends}".rstrip())
    stream.text(text)
    return set(found)


def draw_tree(directories: Sequence[Event], stream: OutputStream) -> None:
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


_CELLS: Final = 500
_HEIGHT: Final = 14

_COLOURS: Final = {
    MapState.STORED: "#2e7d32", MapState.NAMED: "#7cb342", PART: "#c0ca33",
    MapState.EXPIRED: "#9e9e9e", MapState.REMOVED: "#64b5f6",
    MapState.MISSING: "#d50000", MapState.DISPUTED: "#ff6d00", NOTHING: "none",
}  # fmt: skip

_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; }
tbody + tbody th { padding-top: .6rem; }
td, th { padding: .15rem 1rem .15rem 0; white-space: nowrap; }
.bar { width: 60%; padding-right: .5rem; }
.number { text-align: right; padding-right: 0; padding-left: 1rem; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: 14px; background: color-mix(in srgb, currentColor 8%, transparent); }
.legend span { display: inline-block; margin-right: 1rem; }
i { display: inline-block; width: 1em; height: 1em; vertical-align: -.1em; border: 1px solid #8888; margin-right: .3em; }
.missing { color: light-dark(#c40000, #ff7b72); font-weight: 600; }
@media (max-width: 44rem) {
  tr { display: grid; grid-template-columns: 5.5rem 1fr 1fr; margin-bottom: .4rem; }
  th.number { display: none; }
  .bar { width: auto; grid-column: 2 / -1; align-self: center; white-space: normal; }
  td.number { text-align: left; padding-left: 0; }
  td.number::before { content: attr(data-of) " "; opacity: .7; }
  td:nth-child(odd).number { grid-column: 2; }
  td:nth-child(even).number { grid-column: 3; }
}
"""  # noqa: E501

_NUMBERS: Final = ("first", "last", "records", "stored")


def page(place: str, moment: str, partitions: Sequence[Event], coverages: Sequence[Event]) -> str:
    """Return the page.

    Args:
        place: What is shown: the store and ``topics.dir``.
        moment: When it was looked at.
        partitions: The ``partition`` events.
        coverages: The ``coverage`` events, by topic.
    """
    title = f"Backup in {place}"
    rows = {(row["topic"], row["partition"]): row for row in partitions}
    objects, stored = (sum(row[name] or 0 for row in partitions) for name in ("objects", "bytes"))
    missing = sum(
        one["state"] == MapState.MISSING for event in coverages for one in event["offsets"]
    )
    verdict = (
        f'<p class="missing">{count(missing, "range")} of offsets missing</p>' if missing
        else "<p>Nothing that was stored is missing.</p>"
    )  # fmt: skip
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(MEANINGS[state].lower())}</span> '
        for state, colour in _COLOURS.items()
    )
    sections = (
        _section(topic, list(among), rows)
        for topic, among in groupby(coverages, key=lambda event: event["topic"])
    )
    summary = f"{count(len(rows), 'partition')}, {count(objects, 'object')}, {size(stored)}"
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<h1>{html.escape(title)}</h1>\n<p>{summary}, as of {html.escape(moment)}</p>\n"
        f'{verdict}\n<p class="legend">{legend}</p>\n{"".join(sections)}</body></html>\n'
    )


def _section(topic: str, coverages: Sequence[Event], rows: Mapping[tuple[str, int], Event]) -> str:
    offsets, days = by_offset(coverages), by_day(coverages)
    lines = [f"<h2>{html.escape(topic)}</h2>\n"]
    if not offsets:
        return f"{lines[0]}<p>No object.</p>\n"
    heads = "".join(f'<th class="number">{name}</th>' for name in _NUMBERS)
    lines.append(f"<table><tbody><tr><th>partition</th>{_head('by offset')}{heads}</tr>\n")
    for bar in offsets:
        row = rows.get((topic, bar.partition), {})
        numbers = (
            digits(bar.low), digits(bar.high), digits(row.get("records")), size(row.get("bytes")),
        )  # fmt: skip
        cells = "".join(
            f'<td class="number" data-of="{name}">{text}</td>'
            for name, text in zip(_NUMBERS, numbers, strict=True)
        )
        lines.append(f"<tr><td>{bar.partition}</td>{_bar(bar, digits)}{cells}</tr>\n")
    if days:
        first, last = (_day(number) for number in (days[0].low, days[0].high))
        head = _head(f"by day, {first} to {last}")
        lines.append(f"</tbody><tbody><tr><th>partition</th>{head}</tr>\n")
        lines += [f"<tr><td>{bar.partition}</td>{_bar(bar, _day)}</tr>\n" for bar in days]
    lines.append("</tbody></table>\n")
    return "".join(lines)


def _head(text: str) -> str:
    return f'<th class="bar">{text}</th>'


def _day(number: int) -> str:
    return date.fromordinal(number).isoformat()


def _bar(bar: Bar, named: Any) -> str:
    """Return one line as a picture; each range says what it is when the pointer is on it."""
    found = bar.cells(_CELLS)
    total, at, parts = bar.high - bar.low + 1, 0, []
    for state, run in groupby(found):
        width = len(list(run))
        first = bar.low + total * at // len(found)
        last = bar.low + total * (at + width) // len(found) - 1
        if state != NOTHING:
            parts.append(
                f'<rect x="{at}" width="{width}" height="{_HEIGHT}" fill="{_COLOURS[state]}">'
                f"<title>{named(first)} to {named(last)}: {MEANINGS[state].lower()}</title></rect>"
            )
        at += width
    view = f'viewBox="0 0 {len(found)} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<td class="bar"><svg {view}>{"".join(parts)}</svg></td>'
