"""List a backup: its objects as file sets in offset order, and windows of records."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import clock, formats
from kbackup.catalog.ledger.rows import Entry
from kbackup.errors import (
    IncompleteBackupError,
    KbackupError,
    ObjectKeyError,
    RefusedError,
    counted,
    form,
    some,
)
from kbackup.formats import FormatOptions
from kbackup.naming import (
    INDEX_EXTENSION,
    NOT_MATCHED,
    RECORDS_FOLDER,
    UPLOAD_DATE,
    Layout,
    ObjectKey,
    View,
)
from kbackup.naming.renaming import TopicFilter
from kbackup.records import NO_TIMESTAMP, Facts, Span, TopicPartition
from kbackup.stores import ARCHIVED, Archive, Earlier, Store, StoredObject, Thaw, side_by_side


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One object of a backup.

    Attributes:
        key: As listed: open it by this.
        extension: Dot first.
        modified: When it was stored, seconds since the epoch.
        storage_class: What the store calls the way it is kept; empty where there is only one.
        sha256: What the ledger says was stored under this key, in hexadecimal; empty where it was
            not asked, or does not know.
        records: How many the ledger says were stored in it; None where it was not asked, or does
            not know.
        etag: The store's own mark of the content, of objects that no sink has named; empty for
            others.
        version: Which version was stored, where that is not what is there now; empty elsewhere.
    """

    key: str
    view: View
    extension: str
    format: str
    size: int
    modified: float
    storage_class: str = ""
    sha256: str = ""
    etag: str = ""
    records: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class FileSet:
    """The objects that hold the same records: one of full records, or a value with siblings.

    Attributes:
        encoded_partition: The directory; where it is a date of upload, which says nothing of the
            records, `kbackup.naming.UPLOAD_DATE`.
        main: The full-record or the value object, or of tombstones the keys object; None where
            only siblings were found.
        index: Key of the index beside the value object; None if there is none, which loses nothing.
        is_generic: An expression over keys has found it, so its records have no offsets that mean
            anything, unless the expression has read the first one, and what it says of itself is
            about another place.
        only: Of values, only these offsets: full records hold the others.  None for all.
        removed: What was beside the values, and is known to be removed on purpose.
        bound: Of values, the offset before which the next object of their directory says that
            their rows end.  None where nothing does.
    """

    where: TopicPartition
    start_offset: int
    encoded_partition: str
    main: BackupFile | None = None
    keys: BackupFile | None = None
    headers: BackupFile | None = None
    index: str | None = None
    is_generic: bool = False
    only: Span | None = None
    bound: int | None = None
    removed: frozenset[View] = frozenset()

    @property
    def files(self) -> list[BackupFile]:
        """All objects of the set."""
        return [file for file in (self.main, self.keys, self.headers) if file is not None]

    def known_by(self, told: Callable[[BackupFile], BackupFile]) -> "FileSet":
        """Return the set with what is *told* of each object."""
        main, keys = self.main and told(self.main), self.keys and told(self.keys)
        headers = self.headers and told(self.headers)
        return replace(self, main=main, keys=keys, headers=headers)

    @property
    def id(self) -> str:
        """The key that stands for the set."""
        return self.files[0].key

    @property
    def part(self) -> str:
        """What stands for its records: its `id`, and those of them that are read if not all."""
        if self.only is None:
            return self.id
        return f"{self.id} {self.only.start_offset}-{self.only.end_offset}"

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Bytes of the object, and of its keys and headers; None for those that are not there."""
        files = (self.main, self.keys, self.headers)
        return tuple(None if file is None else file.size for file in files)

    @property
    def begin(self) -> int:
        """The first offset that is read."""
        return self.start_offset if self.only is None else self.only.start_offset

    @property
    def is_tombstones(self) -> bool:
        """Whether it holds records without a value."""
        return self.main is not None and self.main.view is View.KEY

    @property
    def is_whole(self) -> bool:
        """Whether it holds full records."""
        return self.main is not None and self.main.view is View.RECORD


FactsOf = Callable[[FileSet], Facts | None]
"""Returns what is known of the records of a set."""

_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from *low* to *high*, both included."""

    low: int = -_HIGHEST
    high: int = _HIGHEST

    def narrowed(self, operator: str, number: int) -> "Interval":
        """Return what is left of it where ``x OPERATOR number``; as it is for others."""
        match operator:
            case "=":
                return Interval(max(self.low, number), min(self.high, number))
            case ">" | ">=":
                return Interval(max(self.low, number + (operator == ">")), self.high)
            case "<" | "<=":
                return Interval(self.low, min(self.high, number - (operator == "<")))
        return self

    def __str__(self) -> str:
        """Return both ends; an end without a limit is empty."""
        low = "" if self.low == -_HIGHEST else self.low
        return f"{low}..{'' if self.high == _HIGHEST else self.high}"

    def divides(self, low: int, high: int | None) -> bool:
        """Whether it has some of the numbers from *low* to *high*, and lacks others.

        Without *high* they may continue for ever.
        """
        end = _HIGHEST if high is None else high
        return self.meets(low, end) and not (self.low <= low and end <= self.high)

    def meets(self, low: int, high: int) -> bool:
        """Whether any number from *low* to *high* is in it."""
        return max(low, self.low) <= min(high, self.high)


