"""Log lines of a run and of its events: text or JSON; on stderr, in a file, both or nowhere.

Text is ``2026-11-21T02:00:00Z INFO  what happened``, one line whatever the message holds; JSON has
the same in fields.  Times are UTC.  Every line passes the `Mask`.

One line when it starts, one per interval, one per event, one when it ends.  They are ordinary
log records of `RUN_LOG` and `EVENT_LOG`, so `logs` decides where they go and in which form.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any, Final, Literal, Self

from kbackup import clock
from kbackup.cli.live import ProgressRow, ProgressTable
from kbackup.cli.quantities import size
from kbackup.cli.reasons import is_run, left_out, title
from kbackup.cli.streams import Mask, escape
from kbackup.errors import ConfigurationError, counted

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


class Lines:
    """Turns events into log records, and reports progress every *interval* seconds."""

    def __init__(
        self, command: str, interval: float, progress: ProgressTable | None = None
    ) -> None:
        self._command = title(command)
        self._is_run = is_run(command)
        self._interval = interval
        self._progress = progress or ProgressTable()
        self._said: dict[tuple[str, int, str], int | None] = {}
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

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take in an event, and log it if it belongs in the log."""
        self._progress.tell(event)
        log = logging.getLogger(EVENT_LOG)
        match event["type"]:
            case "start":
                self._has_begun = True
                self._say(logging.INFO, start_line(self._command, event))
            case "warning":
                log.log(logging.WARNING if self._is_run else logging.DEBUG, warning_text(event))
            case "object":
                log.debug(
                    "object %s offsets=%s-%s records=%s bytes=%s",
                    *(event.get(name) for name in ("key", "first", "last", "records", "bytes")),
                )

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log how the run ended, if it ever began."""
        for error in summary.get("errors") or ():
            logging.getLogger(ERROR_LOG).error("%s", error_line(error))
        if self._has_begun:
            level = _LEVELS.get(summary["result"], logging.ERROR)
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


def _place(row: ProgressRow) -> tuple[str, int, str]:
    return row.topic, row.partition, row.target


def start_line(command: str, event: Mapping[str, Any]) -> str:
    """Return what is about to be done, as ``name=value`` pairs."""
    facts = {short: event[name] for name, short in _START_FIRST.items() if name in event}
    facts |= {
        name: value
        for name, value in event.items()
        if name not in _START_FIRST and name not in _START_UNSHOWN
    }
    if isinstance(facts.get("run"), str):
        facts["run"] = facts["run"].rsplit("-", 1)[-1]
    return _pairs(f"{command} start", facts)


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
    return f"{row.topic} {row.partition}: {committed}{end} {objects}"


def warning_text(event: Mapping[str, Any]) -> str:
    """Return a warning with its place, where the sentence does not name it."""
    text = str(event.get("text") or event.get("code"))
    names = [event[name] for name in ("key", "topic", "partition") if event.get(name) is not None]
    if event.get("key") is not None:
        names = names[:1]
    place = " ".join(map(str, names))
    return text if not place or str(names[0]) in text else f"{place}: {text}"


def error_line(error: Mapping[str, Any]) -> str:
    """Return an error as one line."""
    return ": ".join(filter(None, [error["code"], error.get("what"), error.get("why")]))


def end_line(command: str, summary: Mapping[str, Any]) -> str:
    """Return how a run ended, as ``name=value`` pairs."""
    facts: dict[str, Any] = {"exit": summary["exit_code"]}
    facts |= {name: summary.get(name) for name in ("records", "objects")}
    facts["read" if command == "restore" else "stored"] = _bytes(command, summary)
    facts["skipped"] = sum((summary.get("skipped") or {}).values())
    facts |= {
        name.replace(" ", "_"): number
        for name, number in left_out(summary.get("partitions") or ()).items()
    }
    facts["seconds"] = summary.get("seconds")
    return _pairs(f"{command} end {summary['result']}", facts)


def _bytes(command: str, summary: Mapping[str, Any]) -> str | None:
    number = summary.get("bytes_read" if command == "restore" else "bytes_stored")
    return None if number is None else size(number, space="")


def _pairs(head: str, facts: Mapping[str, Any]) -> str:
    shown = [f"{name}={_value(value)}" for name, value in facts.items() if value is not None]
    return " ".join([head, *shown])


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_value, value))
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text


LogFormat = Literal["text", "json"]

_LEVEL_NAMES: Final = {logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}
_LOGGERS: Final = ("", "kbackup", RUN_LOG, EVENT_LOG)


class LineFormatter(logging.Formatter):
    """Formats a record as one line, with its traceback below it where that is asked for."""

    def __init__(self, log_format: LogFormat, mask: Mask, *, has_traceback: bool) -> None:
        super().__init__()
        self._is_json = log_format == "json"
        self._mask = mask
        self._has_traceback = has_traceback

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines, of *record*."""
        when = clock.rfc3339(datetime.fromtimestamp(record.created, UTC))
        level = _LEVEL_NAMES.get(record.levelno, record.levelname)
        text = self._mask.text(record.getMessage())
        traceback = self._traceback(record)
        if self._is_json:
            fields = {"time": when, "level": level, "logger": record.name, "text": text}
            return json.dumps(fields | ({"traceback": traceback} if traceback else {}))
        lines = [f"{when} {level:<5} {escape(text)}"]
        return "\n".join(lines + [f"  {escape(line)}" for line in traceback.splitlines()])

    def _traceback(self, record: logging.LogRecord) -> str:
        if not self._has_traceback or not record.exc_info:
            return ""
        return self._mask.text(self.formatException(record.exc_info))


