"""``restore list``, ``restore thaw``: list what is in the bucket, and thaw what is archived.

A row a partition, from names and the ledger; a map of its offsets and days; its directories,
schemas and consumer groups; and archived objects, made readable for some days.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Self

from kbackup import clock
from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.coverage import entered
from kbackup.catalog.covered import by_name
from kbackup.catalog.groups import Captures, TopicCapture
from kbackup.catalog.judged import JudgedPartition
from kbackup.catalog.ledger.rows import Entry, PartitionLedger, is_main
from kbackup.catalog.listing import (
    BackupFile,
    Catalog,
    FileSet,
    Listed,
    frozen,
    object_bytes,
    object_count,
)
from kbackup.catalog.reading import facts, read
from kbackup.errors import ConfigurationError, counted, form
from kbackup.events import INLINE, Plain, Warned
from kbackup.formats import FormatOptions
from kbackup.inspect import Days, MapRange, MapState, day, merged
from kbackup.inspect.peek import named_schemas, shown_bytes
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.runs.backup_state import (
    NOTHING,
    REMOVED_SINCE,
    BackupState,
    as_of,
    list_as_stored,
    removed_since,
)
from kbackup.runs.history import Estimate
from kbackup.runs.report import Summary
from kbackup.stores import READABLE, Archive, Store, Tier, at_versions, side_by_side

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class PartitionCoverage:
    """One partition.

    Attributes:
        offsets: By offset, in order, without overlap; of what is between them nothing is known.
        days: The same by day of record timestamps, in UTC, as far as the ledger knows these.
    """

    HEAD: ClassVar = {"type": "coverage"}

    where: TopicPartition = field(metadata=INLINE)
    offsets: tuple[MapRange, ...]
    days: tuple[Days, ...]


def coverage(
    where: TopicPartition,
    sets: Sequence[FileSet],
    ledger: PartitionLedger,
    present: Container[str],
) -> PartitionCoverage:
    """Return what is there of one partition, by its objects and all keys that are *present*."""
    found = entered(map(by_name, sets), ledger, present)
    offsets = [
        MapRange(state, span.start_offset, span.end_offset - 1)
        for state, spans in (
            (MapState.MISSING, found.said.missing),
            (MapState.DISPUTED, [one.span for one in found.disputes]),
            (MapState.STORED, found.stored),
            (MapState.NAMED, found.named),
            (MapState.EXPIRED, found.said.gone),
            (MapState.REMOVED, found.said.removed),
        )
        for span in spans
    ]
    there = (ledger.objects.get(one.main.key) for one in sets if one.main is not None)
    days = [*_days(MapState.STORED, there)]
    days += _days(MapState.MISSING, ledger.missing(present))
    days += _days(MapState.REMOVED, ledger.removed(present))
    told = [Days(one.state, day(one.first), day(one.last)) for one in merged(days)]
    return PartitionCoverage(where, merged(offsets), tuple(told))


def _days(state: MapState, entries: Iterable[Entry | None]) -> Iterator[MapRange]:
    for entry in entries:
        if entry is not None and entry.min_timestamp is not None:
            last = entry.min_timestamp if entry.max_timestamp is None else entry.max_timestamp
            yield MapRange(state, entry.min_timestamp // _DAY_MS, last // _DAY_MS)


_CODECS: Final = {
    "br": "brotli", "gz": "gzip", "lz4hadoop": "lz4", "lz4raw": "lz4_raw", "lzo": "lzo",
    "snappy": "snappy", "zstd": "zstd",
}  # fmt: skip
"""What a part of an extension says of the compression."""


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A row.

    Attributes:
        format: Formats and compressions of its objects, as `format_label` gives them.
        first: Offset of the first record; None without objects.
        last: That of the last one; None where names and ledger do not show it.
        newest: The highest timestamp of its records; None where names and ledger do not show it.
        last_stored: When its newest object was stored; None without objects.
        oldest: The lowest timestamp, as *newest*.
    """

    HEAD: ClassVar = {"type": "partition"}

    where: TopicPartition = field(metadata=INLINE)
    format: str
    objects: int
    first: int | None
    last: int | None
    records: int | None
    bytes: int
    newest: datetime | None
    last_stored: datetime | None
    oldest: datetime | None = None

    def looked_at(self, store: Store, sets: Sequence[FileSet], options: ReadOptions) -> Self:
        """Return the row with what the last object of each directory shows.

        In the connectors' layout without facts the last offset is that of a topic without holes.
        """
        finals = {files.encoded_partition: files for files in sets if files.main is not None}
        ends = [_end(store, files, options) for files in finals.values()]
        if not ends:
            return self
        records = ends[0][1] if len(sets) == 1 else self.records
        return replace(self, last=max(end for end, _ in ends), records=records)


