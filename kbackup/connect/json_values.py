"""Read and write columns with a Connect schema as JSON, as ``JsonConverter`` does.

Stricter than Connect, which reads text as the number 0 and truncates numbers that are too large:
here, a value that does not have its type is an error.

Each field becomes text for all rows at once, and the rows are joined at the end.  Numbers are
written as in Java, text as in `jackson.quote`.

Source: Apache Kafka 4.1, ``JsonConverter``; kafka-connect-storage-cloud 87eb7d39,
``JsonRecordWriterProvider``; ``connect-compat`` section 3.1.
"""

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.schema import DATE, DECIMAL, ENUM, ConnectSchema, Type, shown
from kbackup.errors import counted, is_of_memory
from kbackup.java import jackson

Read = Callable[[Any], Any]
"""Turns parsed JSON into what `pyarrow.array` accepts; its ``ValueError`` says what is wrong."""

_EXPONENT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How to represent values that JSON cannot represent directly.

    Attributes:
        has_entries: A map whose keys are not text, or are optional, is an array of
            ``{"key":..,"value":..}``; otherwise one whose keys are not text is an array of pairs.
        union: Name of structs with a single set field, whose value represents the struct.
        fills_defaults: ``replace.null.with.default``: null is the default, where there is one.
    """

    has_entries: bool = False
    union: str | None = None
    fills_defaults: bool = True

    def is_object(self, schema: ConnectSchema) -> bool:
        """Whether a map is an object, because its keys are text."""
        keys = schema.keys
        return keys.type is Type.STRING and not (self.has_entries and keys.optional)


CONNECT: Final = JsonForm()
"""That of ``JsonConverter``."""


class DecimalAsDoubleError(ValueError):
    """A Decimal came as a double: read the text again, numbers as `decimal.Decimal`."""


def column_of(
    rows: list[Any], kind: pa.DataType, bad: dict[int, str]
) -> tuple[pa.Array, dict[int, str]]:
    """Return *rows* as a column, null where Arrow rejects one, and *bad* with the reasons."""
    try:
        return pa.array(rows, kind), bad
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as why:
        if is_of_memory(why):
            raise
        for at, row in enumerate(rows):
            try:
                pa.array([row], kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                if is_of_memory(error):
                    raise
                rows[at], bad[at] = None, str(error)
        return pa.array(rows, kind), bad


def read_each(
    values: Iterable[Any], read: Read, kind: pa.DataType
) -> tuple[pa.Array, dict[int, str]]:
    """Return what *read* makes of each value, as `column_of` does."""
    rows: list[Any] = []
    bad: dict[int, str] = {}
    for at, value in enumerate(values):
        row = None
        try:
            row = read(value)
        except ValueError as error:
            bad[at] = str(error)
        rows.append(row)
    return column_of(rows, kind, bad)


@lru_cache(1000)
def reader(schema: ConnectSchema, form: JsonForm = CONNECT) -> Read:
    """Return the reader of JSON with *schema*; null, absent and default are as in Connect."""
    read = _plain(schema, form)
    if schema.default is not None and form.fills_defaults:
        default, read_default = json.loads(schema.default), _plain(schema, CONNECT)
        return lambda value: read_default(default) if value is None else read(value)
    if schema.optional:
        return lambda value: None if value is None else read(value)

    def required(value: Any) -> Any:
        if value is None:
            raise ValueError(f"null for a required {schema.type}")
        return read(value)

    return required


def default_of(schema: ConnectSchema) -> Any:
    """Return the default of *schema*, which has one, as `pyarrow.array` accepts it."""
    return reader(schema)(None)


def _plain(schema: ConnectSchema, form: JsonForm) -> Read:
    kind = schema.type
    if schema.logical == DECIMAL:
        return _decimal(schema.scale)
    if schema.bits is not None:
        return integer(schema.bits)
    match kind:
        case Type.FLOAT32 | Type.FLOAT64:
            return _float
        case Type.BOOLEAN:
            return _boolean
        case Type.STRING:
            return _symbol(schema) if schema.parameter(ENUM) is not None else _string
        case Type.BYTES:
            return _bytes if schema.fixed_size is None else _fixed(schema.fixed_size)
        case Type.ARRAY:
            return _array(reader(schema.items, form))
        case Type.MAP:
            return _map(schema, form)
    if form.union is not None and schema.name == form.union:
        return _union(schema, form)
    return _struct(schema, form)


def integer(bits: int) -> Read:
    """Return the reader of integers of so many bits."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any) -> int:
        if type(value) is not int:
            raise _wrong(value, f"an int{bits}")
        if not low <= value <= high:
            raise ValueError(f"{value} is not an int{bits}")
        return value

    return read