EVERY_OFFSET: Final = Interval()
"""No limit."""


def _bounds(name: str, within: Interval, shown: Callable[[int], str]) -> str:
    """Return from where to where, as the options say it: what it ends with is not in it."""
    low = "" if within.low == -_HIGHEST else f" from {shown(within.low)}"
    high = "" if within.high == _HIGHEST else f" before {shown(within.high + 1)}"
    return f"{name}{low}{high}" if low or high else ""


@dataclass(frozen=True, slots=True)
class Window:
    """Some records of a topic; *partitions* None are all."""

    partitions: frozenset[int] | None = None
    offset: Interval = Interval()
    timestamp_ms: Interval = Interval()

    @classmethod
    def between(
        cls, first: int | None, end: int | None, from_ms: int | None, to_ms: int | None
    ) -> "Window":
        """Return the records from an offset and a time on, up to others; None is no limit.

        What they begin with is in it, what they end with is not.
        """
        return cls(None, _span(first, end), _span(from_ms, to_ms))

    @property
    def is_everything(self) -> bool:
        """Whether all records are in it."""
        return self == EVERYTHING

    @property
    def has_times(self) -> bool:
        """Whether it asks for timestamps."""
        return self.timestamp_ms != Interval()

    def __str__(self) -> str:
        """Return what tells it from another one; empty for everything."""
        named = {"offset": self.offset, "timestamp": self.timestamp_ms}
        return " ".join(f"{name} {one}" for name, one in named.items() if one != Interval())

    @property
    def text(self) -> str:
        """What it asks for, in words; empty for everything."""
        parts = [
            _bounds("offset", self.offset, str),
            _bounds("timestamp", self.timestamp_ms, clock.shown_ms),
        ]
        return ", ".join(part for part in parts if part)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``records.SCHEMA`` that are in it.

        One without a timestamp is in none that has times.
        """
        for name, wanted in (("offset", self.offset), ("timestamp", self.timestamp_ms)):
            if wanted != Interval() and len(batch):
                batch = batch.filter(
                    pc.and_(
                        pc.greater_equal(batch[name], wanted.low),
                        pc.less_equal(batch[name], wanted.high),
                    )
                )
        if self.has_times and len(batch):
            return batch.filter(pc.not_equal(batch["timestamp"], NO_TIMESTAMP))
        return batch

    def narrowed(self, column: str, operator: str, number: int) -> "Window":
        """Return what is left where ``column OPERATOR number``, a timestamp in ms.

        Columns but ``partition``, ``offset`` and ``timestamp`` narrow nothing.
        """
        if column == "partition" and operator == "=":
            return self.among(frozenset({number}))
        if column == "offset":
            return replace(self, offset=self.offset.narrowed(operator, number))
        if column == "timestamp":
            return replace(self, timestamp_ms=self.timestamp_ms.narrowed(operator, number))
        return self

    def among(self, partitions: frozenset[int]) -> "Window":
        """Return what is left of it in these partitions."""
        mine = self.partitions
        return replace(self, partitions=partitions if mine is None else mine & partitions)

    def has(self, partition: int) -> bool:
        """Whether it has anything of a partition."""
        return self.partitions is None or partition in self.partitions

    def takes(self, files: FileSet, known: Facts | None) -> bool:
        """Whether an object may hold records that it leaves; only a first offset may be *known*."""
        if known is None:
            return files.start_offset <= self.offset.high
        return self.asks(known.first_offset, known.last_offset, known)

    def asks(self, first: int, last: int, known: Facts | None) -> bool:
        """Whether it may have records with some offsets, of which *known* is all that is known."""
        if not self.offset.meets(first, last):
            return False
        if known is None or known.min_timestamp is None or known.max_timestamp is None:
            return True
        return self.timestamp_ms.meets(known.min_timestamp, known.max_timestamp)


def _span(first: int | None, end: int | None) -> Interval:
    return Interval(-_HIGHEST if first is None else first, _HIGHEST if end is None else end - 1)


EVERYTHING: Final = Window()


OTHER_FORMAT: Final = "other_format_objects"
"""Under what objects are counted that are left out because another format was asked for."""

NAMED_MOST: Final = 1000
"""Foreign keys kept by name; all are counted."""


def object_count(sets: Iterable[FileSet]) -> int:
    """Return how many objects *sets* are."""
    return sum(len(files.files) for files in sets)


def object_bytes(sets: Iterable[FileSet]) -> int:
    """Return how many bytes these objects have."""
    return sum(file.size for files in sets for file in files.files)


@dataclass(slots=True)
class Catalog:
    """A listing, sorted out.

    Attributes:
        sets: The file sets of each partition, by start offset as a number.
        foreign: Keys below ``topics.dir`` that are not ours, up to `NAMED_MOST`.
        ignored: Objects of ours with an extension that was not asked for.
        keys: Of all objects of ours, those not asked for too.
        unmatched: Objects of a generic layout that no expression matches.
        versions: Which versions were stored, by key, of objects that were deleted or overwritten.
        untold: Why nobody could look for such versions, and what to do; empty where that is known.
    """

    sets: dict[TopicPartition, list[FileSet]] = field(default_factory=dict)
    foreign: list[tuple[str, str]] = field(default_factory=list)
    foreign_count: int = 0
    ignored: int = 0
    keys: set[str] = field(default_factory=set)
    unmatched: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    untold: str = ""

    def left_out(self) -> list[tuple[str, str]]:
        """Return codes and sentences about the objects that were not asked for."""
        found = []
        if self.ignored:
            text = f"{counted(self.ignored, 'object')} of another format than the one asked for "
            text += f"{form(self.ignored, 'is', 'are')} left out"
            found.append(("other_format", text))
        if self.unmatched:
            text = f"objects that match no expression of topic.regex.list: {self.unmatched}"
            found.append(("unmatched_objects", text))
        return found

    def topics(self) -> list[str]:
        """Return the names of the topics, sorted."""
        return sorted({where.topic for where in self.sets})

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of *topic* that have objects, by number."""
        return sorted(where for where in self.sets if where.topic == topic)

    def without(self, keys: Collection[str]) -> "Catalog":
        """Return what of it is left without the sets that these keys stand for: `FileSet.id`."""
        sets: dict[TopicPartition, list[FileSet]] = {}
        gone: set[str] = set()
        for where, every in self.sets.items():
            kept = [files for files in every if files.id not in keys]
            if len(kept) < len(every):
                gone.update(file.key for one in every if one.id in keys for file in one.files)
            if kept:
                sets[where] = kept
        return replace(self, sets=sets, keys=self.keys - gone)

    def as_stored(self) -> Iterator[tuple[str, str]]:
        """Yield a code, and what is not read as it is there; or why nobody knows whether it is."""
        if self.versions:
            count = len(self.versions)
            text = f"{counted(count, 'object')} {form(count, 'was', 'were')} deleted or overwritten"
            read = f"the versions that were stored are read: {some(sorted(self.versions), 3)}"
            yield "earlier_versions", f"{text}; {read}"
        if self.untold:
            text = (
                "objects were deleted or overwritten, and it is not known whether versions are left"
            )
            yield "earlier_versions", f"{text}: {self.untold}"

    def narrowed(self, only_format: str) -> "Catalog":
        """Return what of it is of one format, siblings included."""
        kept = {
            where: [
                files
                for files in sets
                if files.main is None or files.is_tombstones or files.main.format == only_format
            ]
            for where, sets in self.sets.items()
        }
        ignored = sum(len(sets) for sets in self.sets.values()) - sum(map(len, kept.values()))
        sets = {where: found for where, found in kept.items() if found}
        return replace(self, sets=sets, ignored=self.ignored + ignored)


