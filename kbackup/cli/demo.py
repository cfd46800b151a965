"""``kbackup demo``: backup and restore of a sample on this machine, judged record by record."""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kbackup.cli.logs import Logs
from kbackup.cli.options import GroupedCommand, GroupedOption
from kbackup.cli.quantities import count, digits
from kbackup.cli.reasons import print_error
from kbackup.cli.running import Foreground
from kbackup.cli.streams import OutputStream
from kbackup.errors import KbackupError, StoppedError

if TYPE_CHECKING:  # imported when the demo runs: ``--help`` needs no clients
    from kbackup.kafka import KafkaSettings
    from kbackup.local import LocalS3
    from kbackup.local.sample import Filled

T = TypeVar("T")

DEFAULT_RECORDS: Final = 400_000
"""A demo of a minute on two cores."""

_BUCKET: Final = "demo"
_RENAME: Final = "copy_of_$0"


class _Demo(GroupedCommand):
    examples = ("kbackup demo", "kbackup demo --records 20000", "kbackup demo --keep")


@click.command("demo", cls=_Demo)
@click.option(
    "--records", cls=GroupedOption, group="Sample", type=click.IntRange(min=1000),
    default=DEFAULT_RECORDS, show_default=True, metavar="N", help="Number of sample records.",
)  # fmt: skip
@click.option(
    "--keep", cls=GroupedOption, group="Sample", is_flag=True,
    help="Keep Kafka and S3 running until Ctrl-C, so that you can try things out.",
)  # fmt: skip
@click.option(
    "-q",
    "--quiet",
    cls=GroupedOption,
    group="Output",
    is_flag=True,
    help="Print errors and reasons only.",
)
@click.option(
    "--no-progress", cls=GroupedOption, group="Output", is_flag=True,
    help="Print plain lines instead of the live display.",
)  # fmt: skip
def command(*, records: int, keep: bool, quiet: bool, no_progress: bool) -> None:
    """Start Kafka and S3, back up a sample, restore and compare it.

    Both servers are real, listen on the loopback interface, and are removed at the end, as is
    their data.  Apache Kafka is downloaded the first time.  Exits 0 when the copy equals the
    original, 7 when it does not.
    """
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
    """The steps of the demo, and what it prints about them.

    Attributes:
        stdout: Gets the result.
        stderr: Gets the progress messages.
        foreground: Runs the commands.
        quiet: Print failures only.
        no_progress: No live display.
    """

    stdout: OutputStream
    stderr: OutputStream
    foreground: Foreground
    quiet: bool = False
    no_progress: bool = False

    def run(self, records: int, *, keep: bool) -> int:
        """Do all of it; return the exit code."""
        logs = Logs(None if self.quiet else self.stderr.line)
        with logs, self.foreground.stoppable():
            # a client's warnings are of what it tries again; what fails is raised
            logging.getLogger("kbackup.kafka").setLevel(logging.ERROR)
            code = self._judged(lambda: self._run(records, keep=keep))
        logs.finish()
        return code

    def _judged(self, work: Callable[[], int]) -> int:
        """Return the exit code of *work*, having printed why it failed where it has."""
        try:
            return work()
        except StoppedError as stopped:
            self._say("stopped")
            return stopped.exit_status
        except _CommandFailedError as failed:
            return failed.code
        except KbackupError as error:
            print_error(self.stderr, error.to_dict())
            return error.exit_code
        except Exception as error:  # noqa: BLE001  (the last line of defence: never a traceback)
            why = f"{type(error).__name__}: {error}"
            do = "this is a defect of kbackup: report it"
            print_error(self.stderr, KbackupError("the demo failed", why, do).to_dict())
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
        """Fill, back up, look at the backup, restore, compare.

        Raises:
            AuditError: If the copy differs from the original.
        """
        from kbackup.local.compare import compare_topics  # noqa: PLC0415  (imports a Kafka client)
        from kbackup.local.sample import TOPICS, fill  # noqa: PLC0415

        names = [topic.name for topic in TOPICS]
        self._say("\nthe sample:")
        with self._status("writing the sample"):
            for filled in fill(kafka, records):
                self._say(_line(filled))
        broker = ("-k", kafka.bootstrap_servers)
        store = ("-b", _BUCKET, "--store-url", s3.endpoint_url)
        self._call(s3, "sink", *broker, "-t", ",".join(names), *store)
        self._call(s3, "restore", "topics", *store)
        self._call(s3, "restore", "verify", *store)
        self._call(s3, "restore", *broker, *store, "--rename", _RENAME)
        with self._status("comparing every record"):
            pairs = {name: _RENAME.replace("$0", name) for name in names}
            equal = [found for _, found in compare_topics(kafka, pairs)]
        self._say("")
        if not self.quiet:
            self.stdout.line(
                f"{count(sum(equal), 'record')} in {count(len(equal), 'partition')}: the copy "
                "equals the original, key, value, headers and timestamps",
                "bold green",
            )
        return 0

    def _call(self, s3: "LocalS3", *words: str) -> None:
        """Print a command as one would type it, and run it."""
        flags = {"--quiet": self.quiet, "--no-progress": self.no_progress}
        words = (*words, *(flag for flag, is_set in flags.items() if is_set))
        self._say(f"\n$ {shlex.join(['kbackup', *words])}", "bold")
        code = self.foreground.call(
            [sys.executable, "-m", "kbackup", *words], _environment(os.environ, s3)
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
            while True:
                signal.pause()
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


def _line(filled: "Filled") -> str:
    topic = filled.topic
    readable = count(filled.readable, "record")
    gone = filled.written - filled.readable
    about = (
        f"{topic.about}; {digits(gone)} of {digits(filled.written)} gone" if gone else topic.about
    )
    return f"  {topic.name:<10}{count(topic.partitions, 'partition'):<14}{readable:>16}   {about}"


def _environment(environ: Mapping[str, str], s3: "LocalS3") -> dict[str, str]:
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
