"""The live display: a table on stderr, redrawn four times a second, gone when the run is over.

Bars show committed offsets.  What has been read or sent and could still be lost stands in a column
of its own.  However many partitions there are, the display fits the terminal: those that move are
shown, the others counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal, Self

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live as Display
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kbackup.cli.escape import escape
from kbackup.cli.folding import shorten
from kbackup.cli.grid import RULED
from kbackup.cli.progress import Progress, Row, Totals
from kbackup.cli.quantities import count, digits, duration, rate, size
from kbackup.cli.reasons import title
from kbackup.cli.streams import Stream

_REDRAWS_PER_S: Final = 4
_AROUND_ROWS: Final = 4
"""Lines that are not rows: head, rule, an empty one and the cursor's; the totals come on top."""

_BAR_MIN: Final = 8
_BAR_MAX: Final = 22
_TOPIC_MIN: Final = 12
_LEAST_WANTED: Final = ("objects", "rate", "open", "offset", "bar")
"""Columns in the order in which a narrow terminal loses them."""


class Live:
    """Shows `Progress`, from the first event that says what is to be done."""

    def __init__(self, command: str, stderr: Stream, progress: Progress | None = None) -> None:
        self._is_restore = title(command) == "restore"
        self._progress = progress or Progress()
        self._console = stderr.console
        self._lock = Lock()
        self._display: Display | None = None
        self._is_starting = False
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            if self._display is not None:
                self._display.stop()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take in an event; the next redraw shows it."""
        self._progress.tell(event)
        if event["type"] in {"plan", "progress"}:
            is_plan = event["type"] == "plan"
            self._is_starting = is_plan and not all(row.is_done for row in self._progress.rows())
            self._start()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Do nothing: what is left on the screen is the table of the summary."""

    def _start(self) -> None:
        with self._lock:
            if self._display is not None or self._is_over:
                return
            self._display = Display(
                get_renderable=self._draw,
                console=self._console,
                refresh_per_second=_REDRAWS_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._display.start(refresh=True)

    def _draw(self) -> RenderableType:
        width, height = self._console.size
        return draw(
            self._progress,
            width,
            height,
            is_restore=self._is_restore,
            is_starting=self._is_starting,
        )


def draw(
    progress: Progress, width: int, height: int, *, is_restore: bool, is_starting: bool = False
) -> RenderableType:
    """Return the display for a terminal of *width* times *height* cells.

    Args:
        progress: How far it is.
        width: Columns.
        height: Lines.
        is_restore: Which words to use.
        is_starting: Whether Spark has been sent for and no task has been heard of.
    """
    rows = progress.rows()
    foot = _totals(progress.totals(), width, is_restore=is_restore, is_starting=is_starting)
    room = height - _AROUND_ROWS - len(foot)
    shown = rows if len(rows) <= room else chosen(rows, max(0, room - 1))
    if not shown:
        return Group(*foot)
    parts: list[RenderableType] = [_table(shown, progress.now(), width, is_restore=is_restore)]
    if hidden := [row for row in rows if row not in shown]:
        done = sum(row.is_done for row in hidden)
        parts.append(Text(f" and {len(hidden)} more, {done} done"[:width]))
    return Group(*parts, Text(""), *foot)


def chosen(rows: list[Row], room: int) -> list[Row]:
    """Return the *room* rows most worth seeing, in their old order: unfinished, moved last."""
    wanted = sorted(
        range(len(rows)),
        key=lambda i: (rows[i].is_done, -(rows[i].moved or 0.0) if rows[i].moved else 1.0, i),
    )
    return [rows[i] for i in sorted(wanted[:room])]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    head: str
    cells: list[str]
    justify: Literal["left", "right"] = "right"

    @property
    def width(self) -> int:
        return max(map(cell_len, [self.head, *self.cells]))


def _table(rows: list[Row], now: float, width: int, *, is_restore: bool) -> Table:
    columns = _columns(rows, now, is_restore=is_restore)
    dropped = 0
    while (room := _room(columns, width)) < min(columns[0].width, _TOPIC_MIN):
        if dropped == len(_LEAST_WANTED):
            break
        columns = [column for column in columns if column.name != _LEAST_WANTED[dropped]]
        dropped += 1
    topic = max(3, min(columns[0].width, room))
    bar = min(_BAR_MAX, _BAR_MIN + max(0, room - topic))
    table = Table(box=RULED, show_edge=False, pad_edge=True, header_style="")
    for column in columns:
        wide = {"topic": topic, "bar": bar}.get(column.name, column.width)
        head = shorten(column.head, wide)
        table.add_column(head, justify=column.justify, width=wide, no_wrap=True)
    for index, row in enumerate(rows):
        table.add_row(*(_cell(column, index, row, topic, bar) for column in columns))
    return table


def _room(columns: list[_Column], width: int) -> int:
    """Return the cells left for the topic, the bar at its shortest."""
    wide = sum(_BAR_MIN if c.name == "bar" else c.width for c in columns[1:])
    return width - wide - 3 * len(columns) + 1


def _cell(column: _Column, index: int, row: Row, topic: int, bar: int) -> RenderableType:
    if column.name == "bar":
        if row.fraction is None:
            return Text("-")
        return ProgressBar(
            total=1.0,
            completed=row.fraction,
            width=bar,
            complete_style="cyan",  # the default is red, which here would mean a fault
            finished_style="green",
        )
    text = column.cells[index]
    return Text(shorten(text, topic) if column.name == "topic" else text)


def _columns(rows: list[Row], now: float, *, is_restore: bool) -> list[_Column]:
    columns = [
        _Column("topic", "topic", [escape(row.topic) for row in rows], "left"),
        _Column("p", "p", [str(row.partition) for row in rows]),
        _Column("bar", "committed", ["" for _ in rows], "left"),
        _Column("percent", "", [_percent(row) for row in rows]),
        _Column("offset", "offset / end", _offsets(rows)),
        _Column("rate", "rec/s", [_rate(row, now) for row in rows]),
        _Column("open", "unacked" if is_restore else "open", [_open(row) for row in rows]),
        _Column("objects", "objects", [digits(row.objects) for row in rows]),
    ]
    if all(row.open is None for row in rows):
        columns = [column for column in columns if column.name != "open"]
    return columns


def _percent(row: Row) -> str:
    return "-" if row.fraction is None else f"{int(row.fraction * 100)}%"


def _offsets(rows: list[Row]) -> list[str]:
    ends = ["-" if row.end is None else digits(row.end) for row in rows]
    widest = max(map(len, ends))
    return [
        f"{'-' if row.committed is None else digits(row.committed)} / {end:>{widest}}"
        for row, end in zip(rows, ends, strict=True)
    ]


def _rate(row: Row, now: float) -> str:
    per_s = row.rates(now)[0]
    return "-" if per_s == 0 else digits(round(per_s))


def _open(row: Row) -> str:
    return f"{digits(row.open)} rec" if row.open else "-"


def _totals(totals: Totals, width: int, *, is_restore: bool, is_starting: bool) -> list[Text]:
    """Return the last line, as several where it is too wide."""
    done = [
        count(totals.objects, "object"),
        f"{rate(totals.records_per_s)} rec/s",
        f"{size(totals.stored_bytes)} {'sent' if is_restore else 'stored'}",
    ]
    parts = [
        f"{count(totals.partitions, 'partition')}, {totals.done} done",
        *(["starting Spark ..."] if is_starting else done),
        f"elapsed {duration(totals.elapsed_s)}",
    ]
    if totals.left_s is not None:
        parts.append(f"left ~{duration(totals.left_s)}")
    lines = [parts[0]]
    for part in parts[1:]:
        joined = f"{lines[-1]}   {part}"
        lines[-1:] = [joined] if cell_len(joined) <= width else [lines[-1], part]
    return [Text(line, no_wrap=True) for line in lines]
