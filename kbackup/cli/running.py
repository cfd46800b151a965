"""Run any command's work: load settings, choose the output, handle signals, exit with a code."""

import hashlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import kbackup
from kbackup import config
from kbackup.cli import options
from kbackup.clock import Clock, SystemClock
from kbackup.config import ConfigIssue, Settings, loading
from kbackup.config.issues import is_secret
from kbackup.config.loading import Loaded
from kbackup.errors import ConfigurationError, KbackupError, StoppedError, unexpected
from kbackup.options import read_switch

if TYPE_CHECKING:  # what shows a result is imported when there is one: ``--help`` is quick
    from kbackup.cli import output
    from kbackup.events import Ended, Plain, Tell
    from kbackup.naming import Layout
    from kbackup.naming.renaming import TopicFilter
    from kbackup.pipeline.views import ReadOptions
    from kbackup.records import TopicPartition
    from kbackup.runs.backup_state import BackupState
    from kbackup.runs.context import Stop
    from kbackup.runs.report import HeldUp, Summary
    from kbackup.runs.status import Words
    from kbackup.spark.java import Java
    from kbackup.stores import Store, StoreSettings
    from kbackup.verify.run import LedgerRepair

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Session:
    """What a command's work gets."""

    settings: Settings
    loaded: Loaded
    tell: "Tell"
    stop: "Stop"


Work = Callable[[Session], "Ended"]


def run(command: loading.Command, words: str, parameters: Mapping[str, Any], work: Work) -> None:
    """Load settings, do *work*, show its summary and exit with its code."""
    try:
        loaded = load(command, parameters)
    except KbackupError as error:
        refuse(words, parameters, error)
    perform(words, loaded, work)


def load(command: loading.Command, parameters: Mapping[str, Any]) -> Loaded:
    """Read options, variables and files; `ConfigurationError` names every error with its origin."""
    _archives(default=False)  # after the run it is too late to say that it is misspelt
    return loading.load(
        command,
        options=options.given(parameters),
        files=paths(parameters),
        environ=os.environ,
        extra=parameters.get("extra", ()),
    )


def load_output(words: str, parameters: Mapping[str, Any]) -> Loaded:
    """Read only what says how to print, for a command that judges all else by itself.

    What is wrong with that ends the process with exit code 2.
    """
    try:
        return _load_printing(parameters)
    except KbackupError as error:
        refuse(words, parameters, error)


ARCHIVE: Final = "KBACKUP_ARCHIVE"


def _archives(*, default: bool) -> bool:
    """Return what `ARCHIVE` says, or the default where it is not set."""
    text = os.environ.get(ARCHIVE)
    try:
        return read_switch(text) if text else default
    except ValueError as error:
        raise ConfigurationError(
            f"{ARCHIVE}={text}", str(error), f"set {ARCHIVE} to 1 or 0"
        ) from error


def _load_printing(parameters: Mapping[str, Any]) -> Loaded:
    printing = [found for found in config.PROPERTIES if found.group == "Output"]
    variables = {found.variable for found in printing}
    given = options.given(parameters)
    return loading.load(
        "doctor",
        options={f.attribute: given[f.attribute] for f in printing if f.attribute in given},
        files=(),
        environ={name: text for name, text in os.environ.items() if name in variables},
    )


def paths(parameters: Mapping[str, Any]) -> list[Path]:
    """Return the configuration files that were given; `ConfigurationError` if one has no name."""
    names = parameters.get("files", ())
    if "" in names:  # as of a variable that is not set
        raise ConfigurationError("--config names no file", "it is empty", "give it a path")
    return [Path(name) for name in names]


