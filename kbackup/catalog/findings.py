"""The findings and verdicts of ``restore verify``, and how it judges objects by their names.

Pure functions.  The objects beside a missing range of offsets do not show whether it was ever
stored: compaction, transactions and retention leave holes in any topic.  So it is an error only
where the ledger says that an object was there.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from kbackup.catalog.ledger.rows import Entry
from kbackup.catalog.listing import FileSet
from kbackup.errors import (
    CorruptObjectError,
    IncompleteBackupError,
    KbackupError,
    UnsupportedObjectError,
)
from kbackup.events import INLINE, NOT_SHOWN
from kbackup.naming import Place
from kbackup.records import Span, TopicPartition, joined

if TYPE_CHECKING:
    from kbackup.catalog.coverage import Offsets

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

EXTENSIONS: Final = (
    "read it with the configuration that it was stored with, which may give its format another "
    "extension, or install that format; a restore with behavior.on.error=log leaves it out"
)

_NAMED_AGAIN: Final = 50
_OTHER: Final = frozenset({"missing_object", "corrupt", "count_mismatch", "wrong_topic"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        level: ``error`` where the backup is damaged, or cannot be restored by this version; else
            ``note``: the operator should know of it.
        code: ``missing_object``, ``corrupt``, ``overlap``, ``gap``, ``wrong_topic``,
            ``count_mismatch``, ``unsupported_object``, ``skipped``, or ``duplicate``.
        key: The object; None where it has no one name.
        offsets: First and last offset it is about, inclusive; None where they are unknown.
        text: What is wrong; None if the code says it all.
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

    @property
    def is_of_other(self) -> bool:
        """Whether an object is not there, or is another one than was stored."""
        return self.is_error and self.code in _OTHER

    def error(self) -> KbackupError:
        """Return the error that stands for it."""
        kind: type[KbackupError] = CorruptObjectError
        do = APART if self.code == "overlap" else AGAIN
        if self.code == "missing_object":
            kind = IncompleteBackupError
            if self.more is not None and self.offsets is not None:  # the ledger has it
                taken = "{topic}:{partition}:{}-{}".format(*self.offsets, **self.where.place)
                do = f"{AGAIN}; if it was removed on purpose: kbackup sink accept {taken}"
        elif not self.is_damage:
            kind, do = UnsupportedObjectError, OTHERWISE
        said = None if self.offsets is None else "offsets {}-{}".format(*self.offsets)
        why = self.text or (f"it is missing ({said})" if said else "it is missing")
        place = {"key": self.key, "offsets": None if self.offsets is None else list(self.offsets)}
        return kind(
            self.key or str(self.where),
            why,
            self.do or do,
            **self.where.place,
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
        objects: Objects read by a deep verify; otherwise those listed.
        first: Offset of the first record; None where nothing is stored.
        last: That of the last one; None where it is not known.
        not_checkable: Objects in which a flipped bit would go unnoticed.
        not_compared: Objects read whose records no digest of what was stored was compared with.
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
    not_compared: int = 0


_HOLES_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Extent:
    """A set, where its records end, and whether what overlaps the next set is the same there."""

    files: FileSet
    last: int | None = None
    is_same: bool | None = None

    @property
    def offsets(self) -> tuple[int, int]:
        """Of its first and last record, as far as they are known."""
        start = self.files.start_offset
        return start, start if self.last is None else max(start, self.last)


def left_out(where: TopicPartition, skipped: Sequence[Span]) -> Iterator[Finding]:
    """Note the records that were left out because they do not fit the layout."""
    if skipped:
        named = [(span.start_offset, span.end_offset - 1) for span in skipped]
        text = f"records left out as bad (errors.tolerance=all) at {_named(named)}"
        yield Finding("skipped", where, None, (named[0][0], named[-1][1]), text, level="note")


def empty_objects(files: FileSet) -> Iterator[Finding]:
    """Name objects of no bytes: no format has such files."""
    for file in files.files:
        if file.size == 0:
            start = files.start_offset
            yield Finding("corrupt", files.where, file.key, (start, start), "it has 0 bytes")


def gaps_and_overlaps(extents: Sequence[Extent], found: "Offsets") -> Iterator[Finding]:
    """Report what is missing and was never recorded, and judge what is there twice.

    *extents* are all sets of one partition, by start offset.
    """
    if not extents:
        return
    where = extents[0].files.where
    for gap in found.said.gone:
        offsets = gap.start_offset, gap.end_offset - 1
        text = "offsets {} to {} had expired in the cluster before they were backed up"
        yield Finding("gap", where, None, offsets, text.format(*offsets), level="note")
    removed, holes = (
        [(span.start_offset, span.end_offset - 1) for span in spans]
        for spans in (joined(found.said.removed), found.untold)
    )
    if removed:
        text, offsets = f"removed on purpose: {_named(removed)}", (removed[0][0], removed[-1][1])
        yield Finding("gap", where, None, offsets, text, level="note")
    if holes and holes[0][0] == 0:
        text = f"first offset {holes[0][1] + 1}"
        yield Finding("gap", where, None, holes.pop(0), text, level="note")
    if holes:
        text = "a hole at" if len(holes) == 1 else f"{len(holes)} holes at"
        offsets = (holes[0][0], holes[-1][1])
        yield Finding("gap", where, None, offsets, f"{text} {_named(holes)}", level="note")
    yield from _overlaps([extent for extent in extents if extent.files.is_whole])


def _named(holes: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in holes]
    rest = len(shown) - _HOLES_NAMED
    return ", ".join(shown[:_HOLES_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def repeated(sets: Sequence[FileSet], entries: Sequence[Entry]) -> int | None:
    """Return how many full records are in an earlier object too; None where offsets are lacking.

    Objects of one cut, in several directories, have none in common.  Objects whose cut is not known
    are compared with those of their directory alone.  *sets* are by start offset, and *entries*
    what the ledger says of the main object of each.
    """
    cuts: defaultdict[tuple[str | None, Hashable], list[Entry]] = defaultdict(list)
    for files, entry in zip(sets, entries, strict=True):
        if files.is_whole:
            alone = files.encoded_partition, files.id
            cuts[alone if entry.cut is None else (None, entry.cut)].append(entry)
    lanes: defaultdict[str | None, list[_Stored]] = defaultdict(list)
    for (directory, _), among in cuts.items():
        span = Span(min(one.first for one in among), max(one.span.end_offset for one in among))
        is_dense = sum(one.records or 0 for one in among) == len(span)
        lanes[directory].append(_Stored(span, is_dense))
    counts = [_twice(sorted(stored)) for stored in lanes.values()]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class _Stored(NamedTuple):
    """What was stored together: its offsets, and whether each of them has a record."""

    span: Span
    is_dense: bool


def _twice(stored: Iterable[_Stored]) -> int | None:
    """Return how many records come again; None where that depends on offsets that are lacking."""
    found, reach, has_all = 0, 0, True
    for span, is_dense in stored:
        if overlap := max(min(reach, span.end_offset) - span.start_offset, 0):
            if not (has_all and is_dense):
                return None
            found += overlap
        else:
            has_all = is_dense
        reach = max(reach, span.end_offset)
    return found


def _overlaps(extents: Sequence[Extent]) -> Iterator[Finding]:
    """Judge sets of full records of one directory that hold the same offsets, as retries leave."""
    # each record is restored once, so it matters only whether they are the same
    before: dict[str, Extent] = {}
    for extent in extents:
        files = extent.files
        earlier = before.get(files.encoded_partition)
        before[files.encoded_partition] = extent
        if earlier is None or earlier.last is None or earlier.last < files.start_offset:
            continue
        ends = [end for end in (earlier.last, extent.last) if end is not None]
        offsets = (files.start_offset, min(ends))
        key, other = files.files[0].key, earlier.files.files[0].key
        if earlier.is_same:
            text = f"{other} holds the same records; each is restored once"
            yield Finding("overlap", files.where, key, offsets, text, level="note")
        elif earlier.is_same is False:
            text = f"{other} holds other records at the same offsets"
            yield Finding("overlap", files.where, key, offsets, text)
        else:
            text = f"{other} reaches into it; what both hold is restored once"
            yield Finding("overlap", files.where, key, offsets, text, level="note")