def stored(where: TopicPartition, sets: Sequence[FileSet], known: BackupState) -> StoredPartition:
    """Return what names and ledger show of *where*, whose objects are *sets*."""
    stored_s = max((file.modified for each in sets for file in each.files), default=None)
    oldest, newest = _times(sets, known.ledger(where))
    judged = JudgedPartition(where, sets, {}, is_deep=False, ledger=known.ledger(where))
    return StoredPartition(
        where,
        format=", ".join(sorted({format_label(each.files[0]) for each in sets})),
        objects=object_count(sets),
        first=sets[0].start_offset if sets else None,
        last=judged.last(),
        records=judged.records(),
        bytes=object_bytes(sets),
        newest=newest,
        last_stored=None if stored_s is None else datetime.fromtimestamp(stored_s, UTC),
        oldest=oldest,
    )


def _times(
    sets: Sequence[FileSet], ledger: PartitionLedger
) -> tuple[datetime | None, datetime | None]:
    """Return the lowest and the highest timestamp in *sets*, if the ledger has each of them."""
    mains = [files.main for files in sets if files.main is not None]
    rows = [row for main in mains if (row := ledger.objects.get(main.key)) is not None]
    lows = [row.min_timestamp for row in rows if row.min_timestamp is not None]
    highs = [row.max_timestamp for row in rows if row.max_timestamp is not None]
    if not (lows and highs) or len(rows) < len(sets):
        return None, None
    return clock.moment_of(min(lows)), clock.moment_of(max(highs))


def format_label(file: BackupFile) -> str:
    """Return format and compression, as far as the name shows them: ``json/gzip``."""
    codecs = [_CODECS[part] for part in file.extension.split(".") if part in _CODECS]
    return "/".join([file.format, *codecs])


def _end(store: Store, files: FileSet, options: ReadOptions) -> tuple[int, int]:
    """Return the last offset of a set, and its records: by its facts, else by its rows."""
    known = None if files.main is None else facts(store, files.main)
    if known is not None:
        return known.last_offset, known.records
    last, records = files.start_offset, 0
    for batch in read(Reading(store, options), files):
        last = batch["offset"][len(batch) - 1].as_py()
        records += len(batch)
    return last, records


@dataclass(frozen=True, slots=True)
class Folder:
    """One directory that holds objects, siblings counted, by its segments after the topic's own."""

    HEAD: ClassVar = {"type": "directory"}

    topic: str
    directory: tuple[str, ...]
    partitions: int
    objects: int
    bytes: int


def folders(topic: str, sets: Iterable[FileSet], delimiter: str) -> Iterator[Folder]:
    """Yield the directories of one topic's objects, of all partitions, by name."""
    found: dict[str, list[FileSet]] = {}
    for one in sets:
        found.setdefault(one.encoded_partition, []).append(one)
    for name, among in sorted(found.items()):
        yield Folder(
            topic,
            tuple(name.split(delimiter)) if name else (),
            len({each.where.partition for each in among}),
            object_count(among),
            object_bytes(among),
        )


