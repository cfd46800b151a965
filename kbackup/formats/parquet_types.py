"""Which of Kafka Connect's schemas stands for a type of Parquet.

The connectors' own files have their schema in the footer; those of other tools have only types.
"""

from collections import Counter
from typing import Final

import pyarrow as pa

from kbackup.connect import schema as connect
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.errors import UnsupportedObjectError

LOGICAL: Final = {
    DATE: pa.date32(),
    TIME: pa.time32("ms"),
    TIMESTAMP: pa.timestamp("ms", "UTC"),
}
"""How the file stores Connect's dates and times."""

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.float16(): pa.float32(),
    pa.uint64(): pa.int64(),
    pa.null(): pa.string(),
}
"""Types of other tools' files that Connect lacks, and what holds all their values; of ``uint64``
all but the upper half, which is refused."""

_DO: Final = (
    "write the file again in another way, leave it out with a narrower topic.regex.list, or "
    "skip it with behavior.on.error"
)


def of_parquet(kind: pa.DataType, *, optional: bool = False) -> ConnectSchema:
    """Return the schema of the rows of another tool's file, or of the values of a column.

    A UUID is its text, as for the connectors; what else Arrow has a type of its own for, such as
    JSON, is what it is stored as.

    Raises:
        UnsupportedObjectError: If Connect has nothing that holds a field of theirs.
    """
    if kind == pa.uuid():
        return ConnectSchema(Type.STRING, optional)
    if isinstance(kind, pa.BaseExtensionType):
        return of_parquet(kind.storage_type, optional=optional)
    if pa.types.is_struct(kind):
        counts = Counter(each.name for each in kind)
        if twice := [name for name, count in counts.items() if count > 1]:
            why = "a record of Kafka Connect has each field once"
            raise UnsupportedObjectError(f"the Parquet file has two columns {twice[0]}", why, _DO)
        fields = tuple((each.name, _of_field(each)) for each in kind)
        return ConnectSchema(Type.STRUCT, optional, fields=fields)
    if pa.types.is_map(kind):
        key, item = of_parquet(kind.key_type), kind.item_field
        value = of_parquet(item.type, optional=item.nullable)
        return ConnectSchema(Type.MAP, optional, key=key, value=value)
    if _is_list(kind):
        item = kind.value_field
        value = of_parquet(item.type, optional=item.nullable)
        return ConnectSchema(Type.ARRAY, optional, value=value)
    return _of_scalar(kind, optional=optional)


def _of_field(field: pa.Field) -> ConnectSchema:
    """Return the schema of a field of another tool.

    Raises:
        UnsupportedObjectError: If Connect has nothing that holds its values.
    """
    try:
        return of_parquet(field.type, optional=field.nullable)
    except UnsupportedObjectError:
        raise
    except ValueError:
        raise unsupported(field.name, f"it has the type {field.type}") from None


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    known = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_one(kind) for is_one in known)


def unsupported(name: str, why: str) -> UnsupportedObjectError:
    """Return the refusal of the column *name*, whose values no type of Connect holds."""
    return UnsupportedObjectError(
        f"the Parquet file has a column {name} that Kafka Connect has no type for",
        why,
        _DO,
    )


def _of_scalar(kind: pa.DataType, *, optional: bool) -> ConnectSchema:
    """Return the schema of values that hold no others.

    Connect's times are milliseconds in UTC; others are the numbers that they are stored as.
    """
    for logical, stored_as in LOGICAL.items():
        if stored_as == kind:
            plain = Type.INT64 if logical == TIMESTAMP else Type.INT32
            return ConnectSchema(plain, optional, logical, 1)
    if pa.types.is_date64(kind):
        return ConnectSchema(Type.INT32, optional, DATE, 1)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return ConnectSchema(Type.INT64, optional)
    if pa.types.is_decimal(kind):
        scale = ("scale", str(kind.scale))
        return ConnectSchema(Type.BYTES, optional, DECIMAL, 1, parameters=(scale,))
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_fixed_size_binary(kind):
        kind = pa.binary()
    return connect.of_arrow(_WIDER.get(kind, kind), optional=optional)
