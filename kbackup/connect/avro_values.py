"""From Avro datums to a column with a Connect schema.

fastavro is imported where it is used: a run asks every format what it reads, and few read Avro.
"""

import io
import itertools
import json
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from kbackup.connect import avro_walk
from kbackup.connect.avro_schema_reading import branch_name, from_avro
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.plurals import counted, form

_SYNC: Final = bytes(16)
_CORRUPT: Final = (
    EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error,
    StopIteration,
)  # fmt: skip
"""What fastavro raises for bytes that are not datums of the schema."""


def connect_schema(text: str) -> ConnectSchema:
    """Return the schema of Connect for an Avro schema in JSON.

    Raises:
        ValueError: If there is none.
    """
    return _reading(text)[1]


def decode(data: bytes, count: int, text: str) -> pa.Array:
    """Return *count* consecutive datums as a column.

    Args:
        data: The datums, and nothing else; `avro_walk.check_block` has found nothing wrong.
        count: How many.
        text: Their Avro schema in JSON; the column has its `connect_schema`.

    Raises:
        ValueError: If *data* is not *count* datums of the schema, or the schema has no column.
    """
    import fastavro  # noqa: PLC0415

    header, schema, convert = _reading(text)
    block = b"".join([header, long(count), long(len(data)), data, _SYNC])
    file = io.BytesIO(block)
    # 3.9 us per record of 8 fields, including Arrow
    try:
        whole: Any = next(fastavro.block_reader(file))
        rows = [*whole]
    except _CORRUPT as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if left := len(data) - whole.bytes_.tell():
        text = f"{counted(left, 'byte')} {form(left, 'is', 'are')} left after the last one"
        raise ValueError(text)
    return pa.array(rows if convert is None else map(convert, rows), schema.arrow())


def decode_each(datums: pa.BinaryArray, text: str) -> tuple[pa.Array, dict[int, str]]:
    """Return each row of *datums*, one datum or null, as a row of a column.

    While `decode` trusts a file's blocks, this checks the end of each datum: a value that is
    truncated, or followed by something else, does not shift those after it.

    Args:
        datums: One Avro datum per row.
        text: Their Avro schema in JSON; the column has its `connect_schema`.

    Returns:
        The column, null where a datum is not a value of the schema; and the reasons, by row.

    Raises:
        ValueError: If the schema has no column.
    """
    import fastavro  # noqa: PLC0415

    _, schema, convert = _reading(text)
    parsed = _parsed(text)
    rows: list[Any] = []
    bad = avro_walk.wrong(datums, text)
    read, file = fastavro.schemaless_reader, io.BytesIO
    # 5.6 us per record of 8 fields, including Arrow, which cannot read Avro
    for at, datum in enumerate(datums.to_pylist()):
        row = None
        if datum is not None and at not in bad:
            body = file(datum)
            try:
                row = read(body, parsed, None)
            except _CORRUPT as error:
                bad[at] = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if (left := len(datum) - body.tell()) > 0:
                    row = None
                    bad[at] = f"{counted(left, 'byte')} {form(left, 'is', 'are')} left after it"
        rows.append(row)
    made = rows if convert is None else [None if row is None else convert(row) for row in rows]
    kind = schema.arrow()
    try:
        return pa.array(made, kind), bad
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        for at, row in enumerate(made):
            try:
                pa.scalar(row, kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                made[at], bad[at] = None, str(error)
        return pa.array(made, kind), bad


def long(number: int) -> bytes:
    """Return an integer in Avro's variable-length encoding."""
    left = number << 1 if number >= 0 else ~(number << 1)
    found = bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    found.append(left)
    return bytes(found)


@lru_cache(100)
def _reading(text: str) -> tuple[bytes, ConnectSchema, Callable[[Any], Any] | None]:
    """Return the header of a file of such datums, their schema, and what turns each into a row."""
    import fastavro  # noqa: PLC0415

    try:
        found = json.loads(text)
        schema = from_avro(found)
        plain = json.dumps(_as_stored(found))
        fastavro.parse_schema(json.loads(plain))
    except ValueError:
        raise
    except (
        KeyError, TypeError, AttributeError, RecursionError, fastavro.schema.SchemaParseException
    ) as error:  # fmt: skip
        raise ValueError(f"not an Avro schema: {error}") from error
    file = io.BytesIO()
    fastavro.writer(file, json.loads(plain), [], sync_marker=_SYNC)
    return file.getvalue(), schema, _row(schema)


@lru_cache(100)
def _parsed(text: str) -> Any:
    import fastavro  # noqa: PLC0415

    return fastavro.parse_schema(_as_stored(json.loads(text)))


def _as_stored(found: Any) -> Any:
    """Return *found* changed so that values are read as they are stored.

    They have no logical types.  Each branch of a union of several is a record with the field that
    stands for it, which is encoded alike, so that values say which branch they are of.
    """
    return _stored(found, itertools.count())


def _stored(found: Any, numbers: Iterator[int]) -> Any:
    if isinstance(found, list):
        kinds = [_stored(each, numbers) for each in found]
        if sum(kind != "null" for kind in kinds) < 2:
            return kinds
        return [kind if kind == "null" else _branch(kind, next(numbers)) for kind in kinds]
    if isinstance(found, dict):
        kept = {name: value for name, value in found.items() if name != "logicalType"}
        for name in ("type", "items", "values"):
            if name in kept:
                kept[name] = _stored(kept[name], numbers)
        if "fields" in kept:
            kept["fields"] = [_stored(each, numbers) for each in kept["fields"]]
        return kept
    return found


def _branch(kind: Any, number: int) -> dict[str, Any]:
    fields = [{"name": branch_name(kind), "type": kind}]
    return {"type": "record", "name": f"kbackup_branch_{number}", "fields": fields}


def _row(schema: ConnectSchema) -> Callable[[Any], Any] | None:
    """Return what turns fastavro's value into one that Arrow accepts, None if not needed."""
    if schema.type is Type.STRUCT:
        parts = [(name, _row(field)) for name, field in schema.fields]
        changed = [(name, change) for name, change in parts if change is not None]
        if not changed:
            return None

        def struct_row(value: Any) -> Any:
            if value is None:
                return None
            return value | {name: change(value[name]) for name, change in changed if name in value}

        return struct_row
    if schema.type is Type.ARRAY:
        change = _row(schema.items)
        if change is None:
            return None
        return lambda value: None if value is None else [change(item) for item in value]
    if schema.type is Type.MAP:
        return _map_row(schema)
    return None


def _map_row(schema: ConnectSchema) -> Callable[[Any], Any]:
    """Avro's maps, and the arrays of entries that represent maps whose keys are not plain text."""
    key_of = _row(schema.keys) or _same
    value_of = _row(schema.items) or _same

    def map_row(value: Any) -> Any:
        if value is None:
            return None
        pairs = value.items() if isinstance(value, dict) else (tuple(v.values()) for v in value)
        return [(key_of(key), value_of(item)) for key, item in pairs]

    return map_row


def _same(value: Any) -> Any:
    return value
