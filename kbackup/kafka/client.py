"""The client library's errors, translated once at this boundary."""

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
