"""Show how far a run is: a live table on stderr, or log lines, of what its events add up to.

Bars show committed offsets.  What has been read or sent and could still be lost stands in a column
of its own.  However many partitions there are, the display fits the terminal: those that move are
shown, the others counted.

A log has one line when the run starts, one per interval, one per event and one when it ends.
"""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Literal, Self

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live as Display
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kbackup.cli.tables import RULED, is_run, left_out, rows_of, title
from kbackup.cli.terminal import (
    OutputPart,
    OutputStream,
    count,
    digits,
    duration,
    escape,
    rate,
    size,
)
from kbackup.errors import Issue, counted
from kbackup.events import (
    Ended,
    ObjectStored,
    PartitionRow,
    Plain,
    Planned,
    Progress,
    Started,
    Warned,
    to_json,
)
from kbackup.records import TopicPartition

_WINDOW_S: Final = 10.0
"""Seconds over which a rate is measured: long enough to be calm, short enough to be news."""

_REACH: Final = 100.0
"""A time to go is not told that is longer than so many times that in which work has moved."""


@dataclass(slots=True)
class ProgressRow:
    """One topic-partition.

    Attributes:
        target: The topic that is written to; None where objects are.
        start: Offset this run began at, None until known.
        committed: The next offset after what is safe, None until known.
        end: The offset this run ends at, None if it follows, or if the names do not show it.
        planned_objects: Objects to be read, None where offsets tell how much there is to do.
        records: Safe records of this run; `objects` and `stored_bytes` likewise.
        open: Records read or sent but not yet safe; None if unknown.
        moved: Clock of the last progress, None before the first.
    """

    where: TopicPartition
    target: str | None = None
    start: int | None = None
    committed: int | None = None
    end: int | None = None
    planned_objects: int | None = None
    records: int = 0
    objects: int = 0
    stored_bytes: int = 0
    open: int | None = None
    moved: float | None = None
    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def work(self) -> tuple[int, int] | None:
        """How much is safe and how much there is, in offsets or objects; None if not known."""
        if self.end is not None and self.start is not None:
            committed = self.start if self.committed is None else self.committed
            return max(0, committed - self.start), max(0, self.end - self.start)
        if self.planned_objects is not None:
            return self.objects, self.planned_objects
        return None

    @property
    def is_done(self) -> bool:
        """Whether all that this run is to copy is safe."""
        return self.work is not None and self.work[0] >= self.work[1]

    @property
    def fraction(self) -> float | None:
        """The safe part of this run's work, 0 to 1; None where that is not known."""
        if self.work is None:
            return None
        return 1.0 if self.is_done else self.work[0] / self.work[1]

    def update(self, said: PartitionRow | Progress, now: float) -> None:
        """Take over what a plan, or a task, says; what it does not know stays."""
        self.committed = self.committed if said.committed is None else said.committed
        self.end = self.end if said.end is None else said.end
        self.records, self.objects = said.records, said.objects
        self.stored_bytes = said.bytes_stored or said.bytes_read or 0
        if isinstance(said, Progress):
            self.open = said.open
            self.start = self.committed if self.start is None else self.start
        else:
            self.planned_objects = said.planned_objects
            self.start = said.start if self.start is None else self.start
        reached = self.records + (self.open or 0), self._reached
        if self._seen and self._seen[-1][1:] != reached:
            self.moved = now
        self._seen.append((now, *reached))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()

    @property
    def _reached(self) -> int:
        """How much of `work` is safe, or on its way if that can be given in the same unit."""
        if self.work is None:
            return 0
        is_by_offset = self.end is not None
        return min(self.work[0] + ((self.open or 0) if is_by_offset else 0), self.work[1])

    @property
    def left(self) -> int | None:
        """How much of `work` has not been begun; None if not known."""
        return None if self.work is None else self.work[1] - self._reached

    def rates(self, now: float) -> tuple[float, float]:
        """Return records and units of `work` per second, 0 where nothing has moved lately.

        What was read counts, safe or not: a file may take minutes to be complete, and in these
        the run does not stand still.
        """
        if self.is_done or self.moved is None or now - self.moved > 3 * _WINDOW_S:
            return 0.0, 0.0
        then, records, done = self._seen[0]
        _, last_records, last_done = self._seen[-1]
        span = max(now - then, 1e-3)
        return (last_records - records) / span, (last_done - done) / span