def earlier(
    store: Store, sought: Mapping[str, tuple[int, str]]
) -> dict[str, Iterator[StoredObject]]:
    """Return, by key, the versions that have a size and say a sha256, but for what is there now.

    The oldest comes first: whoever overwrites comes later.  What they say may be forged, which who
    reads them compares.  Nothing is found in a store that keeps no versions.

    Raises:
        StoreError: If the store does not answer, or refuses; also while one is looked for.
    """
    if not sought or not isinstance(store, Earlier):
        return {}
    found: defaultdict[str, list[StoredObject]] = defaultdict(list)
    for one in store.earlier(sought.keys()):
        found[one.key].append(one)

    def is_it(one: StoredObject) -> bool:
        size, sha256 = sought[one.key]
        head = store.at({one.key: one.version}).head(one.key) if one.size == size else None
        return head is not None and head.metadata.get("sha256") == sha256

    return {key: filter(is_it, every) for key, every in found.items()}


def earlier_of(store: Store, rows: Iterable[Entry]) -> dict[str, StoredObject]:
    """Return, by key, the versions that rows of the ledger name: the first of `earlier`."""
    sought = {
        row.key: (row.bytes, row.sha256)
        for row in rows
        if row.key and row.sha256 and row.bytes is not None
    }
    found = side_by_side(lambda every: next(every, None), earlier(store, sought).values())
    return {one.key: one for one in found if one is not None}