class _Printer(logging.Handler):
    """Hands lines to a function, such as one that prints above the live display."""

    def __init__(self, line: Callable[[str], None]) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._line(self.format(record))
        except Exception:  # noqa: BLE001  a log line must not end the run it tells of
            self.handleError(record)


class Logs:
    """Sets the loggers up when entered, and back when the command is finished.

    Between the end of the ``with`` block and `finish` lines still go out, for the run's last one.
    """

    def __init__(
        self,
        line: Callable[[str], None] | None,
        *,
        shows_run: bool = True,
        verbose: int = 0,
        log_format: LogFormat = "text",
        log_file: str | None = None,
        mask: Mask | None = None,
        debug: bool = False,
    ) -> None:
        """Choose where lines go.

        Args:
            line: Prints a line on stderr; None where stderr is to be silent.
            shows_run: Print the run's start, progress and end on stderr; not where a live display
                and a table show the same.
            verbose: 0 for warnings and the run, 1 for what kbackup does, 2 for all its details.
            log_format: Of stderr and file.
            log_file: Appended to, and opened again when a log rotation has moved it.
            mask: Takes secrets out.
            debug: Write tracebacks.
        """
        self._line = line
        self._shows_run = shows_run
        self._verbose = verbose
        self._formatter = LineFormatter(log_format, mask or Mask(), has_traceback=debug)
        self._log_file = log_file
        self._handlers: list[logging.Handler] = []
        self._levels: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Start logging.

        Raises:
            ConfigurationError: If the log file cannot be written.
        """
        # Without any handler, logging would print warnings by itself.
        self._add(logging.NullHandler())
        if self._line is not None:
            printer = _Printer(self._line)
            unshown = {ERROR_LOG} if self._shows_run else {ERROR_LOG, RUN_LOG}
            printer.addFilter(lambda record: record.name not in unshown)
            self._add(printer)
        self._levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        ours = {0: logging.WARNING, 1: logging.INFO}.get(self._verbose, logging.DEBUG)
        run = logging.DEBUG if self._verbose else logging.INFO
        # Clients' details stay out at any verbosity: they print requests with their signatures.
        for name, level in {"": logging.WARNING, "kbackup": ours, RUN_LOG: run}.items():
            logging.getLogger(name).setLevel(level)
        logging.getLogger(EVENT_LOG).setLevel(run)
        logging.captureWarnings(True)
        if self._log_file is not None:
            self._add(self._opened(self._log_file))
        return self

    def __exit__(self, *_: object) -> None:
        """Keep logging: the command has not finished printing."""

    def finish(self) -> None:
        """Stop logging and close the file."""
        logging.captureWarnings(False)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        while self._handlers:
            handler = self._handlers.pop()
            logging.getLogger().removeHandler(handler)
            handler.close()

    def _add(self, handler: logging.Handler) -> None:
        handler.setFormatter(self._formatter)
        logging.getLogger().addHandler(handler)
        self._handlers.append(handler)

    def _opened(self, path: str) -> logging.Handler:
        try:
            return WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigurationError(
                f"log file {path} cannot be opened",
                error.strerror or str(error),
                "give --log-file a path in a folder that exists and can be written",
            ) from error
