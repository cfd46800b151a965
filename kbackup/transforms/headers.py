"""Headers as columns: adds some, drops some."""

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import HEADER


def added(headers: pa.ListArray, name: str, values: pa.Array) -> pa.ListArray:
    """Return *headers* with one more after the others of each record.

    Args:
        headers: As in ``records.SCHEMA``.
        name: The header's name.
        values: ``binary``, its value in each record.
    """
    rows = len(headers)
    flat = headers.flatten()
    here = pa.array(range(rows), pa.int64())
    parents = pa.concat_arrays([pc.list_parent_indices(headers), here])
    order = pc.array_sort_indices(parents)  # stable: the new one comes last
    names = pa.concat_arrays([flat.field("key"), pa.repeat(pa.scalar(name, pa.string()), rows)])
    both = pa.concat_arrays([flat.field("value"), values])
    lengths = pc.add(pc.list_value_length(headers), pa.scalar(1, pa.int32()))
    return _lists(lengths, names.take(order), both.take(order))


def without(headers: pa.ListArray, names: tuple[str, ...]) -> pa.ListArray:
    """Return *headers* without those called one of *names*."""
    flat = headers.flatten()
    kept = pc.invert(pc.is_in(flat.field("key"), pa.array(names, pa.string())))
    if kept.true_count == len(kept):
        return headers
    before = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(kept.cast(pa.int32()))])
    ends = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(pc.list_value_length(headers))]
    )
    offsets = before.take(ends)
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    return _lists(lengths, flat.field("key").filter(kept), flat.field("value").filter(kept))


def has(headers: pa.ListArray, name: str) -> pa.BooleanArray:
    """Return whether each record has a header called *name*."""
    flat = headers.flatten()
    parents = pc.list_parent_indices(headers).filter(pc.equal(flat.field("key"), name))
    return pc.is_in(pa.array(range(len(headers)), pa.int64()), parents)


def last(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Return the value of each record's last header called *name*; null if there is none."""
    flat = headers.flatten()
    is_named = pc.equal(flat.field("key"), name)
    values = flat.field("value").filter(is_named)
    row_of = pc.list_parent_indices(headers).filter(is_named).to_pylist()
    at = dict(zip(row_of, range(len(row_of)), strict=True))  # a later one replaces an earlier one
    return values.take(pa.array([at.get(row) for row in range(len(headers))], pa.int64()))


def _lists(lengths: pa.Array, names: pa.Array, values: pa.Array) -> pa.ListArray:
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(offsets, structs)
