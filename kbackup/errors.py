"""Every error kbackup raises, and the exit code each stands for.

An error is fields first and text second: *what* failed, *why* (in the server's words where there
are any) and what to *do*.  The exit code is an attribute of the class, so that one handler in
``cli/`` serves all, and `worst` decides between several reasons.  This module imports nothing
else of the package.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

PRECEDENCE: Final = (7, 4, 1, 6, 5, 9, 3)
"""Of several reasons for a non-zero exit, the first in this order is reported."""


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that stands for all of *codes*; 0 when there are none but zeros."""
    seen = set(codes) - {0}
    for code in PRECEDENCE:
        if code in seen:
            return code
    return max(seen, default=0)


@dataclass(frozen=True, slots=True)
class Issue:
    """Something wrong: an error once it was caught, or what was found without one being raised.

    It is what crosses a process, and what summaries and records keep.

    Attributes:
        code: What kind of thing, for scripts; that of its class where it was an error.
        what: What failed, or what something is wrong with.
        why: The reason; may be empty.
        do: What the operator can do about it; may be empty.
        place: Where it happened, as plain JSON values.
        exit_code: The exit code that it stands for.
    """

    code: str
    exit_code: int = field(default=1, kw_only=True)
    what: str
    why: str = ""
    do: str = ""
    place: Mapping[str, Any] = field(default_factory=dict, metadata={"json": "inline"})

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    @property
    def text(self) -> str:
        """All of it in one sentence."""
        return f"{self}; {self.do}" if self.do else str(self)

    def at(self, **place: Any) -> Self:
        """Return it with more of its place; what it names itself stays."""
        return replace(self, place={**place, **self.place})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `events.to_json` made of it."""
        place = dict(data)
        code, exit_code = place.pop("code", KbackupError.code), place.pop("exit_code", 1)
        what, why, do = place.pop("what"), place.pop("why", ""), place.pop("do", "")
        return cls(code, what, why, do, place, exit_code=exit_code)

    def error(self) -> "KbackupError":
        """Return the error, in its own class."""
        kind = _BY_CODE.get(self.code, KbackupError)
        return kind(self.what, self.why, self.do, **self.place)


class KbackupError(Exception):
    """Something failed that has no more precise code.

    Attributes:
        what: What failed, naming object key, topic, partition or offset.
        why: The reason, in the server's words where it gave one; may be empty.
        do: What the operator can do about it; may be empty.
        place: Where it happened, as plain JSON values, such as ``{"topic": "orders"}``.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "failed"

    def __init__(self, what: str, why: str = "", do: str = "", **place: Any) -> None:
        super().__init__(what, why, do, place)
        self.what, self.why, self.do, self.place = what, why, do, place

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.why, self.do, self.place)

    def issue(self) -> Issue:
        """Return what is kept of the error once it was caught."""
        place = dict(self.place)
        return Issue(self.code, self.what, self.why, self.do, place, exit_code=self.exit_code)


def _rebuild(
    kind: type[KbackupError], what: str, why: str, do: str, place: dict[str, Any]
) -> KbackupError:
    return kind(what, why, do, **place)


class BadRecordError(KbackupError):
    """A record cannot be written in the chosen layout; the error names its offset."""

    code = "bad_record"


class NoSpaceError(KbackupError):
    """The disk for spooled objects is full."""

    code = "no_space"


class LocalServiceError(KbackupError):
    """A service for the demo or the tests could not be fetched or started."""

    code = "local_service"


class ConfigurationError(KbackupError):
    """The command line, a variable or a configuration file asks for something impossible."""

    exit_code = 2
    code = "configuration"


class NewerVersionError(ConfigurationError):
    """A later version of kbackup wrote what would have to be understood."""

    code = "newer_version"

    @classmethod
    def of(cls, what: str, found: int, known: int, version: str = "", **place: Any) -> Self:
        """Return the error of something that a later version wrote.

        Args:
            what: What was written.
            found: The version of its form.
            known: The latest that this kbackup understands.
            version: The kbackup that wrote it; empty where that is not known.
            place: Where it is.
        """
        return cls(
            f"{what} was written by a later version of kbackup",
            f"its form is version {found}, and this kbackup understands {known}: what it does not "
            "understand it would take for missing, or lose",
            f"use kbackup {version} or later" if version else "use the version that wrote it",
            **place,
        )


class ObjectKeyError(KbackupError):
    """A key does not follow the layout of object keys."""

    exit_code = 3
    code = "foreign_object"

    def __init__(self, key: str, why: str = "", do: str = "", **place: Any) -> None:
        super().__init__(key, why or "not <topic>+<partition>+<offset><extension>", do, **place)
        self.key = key


class RefusedError(KbackupError):
    """Refused for safety: continuing could lose or spoil data.  The base of those that follow."""

    exit_code = 4
    code = "refused"


