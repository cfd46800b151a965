"""From Kafka's bytes to the columns of each file, and which records do not fit.

A whole-record file takes every column as it is.  In the connectors' layout a converter turns keys
and values into what their files hold, headers become text, and a record may be bad: it is found
here, for all its files at once, before any of them has been touched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.columns import ENCODED, Bad, Column, Encoded
from kbackup.converters import Converter
from kbackup.flow.header_text import headers_as_text
from kbackup.flow.rows import BadRecord, Part, Rows
from kbackup.flow.schemas import Compatibility, needs_version
from kbackup.flow.stretches import by_row, column_at, stages_of, stretches
from kbackup.flow.tombstones import Nulls
from kbackup.flow.transform import transformed
from kbackup.flow.views import COLUMNS, ViewSpec
from kbackup.formats import Format
from kbackup.naming import View
from kbackup.records import TopicPartition
from kbackup.transforms.chain import Chain
from kbackup.transforms.data import Records

_WHOLE: Final = "use whole records (without format.class)"
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
        views: Those of the layout, the values or whole records last.
        nulls: Leave out records whose value is null once it is converted, or leave the null in
            its column; otherwise they are bad in a file of values.
        compatibility: A value whose schema has no version is bad where this compares versions.
        transforms: What to do to the records, and where they come from.

    Yields:
        At least once; new rows begin where a schema changes.  Each record of *batch* is among
        the rows, the bad ones or those left out.
    """
    if transforms is None:
        yield from _checked_rows(_Read.of(batch, views), views, nulls, compatibility)
        return
    for read in _transformed(_Read.of(batch, views), views, *transforms):
        yield from _checked_rows(read, views, nulls, compatibility)


@dataclass(frozen=True, slots=True)
class _Read:
    """Records, and what their files would hold of them.

    Attributes:
        batch: ``records.SCHEMA``.
        runs: For each view the columns of its file, one for each run of a schema; none where a
            file holds whole records.
        bad: Records that are not in *batch* any more, offsets rising.
        filtered: Offsets of the records that a transform has left out.
    """

    batch: pa.RecordBatch
    runs: list[list[Column]]
    bad: tuple[BadRecord, ...] = ()
    filtered: tuple[int, ...] = ()

    @classmethod
    def of(cls, batch: pa.RecordBatch, views: Sequence[Conversion]) -> Self:
        if views[-1].spec.view is View.RECORD:
            return cls(batch, [])
        return cls(batch, [_columns(view, batch) for view in views])


def _transformed(
    read: _Read, views: Sequence[Conversion], chain: Chain, where: TopicPartition
) -> Iterator[_Read]:
    """Yield what transforms make of the records that could be converted."""
    runs = {view.spec.view: run for view, run in zip(views, read.runs, strict=False)}
    for each in transformed(read.batch, runs, chain, where):
        columns = [_column(each.records, kind) for kind in runs]
        yield _Read(each.records.batch, columns, each.bad, each.filtered)


def _column(records: Records, kind: View) -> list[Column]:
    if kind is View.HEADERS:
        return [headers_as_text(records.headers)]
    return [records.side("key" if kind is View.KEY else "value").column()]


def _checked_rows(
    read: _Read,
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
        rows = _rows(batch, views, runs, _Found(bad, stages, left_out, stays), start, end)
        if start == 0 and (read.bad or read.filtered):
            named = sorted((*read.bad, *rows.bad), key=lambda at: at.offset)
            rows = replace(rows, bad=tuple(named), filtered=read.filtered)
        yield rows


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of the rows of a batch that do not go into its files.

    Attributes:
        bad: The first complaint about each bad row.
        stages: Rows of which a converter complained, and at which stage.
        left_out: Which rows are left out because they have no value; None if there is none.
        stays: Which rows stay; None for all.
    """

    bad: dict[int, Bad]
    stages: dict[int, str]
    left_out: pa.BooleanArray | None
    stays: pa.BooleanArray | None


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
    bad += view.format.refuses(kind, values)
    if (asked := getattr(view.format, "refuses_as_asked", None)) is not None:
        bad += asked(kind, values, view.spec.options)
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
    found: _Found,
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
        BadRecord(
            offsets[row].as_py(), bad.what, bad.why, bad.do, found.stages.get(row, "TASK_PUT")
        )
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
    return found if found.schema.encoding in getattr(view.format, "encodings", ()) else None
