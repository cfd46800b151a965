"""Every error kbackup raises, and the exit code each stands for.

An error is fields first and text second: *what* failed, *why* (in the server's words where there
are any) and what to *do*.  The exit code is an attribute of the class, so that one handler in
``cli/`` serves all, and `worst` decides between several reasons.  This module imports no other
of the package.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

from kbackup import __version__

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

    def __init_subclass__(cls, *, code: str = "", exit_code: int | None = None) -> None:
        """Take the code and the exit code, where they are not those of the base."""
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.exit_code = cls.exit_code if exit_code is None else exit_code

    def __init__(self, what: str, why: str = "", do: str = "", **place: Any) -> None:
        super().__init__(what, why, do, place)
        self.what, self.why, self.do, self.place = what, why, do, place

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.why, self.do, self.place)

    @property
    def concerns_all(self) -> bool:
        """Whether a service cannot be used, which is in the way of every topic."""
        return self.exit_code in (KafkaError.exit_code, StoreError.exit_code)

    @property
    def begins_nothing(self) -> bool:
        """Whether nothing was begun: it was asked for wrongly, or another run is at work."""
        return self.exit_code in (ConfigurationError.exit_code, LockedError.exit_code)

    def issue(self) -> Issue:
        """Return what is kept of the error once it was caught."""
        place = dict(self.place)
        return Issue(self.code, self.what, self.why, self.do, place, exit_code=self.exit_code)


def _rebuild(
    kind: type[KbackupError], what: str, why: str, do: str, place: dict[str, Any]
) -> KbackupError:
    return kind(what, why, do, **place)


class BadRecordError(KbackupError, code="bad_record"):
    """A record cannot be written in the chosen layout; the error names its offset."""


class NoSpaceError(KbackupError, code="no_space"):
    """The disk for spooled objects is full."""


class NoMemoryError(KbackupError, code="no_memory"):
    """There is too little memory."""

    @classmethod
    def of(cls, what: str, why: str, do: str = "give it more") -> Self:
        """Return the error of *what* ran out of memory, as *why* has it, which may be empty."""
        little = "this machine, or a limit of the process, has too little"
        return cls(f"{what} ran out of memory", f"{little}: {why}" if why else little, do)


def is_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: of 10 GB at once only damaged bytes speak."""
    return isinstance(error, MemoryError) and not re.search(r"size \d{11}|too large", str(error))


def unexpected(what: str, error: Exception, do: str) -> KbackupError:
    """Return the error of one that *what* did not expect; *do* says what to do about a defect."""
    if isinstance(error, MemoryError):
        return NoMemoryError.of(what, str(error))
    why = f"{type(error).__name__}: {error}"
    return KbackupError(f"{what} failed", why, f"this is a defect of kbackup: {do}")


class LocalServiceError(KbackupError, code="local_service"):
    """A service for the demo or the tests could not be fetched or started."""


class ConfigurationError(KbackupError, code="configuration", exit_code=2):
    """The command line, a variable or a configuration file asks for something impossible."""


class NoKeyError(ConfigurationError, code="no_key"):
    """What is encrypted cannot be read with the keys that were given."""


_RELEASE: Final = re.compile(
    r"(\d{1,4}(?:\.\d{1,4}){0,3})((a|b|rc)\d{1,4})?(\.(post|dev)\d{1,9})?(\+[a-z0-9.]{1,20})?",
    re.ASCII,
)
"""What a version looks like: anybody may have written another text in its place."""


def _numbers(version: str) -> list[int]:
    """Return the four numbers of a release, zeros of what is no version."""
    found = _RELEASE.fullmatch(version)
    return [*(map(int, found[1].split(".")) if found else ()), 0, 0, 0, 0][:4]


class NewerVersionError(ConfigurationError, code="newer_version"):
    """A later version of kbackup wrote what would have to be understood."""

    @classmethod
    def of(
        cls, what: str, found: int, known: int, version: str = "", forged: str = "", **place: Any
    ) -> Self:
        """Return the error of something that a later version wrote.

        Args:
            found: The version of its form.
            known: The latest that this kbackup understands.
            version: The kbackup that wrote it; empty where that is not known.
            forged: What to do if none did; empty where there is nothing to do.
        """
        is_later = _numbers(version) > _numbers(__version__)  # anybody may have written another
        do = f"use kbackup {version} or later" if is_later else "use the version that wrote it"
        return cls(
            f"{what} was written by a later version of kbackup",
            f"its form is version {found}, and this kbackup understands {known}: what it does not "
            "understand it would take for missing, or lose",
            f"{do}; if no kbackup wrote it, {forged}" if forged else do,
            **place,
        )


