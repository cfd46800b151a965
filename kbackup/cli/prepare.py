"""``kbackup config``, ``doctor``, ``plugins``, ``demo``: what comes before the first backup."""

import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import click

from kbackup import config, plugins
from kbackup.cli import Family
from kbackup.cli.options import (
    GroupedCommand,
    all_options,
    option,
    output_options,
)
from kbackup.cli.running import (
    Session,
    handled,
    load,
    load_output,
    paths,
    perform,
    run,
    summary_of,
)
from kbackup.config import loading
from kbackup.errors import ConfigurationError, KbackupError, StoppedError, unexpected

if TYPE_CHECKING:  # imported when they are used: ``--help`` needs no clients and no screens
    from kbackup.cli.terminal import OutputStream
    from kbackup.events import Ended, NextCommand
    from kbackup.inspect import Check
    from kbackup.kafka import KafkaSettings
    from kbackup.local import LocalS3
    from kbackup.local.sample import Filled


@click.group(
    "config",
    cls=Family,
    examples=(
        "kbackup config check --config s3.properties",
        "kbackup config show --config s3.properties --all",
    ),
)
def config_command() -> None:
    """Check a configuration, or show where each value comes from."""


@config_command.command(
    "check",
    examples=(
        "kbackup config check --config s3.properties",
        "kbackup config check --config common.yaml --config orders.json --json",
    ),
)
@output_options(has_files=True)
def check_command(**parameters: Any) -> None:
    """Read a configuration and report what is wrong with it.

    Reads files, variables, secrets and keys that they name; connects to nothing else.  Exits 0 with
    or without warnings, 2 with errors.
    """

    def work(session: Session) -> "Ended":
        from kbackup.inspect import doubt  # noqa: PLC0415

        summary = summary_of("config check")
        checked = loading.check(paths(parameters), os.environ)
        checks = [doubt(found) for found in checked.issues]
        checks += _unusable_here(checked.settings, checks)
        for check in checks or [_no_doubt(parameters)]:
            session.tell(check)
            if check.level == "fail":
                summary.fail(check.issue())
        return summary.finish().saying(remaining=_runs(checked, parameters, checks))

    perform("config check", load_output("config check", parameters), work)


_ON_THE_COMMAND_LINE: Final = {"-k": "HOST:PORT", "-t": "TOPIC", "-b": "BUCKET"}
"""Options for what runs need and a file may lack, each with what stands for its value."""


def _runs(
    checked: loading.CheckedConfig, parameters: dict[str, Any], found: "Sequence[Check]"
) -> "list[NextCommand]":
    """Return the runs that the configuration is for: what can be run as it is, and what cannot."""
    from kbackup.events import NextCommand  # noqa: PLC0415

    options = {
        each.name: (option, value)
        for each in config.PROPERTIES
        for option, value in _ON_THE_COMMAND_LINE.items()
        if option in each.option_names
    }
    files = [word for path in paths(parameters) for word in ("--config", str(path))]
    is_broken = any(check.level == "fail" for check in found)
    runs = []
    for run_name, lacks in checked.runs:
        more = [word for name in lacks for word in options.get(name, ())]
        purpose = "can be run:"
        if is_broken:
            purpose = "cannot be run until that is corrected:"
        elif not {*lacks} <= options.keys():
            purpose = f"cannot be run, because of {', '.join(lacks)}:"
        runs.append(NextCommand(purpose, shlex.join(["kbackup", run_name, *files, *more])))
    return runs


