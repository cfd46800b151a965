"""The tables and maps: from events and summaries to what is drawn, and its line of counts."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import groupby, product
from typing import Any, Final, Literal

from rich.box import ROUNDED, Box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from kbackup.cli.terminal import (
    UNKNOWN,
    OutputStream,
    count,
    digits,
    duration,
    escape,
    fold,
    longest_atom,
    size,
)
from kbackup.inspect.topics import NOTHING_KNOWN, PART, MapState, Stretch, cells

Event = Mapping[str, Any]


def title(command: str) -> str:
    """Return the command's short name: ``sink`` for ``sink run``."""
    return command.removesuffix(" run")


def is_run(command: str) -> bool:
    """Return whether *command* copies records, rather than looks at what is there."""
    return title(command) in {"sink", "restore"}


def left_out(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many records of *rows*, of partitions, the configuration left out, by reason."""
    rows = list(rows)
    counts = {
        "filtered": sum(row.get("filtered") or 0 for row in rows),
        "null values": sum(row.get("nulls_left_out") or 0 for row in rows),
    }
    return {name: number for name, number in counts.items() if number}


RULED: Final = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
"""A line below the head and nothing else."""

_GAPS: Final = (3, 2)
"""Cells between two columns: better few than folded text."""

_STYLES: Final = {"REFUSED": "bold red", "CORRUPT": "bold red", "MISSING": "bold red"}


@dataclass(frozen=True, slots=True)
class GridColumn:
    """One column.

    Attributes:
        head: Its title, which may have several lines.
        justify: ``right`` for numbers.
        least: Cells it may be folded to, 0 where its text is not broken into lines.
        short: A shorter title for a narrow screen, empty for the same.
        keeps: How much of it a narrow screen shows.
    """

    head: str
    justify: Literal["left", "right", "center"] = "left"
    least: int = 0
    short: str = ""
    keeps: Literal["all", "first word", "nothing"] = "all"

    def narrow(self) -> "GridColumn":
        """Return the column as a narrow screen has it."""
        head = self.short or self.head
        return GridColumn(head, self.justify, 0 if self.keeps == "first word" else self.least)


def number(head: str, short: str = "") -> GridColumn:
    """Return a column of numbers."""
    return GridColumn(head, "right", short=short)


def words(head: str, least: int = 8) -> GridColumn:
    """Return a column of text that may be folded; below *least* cells, blocks read better."""
    return GridColumn(head, least=least)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose width is not yet decided.

    Attributes:
        columns: The columns, left to right.
        rows: A cell a column; foreign text, escaped when it is drawn.
        total: The last row, set off by a line; None where there is none.
        headings: Number of first columns that name a row.
        is_boxed: Drawn with lines around it.
    """

    columns: Sequence[GridColumn]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    headings: int = 1
    is_boxed: bool = False

    def draw(self, stream: OutputStream) -> None:
        """Write the table as wide as it needs, at most as wide as *stream*."""
        if not (self.draw_table(stream) or self.narrowed().draw_table(stream)):
            self._draw_blocks(stream, self._cells())

    def draw_table(self, stream: OutputStream) -> bool:
        """Write it as a table if it fits; return whether it does."""
        cells = self._cells()
        spans = [self._span(index, cells) for index in range(len(self.columns))]
        for folds, gap in product((False, True), _GAPS[:1] if self.is_boxed else _GAPS):
            # A boxed table has lines at its sides, another a space at each of them.
            room = stream.width - gap * len(spans) + (-1 if self.is_boxed else gap - 2)
            if (widths := fitted(spans, room, folds=folds)) is not None:
                self._draw_table(stream, cells, widths, gap)
                return True
        return False

    def narrowed(self) -> "Grid":
        """Return the grid with short titles, and without what can be spared."""
        kept = [index for index, column in enumerate(self.columns) if column.keeps != "nothing"]

        def cells(row: Sequence[str]) -> list[str]:
            firsts = {i for i in kept if self.columns[i].keeps == "first word"}
            return [row[i].partition(" ")[0] if i in firsts else row[i] for i in kept]

        return replace(
            self,
            columns=[self.columns[index].narrow() for index in kept],
            rows=[cells(row) for row in self.rows],
            total=None if self.total is None else cells(self.total),
        )

    def _cells(self) -> list[list[str]]:
        rows = [*self.rows, *([] if self.total is None else [self.total])]
        return [[escape(cell) for cell in row] for row in rows]

    def _span(self, index: int, cells: list[list[str]]) -> tuple[int, int]:
        """Return the least and the natural width of a column."""
        column = self.columns[index]
        texts = [*column.head.split("\n"), *(row[index] for row in cells)]
        natural = max(map(cell_len, texts))
        if column.least == 0:
            return natural, natural
        head = max(map(cell_len, column.head.split()))
        return min(natural, max([head, column.least, *map(longest_atom, texts)])), natural

    def _draw_table(
        self, stream: OutputStream, cells: list[list[str]], widths: list[int], gap: int
    ) -> None:
        table = Table(
            box=ROUNDED if self.is_boxed else RULED,
            show_edge=self.is_boxed,
            pad_edge=gap == 3,
            padding=(0, 1) if gap == 3 else (0, 1, 0, 0),
            header_style="",
        )
        heads = [
            [line for part in column.head.split("\n") for line in fold(part, wide)]
            for column, wide in zip(self.columns, widths, strict=True)
        ]
        tallest = max(map(len, heads))
        for column, head, wide in zip(self.columns, heads, widths, strict=True):
            title = "\n".join([""] * (tallest - len(head)) + head)
            table.add_column(Text(title), justify=column.justify, width=wide, no_wrap=True)
        for index, row in enumerate(cells):
            is_last_before_total = self.total is not None and index == len(cells) - 2
            folded = [
                _styled("\n".join(fold(cell, wide))) for cell, wide in zip(row, widths, strict=True)
            ]
            table.add_row(*folded, end_section=is_last_before_total)
        with stream.console.capture() as drawn:
            stream.console.print(table)
        lines = [line.rstrip() for line in drawn.get().splitlines()]
        stream.write("\n".join(lines) + "\n")

    def _draw_blocks(self, stream: OutputStream, cells: list[list[str]]) -> None:
        heads = [column.head.split("\n")[0] for column in self.columns]
        indent = max(map(cell_len, heads[self.headings :])) + 4
        room = max(stream.width - indent, 1)
        for row in cells:
            name = " ".join(filter(None, row[: self.headings]))
            stream.text("\n".join(fold(name, stream.width)))
            for head, cell in zip(heads[self.headings :], row[self.headings :], strict=True):
                if cell:
                    lines = f"\n{' ' * indent}".join(fold(cell, room))
                    stream.text(_styled(f"  {head:<{indent - 2}}{lines}"))


def fitted(spans: Sequence[tuple[int, int]], room: int, *, folds: bool) -> list[int] | None:
    """Return a width for each column, None where together they need more than *room*.

    Args:
        spans: Least and natural width of each column.
        room: Cells for all of them.
        folds: Whether columns may be narrower than natural.
    """
    widths = [natural for _, natural in spans]
    while (excess := sum(widths) - room) > 0:
        slack = [wide - least for wide, (least, _) in zip(widths, spans, strict=True)]
        widest = slack.index(max(slack))
        if not folds or slack[widest] == 0:
            return None
        widths[widest] -= min(slack[widest], max(1, excess // len(widths)))
    return widths


def _styled(text: str) -> Text:
    styled = Text(text)
    for word, style in _STYLES.items():
        styled.highlight_words([word], style)
    return styled


def skips(skipped: Mapping[str, int]) -> str:
    """Return counts by name as in the column of a table: ``3 bad, 2 foreign objects``."""
    named = [
        f"{digits(number)} {name.removesuffix('_records')}"
        if name.endswith("_records")
        else counted_by_name(number, name)
        for name, number in skipped.items()
        if number
    ]
    return ", ".join(named) or "0"


def counted_by_name(number: int, name: str) -> str:
    """Return a count by its name: ``1 bad object``, ``1 filtered``."""
    nouns, of, rest = name.replace("_", " ").partition(" of ")
    if not nouns.endswith("s"):
        return f"{digits(number)} {nouns}{of}{rest}"
    return f"{count(number, nouns.removesuffix('s'))}{of}{rest}"


def run_table(summary: Event) -> Grid:
    """Return what a sink or a restore has done, a row a topic."""
    is_restore = title(summary["command"]) == "restore"
    topics = summary.get("topics") or ()
    offsets = [_offsets(summary, row) for row in topics]
    has_offsets = any(text != _SEE_JSON for text in offsets)
    states = ["" if is_restore else without_records(summary, row["topic"]) for row in topics]
    has_states = any(states)
    by_rule = [skips(left_out(_of_topic(summary, row))) for row in topics]
    has_left_out = any(text != "0" for text in by_rule)
    columns = [words("topic"), *([words("target")] if is_restore else [])]
    columns += [
        number("partitions", "parts"),
        number("records"),
        *([GridColumn("offsets", keeps="nothing")] if has_offsets else []),
        number("objects"),
        number("read" if is_restore else "stored"),
        GridColumn("skipped", "right", least=8),
        *([GridColumn("left out", "right", least=8)] if has_left_out else []),
        *([words("no records")] if has_states else []),
    ]
    rows = [
        [
            row["topic"],
            *([row.get("target") or row["topic"]] if is_restore else []),
            digits(row.get("partitions")),
            digits(row.get("records")),
            *([text] if has_offsets else []),
            digits(row.get("objects")),
            size(row.get("bytes")),
            _skipped(row.get("skipped")),
            *([rule] if has_left_out else []),
            *([state or "-"] if has_states else []),
        ]
        for row, text, state, rule in zip(topics, offsets, states, by_rule, strict=True)
    ]
    sums = [
        "total",
        *([""] if is_restore else []),
        digits(total(topics, "partitions")),
        digits(summary.get("records")),
        *([""] if has_offsets else []),
        digits(summary.get("objects")),
        size(summary.get("bytes_read" if is_restore else "bytes_stored")),
        _skipped(summary.get("skipped")),
        *([skips(left_out(summary.get("partitions") or ()))] if has_left_out else []),
        *([""] if has_states else []),
    ]
    return Grid(columns, rows, sums, is_boxed=True)


_NOTHING_READ: Final = "no records"
"""The state of a partition with offsets that none of its records has any more."""


_WITHOUT: Final = {"empty", "emptied", "up to date", "aborted", "compacted"}
"""Why a partition had nothing to store although nothing was wrong."""


def without_records(summary: Event, topic: str) -> str:
    """Return why a sink found no record of a topic; empty where it found some.

    Offsets without a record are those of aborted transactions, or of a topic that is compacted.
    """
    rows = _of_topic(summary, {"topic": topic})
    if left_out(rows) or any(row.get("records") or row.get("skipped") for row in rows):
        return ""
    settings = (summary.get("topic_settings") or {}).get(topic) or {}
    is_compacted = "compact" in ((settings.get("config") or {}).get("cleanup.policy") or "")
    nothing = "compacted" if is_compacted else "aborted"
    found = {str(row.get("state")) for row in rows}
    states = {nothing if state == _NOTHING_READ else state for state in found}
    return ", ".join(sorted(states & _WITHOUT)) if states <= _WITHOUT else ""


_SEE_JSON: Final = "see --json"
"""Stands for the offsets of several partitions."""


def _of_topic(summary: Event, topic: Event) -> list[Event]:
    """Return the partitions that are summed in the row *topic*."""

    def place(row: Event) -> tuple[Any, Any]:
        return row["topic"], row.get("target")

    return [row for row in summary.get("partitions") or () if place(row) == place(topic)]


def _offsets(summary: Event, topic: Event) -> str:
    rows = _of_topic(summary, topic)
    if len(rows) > 1:
        return _SEE_JSON
    if not rows or rows[0].get("first") is None:
        return "-"
    return f"{rows[0]['first']}-{rows[0].get('last', UNKNOWN)}"


def _skipped(skipped: Mapping[str, int] | int | None) -> str:
    return skips(skipped) if isinstance(skipped, Mapping) else digits(skipped or 0)


def total(rows: Iterable[Event], name: str) -> int | None:
    """Return the sum of a column, None where a part of it is unknown."""
    values = [row.get(name) for row in rows]
    return None if None in values else sum(value for value in values if value is not None)


def plan_table(topics: Sequence[Event]) -> Grid:
    """Return what a restore would do, a row a topic."""
    rows = [
        [
            row["source"],
            row.get("target") or "-",
            _partitions(row.get("partitions") or {}),
            digits(row.get("objects")),
            digits(row.get("records")),
            size(row.get("bytes")),
            _action(row),
        ]
        for row in topics
    ]
    columns = [
        words("source topic"),
        words("target topic"),
        GridColumn("partitions\nbackup -> target", "right"),
        number("objects"),
        number("records"),
        number("bytes"),
        words("action"),
    ]
    return Grid(columns, rows)


def _partitions(partitions: Mapping[str, int | None]) -> str:
    backup, target = partitions.get("backup"), partitions.get("target")
    there = f"(new) {digits(backup)}" if target is None else digits(target)
    return f"{digits(backup)} -> {there}"


def _action(row: Event) -> str:
    if row["action"] == "refuse":
        return "REFUSED"
    return f"{row['action']}, {row['reason']}" if row.get("reason") else str(row["action"])


def plan_count(topics: Sequence[Event]) -> str:
    """Return the line below a restore plan."""
    return (
        f"{count(len(topics), 'topic')}, {count(total(topics, 'objects'), 'object')}, "
        f"{size(total(topics, 'bytes'))}"
    )


def schemas_count(plans: Sequence[Event]) -> str:
    """Return the line on the schemas that a restore registers."""
    schemas = [each for plan in plans for each in plan["schemas"]]
    return f"{count(len(schemas), 'schema')} to register at {plans[0]['registry']}"


def sink_plan_table(partitions: Sequence[Event]) -> Grid:
    """Return what a sink would read, a row a partition."""
    rows = [
        [
            row["topic"],
            str(row["partition"]),
            digits(row.get("group_offset")),
            digits(row.get("start")),
            digits(row.get("end")),
            digits(_to_read(row)),
            row.get("state") or "-",
        ]
        for row in partitions
    ]
    columns = [words("topic"), number("p"), number("group at", "group"), number("from")]
    columns += [number("end"), number("to read")]
    return Grid([*columns, words("state")], rows, headings=2)


def _to_read(row: Event) -> int | None:
    start, end = row.get("start"), row.get("end")
    return None if start is None or end is None else max(0, end - start)


def sink_plan_count(partitions: Sequence[Event]) -> str:
    """Return the line below a sink's plan; offsets, for not each of them need be a record."""
    lefts = [_to_read(row) for row in partitions]
    known = sum(left for left in lefts if left is not None)
    offsets = count(None if None in lefts else known, "offset")
    return f"{count(len(partitions), 'partition')}, {offsets} to read"


def topics_table(partitions: Sequence[Event]) -> Grid:
    """Return what is in the bucket, a row a partition."""
    rows = [
        [
            row["topic"],
            str(row["partition"]),
            row.get("format") or UNKNOWN,
            digits(row.get("objects")),
            digits(row.get("first")),
            digits(row.get("last")),
            digits(row.get("records")),
            size(row.get("bytes")),
            _moment(row.get("newest")),
        ]
        for row in partitions
    ]
    columns = [
        words("topic"),
        number("p"),
        words("format"),
        number("objects", "objs"),
        number("first"),
    ]
    columns += [
        number("last"),
        number("records"),
        number("stored"),
        GridColumn("newest", least=len("2026-11-21 02:00"), keeps="first word"),
    ]
    return Grid(columns, rows, headings=2)


def _moment(value: int | str | None) -> str:
    """Return a time as it reads here: of milliseconds since the epoch, or of RFC 3339."""
    if value is None:
        return UNKNOWN
    try:
        if isinstance(value, int):
            moment = datetime.fromtimestamp(value / 1000)  # local, as TZ says
        else:
            moment = datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return str(value)
    return f"{moment:%Y-%m-%d %H:%M}"


def topics_count(partitions: Sequence[Event]) -> str:
    """Return the line below the topics, with what its question marks mean."""
    text = (
        f"{count(len(partitions), 'partition')}, {count(total(partitions, 'objects'), 'object')}, "
        f"{size(total(partitions, 'bytes'))}"
    )
    names = ("first", "last", "records", "newest")
    if any(row.get(name) is None for row in partitions for name in names):
        text += ".  ? = not known from names and run records, use --deep"
    return text


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def status_table(partitions: Sequence[Event]) -> Grid:
    """Return how far a sink is, a row a partition."""
    rows = [
        [
            row["topic"],
            str(row["partition"]),
            digits(row["committed"]) if row.get("committed") is not None else "none",
            digits(row.get("lag")),
            row.get("state") or "-",
        ]
        for row in partitions
    ]
    columns = [words("topic"), number("p"), number("committed"), number("lag"), words("state")]
    return Grid(columns, rows, headings=2)


def named_schemas_table(schemas: Sequence[Event]) -> Grid:
    """Return the registry schemas that records name, a row a schema."""
    rows = [
        [
            row["topic"], row["part"], str(row["id"]), row["kind"] or row["state"],
            ", ".join(row["subjects"]) or UNKNOWN,
        ]
        for row in schemas
    ]  # fmt: skip
    columns = [GridColumn("topic"), GridColumn("part"), number("schema"), GridColumn("kind")]
    return Grid([*columns, GridColumn("subjects")], rows)


def runs_table(runs: Sequence[Event]) -> Grid:
    """Return how past runs ended, a row a run."""
    rows = [
        [
            row.get("run") or UNKNOWN,
            row.get("result") or UNKNOWN,
            _text(row.get("exit_code")),
            digits(row.get("records")),
            digits(row.get("objects")),
            size(row.get("bytes_stored")),
            duration(row.get("seconds")),
        ]
        for row in runs
    ]
    columns = [GridColumn("run"), GridColumn("result"), number("exit"), number("records")]
    return Grid([*columns, number("objects"), number("stored"), number("took")], rows)


def settings_table(settings: Sequence[Event]) -> Grid:
    """Return the effective configuration, a row a setting."""
    rows = [[row["name"], _text(row.get("value")), row.get("origin") or "-"] for row in settings]
    return Grid([words("setting"), words("value"), words("origin")], rows)


def plugins_table(plugins: Sequence[Event]) -> Grid:
    """Return what is installed, a row an implementation."""
    names = ("seam", "name", "class", "package", "version")
    rows = [[_text(row.get(name)) for name in names] for row in plugins]
    return Grid([words(name) for name in names], rows, headings=2)


_WIDEST: Final = 100
"""Cells of a bar at most, also where nothing limits the width."""

_MARGIN: Final = 6

_SIGNS: Final = {
    MapState.STORED: "\u2588", MapState.NAMED: "\u2593", PART: "\u2592", MapState.EXPIRED: "\u2591",
    MapState.REMOVED: "-", MapState.MISSING: "X", MapState.DISPUTED: "?", NOTHING_KNOWN: "\u00b7",
}  # fmt: skip

MEANINGS: Final = {
    MapState.STORED: "stored",
    MapState.NAMED: "stored, judging by names alone",
    PART: "stored in part",
    MapState.EXPIRED: "expired before it was backed up",
    MapState.REMOVED: "removed on purpose",
    MapState.MISSING: "MISSING",
    MapState.DISPUTED: "in several objects: a restore is refused",
    NOTHING_KNOWN: "nothing known",
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
    MapState.MISSING: "#d50000", MapState.DISPUTED: "#ff6d00", NOTHING_KNOWN: "none",
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
        if state != NOTHING_KNOWN:
            parts.append(
                f'<rect x="{at}" width="{width}" height="{_HEIGHT}" fill="{_COLOURS[state]}">'
                f"<title>{named(first)} to {named(last)}: {MEANINGS[state].lower()}</title></rect>"
            )
        at += width
    view = f'viewBox="0 0 {len(found)} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<td class="bar"><svg {view}>{"".join(parts)}</svg></td>'
