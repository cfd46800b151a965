"""Waiting for the broker that keeps a group's offsets.

The first group of a new cluster makes Kafka create the topic that offsets are kept in, and a
coordinator that moves is loading for a while.  Until then every question about a group is
answered with error code 0.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.kafka import PATIENCE_S, KafkaSettings

_T = TypeVar("_T")

_PASSING: Final = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code._WAIT_COORD,  # noqa: SLF001  (how the client spells it)
        Code._TRANSPORT,  # noqa: SLF001
        Code.UNSTABLE_OFFSET_COMMIT,  # of a transaction that is not over yet
        # A topic that was just created is not known to every broker at once.
        Code.UNKNOWN_TOPIC_OR_PART,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        # What the client remembers of a leader is older, or newer, than what the broker knows.
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code._NOENT,  # noqa: SLF001  ("no leaders found": the client asked too soon)
    }
)
_PAUSE_S: Final = 0.1
REQUEST_TIMEOUTS: Final = ("request.timeout.ms", "socket.timeout.ms")
"""Properties of the operator's that say how long a request may take; two names of the same."""


def patience_s(settings: KafkaSettings, properties: Mapping[str, str] | None = None) -> float:
    """Return how many seconds a task waits for a broker: `PATIENCE_S`, or more where asked to.

    Args:
        settings: ``--kafka-timeout`` is one way to ask for more.
        properties: The operator's own for this client: a request that may take longer, because
            it is so large or the line so slow, is waited for as long as they say.
    """
    given = properties or {}
    requests = (int(given[name]) / 1000 for name in REQUEST_TIMEOUTS if name in given)
    return max(settings.timeout_s, PATIENCE_S, *requests)


def patiently(ask: Callable[[], _T], timeout_s: float) -> _T:
    """Return what *ask* returns, asking again for *timeout_s* while there is no coordinator.

    Raises:
        KafkaException: Any other error at once, and this one when the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