def perform(words: str, loaded: Loaded, work: Work) -> NoReturn:
    """Do *work*, show its summary and exit with its code."""
    from kbackup.cli import output  # noqa: PLC0415
    from kbackup.cli.screens import has_worked  # noqa: PLC0415

    shown = output.choose(words, loaded.settings, secrets=secrets(loaded))
    summary = replace(_work(shown, words, loaded, work), command=_command(words))
    if words.endswith(" run") and summary.exit_code in _GOES_ON and has_worked(summary):
        summary = replace(summary, next=shlex.join(["kbackup", *sys.argv[1:]]))
    code = _finish(shown, summary)
    if words != "doctor" and code not in _WITHOUT_SPARK and "pyspark" in sys.modules:
        _keep_classes(loaded.settings)
    sys.exit(code)


_ASKED_TO_STOP: Final = frozenset(
    {
        "sink run",
        "sink repair",
        "sink copy",
        "sink expire",
        "restore run",
        "restore verify",
        "restore drill",
        "doctor",
    }
)
"""Commands whose work checks whether it was asked to stop."""

_GOES_ON: Final = frozenset({5, 6, 130, 143})
"""Exit codes after which the same command continues where it stopped."""


def _work(shown: "output.Output", words: str, loaded: Loaded, work: Work) -> "Ended":
    from kbackup.events import Started, Warned  # noqa: PLC0415
    from kbackup.runs.context import Stop  # noqa: PLC0415  (help is fast, and runs nothing)

    stop, narrowing = Stop(), list(loaded.narrowing)

    def tell(event: "Plain") -> None:
        if isinstance(event, Started):
            narrowing.clear()  # the plan shows it
            event = replace(
                event, command=_command(words), version=kbackup.__version__,
                config_sha256=fingerprint(loaded), from_environment=loaded.narrowing or None,
            )  # fmt: skip
        shown.tell(event)

    try:
        with shown, _signals(stop, is_asked=words in _ASKED_TO_STOP):
            for doubt in loaded.warnings:
                tell(Warned(doubt.code, _sentence(doubt), {"run": None, "name": doubt.name}))
            try:
                return work(Session(loaded.settings, loaded, tell, stop))
            except KbackupError as error:
                if loaded.settings.debug:
                    raise
                return failed(words, error)
            finally:
                if narrowing:
                    text = f"from the environment: {', '.join(narrowing)}"
                    tell(Warned("from_environment", text, {"run": None}))
    except KbackupError as error:
        if loaded.settings.debug:
            _traceback(error)
        return failed(words, error)
    except Exception as error:  # noqa: BLE001  (the last line of defence: never a traceback)
        if loaded.settings.debug:
            _traceback(error)
        do = "run it again with --debug and report what it prints"
        return failed(words, unexpected(f"kbackup {_command(words)}", error, do))


def _traceback(error: BaseException) -> None:
    """Log where *error* came from: log lines are masked, stderr would show a secret in it."""
    _log.warning("%s", type(error).__name__, exc_info=error)


def _sentence(doubt: ConfigIssue) -> str:
    return f"{doubt.text}; {doubt.do}" if doubt.do else doubt.text


def failed(words: str, error: KbackupError) -> "Ended":
    """Return the summary of a command that failed or was stopped."""
    summary = summary_of(_command(words))
    summary.fail(error)
    return summary.finish(error.signal if isinstance(error, StoppedError) else None)


def summary_of(words: str) -> "Summary":
    """Return the summary of a command that begins now."""
    from kbackup.runs.history import new_run_id  # noqa: PLC0415
    from kbackup.runs.report import Summary  # noqa: PLC0415

    return Summary(new_run_id(datetime.now(UTC)), words)


def _command(words: str) -> str:
    """Return the command as its summary names it: runs and their plans by their first word."""
    return words.removesuffix(" run").removesuffix(" plan")


def refuse(words: str, parameters: Mapping[str, Any], error: KbackupError) -> NoReturn:
    """Report what is wrong with the command line or the configuration, before any work begins."""
    from kbackup.cli import output  # noqa: PLC0415

    try:
        told = _load_printing(parameters).settings
    except KbackupError:  # that is the error, or a part of it
        given = options.given(parameters)
        told = Settings(json=bool(given.get("json")), quiet=bool(given.get("quiet")))
    shown = output.choose(words, told.replace(no_progress=True))
    with suppress(KbackupError), shown:
        pass
    sys.exit(_finish(shown, failed(words, error)))


