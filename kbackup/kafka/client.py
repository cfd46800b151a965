"""The client library's errors, logs and calls that never return, translated once, here.

An unreachable broker makes the client write the same sentence twenty times a second, for each
broker and each address.  The first line of a minute is a warning; the others are shown with ``-v``.
The error that ends a run has the reason all the same.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException

from kbackup.errors import KafkaError

_AWAY: Final = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})
"""Names of the client's errors for brokers that do not answer."""


class Complaints:
    """Remembers the last errors librdkafka reports in the background.

    They are the reason of a time-out: without them one reads "timed out" where the broker said
    "authentication failed".
    """

    def __init__(self) -> None:
        self.last, self.count = "", 0

    def __call__(self, error: Any) -> None:
        """Take an error from ``error_cb``."""
        text = str(error.str())
        self.count += 1
        if "brokers are down" not in text or not self.last:
            self.last = text


def kafka_error(what: str, error: Exception, complaints: Complaints | None = None) -> KafkaError:
    """Translate an exception of the client library into ours."""
    reason = error.args[0] if isinstance(error, KafkaException) and error.args else error
    why = reason.str() if hasattr(reason, "str") else str(reason)
    if complaints is not None and complaints.last and complaints.last not in why:
        why = f"{why}; {complaints.last}"
    found = KafkaError(what, why, _remedy(reason))
    found.is_away = _name(reason) in _AWAY
    return found


def _name(reason: Any) -> str:
    return reason.name() if hasattr(reason, "name") else ""


def _remedy(reason: Any) -> str:
    name = _name(reason)
    if "AUTH" in name:
        return "check the credentials and the ACLs of this principal"
    if "SSL" in name:
        return "check ssl.ca.location and the certificates"
    if name == "TOPIC_ALREADY_EXISTS":
        return "somebody created it meanwhile: see whether another run works on it, and run again"
    if name in _AWAY:
        return "check bootstrap.servers, the network and that the brokers run"
    return ""


def calls(what: str, complaints: Complaints | None, function: Callable[[], Any]) -> Any:
    """Call *function*; its Kafka exceptions become ours, with *what* as the thing that failed."""
    try:
        return function()
    except KafkaException as error:
        raise kafka_error(what, error, complaints) from error


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


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *function* returns, or raise what it raises, if it ends within *seconds*.

    Else it is left alone in its thread, with all that it uses: touch nothing of that again.

    Raises:
        TimeoutError: If it has not ended by then.
    """
    result: list[Any] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            result.append(function(*arguments))
        except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
            failure.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if failure:
        raise failure[0]
    return result[0]