def _float(value: Any) -> float:
    if type(value) in (float, int, Decimal):
        return float(value)
    if isinstance(value, str) and value in jackson.NOT_FINITE:
        return jackson.NOT_FINITE[value]
    raise _wrong(value, "a number")


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong(value, "true or false")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a string")
    return value


def _symbol(schema: ConnectSchema) -> Read:
    symbols = {text for name, text in schema.parameters if name.startswith(ENUM + ".")}

    def read(value: Any) -> str:
        if _string(value) not in symbols:
            raise _wrong(value, f"a symbol of {schema.parameter(ENUM)}")
        return str(value)

    return read


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _wrong(value, "a string of base64") from None


def _fixed(size: int) -> Read:
    def read(value: Any) -> bytes:
        found = _bytes(value)
        if len(found) != size:
            raise ValueError(f"{counted(len(found), 'byte')} for a fixed of {size}")
        return found

    return read


def _decimal(scale: int) -> Read:
    def read(value: Any) -> bytes:
        if type(value) is float:
            raise DecimalAsDoubleError("a Decimal")
        if type(value) not in (int, Decimal):
            return _bytes(value)
        number = Decimal(value)
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int) or abs(exponent) > _EXPONENT_MAX:
            raise _wrong(str(value), "a Decimal")
        sign, digits, _ = number.as_tuple()
        shift = exponent + scale
        whole = int("".join(map(str, digits)) or "0") * 10 ** max(0, shift)
        if shift < 0:
            whole, rest = divmod(whole, 10**-shift)
            if rest:
                raise ValueError(f"{value} has more digits after its point than {scale}")
        return unscaled(-whole if sign else whole)

    return read