def _finish(shown: "output.Output", summary: "Ended") -> int:
    try:
        shown.finish(summary)
    except Exception as error:  # noqa: BLE001  (the run has ended: a traceback would hide how)
        known = (
            error if isinstance(error, KbackupError) else unexpected("output", error, "report it")
        )
        print(f"error: {known}", file=sys.stderr)  # noqa: T201  (the output itself is broken)
        return summary.exit_code or known.exit_code
    return summary.exit_code


_WITHOUT_SPARK: Final = frozenset({9, 130, 143})
"""Exit codes of runs whose Spark failed, or that somebody has stopped, who does not wait now."""


def _keep_classes(settings: Settings) -> None:
    """Make the class archive with which Spark starts faster, once, after a run that used Spark."""
    from kbackup.inspect.host import first_archive  # noqa: PLC0415  (imports what tasks import)
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.runs.context import Stop  # noqa: PLC0415

    is_shown = sys.stderr.isatty() and not (
        settings.json or settings.quiet or settings.log_format == "json"
    )
    if not _archives(default=is_shown):
        return

    def say(line: str) -> None:
        if is_shown:
            print(line, file=sys.stderr)  # noqa: T201  (the run's output is closed by now)

    stop = Stop()
    # the run has said how it went: nothing that happens here changes that, nor its exit code
    with _signals(stop, is_asked=True), suppress(KbackupError):
        first_archive(wiring.engine_settings(settings, find_java()), stop.event, say)


@contextmanager
def _signals(stop: "Stop", *, is_asked: bool) -> Iterator[None]:
    """The first signal asks for a clean stop, or ends what does not check; the second ends all."""

    def handle(number: int, _frame: object) -> None:
        if stop.signal is not None:
            os._exit(128 + number)
        stop.ask(signal.SIGTERM if number == signal.SIGHUP else number)
        if not is_asked:
            raise StoppedError("stopped", signal=stop.signal or number)

    with handled(handle):
        yield


@contextmanager
def handled(handle: Callable[[int, object], None]) -> Iterator[None]:
    """Have *handle* take SIGINT, SIGTERM and SIGHUP meanwhile."""
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def secrets(loaded: Loaded) -> list[str]:
    """Return the texts that must not be shown anywhere."""
    found = [
        str(loaded.settings.value_of(entry))
        for entry in config.PROPERTIES
        if entry.is_secret and loaded.settings.value_of(entry) is not None
    ]
    settings = loaded.settings
    passed_on = (
        settings.kafka_admin, settings.kafka_consumer, settings.kafka_producer,
        settings.spark_conf, loaded.passed_on,
    )  # fmt: skip
    return found + [
        str(text) for given in passed_on for name, text in given.items() if is_secret(name)
    ]


def fingerprint(loaded: Loaded) -> str:
    """Return a digest of the effective settings, secrets left out."""
    rows = sorted((name, value) for name, value, _ in loaded.shown(all=True))
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def find_java() -> "Java":
    """Find the Java for Spark."""
    from kbackup.local import java  # noqa: PLC0415  (only when Spark is started)

    return java.find_java()


# What reads a backup is imported where it is used: --help needs none of it.


