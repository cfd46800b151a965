"""The parts of nested columns, without copying, whatever their offsets."""

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.json_values import default_of
from kbackup.connect.schema import ConnectSchema


def fields(
    values: pa.StructArray, schema: ConnectSchema, *, fills_defaults: bool = True
) -> list[pa.Array]:
    """Return the columns of a struct, null where the struct is, defaults in place of null.

    Connect's ``Struct.get`` returns the default of a field that is null; `fills_defaults` is
    false where ``getWithoutDefault`` is asked.
    """
    if not fills_defaults:
        return list(values.flatten())
    return [
        filled(column, field)
        for column, (_, field) in zip(values.flatten(), schema.fields, strict=True)
    ]


def filled(values: pa.Array, schema: ConnectSchema) -> pa.Array:
    """Return *values* with null replaced by the default of *schema*, if it has one."""
    if schema.default is None or not values.null_count:
        return values
    default = pa.scalar(default_of(schema), values.type)
    if not pa.types.is_nested(values.type):
        return pc.fill_null(values, default)
    whole = pa.concat_arrays([values, pa.array([default.as_py()], values.type)])
    rows = pa.array(range(len(values)), pa.int64())
    return whole.take(pc.if_else(values.is_valid(), rows, len(values)))


def lists(values: pa.Array) -> pa.ListArray:
    """Return a list or map column as lists, a map's of structs of key and value."""
    if not pa.types.is_map(values.type):
        return values
    entry = pa.struct([values.type.key_field, values.type.item_field])
    return values.cast(pa.list_(pa.field("element", entry, nullable=False)))


def relisted(values: pa.ListArray, elements: pa.Array) -> tuple[pa.ListArray, pa.Array]:
    """Return the lists made of *elements*, the converted elements of *values*.

    Returns:
        The lists, empty where *values* is null, and the length of each.
    """
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.ListArray.from_arrays(offsets, elements), lengths
