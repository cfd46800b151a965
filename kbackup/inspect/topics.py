"""``restore topics``: what is in the bucket, a row a partition, from names and the ledger."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from kbackup import clock
from kbackup.catalog import listing
from kbackup.catalog.judged import JudgedPartition
from kbackup.catalog.listing import BackupFile, Catalog, FileSet, not_in_backup, nothing_there
from kbackup.catalog.reading import facts, read
from kbackup.errors import counted, form
from kbackup.events import Event, Warned
from kbackup.inspect.map import PartitionMap, coverage
from kbackup.inspect.peek import NamedSchema, named_schemas
from kbackup.naming import Layout
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.runs.known import NOTHING, BackupState
from kbackup.runs.selection import select
from kbackup.stores import Store

_CODECS: Final = {
    "br": "brotli", "gz": "gzip", "lz4hadoop": "lz4", "lz4raw": "lz4_raw", "lzo": "lzo",
    "snappy": "snappy", "zstd": "zstd",
}  # fmt: skip
"""What a part of an extension says of the compression."""


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A row.

    Attributes:
        where: The partition.
        format: Formats and compressions of its objects, as `format_label` gives them.
        objects: Number of objects.
        first: Offset of the first record; None without objects.
        last: That of the last one; None where names and ledger do not show it.
        records: Number of records; None where names and ledger do not show it.
        bytes: Bytes of the objects.
        newest: When the newest object was stored; None without objects.
    """

    where: TopicPartition
    format: str
    objects: int
    first: int | None
    last: int | None
    records: int | None
    bytes: int
    newest: datetime | None

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

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {"type": "partition", **self.row()}

    def row(self) -> Event:
        """Return it as a row of the summary."""
        return {
            "topic": self.where.topic,
            "partition": self.where.partition,
            "format": self.format,
            "objects": self.objects,
            "first": self.first,
            "last": self.last,
            "records": self.records,
            "bytes": self.bytes,
            "newest": None if self.newest is None else clock.rfc3339(self.newest),
        }


def stored(where: TopicPartition, sets: Sequence[FileSet], known: BackupState) -> StoredPartition:
    """Return what names and ledger show of *where*, whose objects are *sets*."""
    files = [file for each in sets for file in each.files]
    newest = max((file.modified for file in files), default=None)
    judged = JudgedPartition(
        where, sets, known.recorded.get(where, ()), (), {}, is_deep=False,
        ledger=known.ledger(where),
    )  # fmt: skip
    return StoredPartition(
        where,
        format=", ".join(sorted({format_label(_main(each)) for each in sets})),
        objects=len(files),
        first=sets[0].start_offset if sets else None,
        last=judged.last(),
        records=judged.records(),
        bytes=sum(file.size for file in files),
        newest=None if newest is None else datetime.fromtimestamp(newest, UTC),
    )


def format_label(file: BackupFile) -> str:
    """Return format and compression, as far as the name shows them: ``json/gzip``."""
    codecs = [_CODECS[part] for part in file.extension.split(".") if part in _CODECS]
    return "/".join([file.format, *codecs])


def _main(files: FileSet) -> BackupFile:
    return files.main if files.main is not None else files.files[0]


def _end(store: Store, files: FileSet, options: ReadOptions) -> tuple[int, int]:
    """Return the last offset of a set, and its records: by its facts, else by its rows."""
    known = None if files.main is None else facts(store, files.main)
    if known is not None:
        return known.last_offset, known.records
    last, records = files.start_offset, 0
    for batch in read(store, files, options):
        last = batch["offset"][len(batch) - 1].as_py()
        records += len(batch)
    return last, records


@dataclass(frozen=True, slots=True)
class Folder:
    """One directory that holds objects.

    Attributes:
        topic: The topic.
        path: Its segments after the topic's own.
        objects: Number of objects, siblings counted.
        bytes: Their sizes together.
        partitions: How many Kafka partitions they are of.
    """

    topic: str
    path: tuple[str, ...]
    objects: int
    bytes: int
    partitions: int

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {
            "type": "directory", "topic": self.topic, "directory": list(self.path),
            "partitions": self.partitions, "objects": self.objects, "bytes": self.bytes,
        }  # fmt: skip