@dataclass(frozen=True, slots=True)
class OpenedBackup:
    """What a command that only looks works on.

    Attributes:
        opens: Opens it, once: what is asked for wrongly is refused before anybody is asked.
    """

    session: Session
    place: "StoreSettings"
    opens: "Callable[[], Store]"
    layout: "Layout"
    summary: "Summary"
    clock: Clock

    @classmethod
    def of(cls, session: Session, words: str) -> Self:
        """Return the backup that *session* is about, for the command *words*."""
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.stores import open_store  # noqa: PLC0415

        place = wiring.store_settings(session.settings)
        layout = wiring.layout(session.settings)
        opens = cache(partial(open_store, place))
        return cls(session, place, opens, layout, summary_of(words), SystemClock())

    @property
    def store(self) -> "Store":
        """Where the backup is, opened."""
        return self.opens()

    @property
    def asked(self) -> "TopicFilter":
        """Which topics and partitions the command is about."""
        return self.session.settings.asked

    @property
    def only_format(self) -> str | None:
        """The format to which reading is narrowed; None for all there is."""
        from kbackup.runs import wiring  # noqa: PLC0415

        return wiring.only_format(self.session.settings)

    def reading(self) -> "ReadOptions":
        """Return how objects are read."""
        from kbackup.runs import wiring  # noqa: PLC0415

        return wiring.reading(self.session.settings)

    def mending(self) -> "LedgerRepair":
        """Return what writes the backup's ledger anew, or enters into it what was removed."""
        from kbackup.verify.run import LedgerRepair  # noqa: PLC0415

        return LedgerRepair(
            self.store, self.layout, self.reading(), self.summary, self.clock, self.asked
        )

    def known(
        self, *, if_allowed: bool = False, asked: "TopicFilter | None" = None
    ) -> "BackupState":
        """Return what the backup says of *asked* topics; None for those that the command is about.

        *if_allowed*, do without where this principal may not read it; else that is an error.
        """
        from kbackup.runs import backup_state  # noqa: PLC0415

        read = backup_state.read_if_allowed if if_allowed else backup_state.read
        return read(self.store, self.layout, self.clock, asked or self.asked)

    def held_up(self, said: "BackupState") -> "dict[TopicPartition, HeldUp]":
        """Return what open transactions held up of the topics that the command is about."""
        from kbackup.runs import backup_state  # noqa: PLC0415

        topics = self.asked.topics(said.names)

        def reached(where: "TopicPartition") -> int | None:
            return said.ledger(where).reached()

        return backup_state.held_up(self.store, self.layout, reached, topics, self.asked.partitions)

    def tell(self, events: "Iterable[Plain]") -> None:
        """Report all *events*."""
        for event in events:
            self.session.tell(event)


def report_status(
    session: Session, of: "Words", max_age: str | None, of_group: str | None = None
) -> "Ended":
    """Report how past runs ended, and write or serve that as metrics where they are asked for.

    Args:
        max_age: The oldest that the last success may be, a duration; None for any age.
        of_group: Only restores that keep their positions in it.
    """
    from kbackup.catalog import identity  # noqa: PLC0415
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.runs.metrics import Exporter, WatchedRuns  # noqa: PLC0415
    from kbackup.runs.status import RESTORE, ThisRestore  # noqa: PLC0415

    oldest = None if max_age is None else options.seconds("--max-age", max_age)
    at, settings = OpenedBackup.of(session, f"{of.command} status"), session.settings
    restore = None
    if of_group is not None:
        restore = ThisRestore([of_group], of_group, is_configured=False)
    elif of is RESTORE and session.loaded.names_restore:
        backup = identity.read(at.store, at.layout, wiring.address(settings).address)
        groups = wiring.restore_groups(settings, backup)
        restore = ThisRestore.of(settings, groups)
    watched = WatchedRuns(at.store, settings.url, at.layout, at.clock, at.asked, of, restore)
    if settings.metrics_file is None and settings.metrics_listen is None:
        return watched.status(max_age_s=oldest)
    exporter = Exporter(watched)
    try:
        found = exporter.look(oldest)
    finally:
        if settings.metrics_file is not None:
            exporter.write(Path(settings.metrics_file))
    if settings.metrics_listen is not None:
        with exporter.serving(settings.metrics_listen):
            session.stop.event.wait()
    return found


def look(
    command: loading.Command,
    words: str,
    parameters: Mapping[str, Any],
    work: Callable[[OpenedBackup], object],
) -> None:
    """Do what `run` does, for *work* that looks into a backup and enters in its summary."""

    def opened(session: Session) -> "Ended":
        at = OpenedBackup.of(session, words)
        work(at)
        return at.summary.finish(session.stop.signal)

    run(command, words, parameters, opened)
