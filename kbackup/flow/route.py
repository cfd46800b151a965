"""Where each row goes: the time it rotates by, and its directory."""

from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import KbackupError
from kbackup.extractors import TimestampExtractor
from kbackup.fields import DECODED
from kbackup.flow.affix import NO_AFFIX, Affix, AffixKind
from kbackup.flow.rows import BadRecord, Rows, in_order
from kbackup.flow.tombstones import NO_TOMBSTONES, are_in
from kbackup.naming import DIRECTORY_BYTES_MAX
from kbackup.partitioners import Partitioner
from kbackup.plurals import counted
from kbackup.records import NO_TIMESTAMP, TopicPartition

TIME: Final = "time"
"""Column of times, which a partitioner sees beside `fields.DECODED` and ``records.SCHEMA``."""
_TOO_LONG: Final = (
    f"its directory has more than {DIRECTORY_BYTES_MAX} bytes, or is empty",
    "choose directories with shorter names, or correct the record",
)


def route(
    rows: Rows,
    where: TopicPartition,
    partitioner: Partitioner,
    extractor: TimestampExtractor,
    now_ms: int,
    *,
    affix: Affix = NO_AFFIX,
    tombstones: str = NO_TOMBSTONES,
) -> Rows:
    """Find time and directory of each row.

    Args:
        rows: As `convert` returns them.
        where: Their topic-partition.
        partitioner: Gives the directories.
        extractor: Gives the times.
        now_ms: The time that stands for "now" in all of *rows*, in ms since the epoch.
        affix: Lengthens the directories by the name of the value's schema.
        tombstones: The directory of the rows without a value, whose time is the record's own.
            Empty where the partitioner gives them theirs.

    Returns:
        The rows with both; a row without a directory is among the bad ones.

    Raises:
        KbackupError: If a plugin does not return one row per row.
    """
    if not tombstones:
        return _routed(rows, where, partitioner, extractor, now_ms, affix)
    is_dead = rows.parts[-1].batch.column(0).is_null()
    if not pc.any(is_dead).as_py():
        routed = _routed(rows, where, partitioner, extractor, now_ms, affix)
        return _elsewhere(routed, tombstones)
    dead = rows.take(pc.indices_nonzero(is_dead))
    times = dead.batch["timestamp"]
    dead = replace(
        dead,
        times=pc.if_else(pc.equal(times, NO_TIMESTAMP), pa.scalar(None, pa.int64()), times),
        directories=pa.repeat(pa.scalar(tombstones), len(dead)).dictionary_encode(),
    )
    alive = rows.take(pc.indices_nonzero(pc.invert(is_dead)))
    alive = _routed(alive, where, partitioner, extractor, now_ms, affix)
    return in_order(_elsewhere(alive, tombstones), dead)


def _elsewhere(rows: Rows, tombstones: str) -> Rows:
    """Return *rows*, all with values, without those whose directory is that of tombstones."""
    is_wrong = are_in(rows, tombstones)
    if not pc.any(is_wrong).as_py():
        return rows
    reason = (
        f"{tombstones} is the directory of tombstones, where no file of values may be",
        "choose another tombstone.encoded.partition",
    )
    bad = (*rows.bad, *_bad(rows, is_wrong, reason))
    kept = rows.take(pc.indices_nonzero(pc.invert(is_wrong)))
    return replace(kept, bad=tuple(sorted(bad, key=lambda at: at.offset)))


def _routed(
    rows: Rows,
    where: TopicPartition,
    partitioner: Partitioner,
    extractor: TimestampExtractor,
    now_ms: int,
    affix: Affix,
) -> Rows:
    seen = rows.batch
    if rows.parts[-1].batch is not rows.batch:
        values = rows.parts[-1].batch.column(0)
        field = pa.field(DECODED, values.type)
        schema = rows.parts[-1].schema
        seen = seen.append_column(field if schema is None else schema.on(field), values)
    times = extractor.extract(seen, now_ms)
    _check(times, rows, extractor)
    directories = partitioner.encode(where, seen.append_column(TIME, times))
    _check(directories, rows, partitioner)
    if not pa.types.is_dictionary(directories.type):
        directories = directories.dictionary_encode()
    elif len(directories.dictionary) > 1 or directories.dictionary.null_count:
        directories = directories.cast(pa.string()).dictionary_encode()
    placeless = getattr(partitioner, "no_directory", ("its partitioner gives it none", ""))
    bad = _bad(rows, directories.is_null(), placeless)
    names = [affix.beside(name, rows.schemas[-1]) for name in directories.dictionary.to_pylist()]
    usable = [name if 0 < len(name.encode()) <= DIRECTORY_BYTES_MAX else None for name in names]
    if affix.kind is not AffixKind.NONE or None in usable:
        named = pa.DictionaryArray.from_arrays(directories.indices, pa.array(names, pa.string()))
        if None in usable:
            texts = pa.array(usable, pa.string()).take(directories.indices)
            is_wrong = pc.and_(texts.is_null(), directories.is_valid())
            bad += _bad(rows, is_wrong, _TOO_LONG)
            named = texts.dictionary_encode()
        directories = named
    routed = replace(rows, times=times, directories=directories)
    if not bad:
        return routed
    kept = routed.take(pc.indices_nonzero(directories.is_valid()))
    return replace(kept, bad=tuple(sorted((*rows.bad, *bad), key=lambda at: at.offset)))


def _bad(rows: Rows, which: pa.BooleanArray, reason: tuple[str, str]) -> list[BadRecord]:
    """Return the records of the rows *which* says, and why they have no directory."""
    if not pc.any(which).as_py():
        return []
    offsets = rows.batch["offset"].filter(which).to_pylist()
    return [BadRecord(offset, "a record has no directory", *reason) for offset in offsets]


def _check(found: pa.Array, rows: Rows, plugin: object) -> None:
    if len(found) != len(rows):
        raise KbackupError(
            f"{type(plugin).__name__} returned {counted(len(found), 'row')} for "
            f"{counted(len(rows), 'record')}",
            "a plugin returns one row for each",
            "report it to the author of the plugin",
        )
