"""Where log lines go: stderr, a file, both or nowhere; as text or as JSON.

Text is ``2026-11-21T02:00:00Z INFO  what happened``, one line whatever the message holds; JSON has
the same in fields.  Times are UTC.  Every line passes the `Mask`.
"""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Final, Literal, Self

from kbackup import moments
from kbackup.cli.escape import escape
from kbackup.cli.lines import ERROR_LOG, EVENT_LOG, RUN_LOG
from kbackup.cli.masking import Mask
from kbackup.errors import ConfigurationError

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
        when = moments.text(datetime.fromtimestamp(record.created, UTC))
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
