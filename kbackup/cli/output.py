"""Send a command's events and summary to screens, ``--json`` lines, ``--summary-file``.

A command tells events as they happen and finishes with a summary::

    output = choose("sink run", settings)
    with output:
        summary = run(..., tell=output.tell)
    output.finish(summary)

Events and summary are those of `kbackup.events`, and reach every part:

    stdout   final tables, or JSON lines, or nothing
    stderr   live display or log lines; errors
    files    log file, summary file

`schema` describes every line of JSON; the same file is the reference in the documentation.
"""

import errno
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import resources
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from kbackup import clock, files
from kbackup.cli.progress import ERROR_LOG, EVENT_LOG, RUN_LOG, Lines, Live
from kbackup.cli.screens import LOCKED, RECORDS, Failures, Screens
from kbackup.cli.tables import is_run
from kbackup.cli.terminal import Mask, OutputPart, OutputStream, escape
from kbackup.errors import ConfigurationError, KbackupError
from kbackup.events import Ended, Event, Plain, Planned, Progress, to_json

if TYPE_CHECKING:
    from kbackup.config.running import OutputSettings

_LEVEL_NAMES: Final = {logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}
_LOGGERS: Final = ("", "kbackup", RUN_LOG, EVENT_LOG)


class LineFormatter(logging.Formatter):
    """Formats a record as one line, with its traceback below it where that is asked for."""

    def __init__(self, log_format: str, mask: Mask, *, has_traceback: bool) -> None:
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


