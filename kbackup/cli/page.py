"""Write pages of HTML, each in one file: of the partitions of a run, and of a drill."""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kbackup.cli.tables import MEANINGS, Bar, by_day, by_offset, iso_day, named_range
from kbackup.cli.terminal import count, digits, duration, size
from kbackup.clock import shown_ms
from kbackup.inspect import NOTHING_KNOWN, PART, MapState
from kbackup.records import TopicPartition

if TYPE_CHECKING:  # what finds these imports clients that help does not need
    from kbackup.catalog.drills import DrillReport
    from kbackup.inspect.topics import PartitionCoverage, StoredPartition

_CELLS: Final = 500
_HEIGHT: Final = 14

COLOURS: Final = {
    MapState.STORED: "#2e7d32", MapState.NAMED: "#6c9a3b", PART: "#a08a00",
    MapState.EXPIRED: "#868686", MapState.REMOVED: "#3d8fd1",
    MapState.MISSING: "#d50000", MapState.DISPUTED: "#e65c00",
}  # fmt: skip
"""The colour of each kind of cell, seen on white as on black."""

_ALARMING: Final = (MapState.MISSING, MapState.DISPUTED)

_NAMED_MAX: Final = 20
"""Ranges of one kind that are named in words."""

_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
time { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; }
tbody + tbody th { padding-top: .6rem; }
td, th { padding: .15rem 1rem .15rem 0; white-space: nowrap; }
.plain td { white-space: normal; vertical-align: top; }
.bar { width: 60%; padding-right: .5rem; }
.number { text-align: right; padding-right: 0; padding-left: 1rem; font-variant-numeric: tabular-nums; }
svg, .nothing { background: color-mix(in srgb, currentColor 8%, transparent); }
svg { display: block; width: 100%; height: 14px; }
.edge, .mark { vector-effect: non-scaling-stroke; stroke-width: 4px; }
.edge { stroke: Canvas; stroke-width: 8px; }
.legend span { display: inline-block; margin-right: 1rem; }
i { display: inline-block; width: 1em; height: 1em; vertical-align: -.1em; border: 1px solid #8888; margin-right: .3em; }
.alarming { color: light-dark(#c40000, #ff7b72); margin-bottom: 1rem; }
ul { margin: .2rem 0; padding-left: 1.2rem; }
@media (max-width: 44rem) {
  table, tbody, tr, .bar { display: block; width: auto; }
  tr { position: relative; padding-left: 5.5rem; margin-bottom: .4rem; }
  tr > :first-child { position: absolute; left: 0; top: 0; }
  th.number { display: none; }
  .bar { padding: .4rem 0; white-space: normal; }
  tbody + tbody th, th.bar { padding: .15rem 0; }
  td.number { display: inline-block; min-width: 8rem; text-align: left; padding-left: 0; }
  td.number::before { content: attr(data-of) " "; opacity: .7; }
}
"""  # noqa: E501

_NUMBERS: Final = ("first", "last", "records", "stored")


def page(
    place: str,
    moment: str,
    partitions: Sequence["StoredPartition"],
    maps: Sequence["PartitionCoverage"],
) -> str:
    """Return the page."""
    title = f"Backup in {place}"
    rows = {row.where: row for row in partitions}
    objects, stored = sum(row.objects for row in partitions), sum(row.bytes for row in partitions)
    found = "".join(_alarm(state, maps) for state in _ALARMING)
    seen: set[str] = set()
    sections = [
        _section(topic, list(among), rows, seen)
        for topic, among in groupby(maps, key=lambda one: one.where.topic)
    ]
    legend = "".join(
        f"<span>{_sign(state)}{html.escape(meaning.lower())}</span> "
        for state, meaning in MEANINGS.items()
        if state in seen
    )
    summary = f"{count(len(rows), 'partition')}, {count(objects, 'object')}, {size(stored)}"
    return _document(
        title,
        f"<p>{summary}, as of {_time(moment)}</p>\n"
        f"{found or '<p>Nothing that was stored is missing.</p>'}\n"
        f'<p class="legend">{legend}</p>\n{"".join(sections)}',
    )


def drill_page(place: str, report: "DrillReport") -> str:
    """Return the page of a drill."""
    word = "passed" if report.has_passed else f"failed (exit {report.exit_code})"
    records = sum(one.records for one in report.topics)
    times = [
        ("began", _time(shown_ms(report.began_ms))), ("ended", _time(shown_ms(report.ended_ms))),
        ("records equal", digits(records)), ("RTO", _within(report.rto_s, report.rto_limit_s)),
        ("RTO of all, estimated", _within(report.rto_whole_s, report.rto_limit_s)),
        ("RPO", _within(report.rpo_s, report.rpo_limit_s)),
    ]  # fmt: skip
    wrong = "".join(f"<li>{html.escape(one.text)}</li>" for one in report.issues)
    alarm = f'<div class="alarming"><ul>{wrong}</ul></div>' if wrong else ""
    return _document(
        f"Drill {report.id} {word}",
        f"<p>Backup in {html.escape(place)}</p>\n{alarm}\n"
        + _table("", ("", ""), times)
        + _table("Phases", ("phase", "took"), [(n, duration(s)) for n, s in report.seconds.items()])
        + _table(
            "Topics", ("topic", "restored as", "partitions", "records", "read", "result"),
            [
                (html.escape(one.topic), html.escape(one.copy), digits(one.partitions),
                 digits(one.records), size(one.size_bytes) + ("" if one.is_whole else " (sample)"),
                 html.escape(one.verdict))
                for one in report.topics
            ],
        )
        + _table(
            "Consumer groups", ("group", "restored as", "partitions", "result"),
            [
                (html.escape(one.group), html.escape(one.copy), digits(one.partitions),
                 "equal" if one.is_equal else "not set")
                for one in report.groups
            ],
        )
        + _table(
            "Age of the backup", ("partition", "complete up to", "RPO", "newest record"),
            [
                (html.escape(str(one.partition)), _moment(one.complete_up_to_ms),
                 duration(one.rpo_s), _moment(one.newest_record_ms))
                for one in report.ages
            ],
        ),
    )  # fmt: skip


def _within(seconds: float | None, limit_s: float | None) -> str:
    limit = "" if limit_s is None else f" (at most {duration(limit_s)})"
    return f"{duration(seconds)}{limit}"


def _moment(ms: int | None) -> str:
    return "" if ms is None else _time(shown_ms(ms))


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, its cells being HTML; nothing where it has no row."""
    if not rows:
        return ""
    heading = f"<h2>{title}</h2>\n" if title else ""
    head = "".join(f"<th>{name}</th>" for name in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'{heading}<table class="plain"><tr>{head}</tr>\n{lines}</table>\n'


def _document(title: str, body: str) -> str:
    heading = html.escape(title).replace("/", "/<wbr>")
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<h1>{heading}</h1>\n{body}</body></html>\n"
    )


def _time(text: str) -> str:
    return f"<time>{html.escape(text)}</time>"


def _sign(state: str) -> str:
    if state == NOTHING_KNOWN:
        return '<i class="nothing"></i>'
    return f'<i style="background:{COLOURS[state]}"></i>'


def _alarm(state: MapState, maps: Sequence["PartitionCoverage"]) -> str:
    """Return in words which ranges of offsets are missing or disputed; empty for none."""
    ranges = [
        f"<li>{html.escape(one.where.topic)}, partition {one.where.partition}: "
        f"{named_range(each.first, each.last, digits)}</li>"
        for one in maps
        for each in one.offsets
        if each.state == state
    ]
    if not ranges:
        return ""
    found = count(len(ranges), "range")
    if (more := len(ranges) - _NAMED_MAX) > 0:
        ranges[_NAMED_MAX:] = [f"<li>and {digits(more)} more</li>"]
    meaning = html.escape(MEANINGS[state].lower())
    return (
        f'<div class="alarming"><b>{found} of offsets {meaning}</b><ul>{"".join(ranges)}</ul></div>'
    )


def _section(
    topic: str,
    maps: Sequence["PartitionCoverage"],
    rows: Mapping[TopicPartition, "StoredPartition"],
    seen: set[str],
) -> str:
    """Return what is told of a topic, and add to *seen* what its cells are."""
    offsets, days = by_offset(maps), by_day(maps)
    lines = [f"<h2>{html.escape(topic)}</h2>\n"]
    if not offsets:
        return f"{lines[0]}<p>Nothing is stored.</p>\n"
    heads = "".join(f'<th class="number">{name}</th>' for name in _NUMBERS)
    lines.append(f"<table><tbody><tr><th>partition</th>{_head('by offset')}{heads}</tr>\n")
    for bar in offsets:
        row = rows.get(TopicPartition(topic, bar.partition))
        records, stored = (None, None) if row is None else (row.records, row.bytes)
        numbers = (digits(bar.low), digits(bar.high), digits(records), size(stored))
        cells = "".join(
            f'<td class="number" data-of="{name}">{text}</td>'
            for name, text in zip(_NUMBERS, numbers, strict=True)
        )
        lines.append(f"<tr><td>{bar.partition}</td>{_bar(bar, digits, seen)}{cells}</tr>\n")
    if days:
        between = named_range(days[0].low, days[0].high, lambda number: _time(iso_day(number)))
        head = _head(f"by day of the records, {between}")
        lines.append(f"</tbody><tbody><tr><th>partition</th>{head}</tr>\n")
        lines += [f"<tr><td>{bar.partition}</td>{_bar(bar, iso_day, seen)}</tr>\n" for bar in days]
    lines.append("</tbody></table>\n")
    return "".join(lines)


def _head(text: str) -> str:
    return f'<th class="bar">{text}</th>'


def _bar(bar: Bar, named: Callable[[int], str], seen: set[str]) -> str:
    """Return one line as a picture; each range says what it is when the pointer is on it."""
    found = bar.cells(_CELLS)
    seen.update(found)
    length, at = bar.high - bar.low + 1, 0
    parts: list[str] = []
    marks: list[str] = []
    for state, run in groupby(found):
        width = len(list(run))
        first = bar.low + length * at // len(found)
        last = bar.low + length * (at + width) // len(found) - 1
        place = f'x="{at}" width="{width}" height="{_HEIGHT}"'
        at += width
        if state == NOTHING_KNOWN:
            continue
        colour = COLOURS[state]
        # wide enough to be seen, and set off, however small it is
        if state in _ALARMING:
            first, last = _exact(bar, state, first, last)
            marks.append(f'<rect class="edge" {place}/>')
            place += f' class="mark" stroke="{colour}"'
        text = f"{named_range(first, last, named)}: {MEANINGS[state].lower()}"
        rect = f'<rect {place} fill="{colour}"><title>{text}</title></rect>'
        (marks if state in _ALARMING else parts).append(rect)
    view = f'viewBox="0 0 {len(found)} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<td class="bar"><svg {view}>{"".join(parts + marks)}</svg></td>'


def _exact(bar: Bar, state: str, first: int, last: int) -> tuple[int, int]:
    """Return the numbers from *first* to *last* that are of *state*, less those around them."""
    begin = bisect_left(bar.ranges, first, key=attrgetter("last"))
    end = bisect_right(bar.ranges, last, key=attrgetter("first"))
    mine = [one for one in bar.ranges[begin:end] if one.state == state]
    return max(first, mine[0].first), min(last, mine[-1].last)