@dataclass(frozen=True, slots=True)
class Totals:
    """All partitions together; `left_s` is None where no end is in sight, or not known yet."""

    partitions: int
    done: int
    records: int
    objects: int
    stored_bytes: int
    records_per_s: float
    elapsed_s: float
    left_s: float | None


class ProgressTable:
    """The rows of a run; written by one thread, read by another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._moving: float | None = None
        self._lock = Lock()
        self._rows: dict[tuple[TopicPartition, str], ProgressRow] = {}

    def tell(self, event: Plain) -> None:
        """Take over a plan or progress; other events say nothing here."""
        said: Sequence[PartitionRow | Progress] = ()
        if isinstance(event, Planned):
            said = event.partitions
        elif isinstance(event, Progress):
            said = [event]
        with self._lock:
            for one in said:
                place = one.where, one.target or ""
                row = self._rows.setdefault(place, ProgressRow(one.where, one.target))
                now = self._clock()
                row.update(one, now)
                if self._moving is None and row.moved is not None:
                    self._moving = now

    def rows(self) -> list[ProgressRow]:
        """Return the rows by topic, partition and target; they continue changing."""
        with self._lock:
            return [self._rows[place] for place in sorted(self._rows)]

    def now(self) -> float:
        """Return the clock, in seconds."""
        return self._clock()

    def totals(self) -> Totals:
        """Return the sums over all rows."""
        with self._lock:
            rows, now, moving = list(self._rows.values()), self._clock(), self._moving
            rates = [row.rates(now) for row in rows]
        lefts = [row.left for row in rows]
        left = sum(count for count in lefts if count is not None)
        per_s = sum(done for _, done in rates)
        left_s = left / per_s if None not in lefts and per_s > 0 else None
        moved_s = 0.0 if moving is None else now - moving
        if left_s is not None and (moved_s < _WINDOW_S or left_s > _REACH * moved_s):
            # the first records of a run, which starts slowly, say nothing of the rest
            left_s = None
        return Totals(
            partitions=len(rows),
            done=sum(row.is_done for row in rows),
            records=sum(row.records for row in rows),
            objects=sum(row.objects for row in rows),
            stored_bytes=sum(row.stored_bytes for row in rows),
            records_per_s=sum(records for records, _ in rates),
            elapsed_s=now - self._began,
            left_s=left_s,
        )


_REDRAWS_PER_S: Final = 4
_AROUND_ROWS: Final = 4
"""Lines that are not rows: head, rule, an empty one and the cursor's; the totals come on top."""

_BAR_MIN: Final = 8
_BAR_MAX: Final = 22
_TOPIC_MIN: Final = 12
_LEAST_WANTED: Final = ("objects", "rate", "open", "offset", "bar")
"""Columns in the order in which a narrow terminal loses them."""