class ObjectKeyError(KbackupError, code="foreign_object", exit_code=3):
    """A key does not follow the layout of object keys."""

    def __init__(self, key: str, why: str = "", do: str = "", **place: Any) -> None:
        super().__init__(key, why or "not <topic>+<partition>+<offset><extension>", do, **place)
        self.key = key


class RefusedError(KbackupError, code="refused", exit_code=4):
    """Refused for safety: continuing could lose or spoil data.  The base of those that follow."""


class FeedbackLoopError(RefusedError, code="feedback_loop"):
    """The restore would write to the topic it was backed up from."""


class FewerPartitionsError(RefusedError, code="fewer_partitions"):
    """The target has fewer partitions than the backup."""


class TargetNotEmptyError(RefusedError, code="target_not_empty"):
    """The target holds records, and this restore has no position there."""


class MergedTopicsError(RefusedError, code="merged_topics"):
    """Two backed-up topics would be written to one target."""


class IllegalTopicNameError(RefusedError, code="illegal_topic_name"):
    """A topic name that Kafka does not allow, or an internal topic not named exactly."""


class GroupActiveError(RefusedError, code="group_active"):
    """The consumer group that keeps the position has live members."""


class TopicChangedError(RefusedError, code="topic_changed"):
    """The topic is not the one that was backed up: recreated, or its log was cut back."""


class RetentionError(RefusedError, code="retention"):
    """The target's retention would delete restored records at once."""


class RecordTooLargeError(RefusedError, code="record_too_large"):
    """The cluster refused a record as too large for the target."""


class KafkaError(KbackupError, code="kafka", exit_code=5):
    """Kafka is unreachable, denies access, lacks a topic, or stayed away too long.

    Attributes:
        is_away: No broker answered, rather than that one said no.
    """

    is_away = False


class EndNotSeenError(KafkaError, code="end_not_seen"):
    """A log is said to end before what the cluster has acknowledged, and stays so."""


class TopicDeletedError(KafkaError, code="topic_deleted"):
    """A topic was deleted while it was being backed up."""


class RegistryError(KbackupError, code="registry", exit_code=5):
    """The Schema Registry is unreachable, or denies access, beyond the retry budget.

    Attributes:
        row: The row among those at hand, counted from 0, whose schema was asked for.
    """

    def __init__(self, what: str, why: str = "", do: str = "", *, row: int = 0, **place: Any):
        super().__init__(what, why, do, **place)
        self.row = row


class StoreError(KbackupError, code="store", exit_code=6):
    """The store is unreachable, denies access, or throttles beyond the retry budget."""

    @property
    def is_denied(self) -> bool:
        """Whether this principal may not, or the object is archived."""
        return self.place.get("status") == 403


class ObjectNotFoundError(StoreError, code="missing_object", exit_code=7):
    """No object has this key."""


class CorruptObjectError(KbackupError, code="corrupt", exit_code=7):
    """An object is not what was written: cut short, altered, or not of its format.

    Attributes:
        is_doubtful: What was read of it before may be wrong too.
    """

    is_doubtful = False

    def doubting(self) -> Self:
        """Return it, with doubt about what was read of the object before."""
        self.is_doubtful = True
        return self


class UnsupportedObjectError(CorruptObjectError, code="unsupported_object", exit_code=4):
    """An object is whole as far as can be seen, and holds what this version cannot represent.

    ``behavior.on.error`` treats it as it treats a damaged one.
    """


class IncompleteBackupError(KbackupError, code="incomplete", exit_code=7):
    """Objects that belong to the backup are missing."""


class AuditError(KbackupError, code="audit", exit_code=7):
    """The target does not hold what was written there."""


class DiffersError(KbackupError, code="differs", exit_code=7):
    """Records in Kafka are not those that the backup holds."""


class DrillError(KbackupError, code="drill", exit_code=7):
    """A rehearsed recovery took longer, or lost more, than it may."""


class OutdatedBackupError(KbackupError, code="outdated", exit_code=7):
    """No run succeeded, or the last one that did is too old."""


class LockedError(KbackupError, code="locked", exit_code=8):
    """Another run holds the lock."""


class TopicsLockedError(LockedError, code="topics_locked"):
    """Runs that were asked for other topics work on all topics of this one."""


class SparkError(KbackupError, code="spark", exit_code=9):
    """Spark could not be started, or failed beyond its own retries."""


class JavaNotFoundError(SparkError, code="java"):
    """No Java that Spark can run on."""


class StoppedError(KbackupError, code="stopped"):
    """A signal asked the run to stop; *exit_code* is 128 plus its number."""

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


def with_extra(name: str) -> str:
    """Return how to install what one of kbackup's extras needs, from what kbackup comes as."""
    return f"install its extra: pip install '.[{name}]' in the checkout, or 'FILE.whl[{name}]'"


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