class FeedbackLoopError(RefusedError):
    """The restore would write to the topic it was backed up from."""

    code = "feedback_loop"


class FewerPartitionsError(RefusedError):
    """The target has fewer partitions than the backup."""

    code = "fewer_partitions"


class TargetNotEmptyError(RefusedError):
    """The target holds records, and this restore has no position there."""

    code = "target_not_empty"


class MergedTopicsError(RefusedError):
    """Two backed-up topics would be written to one target."""

    code = "merged_topics"


class IllegalTopicNameError(RefusedError):
    """A topic name that Kafka does not allow, or an internal topic not named exactly."""

    code = "illegal_topic_name"


class GroupActiveError(RefusedError):
    """The consumer group that keeps the position has live members."""

    code = "group_active"


class TopicChangedError(RefusedError):
    """The topic is not the one that was backed up: recreated, or its log was cut back."""

    code = "topic_changed"


class RetentionError(RefusedError):
    """The target's retention would delete restored records at once."""

    code = "retention"


class RecordTooLargeError(RefusedError):
    """The cluster refused a record as too large for the target."""

    code = "record_too_large"


class KafkaError(KbackupError):
    """Kafka is unreachable, denies access, or stayed away beyond the retry budget.

    Attributes:
        is_away: No broker answered, rather than that one said no.
    """

    exit_code = 5
    code = "kafka"
    is_away = False


class EndNotSeenError(KafkaError):
    """A log is said to end before what the cluster has acknowledged, and stays so."""

    code = "end_not_seen"


class TopicDeletedError(KafkaError):
    """A topic was deleted while it was being backed up."""

    code = "topic_deleted"


class RegistryError(KbackupError):
    """The Schema Registry is unreachable, or denies access, beyond the retry budget.

    Attributes:
        row: The row in the batch at hand, counted from 0, whose schema was asked for.
    """

    exit_code = 5
    code = "registry"

    def __init__(self, what: str, why: str = "", do: str = "", *, row: int = 0, **place: Any):
        super().__init__(what, why, do, **place)
        self.row = row


class StoreError(KbackupError):
    """The store is unreachable, denies access, or throttles beyond the retry budget."""

    exit_code = 6
    code = "store"


class ObjectNotFoundError(StoreError):
    """No object has this key."""

    exit_code = 7
    code = "missing_object"


class CorruptObjectError(KbackupError):
    """An object is not what was written: cut short, altered, or not of its format.

    Attributes:
        is_doubtful: What was read of it before may be wrong too.
    """

    exit_code = 7
    code = "corrupt"
    is_doubtful = False

    def doubting(self) -> Self:
        """Return it, with doubt about what was read of the object before."""
        self.is_doubtful = True
        return self


class UnsupportedObjectError(CorruptObjectError):
    """An object is whole as far as can be seen, and holds what this version cannot represent.

    ``behavior.on.error`` treats it as it treats a damaged one.
    """

    exit_code = 4
    code = "unsupported_object"


class IncompleteBackupError(KbackupError):
    """Objects that belong to the backup are missing."""

    exit_code = 7
    code = "incomplete"


class AuditError(KbackupError):
    """The target's records differ from those read from the backup."""

    exit_code = 7
    code = "audit"


class OutdatedBackupError(KbackupError):
    """No run succeeded, or the last one that did is too old."""

    exit_code = 7
    code = "outdated"


class LockedError(KbackupError):
    """Another run holds the lock."""

    exit_code = 8
    code = "locked"


class TopicsLockedError(LockedError):
    """Runs that were asked for other topics work on all topics of this one."""

    code = "topics_locked"


class SparkError(KbackupError):
    """Spark could not be started, or failed beyond its own retries."""

    exit_code = 9
    code = "spark"


class JavaNotFoundError(SparkError):
    """No Java that Spark can run on."""

    code = "java"


class StoppedError(KbackupError):
    """A signal asked the run to stop; *exit_code* is 128 plus its number."""

    code = "stopped"

    def __init__(self, what: str, why: str = "", do: str = "", *, signal: int = 15, **place: Any):
        super().__init__(what, why, do, signal=signal, **place)
        self.signal = signal

    @property
    def exit_status(self) -> int:
        """The exit code of a stopped process: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.signal


def _classes(kind: type[KbackupError]) -> Iterable[type[KbackupError]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from _classes(sub)


_BY_CODE: Final[dict[str, type[KbackupError]]] = {
    kind.code: kind for kind in _classes(KbackupError)
}


def form(number: int | None, one: str, many: str = "") -> str:
    """Return the word that goes with *number*: *many*, or *one* with an ``s``, where it is not 1.

    ::

        f"{number} {form(number, 'object')} {form(number, 'is', 'are')} missing"
    """
    return one if number == 1 else many or f"{one}s"


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first of *names*, and how many more there are: ``a, b and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return *number* with its noun, in the plural where it is not 1."""
    return f"{number} {form(number, noun)}"
