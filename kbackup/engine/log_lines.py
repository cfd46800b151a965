"""What tasks warn of, logged by the driver: a worker's own stderr is read by nobody."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kbackup.channel import Line
from kbackup.events import Event

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