def list_backup(
    store: Store,
    layout: Layout,
    options: FormatOptions,
    *,
    topics: Collection[str] = (),
    only_format: str | None = None,
    instead: Mapping[str, StoredObject] | None = None,
) -> Catalog:
    """List a backup: of *topics*, or all if there are none, and of a format with its siblings.

    What is *instead* there, by key, takes the place of what is listed.  A listing that cannot be
    had whole raises `StoreError`.
    """
    entries: Iterable[StoredObject] = _entries(store, layout, topics)
    if instead:
        every = {**{one.key: one for one in entries}, **instead}
        entries = (every[key] for key in sorted(every))
    return sorted_out(entries, layout, options, topics=topics, only_format=only_format)


def sorted_out(
    entries: Iterable[StoredObject],
    layout: Layout,
    options: FormatOptions,
    *,
    topics: Collection[str] = (),
    only_format: str | None = None,
) -> Catalog:
    """Return the catalog of *entries*, in the order of their keys: `list_backup`."""
    catalog = Catalog()
    found: dict[TopicPartition, dict[tuple[str, ...], FileSet]] = {}
    known: dict[str, str | None] = {}
    indexes: set[str] = set()
    for entry in entries:
        parts = _parts(catalog, layout, entry, topics)
        if parts is None:
            continue
        why, name = "", None
        if layout.is_generic:
            if not entry.size:
                continue  # it holds no record
            extension, name = formats.of_any_name(parts.extension, options, only_format)
            view = View.RECORD if formats.holds_records(name) else View.VALUE
            why = f"{parts.extension or 'a name without extension'}: set format.class"
            parts = replace(parts, extension=extension, view=view, encoded_partition=entry.key)
        elif parts.encoded_partition == UPLOAD_DATE and parts.extension == INDEX_EXTENSION:
            indexes.add(entry.key)
            continue
        else:
            if parts.extension not in known:
                known[parts.extension] = formats.by_extension(parts.extension, options)
            name = known[parts.extension]
        if name is None:
            _foreign(catalog, layout, entry, f"no format reads {why or parts.extension}")
            continue
        catalog.keys.add(entry.key)
        if only_format not in (None, name) and parts.view in (View.RECORD, View.VALUE):
            catalog.ignored += 1
        else:
            _add(found, parts, entry, name, is_generic=layout.is_generic)
    for where, sets in found.items():
        told = (_told(files, layout) for files in sets.values())
        ordered = sorted(told, key=lambda one: (one.start_offset, one.encoded_partition))
        if layout.is_dated:
            ordered = [_with_index(files, indexes) for files in ordered]
        catalog.sets[where] = ordered
    return catalog