def unscaled(number: int) -> bytes:
    """Return Java's ``BigInteger.toByteArray``: big-endian, as short as possible."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def _array(read_item: Read) -> Read:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(value, "an array")
        return [read_item(item) for item in value]

    return read


def _map(schema: ConnectSchema, form: JsonForm) -> Read:
    read_key, read_value = reader(schema.keys, form), reader(schema.items, form)
    is_object = form.is_object(schema)
    pairs_of = _entries if form.has_entries else _pairs

    def read(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict) and schema.keys.type is Type.STRING:
            pairs = list(value.items())
        elif isinstance(value, list) and not is_object:
            pairs = pairs_of(value)
        else:
            raise _wrong(value, "an object" if is_object else "an array of pairs")
        found = [(read_key(key), read_value(item)) for key, item in pairs]
        if any(key is None for key, _ in found):
            raise ValueError("a map has a null key, which no column holds")
        return found

    return read


def _pairs(value: list[Any]) -> list[tuple[Any, Any]]:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ValueError("a map is an array of pairs, and one element is not a pair")
    return [(key, item) for key, item in value]


def _entries(value: list[Any]) -> list[tuple[Any, Any]]:
    if not all(isinstance(each, dict) and each.keys() == {"key", "value"} for each in value):
        raise ValueError("a map is an array of objects with key and value, and one element is not")
    return [(each["key"], each["value"]) for each in value]


def _union(schema: ConnectSchema, form: JsonForm) -> Read:
    """Read a value as the first field that accepts it."""
    fields = [(name, field, reader(field, form)) for name, field in schema.fields]

    def read(value: Any) -> dict[str, Any]:
        for name, field, read_field in fields:
            if field.type is Type.STRUCT and field.name != form.union:
                known = {known for known, _ in field.fields}
                if not isinstance(value, dict) or not value.keys() <= known:
                    continue
            try:
                return {name: read_field(value)}
            except DecimalAsDoubleError:
                raise
            except ValueError:
                continue
        raise _wrong(value, "a value of any of the schema's alternatives")

    return read


def _struct(schema: ConnectSchema, form: JsonForm) -> Read:
    readers = [(name, reader(field, form)) for name, field in schema.fields]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        name = ""
        try:
            found = {}
            for name, read_field in readers:
                found[name] = read_field(value.get(name))
        except DecimalAsDoubleError:
            raise
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None
        return found

    return read


def _wrong(value: Any, wanted: str) -> ValueError:
    return ValueError(f"{shown(value)} is not {wanted}")


def struct_fields(
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


def as_lists(values: pa.Array) -> pa.ListArray:
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


def spread(found: pa.Array, where: pa.BooleanArray) -> pa.Array:
    """Return *found*, a value for each row in *where*, with null for the others."""
    if len(found) == len(where):
        return found
    at = pc.subtract(pc.cumulative_sum(where.cast(pa.int64())), 1)
    return found.take(pc.if_else(where, at, pa.scalar(None, pa.int64())))


_DAY_MS: Final = 86_400_000
_FLOAT: Final = struct.Struct("f")
_NULL: Final = pa.scalar("null", pa.string())
_NOTHING: Final = pa.scalar("", pa.string())


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """How logical types become JSON.

    Attributes:
        numeric_decimals: ``decimal.format=NUMERIC``: a Decimal as a number, its scale kept;
            otherwise as base64 of its unscaled bytes.
        is_java: As Jackson writes Java's own objects, which is what the connector does with a
            value that is not a struct: a Decimal is a number, a Date is in ms, and every map is
            an object.
        form: How to represent values that JSON cannot represent directly.
    """

    numeric_decimals: bool = False
    is_java: bool = False
    form: JsonForm = CONNECT


CONNECT_STYLE: Final = JsonStyle()


def encode_json(
    values: pa.Array, schema: ConnectSchema, style: JsonStyle = CONNECT_STYLE
) -> pa.StringArray:
    """Return each row as compact JSON; null becomes ``null``, or its default."""
    if style.form.fills_defaults:
        values = filled(values, schema)
    text = _text(values, schema, style)
    return pc.if_else(values.is_valid(), text, _NULL) if values.null_count else text


def _text(values: pa.Array, schema: ConnectSchema, style: JsonStyle) -> pa.StringArray:
    if schema.logical == DECIMAL and (style.numeric_decimals or style.is_java):
        return _each(values, lambda value: f"{decimal(value, schema.scale):f}")
    if schema.logical == DATE and style.is_java:
        return pc.multiply(values.cast(pa.int64()), _DAY_MS).cast(pa.string())
    if schema.bits is not None or schema.type is Type.BOOLEAN:
        return values.cast(pa.string())
    match schema.type:
        case Type.FLOAT32:
            return _each(values, _float_text)
        case Type.FLOAT64:
            return _each(values, _double_text)
        case Type.STRING:
            return jackson.quote(values)
        case Type.BYTES:
            return _each(values, lambda value: f'"{base64.b64encode(value).decode()}"')
        case Type.STRUCT if schema.name is not None and schema.name == style.form.union:
            return _chosen(values, schema, style)
        case Type.STRUCT:
            return _object(values, schema, style)
        case Type.ARRAY:
            items = encode_json(values.flatten(), schema.items, style)
            return _list(values, items, "[", "]")
    lists = as_lists(values)
    keys, items = lists.flatten().flatten()
    key = encode_json(keys, schema.keys, style)
    item = encode_json(items, schema.items, style)
    if style.is_java and schema.keys.type is not Type.STRING:
        key = jackson.quote(key)
    if style.is_java or style.form.is_object(schema):
        return _list(lists, pc.binary_join_element_wise(key, item, ":"), "{", "}")
    begin, middle, end = (
        ('{"key":', ',"value":', "}") if style.form.has_entries else ("[", ",", "]")
    )
    pairs = pc.binary_join_element_wise(begin, key, middle, item, end, "")
    return _list(lists, pairs, "[", "]")


def _object(values: pa.StructArray, schema: ConnectSchema, style: JsonStyle) -> pa.StringArray:
    if not schema.fields:
        return pa.array(["{}"] * len(values), pa.string())
    parts: list[Any] = []
    for column, (name, field) in zip(values.flatten(), schema.fields, strict=True):
        key = jackson.quote(pa.array([name], pa.string()))[0].as_py()
        parts.append(("{" if not parts else ",") + key + ":")
        parts.append(encode_json(column, field, style))
    return pc.binary_join_element_wise(*parts, "}", _NOTHING)


def _chosen(values: pa.StructArray, schema: ConnectSchema, style: JsonStyle) -> pa.StringArray:
    """Return the text of the first field that is not null, ``null`` if all are."""
    columns = zip(values.flatten(), schema.fields, strict=True)
    texts = [
        pc.if_else(
            column.is_valid(), encode_json(column, field, style), pa.scalar(None, pa.string())
        )
        for column, (_, field) in columns
    ]
    return pc.coalesce(*texts, _NULL)


def _list(values: pa.ListArray, items: pa.StringArray, begin: str, end: str) -> pa.StringArray:
    lists, _ = relisted(values, items)
    return pc.binary_join_element_wise(begin, pc.binary_join(lists, ","), end, _NOTHING)


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.StringArray:
    """Return the text of each value, computing each distinct value once: 0.5 us."""
    coded = values.dictionary_encode()
    texts = pa.array([text(value) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def decimal(value: bytes, scale: int) -> Decimal:
    """Return the number in a Decimal's bytes, its scale kept."""
    number = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
    return Decimal((number.sign, number.digits, -scale))


def _double_text(value: float) -> str:
    return jackson.java_double(value) if math.isfinite(value) else _not_finite(value)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return _not_finite(value)
    for digits in range(1, 9):
        text = f"{value:.{digits}e}"
        if _FLOAT.pack(float(text)) == _FLOAT.pack(value):
            return jackson.java_text(text)
    return jackson.java_double(value)


def _not_finite(value: float) -> str:
    """As Jackson writes them, although they are not JSON numbers."""
    return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'  # noqa: PLR0124
