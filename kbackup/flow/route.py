"""Where each row goes: the time it rotates by, and its directory."""

from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import KbackupError
from kbackup.extractors import TimestampExtractor
from kbackup.flow.rows import BadRecord, Rows
from kbackup.partitioners import Partitioner
from kbackup.records import TopicPartition

TIME: Final = "time"
DECODED: Final = "decoded"
"""Columns that a partitioner sees beside those of ``records.SCHEMA``."""


def route(
    rows: Rows,
    where: TopicPartition,
    partitioner: Partitioner,
    extractor: TimestampExtractor,
    now_ms: int,
) -> Rows:
    """Find time and directory of each row.

    Args:
        rows: As `convert` returns them.
        where: Their topic-partition.
        partitioner: Gives the directories.
        extractor: Gives the times.
        now_ms: The time that stands for "now" in all of *rows*, in ms since the epoch.

    Returns:
        The rows with both; a row without a directory is among the bad ones.

    Raises:
        KbackupError: If a plugin does not return one row per row.
    """
    seen = rows.batch
    if rows.parts[-1].batch is not rows.batch:
        seen = seen.append_column(DECODED, rows.parts[-1].batch.column(0))
    times = extractor.extract(seen, now_ms)
    _check(times, rows, extractor)
    directories = partitioner.encode(where, seen.append_column(TIME, times))
    _check(directories, rows, partitioner)
    if not pa.types.is_dictionary(directories.type):
        directories = directories.dictionary_encode()
    elif len(directories.dictionary) > 1 or directories.dictionary.null_count:
        directories = directories.cast(pa.string()).dictionary_encode()
    routed = replace(rows, times=times, directories=directories)
    if not directories.null_count:
        return routed
    why, do = getattr(partitioner, "no_directory", ("its partitioner gives it none", ""))
    offsets = rows.batch["offset"].filter(directories.is_null()).to_pylist()
    bad = [BadRecord(offset, "a record has no directory", why, do) for offset in offsets]
    kept = routed.take(pc.indices_nonzero(directories.is_valid()))
    return replace(kept, bad=tuple(sorted((*rows.bad, *bad), key=lambda at: at.offset)))


def _check(found: pa.Array, rows: Rows, plugin: object) -> None:
    if len(found) != len(rows):
        raise KbackupError(
            f"{type(plugin).__name__} returned {len(found)} rows for {len(rows)} records",
            "a plugin returns one row for each",
            "report it to the author of the plugin",
        )