def _entries(store: Store, layout: Layout, topics: Collection[str]) -> Iterator[StoredObject]:
    for prefix in layout.prefixes(topics) or [layout.prefix()]:
        yield from store.list(prefix)


def _parts(
    catalog: Catalog, layout: Layout, entry: StoredObject, topics: Collection[str]
) -> ObjectKey | None:
    """Return the parts of a key of *topics*; None for another topic's, and one that is foreign."""
    try:
        parts = layout.parse(entry.key)
    except ObjectKeyError as error:
        if error.why == NOT_MATCHED:
            catalog.unmatched += 1
        elif layout.has_folders or not topics:  # else nobody knows of which topic it is
            _foreign(catalog, layout, entry, error.why)
        return None
    if layout.has_folders:
        return parts
    if topics and parts.topic not in topics:
        return None
    return replace(parts, encoded_partition=UPLOAD_DATE) if layout.is_dated else parts


def _foreign(catalog: Catalog, layout: Layout, entry: StoredObject, why: str) -> None:
    """Count an object that is not ours, unless it is a folder's marker, a pointer, or a record."""
    if entry.key.endswith(layout.directory_delim) and entry.size == 0:
        return
    if entry.key.startswith(layout.records_prefix()) and RECORDS_FOLDER in entry.key:
        return
    if layout.is_pointer(entry.key):
        return
    catalog.foreign_count += 1
    if len(catalog.foreign) < NAMED_MOST:
        catalog.foreign.append((entry.key, why))


def _add(
    found: dict[TopicPartition, dict[tuple[str, ...], FileSet]],
    parts: ObjectKey,
    entry: StoredObject,
    name: str,
    *,
    is_generic: bool,
) -> None:
    """Enter an object; one that an expression has found is a set of its own."""
    where = TopicPartition(parts.topic, parts.partition)
    file = BackupFile(
        entry.key, parts.view, parts.extension, name, entry.size, entry.modified.timestamp(),
        entry.storage_class, etag=entry.etag if is_generic else "", version=entry.version,
    )  # fmt: skip
    stem = entry.key if is_generic else entry.key.removesuffix(f"{parts.view}{parts.extension}")
    place: tuple[str, ...] = (stem, "whole" if parts.view is View.RECORD else "values")
    sets = found.setdefault(where, {})
    old = sets.get(place)
    is_main = parts.view in (View.RECORD, View.VALUE)
    if is_main and old is not None and old.main is not None:
        place, old = (*place, parts.extension), None  # the same records once more, in another form
    old = old or FileSet(where, parts.start_offset, parts.encoded_partition)
    sets[place] = FileSet(
        where,
        parts.start_offset,
        parts.encoded_partition,
        main=file if is_main else old.main,
        keys=file if parts.view is View.KEY else old.keys,
        headers=file if parts.view is View.HEADERS else old.headers,
        is_generic=is_generic,
    )


def _told(files: FileSet, layout: Layout) -> FileSet:
    """Return *files* as what it is: keys without values in their own directory are tombstones."""
    if files.main is not None or files.encoded_partition != layout.tombstones:
        return files
    return replace(files, main=files.keys, keys=None)


def _with_index(files: FileSet, indexes: Collection[str]) -> FileSet:
    if files.main is None or not indexes:
        return files
    key = files.main.key.removesuffix(files.main.extension) + INDEX_EXTENSION
    return replace(files, index=key) if key in indexes else files


