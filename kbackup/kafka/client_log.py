"""What librdkafka logs, condensed: one line reports an outage, not two hundred.

An unreachable broker makes the client write the same sentence twenty times a second, for each
broker and each address.  The first line of a minute is a warning; the others are shown with ``-v``.
The error that ends a run has the reason all the same.
"""

import logging
import re
import time
from collections.abc import Callable
from typing import Final

QUIET_S: Final = 60.0
"""Seconds in which one warning of the client is enough."""

_HEAD: Final = re.compile(r"^[A-Z]+ \[[^\]]*\] (?:\[thrd:[^\]]*\]: ?)*")
"""Facility, client and thread in front of what the client says."""


class Folding(logging.Filter):
    """Lets one record of a minute through as a warning; the others become details."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._quiet_until = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is shown; it is changed where it is a detail."""
        if record.levelno >= logging.WARNING and self._clock() >= self._quiet_until:
            self._quiet_until = self._clock() + QUIET_S
            said = _HEAD.sub("", record.getMessage())
            record.msg, record.args = "Kafka client: %s (further lines: -v)", (said,)
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            return True
        record.levelno, record.levelname = logging.INFO, "INFO"
        return CLIENT_LOG.isEnabledFor(logging.INFO)


CLIENT_LOG: Final = logging.getLogger(__name__)
"""Takes the lines of every client that kbackup makes."""

CLIENT_LOG.addFilter(Folding())