def folders(topic: str, sets: Iterable[FileSet], delimiter: str) -> Iterator[Folder]:
    """Yield the directories of one topic's objects, by name.

    Args:
        topic: The topic.
        sets: Of all partitions.
        delimiter: Between two directories.
    """
    found: dict[str, list[FileSet]] = {}
    for one in sets:
        found.setdefault(one.encoded_partition, []).append(one)
    for name, among in sorted(found.items()):
        files = [file for each in among for file in each.files]
        yield Folder(
            topic,
            tuple(name.split(delimiter)) if name else (),
            len(files),
            sum(file.size for file in files),
            len({each.where.partition for each in among}),
        )


Told = Warned | StoredPartition | PartitionMap | Folder | NamedSchema
"""What is reported of a backup."""


def topics(
    store: Store,
    layout: Layout,
    options: ReadOptions,
    *,
    names: Collection[str] = (),
    pattern: str | None = None,
    partitions: Collection[int] | None = None,
    only_format: str | None = None,
    deep: bool = False,
    has_map: bool = False,
    has_tree: bool = False,
    has_schemas: bool = False,
    as_of_ms: int | None = None,
    known: BackupState = NOTHING,
) -> Iterator[Told]:
    """Report what is in the bucket.

    Costs one listing, of the named topics only where there are any; with *deep* one more look at
    the last object of each partition.  Foreign objects are named as warnings.

    Args:
        store: Where the backup is.
        layout: How objects are named.
        options: How objects are read.
        names: Topics; all where there are none.
        pattern: A Java regular expression for topics, where there are no *names*.
        partitions: Only these of each topic; None for all.
        only_format: Only objects of this format, and their siblings; None for all.
        deep: Learn where each partition ends from its last object.
        has_map: Say which offsets and days of each partition are there.
        has_tree: Say in which directories the objects of each topic are.
        has_schemas: Say which registry schemas the records of each topic name.
        as_of_ms: Only what had been stored before, in ms since the epoch; None for all.
        known: What the backup says about itself.

    Yields:
        Warnings, then the partitions, by topic and number, each with its coverage where that is
        asked for; then the directories, by topic and name, and the schemas.

    Raises:
        CorruptObjectError: If a schema cannot be read.
        IncompleteBackupError: If a topic of *names* is not in the backup.
        StoreError: If the listing cannot be had whole.
    """
    found = listing.list_backup(
        store, layout, options.formats, topics=names, only_format=only_format
    )
    present = found.keys
    if as_of_ms is not None:
        found = found.as_of(as_of_ms)
    yield from _foreign(found)
    for code, text in found.left_out():
        yield Warned(code, text)
    for damage in known.all_damage():
        yield Warned(damage.code, damage.text, place={"key": damage.what})
    everywhere = {*found.sets, *known.partitions()}
    there = {*found.topics(), *known.topics, *(where.topic for where in everywhere)}
    chosen = select(there, names, pattern)
    if not chosen:
        raise nothing_there(layout.topics_dir or "the bucket")
    for topic in chosen:
        if topic not in there:
            raise not_in_backup(topic, found)
    for where in sorted(everywhere):
        if where.topic not in chosen or not (partitions is None or where.partition in partitions):
            continue
        sets = found.sets.get(where, [])
        if not sets and as_of_ms is not None and not _was_there(known, where, as_of_ms):
            continue
        row = stored(where, sets, known)
        yield row.looked_at(store, sets, options) if deep else row
        if has_map:
            gaps = known.gaps(where)
            yield coverage(where, sets, known.ledger(where), gaps, present, as_of_ms)
    for topic in chosen if has_tree else ():
        sets = [
            files
            for where in found.partitions(topic)
            if partitions is None or where.partition in partitions
            for files in found.sets[where]
        ]
        yield from folders(topic, sets, layout.directory_delim)
    if has_schemas:
        yield from named_schemas(store, layout, chosen)


def _was_there(known: BackupState, where: TopicPartition, moment_ms: int) -> bool:
    """Whether objects of a partition that are gone had been stored before a time."""
    return any(entry.time <= moment_ms for entry in known.ledger(where).objects.values())


def _foreign(found: Catalog) -> Iterator[Warned]:
    """Name the objects that are not ours, and count those too many to name."""
    for key, why in found.foreign:
        yield Warned("foreign_object", why, place={"key": key})
    unnamed = found.foreign_count - len(found.foreign)
    if unnamed:
        text = f"{counted(unnamed, 'more object')} {form(unnamed, 'is', 'are')} not ours"
        yield Warned("foreign_object", text)