def nothing_there(asked: TopicFilter, there: Collection[str], place: str) -> IncompleteBackupError:
    """Return the error for a place without a backup: it must not look as if all were well.

    If all that there are were to be left out, it raises `ConfigurationError`.
    """
    asked.check_exclusion(there)
    if there:
        return IncompleteBackupError(
            f"nothing of what was asked for is in the backup under {place}",
            f"its topics: {some(sorted(there), 10)}",
            "check topics.regex and partitions",
        )
    return IncompleteBackupError(
        f"there is no backup under {place}",
        "no object there is named like one of a topic",
        "check the bucket or folder, and topics.dir; a new backup begins with kbackup sink",
    )


def chosen(asked: TopicFilter, there: Collection[str], place: str) -> list[str]:
    """Return the topics that are asked for, sorted, of those *there*, without any object too.

    `IncompleteBackupError`: there is none, or one of them is not there.  `ConfigurationError`: all
    of them were to be left out.
    """
    topics = asked.topics(there)
    if not topics:
        raise nothing_there(asked, there, place)
    for topic in topics:
        if topic not in there:
            raise not_in_backup(topic, there, place)
    return topics


def check_partitions(asked: TopicFilter, there: Iterable[int], place: str) -> None:
    """Check that a partition that is asked for is *there*; `IncompleteBackupError` if none is."""
    numbers = set(there)
    if asked.partitions is not None and not any(map(asked.has, numbers)):
        raise IncompleteBackupError(
            f"no partition that was asked for is in the backup under {place}",
            f"the highest is {max(numbers)}" if numbers else "it has no partition of such a topic",
            "check partitions",
        )


def not_in_backup(topic: str, there: Collection[str], place: str) -> IncompleteBackupError:
    """Return the error for a topic that was asked for and is not there."""
    near = get_close_matches(topic, there, 1)
    return IncompleteBackupError(
        f"topic {topic} is not in the backup under {place}",
        f"its topics: {some(sorted(there), 10)}" if there else "it has no topics",
        f"did you mean {near[0]}?" if near else "list them with kbackup restore list",
        topic=topic,
    )


Listed = BackupFile | StoredObject
"""An object, whatever is known of its name."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """The archived objects among some."""

    thaws: Mapping[Listed, Thaw]

    def of(self, state: str) -> list[Listed]:
        """Return those that have come so far: `Thaw.state`."""
        return [file for file, thaw in self.thaws.items() if thaw.state == state]

    @property
    def until(self) -> datetime | None:
        """When the first of those that can be read now cannot be read any more."""
        ends = (one.until for one in self.thaws.values() if one.until is not None)
        return min(ends, default=None)

    def refusals(self, topic: str, target: str) -> list[KbackupError]:
        """Refuse to restore *topic* while an object of it cannot be read."""
        waiting = [*self.of("frozen"), *self.of("thawing")]
        if not waiting:
            return []
        classes = Counter(file.storage_class for file in waiting)
        kinds = " and ".join(f"{number} in {name}" for name, number in sorted(classes.items()))
        thawing = len(self.of("thawing"))
        are = form(thawing, "is", "are")
        asked = f"; {thawing} of them {are} being retrieved" if thawing else ""
        return [
            RefusedError(
                f"{counted(len(waiting), 'object')} of {topic} cannot be read now",
                f"they are archived: {kinds}{asked}",
                f"request them: kbackup restore thaw -t {topic}; restore once all can be read",
                topic=target,
            )
        ]

    def warnings(self, topic: str) -> list[tuple[str, str]]:
        """Return until when archived objects can be read, with a code."""
        ready = len(self.of("ready"))
        if self.until is None or ready < len(self.thaws):
            return []
        until = clock.rfc3339(self.until)
        objects = counted(ready, "archived object")
        return [("archived", f"{topic}: {objects} can be read until {until}")]


def frozen(store: Store, files: Iterable[Listed]) -> Frozen:
    """Return what is archived of *files*: a request for each such object, none for others."""
    archived = [file for file in files if file.storage_class in ARCHIVED]
    if not archived or not isinstance(store, Archive):
        return Frozen({})
    thaws = side_by_side(lambda file: store.thawed(file.key), archived)
    return Frozen(dict(zip(archived, thaws, strict=True)))
