"""The cluster.  Only this folder imports confluent_kafka.

`KafkaSettings` is plain data and crosses processes; clients are made where they are used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException

from kbackup.errors import KafkaError
from kbackup.errors import KbackupError as _KbackupError

_CLIENT: Final = {
    "client.id": "kbackup",
    "log.connection.close": False,
    "socket.keepalive.enable": True,
}


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a cluster; plain data.

    Attributes:
        bootstrap_servers: ``host:port``, comma separated.
        admin: The operator's properties of the administrator's client; they win over ours.
        consumer: The same of consumers.
        producer: The same of producers.
        timeout_s: Give up on a silent cluster after this many seconds.
    """

    bootstrap_servers: str
    admin: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0

    def __repr__(self) -> str:
        return f"KafkaSettings({self.bootstrap_servers!r})"

    def properties(self, ours: Mapping[str, Any], operators: Mapping[str, str]) -> dict[str, Any]:
        """Return a client's properties: for every client, then *ours*, then the *operators*'."""
        return {**_CLIENT, **ours, **operators, "bootstrap.servers": self.bootstrap_servers}


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset: the next one to work on.

    Attributes:
        offset: The next offset.
        metadata: Text the committer kept with it; empty when somebody else moved the offset.
    """

    offset: int
    metadata: str = ""


class Complaints:
    """Remembers the last errors librdkafka reports in the background.

    They are the reason of a time-out: without them one reads "timed out" where the broker said
    "authentication failed".
    """

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: Any) -> None:
        """Take an error from ``error_cb``."""
        text = str(error.str())
        if "brokers are down" not in text or not self.last:
            self.last = text


def kafka_error(what: str, error: Exception, complaints: Complaints | None = None) -> _KbackupError:
    """Translate an exception of the client library into ours, once, at this boundary."""
    reason = error.args[0] if isinstance(error, KafkaException) and error.args else error
    why = reason.str() if hasattr(reason, "str") else str(reason)
    if complaints is not None and complaints.last and complaints.last not in why:
        why = f"{why}; {complaints.last}"
    return KafkaError(what, why, _remedy(reason))


def _remedy(reason: Any) -> str:
    name = reason.name() if hasattr(reason, "name") else ""
    if "AUTH" in name:
        return "check the credentials and the ACLs of this principal"
    if "SSL" in name:
        return "check ssl.ca.location and the certificates"
    if name in {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"}:
        return "check bootstrap.servers, the network and that the brokers run"
    return ""


def calls(what: str, complaints: Complaints | None, function: Callable[[], Any]) -> Any:
    """Call *function*; its Kafka exceptions become ours, with *what* as the thing that failed."""
    try:
        return function()
    except KafkaException as error:
        raise kafka_error(what, error, complaints) from error
