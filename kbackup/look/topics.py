"""``restore topics``: what is in the bucket, a row a partition, from names and the ledger."""

from collections.abc import Collection, Iterator

from kbackup.backup import catalog as listing
from kbackup.backup.catalog import Catalog, not_in_backup, nothing_there
from kbackup.events import Warned
from kbackup.flow.views import ReadOptions
from kbackup.look.coverage import Coverage, coverage
from kbackup.look.folders import Folder, folders
from kbackup.look.named_schemas import NamedSchema, named_schemas
from kbackup.look.stored import StoredPartition, stored
from kbackup.naming import Layout
from kbackup.plurals import counted, form
from kbackup.records import TopicPartition
from kbackup.runs.known import NOTHING, Known
from kbackup.runs.selection import select
from kbackup.stores import Store

Told = Warned | StoredPartition | Coverage | Folder | NamedSchema
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
    known: Known = NOTHING,
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
    found = listing.read(store, layout, options.formats, topics=names, only_format=only_format)
    present = found.keys
    if as_of_ms is not None:
        found = found.as_of(as_of_ms)
    yield from _foreign(found)
    for code, text in found.left_out():
        yield Warned(code, text)
    for damage in known.all_damage():
        yield Warned("ledger_damaged", damage.text, place={"key": damage.name})
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


def _was_there(known: Known, where: TopicPartition, moment_ms: int) -> bool:
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
