"""Convert Kafka's bytes to the columns of each file, transform, and say where each row goes.

A full-record file takes every column as it is.  In the connectors' layout a converter turns keys
and values into what their files hold, headers become text, and a record may be rejected: it is
found here, for all its files at once, before any of them has been touched.  Then each row gets the
time that it rotates by, and its directory.

Source: kafka-connect-storage-common 9bb1f372, ``StorageSchemaCompatibility``.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import fields
from kbackup.connect import schema as connect
from kbackup.connect.fields import DECODED
from kbackup.converters import Converter
from kbackup.errors import KbackupError, ObjectKeyError, counted
from kbackup.formats import COLUMNS, Format
from kbackup.naming import DIRECTORY_BYTES_MAX, OFFSET_MAX, View
from kbackup.partitioners import Partitioner
from kbackup.partitioners.extractors import TimestampExtractor
from kbackup.pipeline.rows import (
    NO_TOMBSTONES,
    BadRecord,
    Nulls,
    Part,
    Rows,
    by_row,
    column_at,
    in_directory,
    in_order,
    sliced,
    stages_of,
    stretches,
)
from kbackup.pipeline.views import ViewSpec, headers_as_text
from kbackup.records import ENCODED, Bad, Column, Encoded, Schema, TopicPartition, known_times
from kbackup.stores import Names
from kbackup.transforms import Chain
from kbackup.transforms.data import Records


@dataclass(frozen=True, slots=True)
class Transformed:
    """What a chain of transforms has made of some records.

    Attributes:
        records: Those that are left, under the same schemas.
        bad: Those that could not be converted or changed, offsets rising.
        filtered: Offsets of those that a transform has left out, rising.
    """

    records: Records
    bad: tuple[BadRecord, ...] = ()
    filtered: tuple[int, ...] = ()


def transformed(
    batch: pa.RecordBatch,
    columns: Mapping[View, Sequence[Column]],
    chain: Chain,
    where: TopicPartition,
) -> Iterator[Transformed]:
    """Apply *chain* to records.

    Args:
        batch: ``records.SCHEMA``, offsets rising.
        columns: Keys and values as converters gave them, a column for each run of a schema; those
            that are not converted are missing.

    Yields:
        At least once; each record of *batch* is among the records, the bad ones or those left out.
    """
    for records, unconverted in _convertible(batch, columns, where):
        found = chain(records)
        refused = (
            BadRecord.of(offset, why, "TRANSFORMATION")
            for run in found
            for offset, why in run.refused
        )
        bad = sorted((*unconverted, *refused), key=lambda at: at.offset)
        gone = sorted(offset for run in found for offset in run.left_out)
        runs = [run for run in found if len(run)] or found[:1]
        for run, after in itertools.zip_longest(runs, runs[1:]):
            end = OFFSET_MAX if after is None else after.batch["offset"][0].as_py()
            mine = tuple(each for each in bad if each.offset < end)
            filtered = tuple(at for at in gone if at < end)
            bad, gone = bad[len(mine) :], gone[len(filtered) :]
            yield Transformed(run, mine, filtered)


def _convertible(
    batch: pa.RecordBatch, columns: Mapping[View, Sequence[Column]], where: TopicPartition
) -> Iterator[tuple[Records, list[BadRecord]]]:
    """Yield what could be converted, and what not, a run of the same schemas at a time."""
    converted = {view: columns[view] for view in (View.KEY, View.VALUE) if view in columns}
    bad, stages = by_row([*converted.values()]), stages_of(converted)
    for start, end in stretches([*converted.values()], len(batch)):
        some = {view: sliced(runs, start, end) for view, runs in converted.items()}
        part = batch.slice(start, end - start)
        records = Records.of(
            part, where.topic, where.partition, some.get(View.KEY), some.get(View.VALUE)
        )
        wrong = {row - start: found for row, found in sorted(bad.items()) if start <= row < end}
        rows = pa.array((row for row in range(len(part)) if row not in wrong), pa.int64())
        named = [
            BadRecord.of(part["offset"][row].as_py(), found, stages.get(start + row, "TASK_PUT"))
            for row, found in wrong.items()
        ]
        yield records.take(rows) if wrong else records, named


class Compatibility(StrEnum):
    """What the operator allows within one file."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"


def needs_version(mode: Compatibility, schema: Schema | None) -> bool:
    """Whether a record is bad because its schema has no version, and *mode* compares versions."""
    return mode is not Compatibility.NONE and schema is not None and schema.version is None


