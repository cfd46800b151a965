"""Where each row goes: the time it rotates by, and its directory."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import schema as connect
from kbackup.connect.fields import DECODED
from kbackup.errors import KbackupError, counted
from kbackup.naming import DIRECTORY_BYTES_MAX
from kbackup.partitioners import Partitioner
from kbackup.partitioners.extractors import TimestampExtractor
from kbackup.pipeline.rows import NO_TOMBSTONES, BadRecord, Rows, go_to, in_order
from kbackup.records import NO_TIMESTAMP, Schema, TopicPartition


class AffixKind(StrEnum):
    """Where it stands."""

    NONE = "NONE"
    PREFIX = "PREFIX"
    SUFFIX = "SUFFIX"


@dataclass(frozen=True, slots=True)
class Affix:
    """How directories are lengthened.

    Attributes:
        kind: Where the name stands.
        delimiter: Between two levels of directories.
    """

    kind: AffixKind = AffixKind.NONE
    delimiter: str = "/"

    def beside(self, directory: str, schema: Schema | None) -> str:
        """Return *directory* with the name of *schema*, ``null`` where it has none."""
        found = connect.of(schema)
        part = f"schema_name={'null' if found is None else found.name or 'null'}"
        match self.kind:
            case AffixKind.NONE:
                return directory
            case AffixKind.PREFIX:
                return f"{part}{self.delimiter}{directory}"
            case AffixKind.SUFFIX:
                return f"{directory}{self.delimiter}{part}"


NO_AFFIX: Final = Affix()
"""Directories stay as the partitioner gives them."""


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
    is_wrong = go_to(rows, tombstones)
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
    bad = _bad(rows, directories.is_null(), partitioner.traits.no_directory)
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
