"""What a Parquet file is to the engines that read tables."""

from collections.abc import Collection
from typing import Final

import pyarrow as pa

from kbackup.table_parts import Column, struct

_ARROW: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time32("ms"): "int",
    pa.time64("us"): "bigint",
}


def columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a Parquet file."""
    return tuple(Column(field.name, _of_arrow(field.type)) for field in schema)


def _of_arrow(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{_of_arrow(kind.key_type)},{_of_arrow(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_of_arrow(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return struct((field.name, _of_arrow(field.type)) for field in kind)
    return _plain(kind)


def _plain(kind: pa.DataType) -> str:
    """Return the name of a type that is not nested."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    return _ARROW.get(kind, "string")


def stored_as(_engine: str, _away: Collection[str]) -> tuple[str, ...]:
    """Return the same for every engine: columns are found by their names."""
    return ("STORED AS PARQUET",)
