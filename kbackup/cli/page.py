"""What is in the bucket as one page of HTML that needs nothing else: no script, no other file."""

from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from itertools import groupby
from typing import Any, Final

from kbackup.cli.maps import MEANINGS, Bar, by_day, by_offset
from kbackup.cli.quantities import count, digits, size
from kbackup.look.stretches import NOTHING, PART, State

Event = Mapping[str, Any]

_CELLS: Final = 500
_HEIGHT: Final = 14

_COLOURS: Final = {
    State.STORED: "#2e7d32", State.NAMED: "#7cb342", PART: "#c0ca33", State.EXPIRED: "#9e9e9e",
    State.REMOVED: "#64b5f6", State.MISSING: "#d50000", NOTHING: "none",
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
    missing = sum(one["state"] == State.MISSING for event in coverages for one in event["offsets"])
    verdict = (
        f'<p class="missing">{count(missing, "range")} of offsets missing</p>' if missing
        else "<p>Nothing that was stored is missing.</p>"
    )  # fmt: skip
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(MEANINGS[state].lower())}</span> '
        for state, colour in _COLOURS.items()
    )
    sections = (
        _section(topic, list(among), rows)
        for topic, among in groupby(coverages, key=lambda event: event["topic"])
    )
    summary = f"{count(len(rows), 'partition')}, {count(objects, 'object')}, {size(stored)}"
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{summary}, as of {escape(moment)}</p>\n"
        f'{verdict}\n<p class="legend">{legend}</p>\n{"".join(sections)}</body></html>\n'
    )


def _section(topic: str, coverages: Sequence[Event], rows: Mapping[tuple[str, int], Event]) -> str:
    offsets, days = by_offset(coverages), by_day(coverages)
    lines = [f"<h2>{escape(topic)}</h2>\n"]
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
