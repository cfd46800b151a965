"""Errors, logs and waits that all clients of the library share, and a group's positions.

An unreachable broker makes the client write the same sentence twenty times a second, for each
broker and each address.  The first line of a minute is a warning; the others are shown with ``-v``.
The error that ends a run has the reason all the same.

The first group of a new cluster makes Kafka create the topic that offsets are kept in, and a
coordinator that moves is loading for a while.  Until then every question about a group is
answered with error code 0.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import AclOperation, AdminClient

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import PATIENCE_S, KafkaSettings, Position, check_not_ahead
from kbackup.records import TopicPartition as Where

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
    if name == "INVALID_RECORD":
        return "see the broker's log; a compacted topic, for one, takes no record without a key"
    if name in _AWAY:
        return "check bootstrap.servers, the network and that the brokers run"
    return ""


SPARE_S: Final = 5.0
"""By how much an answer may be later than the client was told to wait."""


def calls(what: str, complaints: Complaints, function: Callable[[], Any]) -> Any:
    """Call *function*; its Kafka exceptions become ours, with *what* as the thing that failed."""
    try:
        return function()
    except KafkaException as error:
        raise kafka_error(what, error, complaints) from error
    except TimeoutError as error:
        away = KafkaError(what, complaints.last or "no answer", "check the brokers")
        away.is_away = True
        raise away from error


def code_of(error: KafkaError) -> Any:
    """Return the client's code of an error that `kafka_error` made; None of any other."""
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


class Administrator:
    """An administrator's client of a cluster, whose complaints are the reasons of its errors.

    Raises:
        KafkaError: From the constructor, if it cannot be made.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._timeout_s = settings, settings.timeout_s
        self._complaints = Complaints()
        properties = settings.properties({}, settings.admin) | {"error_cb": self._complaints}
        self._admin = self._calls(
            "connecting to Kafka", lambda: AdminClient(properties, logger=CLIENT_LOG)
        )

    def _calls(self, what: str, function: Callable[[], Any]) -> Any:
        return calls(what, self._complaints, function)

    def _result(self, what: str, future: Any) -> Any:
        """Return what a future of the client comes to."""
        return self._calls(what, lambda: future.result(timeout=self._timeout_s + SPARE_S))

    def _may_describe(self) -> bool:
        """Whether this principal has DESCRIBE on the cluster."""
        future = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=self._timeout_s
        )
        described = self._result("asking for permissions on the cluster", future)
        return AclOperation.DESCRIBE in (described.authorized_operations or ())


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

    ``--kafka-timeout`` asks for more, and the operator's own properties for this client: a request
    that may take longer, as it is so large or the line so slow, is waited for as long as they say.
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


_LOOK_S: Final = 0.005
"""How long one look for an answer takes: the client does not return when it has called back."""

_CLOSE_S: Final = 5.0


class GroupPositions:
    """The committed offsets of one group, which has no members.

    Several threads may read at once, or use `for_transaction`; only one may advance.
    """

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._group = group
        self._complaints = Complaints()
        self._patience_s = patience_s(settings)
        self._answers: dict[tuple[str, int, int], Any] = {}
        ours = {
            "group.id": group,
            "enable.auto.commit": False,
            "error_cb": self._complaints,
            "on_commit": self._committed,
        }
        self._consumer = Consumer(settings.properties(ours, settings.consumer), logger=CLIENT_LOG)

    def close(self) -> None:
        """Leave the cluster, if it lets us: a commit without an answer is not waited for long."""
        leaving = threading.Thread(target=self._consumer.close, daemon=True)
        leaving.start()
        leaving.join(_CLOSE_S)

    def read(self, where: Where) -> Position | None:
        """Return the group's position: `Positions.read`."""
        asked = [TopicPartition(where.topic, where.partition)]

        def ask() -> TopicPartition:
            (found,) = self._consumer.committed(asked, self._patience_s)
            if found.error is not None:  # the answer as a whole does not show it
                raise KafkaException(found.error)
            return found

        found = calls(
            f"reading the position of group {self._group} in {where}",
            self._complaints,
            lambda: patiently(ask, self._patience_s),
        )
        return position_of(found)

    def read_all(self, wheres: Sequence[Where]) -> dict[Where, Position | None]:
        """Return the group's positions, in one request: `Positions.read_all`."""
        asked = [TopicPartition(where.topic, where.partition) for where in wheres]
        if not asked:
            return {}
        found = calls(
            f"reading positions of group {self._group}",
            self._complaints,
            lambda: patiently(
                lambda: self._consumer.committed(asked, self._patience_s), self._patience_s
            ),
        )
        return {Where(at.topic, at.partition): position_of(at) for at in found if at.error is None}

    def advance_all(self, positions: Mapping[Where, Position]) -> dict[Where, KbackupError]:
        """Commit positions, in one request: `Positions.advance_all`.

        What is not plain is left to `advance`, which waits and says what is wrong.
        """
        errors: dict[Where, KbackupError] = {}
        try:
            found = self.read_all(list(positions))
            plain = {
                where: position
                for where, position in positions.items()
                if where in found and not _is_behind(position, found[where])
            }
            left = positions.keys() - self._commit_all(plain)
        except KbackupError as error:
            return dict.fromkeys(positions, error)
        for where in left:
            try:
                self.advance(where, positions[where])
            except KbackupError as error:
                errors[where] = error
        return errors

    def _commit_all(self, positions: Mapping[Where, Position]) -> set[Where]:
        """Commit positions; return those that were committed at the first go."""
        asked = [
            TopicPartition(where.topic, where.partition, position.offset, position.metadata)
            for where, position in positions.items()
        ]
        if not asked:
            return set()
        what = f"committing {len(asked)} positions to group {self._group}"
        answers = calls(what, self._complaints, lambda: self._answered(asked))
        return {Where(topic, at) for (topic, at, _), error in answers.items() if error is None}

    def advance(self, where: Where, position: Position) -> None:
        """Commit *position*, unless it would move the group back; else raise what keeps it."""
        what = f"committing {where} offset {position.offset} to group {self._group}"
        check_not_ahead(what, self.read(where), position.offset)
        offset = TopicPartition(where.topic, where.partition, position.offset, position.metadata)
        calls(
            what,
            self._complaints,
            lambda: patiently(lambda: self._commit(offset), self._patience_s),
        )

    def for_transaction(self) -> Any:
        """Return what a producer names this group by when it commits the group's offsets."""
        return self._consumer.consumer_group_metadata()

    def _commit(self, offset: TopicPartition) -> None:
        (error,) = self._answered([offset]).values()
        if error is not None:
            raise KafkaException(error)

    def _answered(self, offsets: list[TopicPartition]) -> dict[tuple[str, int, int], Any]:
        """Commit offsets; return what the broker says of each, None where all is well."""
        asked = {(at.topic, at.partition, at.offset) for at in offsets}
        self._answers.clear()
        self._consumer.commit(offsets=offsets, asynchronous=True)
        deadline = time.monotonic() + self._patience_s
        while not asked <= self._answers.keys():
            if time.monotonic() > deadline:
                raise KafkaException(Code(Code._TIMED_OUT))  # noqa: SLF001  (its spelling)
            self._consumer.poll(_LOOK_S)  # calls `_committed`
        return {key: self._answers[key] for key in asked}

    def _committed(self, error: Any, offsets: list[TopicPartition]) -> None:
        for at in offsets:
            self._answers[at.topic, at.partition, at.offset] = error or at.error