class _LogFile(WatchedFileHandler):
    """A file of lines; what keeps it from being written is told at the end, for the run goes on."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.error: OSError | None = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.error = error
        else:
            super().handleError(record)

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:  # of what is still to be written
            self.error = error


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
        log_format: str = "text",
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
            log_file: Appended to, and opened again when a log rotation has moved it.
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
        """Stop logging and close the file.

        Raises:
            KbackupError: If it lacks lines, such as on a full disk.
        """
        logging.captureWarnings(False)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        errors = []
        while self._handlers:
            handler = self._handlers.pop()
            logging.getLogger().removeHandler(handler)
            handler.close()
            if isinstance(handler, _LogFile) and handler.error is not None:
                errors.append(handler.error)
        for error in errors:
            why = error.strerror or str(error)
            raise KbackupError(f"log file {self._log_file} cannot be written", why)

    def _add(self, handler: logging.Handler) -> None:
        handler.setFormatter(self._formatter)
        logging.getLogger().addHandler(handler)
        self._handlers.append(handler)

    def _opened(self, path: str) -> logging.Handler:
        try:
            return _LogFile(path)
        except OSError as error:
            raise ConfigurationError(
                f"log file {path} cannot be opened",
                error.strerror or str(error),
                "give --log-file a path in a folder that exists and can be written",
            ) from error


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that every line fulfils."""
    text = resources.files("kbackup.cli").joinpath("json_schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def json_line(event: Event) -> str:
    r"""Return *event* as one line of ASCII.

    ASCII, because ``\u202e`` survives every pipe and terminal and means the same to a parser.
    """
    return json.dumps(event, separators=(",", ":"))


class JsonLines(OutputPart):
    """Prints each event as it comes, and the summary last."""

    def __init__(
        self,
        stdout: OutputStream,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_summary: bool = True,
    ) -> None:
        self._stdout = stdout
        self._has_summary = has_summary
        self._clock = clock
        self._began = clock()

    def tell(self, event: Plain) -> None:
        """Print *event*, unless it serves the display only."""
        if isinstance(event, Planned):
            return
        line = to_json(event)
        if isinstance(event, Progress):
            # The tasks that send it may run on machines that do not know when the run began.
            line["seconds"] = round(self._clock() - self._began, 1)
        self._stdout.write(json_line(line) + "\n")

    def finish(self, summary: Ended) -> None:
        """Print the summary; what an error does not know is null."""
        if not self._has_summary:
            return
        errors = [
            {name: None if value == "" else value for name, value in to_json(error).items()}
            for error in summary.errors
        ]
        self._stdout.write(json_line(to_json(summary) | {"errors": errors}) + "\n")


class SummaryFile(OutputPart):
    """Writes the summary beside its place and moves it there.

    The file holds the summary line and ``last_success``, as `RunRecord.success` defines it: up to
    when the backup is complete, taken over from the old file where this run does not say, null
    where none ever did.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._is_usable = False

    def __enter__(self) -> Self:
        """Check that the file can be written before the work begins, not after.

        Raises:
            ConfigurationError: If it cannot.
        """
        folder = self._path.parent
        if not folder.is_dir():
            raise self._error(f"{folder} is not a folder")
        if self._path.exists() and not self._path.is_file():
            raise self._error("it exists and is not a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise self._error(f"no permission to write in {folder}")
        self._is_usable = True
        return self

    def finish(self, summary: Ended) -> None:
        """Put *summary* in place of the old one.

        A run that found the lock held leaves the file to the run that holds it.  Nothing is
        written where entering has failed.

        Raises:
            KbackupError: If it cannot be written; the old file is then whole.
        """
        if summary.exit_code == LOCKED or not self._is_usable:
            return
        said = to_json(summary)
        try:
            line = json_line(said | {"last_success": self._last_success(said)}) + "\n"
            files.replace_file(self._path, line.encode())
        except OSError as error:
            raise KbackupError(
                f"summary file {self._path} was not written",
                error.strerror or str(error),
                "free space or permissions, then run again; the old file is unchanged",
            ) from error

    def _last_success(self, summary: Event) -> str | None:
        """Return the time of the last good run; a damaged old file knows of none."""
        from kbackup.runs.history import RunRecord  # noqa: PLC0415

        try:
            old = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            old = None
        carried = old.get("last_success") if isinstance(old, dict) else None
        success = RunRecord(summary).success or RunRecord({"last_success": carried}).success
        return None if success is None else clock.rfc3339(success)

    def _error(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"summary file {self._path} cannot be written",
            why,
            "give --summary-file a path in a folder that exists and can be written",
        )


class Output:
    """What commands speak to: parts, told and finished in their order."""

    def __init__(
        self,
        parts: Iterable[OutputPart],
        logs: Logs,
        stdout: OutputStream,
        mask: Mask,
        *,
        is_run: bool,
    ) -> None:
        self._parts = list(parts)
        self._logs = logs
        self._stdout = stdout
        self._mask = mask
        self._is_run = is_run
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        """Start displays and logging.

        Raises:
            ConfigurationError: If the log file or the summary file cannot be written; `finish`
                shows the summary of that failure all the same.
        """
        self._logs.__enter__()
        with ExitStack() as entered:
            for part in self._parts:
                entered.enter_context(part)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop displays, whatever happened; nothing of them stays on the screen."""
        self._entered.close()

    def tell(self, event: Plain) -> None:
        """Take in an event, without the secrets in its texts.

        Never raises because nobody reads stdout any more.
        """
        masked = self._mask.of(event)
        for part in self._parts:
            part.tell(masked)

    def finish(self, summary: Ended) -> None:
        """Show the summary of a run, also of a failed one, and stop logging.

        Every part finishes, even where one of them fails.

        Raises:
            KbackupError: If the summary file, the log file or stdout could not be written, such as
                on a full disk.  A reader that has gone, as in ``| head -1``, is no error.
        """
        masked = self._mask.of(summary)
        with ExitStack() as finishing:
            finishing.callback(self._check)
            finishing.callback(self._logs.finish)
            for part in reversed(self._parts):
                finishing.callback(part.finish, masked)

    def _check(self) -> None:
        """Report that nobody could see the result; a run may be started with a closed stdout."""
        error = self._stdout.error
        if error is not None and not (self._is_run and error.errno == errno.EBADF):
            raise KbackupError("stdout cannot be written", error.strerror or str(error))


def choose(
    command: str,
    settings: "OutputSettings",
    *,
    secrets: Iterable[str] = (),
    stdout: IO[str] | None = None,
    stderr: IO[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Output:
    """Return what *command* speaks to, by its options and by what its streams lead to.

    With ``json`` and ``quiet``, JSON is printed, for it was asked for, and stderr is quiet.

    Args:
        secrets: Texts that are not to be shown wherever they turn up.
        stdout: In place of the process's; likewise *stderr*.
        environ: `NO_COLOR`, `FORCE_COLOR`, `TERM` and `COLUMNS` are looked at.
    """
    json, quiet, log_format = settings.json, settings.quiet, settings.log_format
    out = OutputStream(stdout or sys.stdout, environ, is_plain=settings.no_progress)
    err = OutputStream(stderr or sys.stderr, environ, is_plain=settings.no_progress)
    mask = Mask(secrets)
    is_live = err.is_terminal and not (err.is_plain or quiet or log_format == "json")
    is_live = is_live and is_run(command) and not (json and out.is_terminal)
    logs = Logs(
        None if quiet else err.text,
        shows_run=not is_live,
        verbose=settings.verbose,
        log_format=log_format,
        log_file=settings.log_file,
        mask=mask,
        debug=settings.debug,
    )
    parts: list[OutputPart] = []
    if settings.summary_file is not None:
        parts.append(SummaryFile(settings.summary_file))
    parts.append(Lines(command, settings.progress_seconds))
    if json:
        parts.append(JsonLines(out, has_summary=command not in RECORDS))
    if json or quiet:
        parts.append(Failures(err, has_reason=not json, is_quiet=quiet))
    else:
        parts.append(Screens(command, out, err))
    if is_live:
        parts.append(Live(command, err))
    return Output(parts, logs, out, mask, is_run=is_run(command))
