"""What tasks, Spark and its JVM print, read for what matters and logged by the driver."""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kbackup.errors import KbackupError, NoSpaceError, SparkError
from kbackup.events import Event
from kbackup.spark.channel import Line

_log = logging.getLogger(__name__)

_TYPE: Final = "log"
_REMEMBERED: Final = 256
"""Lines that are not repeated, whichever task says them again."""


@contextmanager
def sent(line: Line) -> Iterator[None]:
    """Send what this process warns of to the driver meanwhile."""
    logger, sender = logging.getLogger("kbackup"), _Sender(line)
    logger.addHandler(sender)
    try:
        yield
    finally:
        logger.removeHandler(sender)


def logged(hear: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return *hear* for all events but log lines, which go to this process's log, each once."""
    said: deque[str] = deque(maxlen=_REMEMBERED)

    def heard(event: Event) -> None:
        if event["type"] != _TYPE:
            hear(event)
        elif event["text"] not in said:
            said.append(event["text"])
            # not by the logger it came from, whose filters have seen it in the task
            _log.log(event["level"], "%s", event["text"])

    return heard


@dataclass(frozen=True, slots=True)
class _LogLine:
    """What a task warns of.

    Attributes:
        level: As `logging` numbers it.
        text: The message.
    """

    level: int
    text: str

    def to_dict(self) -> Event:
        """Return it as plain data."""
        return {"type": _TYPE, "level": self.level, "text": self.text}


class _Sender(logging.Handler):
    def __init__(self, line: Line) -> None:
        super().__init__(logging.WARNING)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line.tell(_LogLine(record.levelno, record.getMessage()))


_LONGEST: Final = 500

_HARMLESS: Final = re.compile(
    r"WARNING: |Picked up \w+: |Using Spark's|Setting default log |\[[\d.]+s\]\[\w+ *\]\[(aot|cds)"
)
"""How lines begin that a JVM prints whether it starts or dies."""

_HEADING: Final = "Error occurred during initialization of VM"
"""What a JVM prints above its reason."""

_FULL: Final = ("No space left on device", "Disk quota exceeded", "File too large")

_SPARK_MIB: Final = 1
"""What Spark itself puts into TMPDIR; tasks need room for the files that they fill."""


def not_started(why: str, printed: str) -> KbackupError:
    """Return why Spark did not start.

    Args:
        why: What the caller saw, such as the JVM's exit code.
        printed: All that Spark and the JVM printed.
    """
    if _is_full(printed) or _is_full(why):
        return no_space()
    lines = [line for line in printed.strip().splitlines() if not _HARMLESS.match(line)]
    causes = [
        line for line in lines if "xception: " in line and not line.lstrip().startswith("at ")
    ]
    telling = [line for line in lines if "rror" in line or "xception" in line or "nable" in line]
    reason = next(iter([*causes, *telling, *lines[-1:]]), why)
    if reason.startswith(_HEADING):
        reason = ": ".join([reason, *lines[lines.index(reason) + 1 :][:1]])
    do = "run kbackup doctor; --debug shows all of it"
    return SparkError("Spark did not start", reason.strip()[:_LONGEST], do)


def task_failed(text: str) -> KbackupError:
    """Return why a task failed beyond its retries, from Java's stack trace."""
    if _is_full(text):
        return no_space()
    return SparkError("a Spark task failed beyond its retries", reason(text))


def no_space(where: str = "TMPDIR") -> NoSpaceError:
    """Return the error of a disk on which Spark found no room."""
    return NoSpaceError(
        f"no space in {where}",
        f"about {_SPARK_MIB} MiB needed for Spark to start, and room for the files being written",
        "free some, or set TMPDIR to a folder with more",
    )


def exit_sentence(code: int) -> str:
    """Return how a JVM that printed nothing ended, from its process's return code."""
    if code >= 0:
        return f"Java ended with exit code {code}"
    hint = ": the system may be out of memory" if code == -9 else ""
    return f"Java was ended by signal {-code}{hint}"


def reason(text: str) -> str:
    """Pick the sentence that matters out of a Java stack trace with a Python one inside."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if line.partition(":")[0].endswith(("Error", "Exception")) and not line.startswith("at ")
    ]
    chosen = python[-1] if python else next(iter(lines), "no reason given")
    return chosen[:_LONGEST]


def _is_full(text: str) -> bool:
    return any(said in text for said in _FULL)