def _unusable_here(settings: config.Settings, found: "Sequence[Check]") -> "list[Check]":
    """Return failures where a run would miss an extra, or Kafka's client refuses its part."""
    # what is wrong already may be why something that needs an extra is not set
    from kbackup.connect import registry  # noqa: PLC0415  (imports Arrow)
    from kbackup.inspect import Check, failed  # noqa: PLC0415
    from kbackup.runs import wiring  # noqa: PLC0415

    asked: dict[str, Callable[[], object]] = {
        "format.class": lambda: wiring.check_batches(settings),
        "Kafka": lambda: wiring.check_client(settings),
        "topics.dir": lambda: wiring.layout(settings),
    }
    wrong = [check for check in found if check.level == "fail"]
    if settings.schema_registry_url or any(f".{check.name}".endswith(_REGISTRY) for check in wrong):
        asked["Schema Registry"] = registry.check_installed
    said = {text for check in wrong for text in (check.name, check.do)}
    more = list[Check]()
    for name, ask in asked.items():
        try:
            ask()
        except ConfigurationError as error:
            if said.isdisjoint((name, error.do)):  # converters say themselves what they need
                more.append(failed("configuration", name, error))
    try:
        keys = [*wiring.check_encryption(settings)]
    except ConfigurationError as error:
        keys = [error]
    return more + [failed("configuration", "encryption", error) for error in keys]


_REGISTRY: Final = ".schema.registry.url"


def _no_doubt(parameters: dict[str, Any]) -> "Check":
    names = ", ".join(map(str, paths(parameters))) or "the variables alone"
    from kbackup.inspect import Check  # noqa: PLC0415

    return Check("configuration", names, "ok", "no problems found")


_AS_TYPED: Final = (
    "--config", "-t", "-b", "-k", "--topics-regex", "--topics-exclude", "--region", "--store-url",
    "-f", "--flush-size", "--group", "--master", "--json", "-q", "-X",
)  # fmt: skip
"""The options of sink and restore that one tries most."""


@config_command.command(
    "show",
    common=("--all", *_AS_TYPED),
    examples=(
        "kbackup config show --config s3.properties",
        "kbackup config show --config s3.properties --flush-size 500 -t orders",
        "kbackup config show --all",
    ),
)
@option(
    "--all", "is_all", is_flag=True, group="Output", help="List every property, with its default."
)
@all_options("config")
def show_command(is_all: bool, **parameters: Any) -> None:
    """Show every effective value and where it came from.

    Secrets are masked.  Takes the options of sink and restore, so that you can inspect a command
    exactly as typed.
    """

    def work(session: Session) -> "Ended":
        for name, value, origin in session.loaded.shown(all=is_all):
            is_unset = not value and origin == "default"
            session.tell(SettingShown(name, None if is_unset else value, origin))
        return summary_of("config show").finish()

    run("config", "config show", parameters, work)


@dataclass(frozen=True, slots=True)
class SettingShown:
    """A setting, its value, which is null where it has none, and where that is from."""

    HEAD: ClassVar = {"type": "setting"}

    name: str
    value: str | None
    origin: str


@click.command(
    "doctor",
    common=("--write-probe", "--spark", *_AS_TYPED),
    cls=GroupedCommand,
    examples=(
        "kbackup doctor -k broker:9092 -t orders -b my-bucket",
        "kbackup doctor --config s3.properties -k broker:9092 --write-probe",
        "kbackup doctor --config dr.properties --no-spark --quiet",
    ),
)
@option(
    "--write-probe", is_flag=True, group="S3",
    help="Write and delete a probe object.  Under _kbackup/: it tries a plain, a multipart and an "
        "aborted upload, and conditional writes.",
)  # fmt: skip
@option(
    "--spark/--no-spark", "starts", default=True, group="Spark",
    help="Start Spark and run a trial task.  That takes some seconds.",
)  # fmt: skip
@all_options("doctor")
def doctor_command(write_probe: bool, starts: bool, **parameters: Any) -> None:
    """Check in advance what a run needs.

    Checks configuration, disk, S3, Kafka, Java and Spark, and prints one line for each check, with
    what to do.  Takes the options of sink and restore, so that you can check a command exactly as
    typed.  Exits 0 if nothing failed, 3 if store or brokers were not named and so not checked, else
    with the code of the area that failed.
    """
    from kbackup.inspect import doubts  # noqa: PLC0415  (not needed for --help)

    try:
        loaded = load("doctor", parameters)
        found = list(loaded.warnings)
    except ConfigurationError as error:
        found = doubts(error)
        loaded = load_output("doctor", parameters)

    def work(session: Session) -> "Ended":
        from kbackup.inspect.examination import examine  # noqa: PLC0415  (imports all clients)
        from kbackup.local.java import find_java  # noqa: PLC0415

        summary, levels, left_out = summary_of("doctor"), set[str](), 0
        for check in examine(
            session.settings,
            found,
            find_java,
            writes=write_probe,
            starts=starts,
            stop=session.stop.event,
        ):
            session.tell(check)
            if check.level == "fail":
                summary.fail(check.issue())
            levels.add(check.level)
            left_out += not check.is_made
        if "fail" not in levels:  # else that says why
            summary.skip("checks_not_made", left_out)
        return summary.finish(session.stop.signal)

    perform("doctor", replace(loaded, warnings=()), work)