def joins(mode: Compatibility, file: Schema | None, record: Schema | None) -> bool:
    """Whether a record under *record* goes into the open file under *file*; None is without.

    Neither may lack a version where `needs_version` asks for one.
    """
    if file == record:
        return True
    if file is None or record is None or mode is Compatibility.NONE or not _takes(file, record):
        return False
    has, gets = file.version or 0, record.version or 0
    return gets >= has if mode is Compatibility.FORWARD else gets <= has


def brought_under(file: Schema | None, values: pa.Array, record: Schema | None) -> pa.Array | None:
    """Return *values*, which are under *record*, under *file*; None where they cannot be."""
    has, gets = connect.of(file), connect.of(record)
    if has is None or gets is None or not fields.is_projectable(gets, has):
        return None
    return fields.projected(values, gets, has)


def _takes(file: Schema, record: Schema) -> bool:
    """Whether values under *record* can be brought under *file* without a loss."""
    has, gets = connect.of(file), connect.of(record)
    if has is None or gets is None:
        return file.takes(record)
    return fields.is_projectable(gets, has)


_WHOLE: Final = "use full records (without format.class)"
_NULLS: Final = {
    View.KEY: (
        "a record has no key",
        "store.kafka.keys=true cannot store a null key",
        f"{_WHOLE}, or store.kafka.keys=false",
    ),
    View.VALUE: (
        "a value is null",
        "the connectors' layout cannot store it (behavior.on.null.values=fail)",
        f"{_WHOLE}, or behavior.on.null.values=ignore, or write with store.kafka.keys=true",
    ),
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """One view of the layout, its plugins ready to use."""

    spec: ViewSpec
    format: Format
    converter: Converter | None

    @classmethod
    def of(cls, spec: ViewSpec, topic: str | None = None) -> Self:
        """Open the plugins of *spec*, for records of *topic*."""
        return cls(spec, spec.open_format(), spec.open_converter(topic))


def convert(
    batch: pa.RecordBatch,
    views: Sequence[Conversion],
    *,
    nulls: Nulls = Nulls.FAIL,
    compatibility: Compatibility = Compatibility.NONE,
    transforms: tuple[Chain, TopicPartition] | None = None,
) -> Iterator[Rows]:
    """Turn records into the columns of their files.

    Args:
        batch: ``records.SCHEMA``, offsets rising.
        views: Those of the layout, the values or full records last.
        nulls: Leave out records whose value is null once it is converted, or leave the null in
            its column; otherwise they are bad in a file of values.
        compatibility: A value whose schema has no version is bad where this compares versions.
        transforms: What to do to the records, and where they come from.

    Yields:
        At least once; new rows begin where a schema changes.  Each record of *batch* is among
        the rows, the bad ones or those left out.
    """
    if transforms is None:
        yield from _checked_rows(_ReadRecords.of(batch, views), views, nulls, compatibility)
        return
    for read in _transformed(_ReadRecords.of(batch, views), views, *transforms):
        yield from _checked_rows(read, views, nulls, compatibility)


@dataclass(frozen=True, slots=True)
class _ReadRecords:
    """Records, and what their files would hold of them."""

    batch: pa.RecordBatch
    runs: list[list[Column]]  # by view, one for each run of a schema
    bad: tuple[BadRecord, ...] = ()  # not in *batch* any more, offsets rising
    filtered: tuple[int, ...] = ()  # offsets that a transform has left out

    @classmethod
    def of(cls, batch: pa.RecordBatch, views: Sequence[Conversion]) -> Self:
        if views[-1].spec.view is View.RECORD:
            return cls(batch, [])
        return cls(batch, [_columns(view, batch) for view in views])


def _transformed(
    read: _ReadRecords, views: Sequence[Conversion], chain: Chain, where: TopicPartition
) -> Iterator[_ReadRecords]:
    """Yield what transforms make of the records that could be converted."""
    runs = {view.spec.view: run for view, run in zip(views, read.runs, strict=False)}
    for each in transformed(read.batch, runs, chain, where):
        columns = [_column(each.records, kind) for kind in runs]
        yield _ReadRecords(each.records.batch, columns, each.bad, each.filtered)


def _column(records: Records, kind: View) -> list[Column]:
    if kind is View.HEADERS:
        return [headers_as_text(records.headers)]
    return [records.side("key" if kind is View.KEY else "value").column()]


def _checked_rows(
    read: _ReadRecords,
    views: Sequence[Conversion],
    nulls: Nulls,
    compatibility: Compatibility,
) -> Iterator[Rows]:
    """Yield rows of one schema each, with all that is bad about them."""
    batch, runs = read.batch, read.runs
    if not runs:
        yield Rows(batch, (Part(batch),), bad=read.bad, filtered=read.filtered)
        return
    left_out = _null_values(runs[-1]) if nulls is Nulls.IGNORE else None
    stages = stages_of({view.spec.view: each for view, each in zip(views, runs, strict=True)})
    for view, columns in zip(views, runs, strict=True):
        refuses_null = nulls is Nulls.FAIL or view is not views[-1]
        columns[:] = [
            _checked(view, column, refuses_null=refuses_null, compatibility=compatibility)
            for column in columns
        ]
    bad = by_row(runs)
    stays = None
    if left_out is not None and pc.any(left_out).as_py():
        stays = pc.invert(left_out)
        bad = {row: found for row, found in bad.items() if stays[row].as_py()}
    if bad:
        rows = pa.array(range(len(batch)), pa.int64())
        is_good = pc.invert(pc.is_in(rows, pa.array([*bad], pa.int64())))
        stays = is_good if stays is None else pc.and_(stays, is_good)
    for start, end in stretches(runs, len(batch)):
        rows = _rows(batch, views, runs, _NotFiled(bad, stages, left_out, stays), start, end)
        if start == 0 and (read.bad or read.filtered):
            named = sorted((*read.bad, *rows.bad), key=lambda at: at.offset)
            rows = replace(rows, bad=tuple(named), filtered=read.filtered)
        yield rows


@dataclass(frozen=True, slots=True)
class _NotFiled:
    """What is known of the rows of a batch that do not go into its files."""

    bad: dict[int, Bad]  # the first complaint about each row
    stages: dict[int, str]  # where a converter complained
    left_out: pa.BooleanArray | None  # have no value; None if there is none
    stays: pa.BooleanArray | None  # None for all


def _columns(view: Conversion, batch: pa.RecordBatch) -> list[Column]:
    """Return what the view's file would hold of each row, a column for each run of a schema."""
    if view.spec.view is View.HEADERS:
        return [headers_as_text(batch["headers"])]
    column = batch["key" if view.spec.view is View.KEY else "value"]
    return [Column(column)] if view.converter is None else list(view.converter.decode(column))


def _checked(
    view: Conversion, column: Column, *, refuses_null: bool, compatibility: Compatibility
) -> Column:
    """Return *column* with all that is bad about its rows."""
    bad = [*column.bad]
    values, kind = column.values, view.spec.view
    if refuses_null and values.null_count and kind in _NULLS:
        bad += (Bad(row, *_NULLS[kind]) for row in pc.indices_nonzero(values.is_null()).to_pylist())
    if kind is View.VALUE and needs_version(compatibility, column.schema):
        text = f"schema.compatibility={compatibility} needs schemas with a version"
        judged = (
            range(len(values))
            if refuses_null
            else pc.indices_nonzero(values.is_valid()).to_pylist()
        )
        bad += (Bad(row, "the value's schema has no version", text) for row in judged)
    bad += view.format.refuses(kind, values, view.spec.options)
    return replace(column, bad=tuple(bad))


def _null_values(columns: Sequence[Column]) -> pa.BooleanArray:
    """Return for each row whether its value is null, and not because it could not be converted."""
    masks = []
    for column in columns:
        mask = column.values.is_null()
        if column.bad:
            rows = pa.array(range(len(mask)), pa.int64())
            wrong = pc.is_in(rows, pa.array([at.row for at in column.bad], pa.int64()))
            mask = pc.and_(mask, pc.invert(wrong))
        masks.append(mask)
    return pa.concat_arrays(masks)


def _rows(
    batch: pa.RecordBatch,
    views: Sequence[Conversion],
    runs: Sequence[Sequence[Column]],
    found: _NotFiled,
    start: int,
    end: int,
) -> Rows:
    """Return the rows from *start* to *end*, with what is known of them."""
    parts = []
    for view, columns in zip(views, runs, strict=True):
        column, row = column_at(columns, start)
        values = column.values.slice(row, end - start)
        taken = pa.record_batch([values], [COLUMNS[view.spec.view]])
        encoded = _encoded(view, column)
        if encoded is not None:
            field = encoded.schema.on(pa.field(ENCODED, pa.binary()))
            taken = taken.append_column(field, encoded.values.slice(row, end - start))
        parts.append(Part(taken, column.schema))
    rows = Rows(batch.slice(start, end - start), tuple(parts))
    if found.stays is None:
        return rows
    kept = rows.take(pc.indices_nonzero(found.stays.slice(start, end - start)))
    offsets = batch["offset"]
    named = tuple(
        BadRecord.of(offsets[row].as_py(), bad, found.stages.get(row, "TASK_PUT"))
        for row, bad in sorted(found.bad.items())
        if start <= row < end
    )
    left_out: tuple[int, ...] = ()
    if found.left_out is not None:
        mine = found.left_out.slice(start, end - start)
        left_out = tuple(rows.batch["offset"].filter(mine).to_pylist())
    return replace(kept, bad=named, left_out=left_out)


def _encoded(view: Conversion, column: Column) -> Encoded | None:
    """Return the values as they came, if they are still those and the file keeps values so."""
    found = column.encoded
    if found is None or found.of is not column.values:
        return None
    return found if found.schema.encoding in view.format.traits.encodings else None


class AffixKind(StrEnum):
    """Where it stands."""

    NONE = "NONE"
    PREFIX = "PREFIX"
    SUFFIX = "SUFFIX"


@dataclass(frozen=True, slots=True)
class Affix:
    """How directories are lengthened."""

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
_UNUSABLE: Final = (
    f"its directory has more than {DIRECTORY_BYTES_MAX} bytes, is empty, or is not a valid path",
    "choose directories with other names, or correct the record",
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
    names: Names | None = None,
) -> Rows:
    """Find time and directory of each row.

    Args:
        now_ms: The time that stands for "now" in all of *rows*, in ms since the epoch.
        affix: Lengthens the directories by the name of the value's schema.
        tombstones: The directory of the rows without a value, whose time is the record's own.
            Empty where the partitioner gives them theirs.
        names: A store in which not every directory can be; None for any other.

    Returns:
        The rows with both; a row without a directory is among the bad ones.

    Raises:
        KbackupError: If a plugin does not return one row per row.
    """
    if not tombstones:
        return _routed(rows, where, partitioner, extractor, now_ms, affix, names)
    is_dead = rows.parts[-1].batch.column(0).is_null()
    if not pc.any(is_dead).as_py():
        routed = _routed(rows, where, partitioner, extractor, now_ms, affix, names)
        return _elsewhere(routed, tombstones)
    dead = rows.take(pc.indices_nonzero(is_dead))
    dead = replace(
        dead,
        times=known_times(dead.batch["timestamp"]),
        directories=pa.repeat(pa.scalar(tombstones), len(dead)).dictionary_encode(),
    )
    alive = rows.take(pc.indices_nonzero(pc.invert(is_dead)))
    alive = _routed(alive, where, partitioner, extractor, now_ms, affix, names)
    return in_order(_elsewhere(alive, tombstones), dead)


def _elsewhere(rows: Rows, tombstones: str) -> Rows:
    """Return *rows*, all with values, without those whose directory is that of tombstones."""
    is_wrong = in_directory(rows, tombstones)
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
    names: Names | None,
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
    wanted = [affix.beside(name, rows.schemas[-1]) for name in directories.dictionary.to_pylist()]
    usable = [name if _is_usable(name, names) else None for name in wanted]
    if affix.kind is not AffixKind.NONE or None in usable:
        named = pa.DictionaryArray.from_arrays(directories.indices, pa.array(wanted, pa.string()))
        if None in usable:
            texts = pa.array(usable, pa.string()).take(directories.indices)
            is_wrong = pc.and_(texts.is_null(), directories.is_valid())
            bad += _bad(rows, is_wrong, _UNUSABLE)
            named = texts.dictionary_encode()
        directories = named
    routed = replace(rows, times=times, directories=directories)
    if not bad:
        return routed
    kept = routed.take(pc.indices_nonzero(directories.is_valid()))
    return replace(kept, bad=tuple(sorted((*rows.bad, *bad), key=lambda at: at.offset)))


def _is_usable(directory: str, names: Names | None) -> bool:
    """Whether objects can be in a directory: "." and ".." are read as ways, not names."""
    if not 0 < len(directory.encode()) <= DIRECTORY_BYTES_MAX:
        return False
    if {".", ".."} & {*directory.split("/")}:
        return False
    try:
        if names is not None:
            names.check_name(directory)
    except ObjectKeyError:
        return False
    return True


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
