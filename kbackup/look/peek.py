"""``restore peek``: records of an object, or of a partition from an offset on, in kcat's words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.backup import catalog as listing
from kbackup.backup.catalog import Catalog, not_in_backup
from kbackup.backup.file_sets import FileSet
from kbackup.backup.merging import records
from kbackup.backup.shown import shown_bytes
from kbackup.backup.window import EVERYTHING, Window
from kbackup.errors import (
    ConfigurationError,
    IncompleteBackupError,
    ObjectKeyError,
    ObjectNotFoundError,
)
from kbackup.flow.views import ReadOptions
from kbackup.look.kcat import Record
from kbackup.look.named_schemas import Names
from kbackup.naming import OFFSET_MAX, PARTITION_MAX, Layout
from kbackup.records import TimestampType, TopicPartition
from kbackup.runs.known import NOTHING, Known
from kbackup.stores import Store

_WANTED: Final = re.compile(r"([A-Za-z0-9._-]{1,249})(?::(\d{1,99})(?:@(\d{1,99}))?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at: one object, or a topic from some point on.

    Attributes:
        topic: The topic.
        key: The object; None for all of the topic that the rest allows.
        partition: The partition; None for all, one after the other.
        offset: The first offset to show; None for the first there is.
    """

    topic: str
    key: str | None = None
    partition: int | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, text: str, layout: Layout) -> "Wanted":
        """Read an object's full key or ``TOPIC[:PARTITION[@OFFSET]]``.

        Raises:
            ConfigurationError: If it is neither.
        """
        try:
            return cls(layout.parse(text).topic, key=text)
        except ObjectKeyError:
            match = _WANTED.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{text!r} is neither an object's key nor TOPIC[:PARTITION[@OFFSET]]",
                do=f"give a key from its first part on, such as {layout.prefix('orders')}..., "
                "or orders:0@4200",
            )
        topic, partition, offset = match.groups()
        if int(partition or 0) > PARTITION_MAX or int(offset or 0) > OFFSET_MAX:
            raise ConfigurationError(f"{text!r} is larger than any partition or offset in Kafka")
        return cls(
            topic,
            partition=None if partition is None else int(partition),
            offset=None if offset is None else int(offset),
        )


def peek(
    store: Store,
    layout: Layout,
    options: ReadOptions,
    what: str,
    *,
    count: int = 10,
    only_format: str | None = None,
    window: Window = EVERYTHING,
    key: bytes | None = None,
    known: Known = NOTHING,
) -> Iterator[Record]:
    """Yield records of a backup.

    Args:
        store: Where it is.
        layout: How objects are named.
        options: How objects are read.
        what: An object's key, or ``TOPIC[:PARTITION[@OFFSET]]``.
        count: Records at most.
        only_format: Look at objects of this format alone, unless *what* is a key.
        window: Only records in it.
        key: Only records with this key.
        known: What the backup says about itself: objects that it shows to hold no record in
            *window* are not opened.

    Yields:
        JSON values under kcat's names: ``topic partition offset tstype ts headers key payload``.
        Headers are pairs; bytes are text where they are UTF-8, else ``{"$base64": ...}``; null is
        null.  ``ts`` is in ms, null where the layout has not stored it.  ``key_schema`` and
        ``payload_schema`` are there where the backup holds the registry schema that one names.

    Raises:
        ConfigurationError: If *what* is neither.
        IncompleteBackupError: If the backup holds nothing of it.
        CorruptObjectError: If an object is damaged; what was yielded before is good.
        ObjectNotFoundError: If there is no such object.
    """
    place = Wanted.parse(what, layout)
    narrow = only_format if place.key is None else None
    found = listing.read(store, layout, options.formats, topics=[place.topic], only_format=narrow)
    left, names, has_untimed = count, Names(store, layout, place.topic), False
    for where, sets in _chosen(found, place):
        opened = [each for each in sets if _may_hold(each, window, known)]
        has_untimed = has_untimed or any(not (e.is_whole or e.is_generic) for e in opened)
        for batch in records(store, opened, options, offset=place.offset or 0):
            rows = _asked_for(batch, window, key).slice(0, left)
            left -= len(rows)
            for row in rows.to_pylist():
                yield _shown(where, row, names)
            if left <= 0:
                return
    if left < count or count == 0:
        return
    if key is not None or window.has_times:
        asked = " and ".join(["that key"] * (key is not None) + ["such a time"] * window.has_times)
        why = f"no record there has {asked}"
        if window.has_times and has_untimed:
            why = "objects of values alone store no timestamps"
        do = "choose by offset, or see what is there: kbackup restore topics --map"
        raise IncompleteBackupError(f"{what}: nothing to show", why, do, topic=place.topic)
    if place.key is None:
        raise IncompleteBackupError(
            f"{what} is not in the backup",
            "it holds no record there, and none after it",
            f"see where it ends: kbackup restore topics {place.topic} --deep",
            topic=place.topic,
        )


def _may_hold(files: FileSet, window: Window, known: Known) -> bool:
    """Whether a set may hold records of *window*."""
    facts = None if files.main is None else known.facts(files.where, files.main)
    return window.takes(files, facts)


def _asked_for(batch: pa.RecordBatch, window: Window, key: bytes | None) -> pa.RecordBatch:
    """Return the rows that are in *window* and have *key*, where one is asked for."""
    rows = window.rows(batch)
    return rows if key is None else rows.filter(pc.equal(rows["key"], key))


def _chosen(found: Catalog, place: Wanted) -> Iterator[tuple[TopicPartition, list[FileSet]]]:
    """Yield the file sets to read, by partition."""
    wheres = found.partitions(place.topic)
    if place.key is not None:
        for where in wheres:
            for files in found.sets[where]:
                if any(file.key == place.key for file in files.files):
                    yield where, [files]
                    return
        raise ObjectNotFoundError(
            place.key, "no such object", "list them with kbackup restore topics", key=place.key
        )
    if not wheres:
        raise not_in_backup(place.topic, found)
    for where in wheres:
        if place.partition in (None, where.partition):
            yield where, _from(found.sets[where], place.offset)


def _from(sets: Sequence[FileSet], offset: int | None) -> list[FileSet]:
    """Return the sets that may hold *offset* or a later one, whole records before values.

    Of each directory that is the last one to begin at or before it, and those after it.
    """
    ordered = sorted(sets, key=lambda files: (files.start_offset, not files.is_whole))
    if offset is None:
        return ordered
    begins: dict[tuple[str, bool], int] = {}
    for files in ordered:
        if files.start_offset <= offset:
            begins[files.encoded_partition, files.is_whole] = files.start_offset
    return [
        files
        for files in ordered
        if files.start_offset >= begins.get((files.encoded_partition, files.is_whole), 0)
    ]


def _shown(where: TopicPartition, row: Mapping[str, Any], names: Names) -> Record:
    found: Record = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": row["offset"],
        "tstype": TimestampType.word(row["timestamp_type"]),
        "ts": row["timestamp"],
        "headers": [[header["key"], shown_bytes(header["value"])] for header in row["headers"]],
        "key": shown_bytes(row["key"]),
        "payload": shown_bytes(row["value"]),
    }
    if (of_key := names.of("key", row["key"])) is not None:
        found["key_schema"] = of_key
    if (of_payload := names.of("value", row["value"])) is not None:
        found["payload_schema"] = of_payload
    return found