@dataclass(frozen=True, slots=True)
class CapturedPosition:
    """Where a consumer group stood in a partition, by the rows of a capture: `GroupEntry`.

    *metadata* is as `shown_bytes` has it.  The backup had not reached the last *beyond* offsets
    before *offset*, null for none; *unsettled* says why it lacks some of what was in the partition
    then, null if it does not.
    """

    HEAD: ClassVar = {"type": "group"}

    where: TopicPartition = field(metadata=INLINE)
    group: str
    offset: int
    metadata: Any
    high_watermark: int | None
    beyond: int | None
    unsettled: str | None
    protocol_type: str | None
    state: str | None
    taken: datetime | None
    is_complete: bool

    @property
    def lag(self) -> int | None:
        """How many offsets the group had not read."""
        return None if self.high_watermark is None else max(0, self.high_watermark - self.offset)


def topics(
    store: Store,
    layout: Layout,
    options: ReadOptions,
    *,
    asked: TopicFilter = ALL,
    only_format: str | None = None,
    deep: bool = False,
    has_map: bool = False,
    has_directories: bool = False,
    has_schemas: bool = False,
    captures: Captures | None = None,
    as_of_ms: int | None = None,
    known: BackupState = NOTHING,
) -> Iterator[Plain]:
    """Report what is in the bucket.

    Costs one listing, of the named topics only where there are any; with *deep* one more look at
    the last object of each partition, where it ends.  Foreign objects are named as warnings.
    *captures* say where consumer groups stood; None: that is not asked for.  *as_of_ms* is as of
    `kbackup.runs.backup_state.as_of`.

    Yields:
        Warnings, then the partitions, by topic and number, each with its coverage where that is
        asked for; then the directories, by topic and name, the schemas, and the groups.

    Raises:
        CorruptObjectError: If a schema cannot be read.
        IncompleteBackupError: If a topic of *asked* is not in the backup.
        RefusedError: If what had been stored by then cannot be told.
    """
    found = listing.list_backup(
        store, layout, options.formats, topics=asked.names, only_format=only_format
    )
    found = known.left(found)
    present = found.keys
    if as_of_ms is not None:
        found, known = as_of(found, known, as_of_ms, asked)
    yield from _foreign(found)
    for code, text in found.left_out():
        yield Warned(code, text)
    for damage in known.all_damage():
        yield Warned(damage.code, damage.text, place={"key": damage.what})
    everywhere = {*found.sets, *known.partitions()}
    there = {*found.topics(), *known.names}
    chosen = listing.chosen(asked, there, layout.place)
    numbers = (where.partition for where in everywhere if where.topic in chosen)
    listing.check_partitions(asked, numbers, layout.place)
    for where in sorted(everywhere):
        if where.topic not in chosen or not asked.has(where.partition):
            continue
        sets = found.sets.get(where, [])
        if not sets and as_of_ms is not None and not known.ledger(where).objects:
            continue
        if as_of_ms is not None:
            gone = known.ledger(where).removed(present)
            if keys := [one.key or "" for one in gone if is_main(one)]:
                yield Warned(REMOVED_SINCE, removed_since(where, keys), place=where.place)
        row = stored(where, sets, known)
        yield row.looked_at(store, sets, options) if deep else row
        if has_map:
            yield coverage(where, sets, known.ledger(where), present)
    for topic in chosen if has_directories else ():
        sets = [
            files
            for where in found.partitions(topic)
            if asked.has(where.partition)
            for files in found.sets[where]
        ]
        yield from folders(topic, sets, layout.directory_delim)
    if has_schemas:
        yield from named_schemas(store, layout, chosen)
    if captures is not None:
        yield from _groups(captures, chosen, asked)


def _groups(captures: Captures, topics: Iterable[str], asked: TopicFilter) -> Iterator[Plain]:
    """Say where consumer groups stood in *topics*, and where that is not or not fully known."""
    for damage in captures.damage:
        yield Warned(damage.code, damage.text, place={"key": damage.what})
    for topic in topics:
        if (found := captures.newest.get(topic)) is None:
            text = f"{topic}: no sink has captured where consumer groups stood"
            yield Warned("groups_not_captured", text, place={"topic": topic})
            continue
        if not found.topic.is_complete:
            text = f"{topic}: maybe not all consumer groups are captured"
            yield Warned("groups_incomplete", text, place={"topic": topic})
        yield from _stood(found, asked)