@click.command(
    "plugins", cls=GroupedCommand, examples=("kbackup plugins", "kbackup plugins --json")
)
@output_options(has_files=False)
def plugins_command(**parameters: Any) -> None:
    """List the installed plugins, and their packages."""
    perform("plugins", load_output("plugins", parameters), _list_plugins)


@dataclass(frozen=True, slots=True)
class PluginShown:
    """A plugin: of which extension point, its class, its package, and the options it declares."""

    HEAD: ClassVar = {"type": "plugin"}

    extension_point: str
    name: str
    target: str = field(metadata={"name": "class"})
    package: str | None
    version: str | None
    options: Mapping[str, str]


def _list_plugins(session: Session) -> "Ended":
    for extension_point in (*plugins.EXTENSION_POINTS, *plugins.CHAINED):
        for found in plugins.installed(extension_point):
            options = _options(extension_point, found.name)
            session.tell(
                PluginShown(
                    extension_point, found.name, found.target, found.package, found.version, options
                )
            )
    return summary_of("plugins").finish()


def _options(extension_point: str, name: str) -> dict[str, str]:
    """Return what a plugin declares: its properties and their values."""
    try:
        return {each.name: each.help for each in plugins.options(extension_point, name)}
    except ConfigurationError:
        return {}  # choosing it reports why it cannot be imported


