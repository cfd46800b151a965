"""``restore topics``: what is in the bucket, a row a partition, from names and the ledger."""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from kbackup import moments
from kbackup.backup import catalog as listing
from kbackup.backup.catalog import BackupFile, Catalog, FileSet, not_in_backup, nothing_there
from kbackup.backup.judged import JudgedPartition
from kbackup.backup.reading import facts, read
from kbackup.events import Event, Warned
from kbackup.flow.views import ReadOptions
from kbackup.look.coverage import Coverage, coverage
from kbackup.look.folders import folders
from kbackup.look.stretches import day
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.runs.known import NOTHING, Known
from kbackup.runs.selection import select
from kbackup.stores import Store

_CODECS: Final = {
    "br": "brotli", "gz": "gzip", "lz4hadoop": "lz4", "lz4raw": "lz4_raw", "lzo": "lzo",
    "snappy": "snappy", "zstd": "zstd",
}  # fmt: skip
"""What a part of an extension says of the compression."""


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
    as_of_ms: int | None = None,
    known: Known = NOTHING,
) -> Iterator[Event]:
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
        as_of_ms: Only what had been stored before, in ms since the epoch; None for all.
        known: What the backup says about itself.

    Yields:
        ``warning`` events, then one ``partition`` event each, by topic and partition, with its
        ``coverage`` where that is asked for; then each ``directory``, by topic and name.

    Raises:
        IncompleteBackupError: If a topic of *names* is not in the backup.
        StoreError: If the listing cannot be had whole.
    """
    found = listing.read(store, layout, options.formats, topics=names, only_format=only_format)
    present = found.keys
    if as_of_ms is not None:
        found = found.as_of(as_of_ms)
    yield from foreign_warnings(found)
    for code, text in found.left_out():
        yield Warned(code, text).to_dict()
    for damage in known.all_damage():
        yield Warned("ledger_damaged", damage.text, place={"key": damage.name}).to_dict()
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
        row = _row(where, sets, known)
        if deep and sets:
            row |= _looked_at(store, sets, options)
        yield row
        if has_map:
            gaps = known.gaps(where)
            yield _map(coverage(where, sets, known.ledger(where), gaps, present, as_of_ms))
    for topic in chosen if has_tree else ():
        sets = [
            files
            for where in found.partitions(topic)
            if partitions is None or where.partition in partitions
            for files in found.sets[where]
        ]
        for folder in folders(sets, layout.directory_delim):
            yield {
                "type": "directory", "topic": topic, "directory": list(folder.path),
                "partitions": folder.partitions, "objects": folder.objects, "bytes": folder.bytes,
            }  # fmt: skip


def _map(found: Coverage) -> Event:
    """Return a partition's coverage as an event; days are texts."""
    return {
        "type": "coverage",
        "topic": found.where.topic,
        "partition": found.where.partition,
        "offsets": [
            {"state": str(one.state), "first": one.first, "last": one.last} for one in found.offsets
        ],
        "days": [
            {"state": str(one.state), "first": day(one.first), "last": day(one.last)}
            for one in found.days
        ],
    }


def foreign_warnings(found: Catalog) -> Iterator[Event]:
    """Name the objects that are not ours, and count those too many to name."""
    for key, why in found.foreign:
        yield Warned("foreign_object", why, place={"key": key}).to_dict()
    unnamed = found.foreign_count - len(found.foreign)
    if unnamed:
        text = f"{unnamed} more objects are not ours"
        yield Warned("foreign_object", text).to_dict()


def _row(where: TopicPartition, sets: Sequence[FileSet], known: Known) -> Event:
    files = [file for each in sets for file in each.files]
    newest = max((file.modified for file in files), default=None)
    judged = JudgedPartition(
        where, sets, known.recorded.get(where, ()), (), {}, is_deep=False,
        ledger=known.ledger(where),
    )  # fmt: skip
    return {
        "type": "partition",
        "topic": where.topic,
        "partition": where.partition,
        "format": ", ".join(sorted({format_label(_main(each)) for each in sets})),
        "objects": len(files),
        "first": sets[0].start_offset if sets else None,
        "last": judged.last(),
        "records": judged.records(),
        "bytes": sum(file.size for file in files),
        "newest": None if newest is None else moments.text(datetime.fromtimestamp(newest, UTC)),
    }


def format_label(file: BackupFile) -> str:
    """Return format and compression, as far as the name shows them: ``json/gzip``."""
    codecs = [_CODECS[part] for part in file.extension.split(".") if part in _CODECS]
    return "/".join([file.format, *codecs])


def _main(files: FileSet) -> BackupFile:
    return files.main if files.main is not None else files.files[0]


def _looked_at(store: Store, sets: Sequence[FileSet], options: ReadOptions) -> Event:
    """Return what the last object of each directory says, the latest of them.

    In the connectors' layout without facts the last offset is that of a topic without holes.
    """
    finals = {files.encoded_partition: files for files in sets if files.main is not None}
    ends = [_end(store, files, options) for files in finals.values()]
    if not ends:
        return {}
    last = max(end for end, _ in ends)
    return {"last": last} | ({"records": ends[0][1]} if len(sets) == 1 else {})


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