def position_of(found: TopicPartition) -> Position | None:
    """Return a position that was read, None where the group has none.

    The client's copy of the metadata ends where the text does, and the client for Python reads on
    to the next zero byte.  What that client itself has committed has one at its end; what others
    commit has none, and whatever is behind it in memory follows: who reads the metadata leaves out
    what follows its text.
    """
    if found.offset < 0:
        return None
    try:
        metadata = found.metadata or ""
    except UnicodeDecodeError as error:
        metadata = error.object.decode(errors="replace")
    return Position(found.offset, metadata)


def _is_behind(position: Position, found: Position | None) -> bool:
    """Whether to commit it would move the group back."""
    return found is not None and found.offset > position.offset


class Lending:
    """Positions that are open as long as anyone has them.  Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: list[tuple[KafkaSettings, str | None, GroupPositions]] = []

    def borrow(self, settings: KafkaSettings, group: str, *, alone: bool = False) -> GroupPositions:
        """Return a group's positions, opened if nobody has them; `give_back` them once.

        With *alone* nobody else is to have them: only one thread may advance them.  What is
        shared may be read, and named to a transaction, by several at once.
        """
        with self._lock:
            wanted = settings, None if alone else group
            same = (lent for *whose, lent in self._lent if not alone and (*whose,) == wanted)
            positions = next(same, None) or GroupPositions(settings, group)
            self._lent.append((*wanted, positions))
            return positions

    def give_back(self, positions: GroupPositions) -> None:
        """Take back what was borrowed; the last one who does closes it."""
        with self._lock:
            place = next(at for at, (*_, lent) in enumerate(self._lent) if lent is positions)
            del self._lent[place]
            is_last = all(lent is not positions for *_, lent in self._lent)
        if is_last:
            positions.close()


WRITERS = Lending()
"""What the writers of this process share: they read, and have a producer commit for them."""