class Foreground:
    """Runs one command at a time in the foreground.

    The first signal stops everything in good order, the second one ends the running command at
    once; what is cleaned up after it is not interrupted.
    """

    def __init__(self) -> None:
        self._signal: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_starting = False

    def stoppable(self) -> AbstractContextManager[None]:
        """Raise `StoppedError` at the first SIGINT, SIGTERM or SIGHUP, wherever we are."""
        return handled(self._handle)

    def call(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run *command* to its end; return its exit code as a shell would say it.

        It has our output, a session of its own, so that Ctrl-C reaches it once, from here, and no
        input, so that it asks nothing.

        Raises:
            StoppedError: At a signal, when the command has stopped too.
        """
        self._is_starting = True  # a signal waits until there is a process to pass it on to
        try:
            with subprocess.Popen(  # noqa: S603  (our own commands)
                command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            ) as child:
                return self._ended(child)
        finally:
            self._is_starting = False

    def wait(self) -> None:
        """Wait for a signal.

        Raises:
            StoppedError: When it has come.  What it raised where it came may have been swallowed:
                nothing that a destructor raises comes through.
        """
        while True:
            self._stop_if_asked()
            time.sleep(_LOOKS_S)

    def _ended(self, child: "subprocess.Popen[bytes]") -> int:
        self._child = child
        try:
            self._is_starting = False
            self._stop_if_asked()
            code = child.wait()
        except StoppedError:
            child.terminate()  # SIGINT, if it is not up yet, would make it print a traceback
            child.wait()
            raise
        finally:
            self._child = None
        return code if code >= 0 else 128 - code

    def _handle(self, number: int, _frame: object) -> None:
        if self._signal is not None:
            if self._child is not None:
                os.killpg(self._child.pid, signal.SIGKILL)
            return
        self._signal = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        if not self._is_starting:
            self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._signal is not None:
            raise StoppedError("stopped", signal=self._signal)


T = TypeVar("T")

_LOOKS_S: Final = 0.5

DEFAULT_RECORDS: Final = 400_000
"""A demo of a minute on two cores."""

_BUCKET: Final = "demo"
_RENAME: Final = "copy_of_$0"


@click.command(
    "demo",
    cls=GroupedCommand,
    examples=("kbackup demo", "kbackup demo --records 20000", "kbackup demo --keep"),
)
@option(
    "--records", group="Sample", type=click.IntRange(min=1000),
    default=DEFAULT_RECORDS, metavar="N", help="Number of sample records.",
)  # fmt: skip
@option(
    "--keep", group="Sample", is_flag=True,
    help="Keep Kafka and S3 running until Ctrl-C.  You can then try things out.",
)  # fmt: skip
@option("-q", "--quiet", group="Output", is_flag=True, help="Print errors and reasons only.")
@option(
    "--no-progress", group="Output", is_flag=True,
    help="Print plain lines, not a live display.",
)  # fmt: skip
def demo_command(*, records: int, keep: bool, quiet: bool, no_progress: bool) -> None:
    """Start Kafka and S3, back up a sample, restore and compare it.

    Both servers are real, listen on the loopback interface, and are removed at the end, as is
    their data.  Apache Kafka is downloaded the first time.  Exits 0 when the copy equals the
    original, 7 when it does not.
    """
    from kbackup.cli.terminal import OutputStream  # noqa: PLC0415

    demo = Demo(
        OutputStream(sys.stdout, is_plain=no_progress),
        OutputStream(sys.stderr, is_plain=no_progress),
        Foreground(),
        quiet=quiet,
        no_progress=no_progress,
    )
    sys.exit(demo.run(records, keep=keep))


class _CommandFailedError(Exception):
    """A command of the demo failed, and has printed why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Demo:
    """The steps of the demo, and what it prints about them."""

    stdout: "OutputStream"
    stderr: "OutputStream"
    foreground: Foreground
    quiet: bool = False
    no_progress: bool = False

    def run(self, records: int, *, keep: bool) -> int:
        """Do all of it; return the exit code."""
        from kbackup.cli.output import Logs  # noqa: PLC0415

        logs = Logs(None if self.quiet else self.stderr.line)
        with logs, self.foreground.stoppable():
            # a client's warnings are of what it tries again; what fails is raised
            logging.getLogger("kbackup.kafka").setLevel(logging.ERROR)
            code = self._judged(lambda: self._run(records, keep=keep))
        logs.finish()
        return code

    def _judged(self, work: Callable[[], int]) -> int:
        """Return the exit code of *work*, having printed why it failed where it has."""
        from kbackup.cli.screens import print_error  # noqa: PLC0415

        try:
            return work()
        except StoppedError as stopped:
            self._say("stopped")
            return stopped.exit_status
        except _CommandFailedError as failed:
            return failed.code
        except KbackupError as error:
            print_error(self.stderr, error.issue())
            return error.exit_code
        except Exception as error:  # noqa: BLE001  (the last line of defence: never a traceback)
            print_error(self.stderr, unexpected("kbackup demo", error, "report it").issue())
            return 1

    def _run(self, records: int, *, keep: bool) -> int:
        from kbackup.kafka import KafkaSettings  # noqa: PLC0415  (imports a Kafka client)
        from kbackup.local import LocalS3, start_kafka  # noqa: PLC0415

        with self._started("Apache Kafka, downloaded the first time", start_kafka) as kafka:
            self._say(f"Apache Kafka {kafka.version} runs at {kafka.bootstrap_servers}")
            with self._started("an S3 server", LocalS3) as s3:
                s3.create_bucket(_BUCKET)
                self._say(
                    f"an S3 server runs at {s3.endpoint_url}, with an empty bucket, {_BUCKET}"
                )
                settings = KafkaSettings(kafka.bootstrap_servers)
                code = self._judged(lambda: self._round_trip(settings, s3, records))
                if keep and code not in (130, 143):
                    self._keep(settings, s3)
        return code

    def _round_trip(self, kafka: "KafkaSettings", s3: "LocalS3", records: int) -> int:
        """Fill, back up, look at the backup, restore, compare."""
        from kbackup.cli.terminal import count  # noqa: PLC0415
        from kbackup.local.sample import (  # noqa: PLC0415
            TOPICS,
            compare_topics,
            fill,
        )

        names = [topic.name for topic in TOPICS]
        self._say("\nthe sample:")
        with self._status("writing the sample"):
            for filled in fill(kafka, records):
                if not self.quiet:
                    self.stderr.hang(*filled_topic(filled))
        broker = ("-k", kafka.bootstrap_servers)
        store = ("-b", _BUCKET, "--store-url", s3.endpoint_url)
        self._call(s3, "sink", *broker, "-t", ",".join(names), *store)
        self._call(s3, "restore", "list", *store)
        self._call(s3, "restore", "verify", *store)
        self._call(s3, "restore", *broker, *store, "--rename", _RENAME)
        with self._status("comparing every record"):
            pairs = {name: _RENAME.replace("$0", name) for name in names}
            equal = [found for _, found in compare_topics(kafka, pairs)]
        self._say("")
        if not self.quiet:
            self.stdout.hang(
                f"{count(sum(equal), 'record')} in {count(len(equal), 'partition')}: ",
                "the copy equals the original, key, value, headers and timestamps",
                "bold green",
            )
        return 0

    def _call(self, s3: "LocalS3", *words: str) -> None:
        """Print a command as one would type it, and run it."""
        flags = {"--quiet": self.quiet, "--no-progress": self.no_progress}
        words = (*words, *(flag for flag, is_set in flags.items() if is_set))
        self._say(f"\n$ {shlex.join(['kbackup', *words])}", "bold")
        code = self.foreground.call(
            [sys.executable, "-P", "-m", "kbackup", *words], _demo_environment(os.environ, s3)
        )
        if code:
            raise _CommandFailedError(code)

    def _keep(self, kafka: "KafkaSettings", s3: "LocalS3") -> None:
        """Wait for a signal, which is not a failure here."""
        exports = " ".join(f"{name}={value}" for name, value in s3.environment.items())
        try:
            self._say("\nKafka and S3 run until Ctrl-C.  In another terminal:", "bold")
            self._say(f"export {exports}")
            self._say(f"export KBACKUP_BOOTSTRAP_SERVERS={kafka.bootstrap_servers}")
            self._say(
                f"export KBACKUP_STORE_URL={s3.endpoint_url} KBACKUP_S3_BUCKET_NAME={_BUCKET}"
            )
            self.foreground.wait()
        except StoppedError:
            self._say("stopped")

    def _started(self, name: str, start: Callable[[], T]) -> T:
        with self._status(f"starting {name}"):
            return start()

    def _status(self, text: str) -> AbstractContextManager[object]:
        """Show on a terminal that work is in progress."""
        is_live = self.stderr.is_terminal and not (self.stderr.is_plain or self.quiet)
        return self.stderr.console.status(f"{text} ...") if is_live else nullcontext()

    def _say(self, text: str, style: str = "") -> None:
        if not self.quiet:
            for line in text.split("\n"):
                self.stderr.line(line, style)


def filled_topic(filled: "Filled") -> tuple[str, str]:
    """Return what a topic of the sample is, and what is special about its records."""
    from kbackup.cli.terminal import count, digits  # noqa: PLC0415

    topic = filled.topic
    readable = count(filled.readable, "record")
    gone = filled.written - filled.readable
    about = (
        f"{topic.about}; {digits(gone)} of {digits(filled.written)} gone" if gone else topic.about
    )
    return f"  {topic.name:<10}{count(topic.partitions, 'partition'):<14}{readable:>16}   ", about


def _demo_environment(environ: Mapping[str, str], s3: "LocalS3") -> dict[str, str]:
    """Return the variables of a command: nothing of the user's own Kafka, bucket or account."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.upper().startswith(("KBACKUP_", "AWS_"))
    }
    here = ",".join(filter(None, [environ.get("no_proxy") or environ.get("NO_PROXY"), "127.0.0.1"]))
    return {
        **kept,
        **s3.environment,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": here,
        "no_proxy": here,
    }
