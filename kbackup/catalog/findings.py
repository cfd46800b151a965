"""What ``restore verify`` finds, and what it concludes about a partition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from kbackup.errors import (
    CorruptObjectError,
    IncompleteBackupError,
    KbackupError,
    UnsupportedObjectError,
)
from kbackup.events import INLINE, NOT_SHOWN
from kbackup.naming import Place
from kbackup.records import TopicPartition

AGAIN: Final = "back these offsets up again while the cluster still has the records"

APART: Final = "move one of the two objects away, then back up again what only that one held"

OTHERWISE: Final = "restore it with the tool that wrote it, or leave it out: behavior.on.error=log"

LAYOUTS: Final = (
    "read it with the format.class and the file.delim that it was stored with; a restore with "
    "behavior.on.error=log leaves it out"
)

TEMPLATES: Final = (
    "read it with the object.name.template that it was stored under; a restore with "
    "behavior.on.error=log leaves it out"
)

_NAMED_AGAIN: Final = 50


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        level: ``error`` where the backup is damaged, or cannot be restored by this version; else
            ``note``: the operator should know of it.
        code: ``missing_object``, ``corrupt``, ``overlap``, ``gap``, ``wrong_topic``,
            ``count_mismatch``, ``unsupported_object``, ``skipped``, or ``duplicate``.
        where: The partition, by the object's name.
        key: The object; None where it has no one name.
        offsets: First and last offset it is about, inclusive; None where they are unknown.
        text: What is wrong; None if the code says it all.
        more: Further fields of the event.
        do: What to do about it, where that is not to back it up again.
    """

    HEAD: ClassVar = {"type": "finding"}

    level: Literal["error", "note"] = field(default="error", kw_only=True)
    code: str
    where: TopicPartition = field(metadata=INLINE)
    key: str | None = None
    offsets: tuple[int, int] | None = None
    text: str | None = None
    more: Mapping[str, Any] | None = field(default=None, metadata=INLINE)
    do: str = field(default="", metadata=NOT_SHOWN)

    @property
    def is_error(self) -> bool:
        """Whether a restore of this backup would not be whole."""
        return self.level == "error"

    @property
    def is_damage(self) -> bool:
        """Whether something is missing or not what was stored."""
        return self.is_error and self.code != UnsupportedObjectError.code

    def error(self) -> KbackupError:
        """Return the error that stands for it."""
        kind: type[KbackupError] = CorruptObjectError
        do = APART if self.code == "overlap" else AGAIN
        if self.code == "missing_object":
            kind = IncompleteBackupError
        elif not self.is_damage:
            kind, do = UnsupportedObjectError, OTHERWISE
        said = None if self.offsets is None else "offsets {}-{}".format(*self.offsets)
        why = self.text or (f"it is missing ({said})" if said else "it is missing")
        place = {"key": self.key, "offsets": None if self.offsets is None else list(self.offsets)}
        return kind(
            self.key or str(self.where),
            why,
            self.do or do,
            topic=self.where.topic,
            partition=self.where.partition,
            **{name: value for name, value in place.items() if value is not None},
        )


def again(findings: Iterable[Finding]) -> str | None:
    """Return which offsets to back up again, as ``TOPIC:PARTITION:OFFSET,...``; None if none.

    Of objects that hold the same offsets one has to be moved away first.
    """
    named = {
        (found.where, found.offsets[0]): None
        for found in findings
        if found.is_damage
        and not found.do
        and found.offsets is not None
        and found.code != "overlap"
    }
    if not named:
        return None
    shown = [str(Place(where.topic, where.partition, offset)) for where, offset in named]
    rest = len(shown) - _NAMED_AGAIN
    return ",".join(shown[:_NAMED_AGAIN]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """A partition's row of the summary, and its line of ``--json``.

    Attributes:
        where: The partition.
        objects: Objects read by a deep verify; otherwise those listed.
        listed: Objects listed.
        first: Offset of the first record; None where nothing is stored.
        last: That of the last one; None where it is not known.
        records: Number of records; None where it is not known.
        bytes: Bytes of the objects listed.
        bytes_read: Bytes of the objects read.
        not_checkable: Objects in which a flipped bit would go unnoticed.
        state: The conclusion, in a few words.
    """

    HEAD: ClassVar = {"type": "partition"}

    where: TopicPartition = field(metadata=INLINE)
    objects: int
    listed: int
    first: int | None
    last: int | None
    records: int | None
    bytes: int
    bytes_read: int
    not_checkable: int
    state: str
