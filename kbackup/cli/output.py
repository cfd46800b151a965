"""What a command says, and to whom: the `Output` it speaks to, and the choice of its parts.

A command tells events as they happen and finishes with a summary::

    output = choose("sink", json=settings.json_, quiet=settings.quiet)
    with output:
        summary = run(..., tell=output.tell)
    output.finish(summary)

Events are the JSON lines of the command-line contract, as plain dicts, and reach every part:

    stdout   final tables, or JSON lines, or nothing
    stderr   live display or log lines; errors
    files    log file, summary file
"""

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import IO, Any, Protocol, Self

from kbackup.cli.failures import Failures
from kbackup.cli.json_lines import JsonLines
from kbackup.cli.lines import Lines
from kbackup.cli.live import Live
from kbackup.cli.logs import LogFormat, Logs
from kbackup.cli.masking import Mask
from kbackup.cli.reasons import is_run
from kbackup.cli.screens import RECORDS, Screens
from kbackup.cli.streams import Stream
from kbackup.cli.summary_file import SummaryFile
from kbackup.errors import KbackupError

Event = Mapping[str, Any]


class Part(Protocol):
    """One way to show a command; entered and left with it where it is a context manager."""

    def tell(self, event: Event) -> None:
        """Take in what has happened; called by one thread at a time, and not always the same."""

    def finish(self, summary: Event) -> None:
        """Show how it ended; called once, last, after the part was left."""


class Output(Protocol):
    """What commands speak to."""

    def __enter__(self) -> Self:
        """Start displays and logging.

        Raises:
            ConfigurationError: If the log file or the summary file cannot be written; `finish`
                shows the summary of that failure all the same.
        """

    def __exit__(self, *exception: object) -> None:
        """Stop displays, whatever happened; nothing of them stays on the screen."""

    def tell(self, event: Event) -> None:
        """Take in an event.  Never raises because nobody reads stdout any more."""

    def finish(self, summary: Event) -> None:
        """Show the summary of a run, also of a failed one, and stop logging.

        Raises:
            KbackupError: If the summary file or stdout could not be written, such as on a full
                disk.  A reader that has gone, as in ``| head -1``, is no error.
        """


class Parts:
    """The `Output` made of parts, told and finished in their order."""

    def __init__(
        self, parts: Iterable[Part], logs: Logs, stdout: Stream, mask: Mask, *, is_run: bool
    ) -> None:
        self._parts = list(parts)
        self._logs = logs
        self._stdout = stdout
        self._mask = mask
        self._is_run = is_run
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        self._logs.__enter__()
        with ExitStack() as entered:
            for part in self._parts:
                if isinstance(part, AbstractContextManager):
                    entered.enter_context(part)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.close()

    def tell(self, event: Event) -> None:
        """Take in an event, without the secrets in its texts."""
        masked = self._mask.event(event)
        for part in self._parts:
            part.tell(masked)

    def finish(self, summary: Event) -> None:
        """Let every part finish, even where one of them fails."""
        masked = self._mask.event(summary)
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
    *,
    json: bool = False,
    quiet: bool = False,
    verbose: int = 0,
    debug: bool = False,
    no_progress: bool = False,
    progress_seconds: float = 30,
    log_format: LogFormat = "text",
    log_file: str | None = None,
    summary_file: str | None = None,
    secrets: Iterable[str] = (),
    stdout: IO[str] | None = None,
    stderr: IO[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Output:
    """Return what *command* speaks to, by its options and by what its streams lead to.

    With *json* and *quiet*, JSON is printed, for it was asked for, and stderr is quiet.

    Args:
        command: Its words, such as ``sink run`` or ``restore plan``.
        json: JSON lines on stdout in place of tables.
        quiet: Errors, and the reason of a non-zero exit, only.
        verbose: Number of ``-v``.
        debug: Tracebacks in log lines.
        no_progress: Lines in place of the live display.
        progress_seconds: Between two progress lines.
        log_format: Of the lines on stderr and in the log file.
        log_file: A further place for log lines.
        summary_file: Where the summary is left.
        secrets: Texts that are not to be shown wherever they turn up.
        stdout: In place of the process's; likewise *stderr*.
        environ: `NO_COLOR`, `FORCE_COLOR`, `TERM` and `COLUMNS` are looked at.
    """
    out = Stream(stdout or sys.stdout, environ, is_plain=no_progress)
    err = Stream(stderr or sys.stderr, environ, is_plain=no_progress)
    mask = Mask(secrets)
    is_live = err.is_terminal and not (err.is_plain or quiet or log_format == "json")
    is_live = is_live and is_run(command) and not (json and out.is_terminal)
    logs = Logs(
        None if quiet else err.text,
        shows_run=not is_live,
        verbose=verbose,
        log_format=log_format,
        log_file=log_file,
        mask=mask,
        debug=debug,
    )
    parts: list[Part] = [] if summary_file is None else [SummaryFile(summary_file)]
    parts.append(Lines(command, progress_seconds))
    if json:
        parts.append(JsonLines(out, has_summary=command not in RECORDS))
    if json or quiet:
        parts.append(Failures(err, has_reason=not json, is_quiet=quiet))
    else:
        parts.append(Screens(command, out, err))
    if is_live:
        parts.append(Live(command, err))
    return Parts(parts, logs, out, mask, is_run=is_run(command))