class Live(OutputPart):
    """Shows `ProgressTable`, from the first event that says what is to be done."""

    def __init__(
        self, command: str, stderr: OutputStream, progress: ProgressTable | None = None
    ) -> None:
        self._is_restore = title(command) == "restore"
        self._progress = progress or ProgressTable()
        self._console = stderr.console
        self._lock = Lock()
        self._is_starting = False
        self._is_over = False
        self._display = Display(
            get_renderable=self._draw,
            console=self._console,
            refresh_per_second=_REDRAWS_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def __exit__(self, *_: object) -> None:
        """Take the display off the screen: what is left there is the table of the summary."""
        with self._lock:
            self._is_over = True
            self._display.stop()

    def tell(self, event: Plain) -> None:
        """Take in an event; the next redraw shows it."""
        self._progress.tell(event)
        if isinstance(event, Planned | Progress):
            is_plan = isinstance(event, Planned)
            self._is_starting = is_plan and not all(row.is_done for row in self._progress.rows())
            with self._lock:
                if not self._is_over:
                    self._display.start(refresh=True)  # once: it does nothing when it has begun

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
    progress: ProgressTable, width: int, height: int, *, is_restore: bool, is_starting: bool = False
) -> RenderableType:
    """Return the display for a terminal of *width* times *height* cells.

    It *is_starting* while Spark has been sent for and no task has been heard of.
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


def chosen(rows: list[ProgressRow], room: int) -> list[ProgressRow]:
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


def _table(rows: list[ProgressRow], now: float, width: int, *, is_restore: bool) -> Table:
    """Return the rows as a table that fits, without the columns it has no room for."""
    columns = _columns(rows, now, is_restore=is_restore)
    least = min(columns[0].width, _TOPIC_MIN)
    for name in _LEAST_WANTED:
        if _room(columns, width) >= least:
            break
        columns = [column for column in columns if column.name != name]
    room = _room(columns, width)
    topic = max(3, min(columns[0].width, room))
    widths = {"topic": topic, "bar": min(_BAR_MAX, _BAR_MIN + max(0, room - topic))}
    table = Table(box=RULED, show_edge=False, pad_edge=True, header_style="")
    for column in columns:
        wide = widths.get(column.name, column.width)
        table.add_column(column.head, justify=column.justify, width=wide, no_wrap=True)
    for index, row in enumerate(rows):
        cells = (Text(each.cells[index]) if each.name != "bar" else _bar(row) for each in columns)
        table.add_row(*cells)
    return table


def _room(columns: list[_Column], width: int) -> int:
    """Return the cells left for the topic, the bar at its shortest."""
    wide = sum(_BAR_MIN if c.name == "bar" else c.width for c in columns[1:])
    return width - wide - 3 * len(columns) + 1


def _bar(row: ProgressRow) -> RenderableType:
    if row.fraction is None:
        return Text("-")
    # the default style of what is not finished is red, which here would mean a fault
    return ProgressBar(1.0, row.fraction, complete_style="cyan", finished_style="green")


def _columns(rows: list[ProgressRow], now: float, *, is_restore: bool) -> list[_Column]:
    columns = [
        _Column("topic", "topic", [escape(row.where.topic) for row in rows], "left"),
        _Column("p", "p", [str(row.where.partition) for row in rows]),
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


def _percent(row: ProgressRow) -> str:
    return "-" if row.fraction is None else f"{int(row.fraction * 100)}%"


def _offsets(rows: list[ProgressRow]) -> list[str]:
    ends = ["-" if row.end is None else digits(row.end) for row in rows]
    widest = max(map(len, ends))
    return [
        f"{'-' if row.committed is None else digits(row.committed)} / {end:>{widest}}"
        for row, end in zip(rows, ends, strict=True)
    ]


def _rate(row: ProgressRow, now: float) -> str:
    per_s = row.rates(now)[0]
    return "-" if per_s == 0 else digits(round(per_s))


def _open(row: ProgressRow) -> str:
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


RUN_LOG: Final = "kbackup.run"
"""Start, progress and end: what a terminal shows in other ways."""

EVENT_LOG: Final = "kbackup.event"
"""Warnings and finished objects."""

ERROR_LOG: Final = "kbackup.error"
"""Errors, for the log file: stderr shows them in their three parts."""

_ROWS_SHOWN: Final = 12
_START_FIRST: Final = {
    "run": "run",
    "topics": "topics",
    "group": "group",
    "store": "store",
    "topics_dir": "dir",
    "format": "format",
}
_START_UNSHOWN: Final = frozenset({"type", "v", "command", "version", "config_sha256"})
_LEVELS: Final = {"ok": logging.INFO, "skipped": logging.WARNING, "stopped": logging.WARNING}


class Lines(OutputPart):
    """Turns events into log records, and reports progress every *interval* seconds."""

    def __init__(
        self, command: str, interval: float, progress: ProgressTable | None = None
    ) -> None:
        self._command = title(command)
        self._is_run = is_run(command)
        self._interval = interval
        self._progress = progress or ProgressTable()
        self._said: dict[tuple[TopicPartition, str | None], int | None] = {}
        self._has_begun = False
        self._is_over = threading.Event()
        self._beat: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._is_run:
            self._beat = threading.Thread(target=self._tick, name="progress-lines", daemon=True)
            self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._beat is not None:
            self._beat.join()

    def tell(self, event: Plain) -> None:
        """Take in an event, and log it if it belongs in the log."""
        self._progress.tell(event)
        log = logging.getLogger(EVENT_LOG)
        match event:
            case Started():
                self._has_begun = True
                self._say(logging.INFO, start_line(self._command, event))
            case Warned():
                level = logging.WARNING if self._is_run else logging.DEBUG
                log.log(level, "%s", warning_text(event))
            case ObjectStored(key=key, first=first, last=last):
                text = "object %s offsets=%s-%s records=%s bytes=%s"
                log.debug(text, key, first, last, event.records, event.bytes)

    def finish(self, summary: Ended) -> None:
        """Log how the run ended, if it ever began."""
        for error in summary.errors:
            logging.getLogger(ERROR_LOG).error("%s", error_line(error))
        if self._has_begun:
            level = _LEVELS.get(summary.result, logging.ERROR)
            self._say(level, end_line(self._command, summary))

    def say_progress(self) -> None:
        """Log the progress of each partition that moved since the last time."""
        rows = self._progress.rows()
        moved = [row for row in rows if self._said.get(_place(row), row.start) != row.committed]
        if not rows:
            return
        self._said = {_place(row): row.committed for row in rows}
        logging.getLogger(RUN_LOG).info("%s", progress_line(moved, len(rows)))

    def _tick(self) -> None:
        while not self._is_over.wait(self._interval):
            self.say_progress()

    def _say(self, level: int, text: str) -> None:
        logging.getLogger(RUN_LOG).log(level if self._is_run else logging.DEBUG, "%s", text)


def _place(row: ProgressRow) -> tuple[TopicPartition, str | None]:
    return row.where, row.target


def start_line(command: str, event: Started) -> str:
    """Return what is about to be done, as ``name=value`` pairs."""
    said = to_json(event)
    facts = {short: said.pop(name) for name, short in _START_FIRST.items() if name in said}
    facts |= {name: value for name, value in said.items() if name not in _START_UNSHOWN}
    return _pairs(f"{command} start", facts | {"run": event.run.rsplit("-", 1)[-1]})


def progress_line(moved: list[ProgressRow], partitions: int) -> str:
    """Return the progress of the partitions that moved, with the total number of partitions."""
    if not moved:
        return f"no progress in {counted(partitions, 'partition')}"
    shown = [_row(row, is_first=index == 0) for index, row in enumerate(moved[:_ROWS_SHOWN])]
    if len(moved) > _ROWS_SHOWN:
        shown.append(f"and {len(moved) - _ROWS_SHOWN} more of {partitions}")
    return " | ".join(shown)


def _row(row: ProgressRow, *, is_first: bool) -> str:
    committed = "-" if row.committed is None else row.committed
    end = "" if row.end is None else f"/{row.end}"
    objects = counted(row.objects, "object") if is_first else row.objects
    return f"{row.where.topic} {row.where.partition}: {committed}{end} {objects}"


def warning_text(warning: Warned) -> str:
    """Return a warning with its place, where the sentence does not name it."""
    text, place = warning.text or warning.code, warning.place
    if place.get("key") is not None:
        names = [str(place["key"])]
    else:
        said = (place.get(name) for name in ("topic", "partition"))
        names = [str(name) for name in said if name is not None]
    return text if not names or names[0] in text else f"{' '.join(names)}: {text}"


def error_line(error: Issue) -> str:
    """Return an error as one line."""
    return ": ".join(filter(None, [error.code, error.what, error.why]))


def end_line(command: str, summary: Ended) -> str:
    """Return how a run ended, as ``name=value`` pairs."""
    is_restore = command == "restore"
    copied = summary.bytes_read if is_restore else summary.bytes_stored
    facts = {
        "exit": summary.exit_code,
        "records": summary.records,
        "objects": summary.objects,
        "read" if is_restore else "stored": None if copied is None else size(copied, space=""),
        "skipped": sum(summary.skipped.values()),
        **{name.replace(" ", "_"): n for name, n in left_out(rows_of(summary)).items()},
        "seconds": summary.seconds,
    }
    return _pairs(f"{command} end {summary.result}", facts)


def _pairs(head: str, facts: Mapping[str, Any]) -> str:
    shown = [f"{name}={_value(value)}" for name, value in facts.items() if value is not None]
    return " ".join([head, *shown])


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_value, value))
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text