def _stood(found: TopicCapture, asked: TopicFilter) -> Iterator[CapturedPosition]:
    for row in found.offsets:
        if row.group is not None and row.offset is not None and asked.has(row.where.partition):
            yield CapturedPosition(
                row.where, row.group, row.offset, shown_bytes(row.metadata), row.high_watermark,
                row.beyond, found.unsettled.get(row.where), row.protocol_type, row.state,
                clock.moment_of(row.taken), bool(found.topic.is_complete),
            )  # fmt: skip


def _foreign(found: Catalog) -> Iterator[Warned]:
    """Name the objects that are not ours, and count those too many to name."""
    for key, why in found.foreign:
        yield Warned("foreign_object", why, place={"key": key})
    unnamed = found.foreign_count - len(found.foreign)
    if unnamed:
        text = f"{counted(unnamed, 'more object')} {form(unnamed, 'is', 'are')} not this backup's"
        yield Warned("foreign_object", text)


@dataclass(frozen=True, slots=True)
class Thawed:
    """What became of the archived objects of a topic.

    Attributes:
        topic: The topic; None for what the backup says about itself.
        asked: Objects asked for now, or that would be.
        thawing: Objects asked for before and not readable yet.
        ready: Objects that can be read.
        bytes: Of the objects asked for.
        until: When the first of those that are ready cannot be read any more; None without any.
    """

    HEAD: ClassVar = {"type": "thaw"}

    topic: str | None
    asked: int
    thawing: int
    ready: int
    bytes: int
    until: datetime | None


def thaw(
    store: Store,
    layout: Layout,
    options: FormatOptions,
    *,
    summary: Summary,
    days: int,
    tier: Tier,
    asked: TopicFilter = ALL,
    only_format: str | None = None,
    is_dry: bool = False,
    known: BackupState = NOTHING,
) -> Iterator[Thawed | Warned]:
    """Ask for the archived objects of topics, and of what the backup says about itself.

    By what is *known* they are those that a restore would read: of what was deleted or overwritten
    the version that was stored.  They stay readable for *days*.  *summary* gets when they can be
    read, and of a dry run what asking takes.  It yields what became of each topic, by name; the
    objects of the ledger come first.

    Raises:
        IncompleteBackupError: If a topic of *asked* is not in the backup.
        ConfigurationError: If the store has no archived objects.
    """
    if not isinstance(store, Archive):
        raise ConfigurationError(
            "this store cannot thaw objects", do="only S3 can; use the cloud's own tools"
        )
    found = list_as_stored(store, layout, options, known, asked, only_format)
    chosen = listing.chosen(asked, found.topics(), layout.place)
    yield from summary.remark("as_stored", found.as_stored())
    there = at_versions(store, found.versions)
    assert isinstance(there, Archive)  # noqa: S101  (the same store)

    def files_of(topic: str) -> list[Listed]:
        return [
            file
            for where in found.partitions(topic)
            if asked.has(where.partition)
            for one in found.sets[where]
            for file in one.files
        ]

    looks, every = 0, list[Listed]()
    own: list[Listed] = [*store.list(layout.records_prefix())]
    for topic, files in (("", own), *((topic, files_of(topic)) for topic in chosen)):
        cold = frozen(there, files)
        waiting = cold.of("frozen")
        if not is_dry:
            side_by_side(lambda file: there.thaw(file.key, days, tier), waiting)
        looks += len(cold.thaws)
        every += waiting
        if topic or cold.thaws:
            yield Thawed(
                topic or None,
                len(waiting),
                len(cold.of("thawing")),
                len(cold.of("ready")),
                sum(file.size for file in waiting),
                cold.until,
            )
    if every:
        summary.facts["readable"] = READABLE[tier]
        if is_dry:
            size = sum(file.size for file in every)
            summary.facts["estimate"] = Estimate(size, looks + len(every), None)
