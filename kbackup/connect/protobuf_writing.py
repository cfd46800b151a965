"""Write Connect schemas and columns as ``.proto`` text and Protobuf messages.

A field that may be null is ``optional``, so that null does not read back as 0; the connector
writes both alike.  Each field is encoded for all rows at once, and the rows are joined at the end;
no Python runs per record.

Source: schema-registry, ``ProtobufData``; Protocol Buffers, "Encoding".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect.avro_writing import signed_varints, unsigned_varints
from kbackup.connect.protobuf_reading import ENUM, KIND, PRECISION, TAG, UNION
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type

KINDS: Final = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
LOGICAL: Final = {
    DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
"""Message of each logical type, and the file that has it."""

_OF_INTEGERS: Final = {
    Type.INT32: ("sint32", "sfixed32"),
    Type.INT64: ("uint32", "fixed32", "uint64", "sint64", "fixed64", "sfixed64"),
}
_KEYS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED: Final = range(19_000, 20_000)
_TAG_MAX: Final = 2**29 - 1
_META: Final = "confluent/meta.proto"


@dataclass(frozen=True, slots=True)
class Symbols:
    """An enum: the name of its type, and symbols with their numbers, 0 first."""

    name: str
    numbers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    Attributes:
        kind: The name of a plain type, message or enum.
        label: "optional", "repeated" or nothing.
        schema: The schema of the value, or of each element if it is repeated.
        message: Its message type, if it has one of its own.
        symbols: Its enum, if it is one.
        entry: The fields of key and value, if it is a map.
        oneof: The fields of which one is set, if it is a ``oneof``; it then has no number.
    """

    name: str
    number: int
    kind: str
    label: str
    schema: ConnectSchema
    message: "Message | None" = None
    symbols: Symbols | None = None
    entry: tuple["Field", ...] = ()
    oneof: tuple["Field", ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A message: a field for each of the schema's, in order, and what is declared in it.

    No package is an empty one.
    """

    name: str
    package: str
    fields: tuple[Field, ...]
    inner: tuple["Message", ...] = ()
    enums: tuple[Symbols, ...] = ()

    def text(self) -> str:
        """Return the file that declares it and nothing else."""
        imports = sorted(set(_imports(self)))
        lines = ['syntax = "proto3";']
        lines += [f"package {self.package};"] if self.package else []
        lines += [f'import "{name}";' for name in imports]
        return "\n".join([*lines, "", *_lines(self, ""), ""])


def planned(schema: ConnectSchema, *, fills_defaults: bool = True) -> Message:
    """Return the message that corresponds to *schema*.

    Raises:
        ValueError: If there is none: for a list in a list, a name with characters other than
            letters, digits and ``_``, or an enum without 0.
    """
    if schema.type is Type.STRUCT:
        package, _, name = (schema.name or "").rpartition(".")
        return _Planning(_type_name(name), fills_defaults).message(schema, package)
    if schema.type not in KINDS:
        raise ValueError(f"a message has fields, and {schema.type} has none")
    kind = KINDS[schema.type]
    plain = Field("value", 1, kind, "", ConnectSchema(schema.type))
    return Message(f"{kind.capitalize()}Value", "google.protobuf", (plain,))  # such as Int64Value


@dataclass(slots=True)
class _Planning:
    name: str
    fills_defaults: bool
    inner: dict[str, tuple[ConnectSchema, Message]] = field(default_factory=dict)
    enums: dict[str, Symbols] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def message(self, schema: ConnectSchema, package: str = "") -> Message:
        self.taken = {name for name, _ in schema.fields}
        given = [*_tags(schema)]
        numbers = iter(range(1, _TAG_MAX))
        used = set(given)
        fields = tuple(self._field(name, each, numbers, used) for name, each in schema.fields)
        inner = tuple(found for _, found in self.inner.values())
        return Message(self.name, package, fields, inner, tuple(self.enums.values()))

    def _field(
        self, name: str, schema: ConnectSchema, numbers: Iterator[int], used: set[int]
    ) -> Field:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of a field in Protobuf")
        if schema.type is Type.STRUCT and (schema.name or "").startswith(UNION):
            chosen = tuple(
                replace(self._field(inner, each, numbers, used), label="")
                for inner, each in schema.fields
            )
            union = _type_name((schema.name or "").rpartition(".")[2])
            return Field(union, 0, "", "", schema, oneof=chosen)
        number = _tag(schema) or _free(numbers, used)
        if schema.type is Type.MAP:
            key, value = self._entry(schema)
            return Field(name, number, f"map<{key.kind}, {value.kind}>", "", schema,
                         entry=(key, value))  # fmt: skip
        if schema.type is Type.ARRAY:
            found = self._value(name, schema.items)
            return replace(found, name=name, number=number, label="repeated")
        label = "optional" if schema.optional or schema.default is not None else ""
        if not self.fills_defaults:
            schema = replace(schema, default=None)
        return replace(self._value(name, schema), name=name, number=number, label=label)

    def _entry(self, schema: ConnectSchema) -> tuple[Field, Field]:
        if schema.keys.type not in _KEYS or schema.keys.parameter(ENUM) is not None:
            raise ValueError(f"a map has keys of the type {schema.keys.type}")
        key, value = self._value("key", schema.keys), self._value("value", schema.items)
        return replace(key, number=1), replace(value, name="value", number=2)

    def _value(self, name: str, schema: ConnectSchema) -> Field:
        """Return a field without its number."""
        if schema.logical is not None:
            return Field(name, 0, LOGICAL[schema.logical][0], "", schema)
        if schema.parameter(ENUM) is not None and schema.type in (Type.STRING, Type.INT32):
            symbols = self._symbols(schema)
            return Field(name, 0, symbols.name, "", schema, symbols=symbols)
        if schema.type in KINDS:
            given = schema.parameter(KIND)
            is_given = given is not None and given in _OF_INTEGERS.get(schema.type, ())
            kind = given if is_given and given is not None else KINDS[schema.type]
            return Field(name, 0, kind, "", schema)
        if schema.type is not Type.STRUCT or (schema.name or "").startswith(UNION):
            raise ValueError(f"field {name!r}: a list or a map is in a list or a map")
        message = self._message(name, schema)
        return Field(name, 0, message.name, "", schema, message=message)

    def _message(self, name: str, schema: ConnectSchema) -> Message:
        alike = replace(schema, optional=False, parameters=(), doc=None)
        for known, found in self.inner.values():
            if known == alike:
                return found
        wanted = _type_name((schema.name or "").rpartition(".")[2])
        unique = self._unique(wanted if wanted != name else f"{wanted}Message")
        message = _Planning(unique, self.fills_defaults).message(schema)
        self.inner[unique] = alike, message
        return message

    def _symbols(self, schema: ConnectSchema) -> Symbols:
        prefix = f"{ENUM}."
        numbers = [
            (name.removeprefix(prefix), int(number))
            for name, number in schema.parameters
            if name.startswith(prefix)
        ]
        numbers.sort(key=lambda each: each[1] != 0)
        name = _type_name(schema.parameter(ENUM) or "")
        if not numbers or numbers[0][1] != 0:
            raise ValueError(f"the enum {name} has no symbol of the number 0")
        for known in self.enums.values():
            if known.numbers == tuple(numbers):
                return known
        if clash := self.taken & {symbol for symbol, _ in numbers}:
            raise ValueError(f"two enums of one message have the symbol {min(clash)}")
        self.taken |= {symbol for symbol, _ in numbers}
        found = Symbols(self._unique(name), tuple(numbers))
        self.enums[found.name] = found
        return found

    def _unique(self, name: str) -> str:
        found, number = name, 1
        while found in self.taken:
            number += 1
            found = f"{name}{number}"
        self.taken.add(found)
        return found


def _tags(schema: ConnectSchema) -> Iterator[int]:
    for _, each in schema.fields:
        if each.type is Type.STRUCT and (each.name or "").startswith(UNION):
            yield from _tags(each)
        elif (number := _tag(each)) is not None:
            yield number


def _tag(schema: ConnectSchema) -> int | None:
    found = schema.parameter(TAG) or ""
    return int(found) if re.fullmatch(r"[1-9]\d{0,8}", found) else None


def _free(numbers: Iterator[int], used: set[int]) -> int:
    return next(each for each in numbers if each not in used and each not in _RESERVED)


def _type_name(name: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return found if _NAME.fullmatch(found) else f"ConnectDefault{found}"


def _imports(message: Message) -> Iterator[str]:
    for each in _all(message.fields):
        if each.schema.logical is not None and each.message is None:
            yield LOGICAL[each.schema.logical][1]
        if _meta(each):
            yield _META
    for inner in message.inner:
        yield from _imports(inner)


def _all(fields: tuple[Field, ...]) -> Iterator[Field]:
    for each in fields:
        if not each.entry and not each.oneof:
            yield each
        yield from _all(each.entry)
        yield from _all(each.oneof)


def _lines(message: Message, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    deeper = indent + "  "
    plain = [chosen for each in message.fields for chosen in each.oneof or (each,)]
    if len({_json_name(each) for each in plain}) < len(plain):
        yield f"{deeper}option deprecated_legacy_json_field_conflicts = true;"
    for each in message.fields:
        if each.oneof:
            yield f"{deeper}oneof {each.name} {{"
            yield from (f"{deeper}  {_declared(chosen)}" for chosen in each.oneof)
            yield f"{deeper}}}"
        else:
            yield deeper + _declared(each)
    for symbols in message.enums:
        yield f"{deeper}enum {symbols.name} {{"
        if len({number for _, number in symbols.numbers}) < len(symbols.numbers):
            yield f"{deeper}  option allow_alias = true;"
        yield from (f"{deeper}  {symbol} = {number};" for symbol, number in symbols.numbers)
        yield f"{deeper}}}"
    for inner in message.inner:
        yield from _lines(inner, deeper)
    yield f"{indent}}}"


def _declared(each: Field) -> str:
    label = f"{each.label} " if each.label else ""
    pairs = ", ".join(f'{{ key: "{key}", value: "{text}" }}' for key, text in _meta(each))
    meta = f" [(confluent.field_meta) = {{ params: [ {pairs} ] }}]" if pairs else ""
    return f"{label}{each.kind} {each.name} = {each.number}{meta};"


def _json_name(each: Field) -> str:
    """Return the field's name in JSON, which the compiler requires to be unique."""
    return re.sub(r"_+(.?)", lambda found: found[1].upper(), each.name)


def _meta(each: Field) -> list[tuple[str, str]]:
    """Return the contents of Confluent's ``field_meta`` for a field."""
    if each.schema.logical == DECIMAL:
        precision = each.schema.parameter(PRECISION)
        found = [("scale", str(each.schema.scale))]
        return [("precision", precision), *found] if precision else found
    if each.schema.type in (Type.INT8, Type.INT16) and not each.entry:
        return [("connect.type", str(each.schema.type))]
    return []


# 100,000 records of 8 fields (two strings, one optional, numbers, a list) on one core: 1.6 us per
# record.

_NOTHING: Final = pa.scalar(b"", pa.binary())
_NULL: Final = pa.scalar(None, pa.binary())
_FIXED: Final = {
    "fixed32": pa.uint32(), "sfixed32": pa.int32(), "float": pa.float32(),
    "fixed64": pa.uint64(), "sfixed64": pa.int64(), "double": pa.float64(),
}  # fmt: skip
_UNKNOWN: Final = "UNKNOWN_ENUM_VALUE_"
_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5


def encode_protobuf(values: pa.Array, message: Message) -> pa.BinaryArray:
    """Return each row as one *message*, which was planned for the schema of *values*.

    Returns:
        ``binary``; null where a row, or something in it, is null and must not be, or cannot be
        represented: a list that is null or contains null, or a symbol that its enum lacks.
    """
    if not pa.types.is_struct(values.type):
        return _implicit(values, message.fields[0])
    return _body(values, message)


def _body(values: pa.StructArray, message: Message) -> pa.BinaryArray:
    if not message.fields:
        return pc.if_else(values.is_valid(), _NOTHING, _NULL)
    columns = zip(values.flatten(), message.fields, strict=True)
    return _joined(*(_encoded(column, each) for column, each in columns))


def _encoded(values: pa.Array, each: Field) -> pa.BinaryArray:
    """Return a field of each row, with its tag."""
    if each.oneof:
        chosen = zip(values.flatten(), each.oneof, strict=True)
        return _joined(*(_absent_or(column, one) for column, one in chosen))
    if each.entry:
        return _entries(values, each)
    if each.label == "repeated":
        return _repeated(values, each)
    if each.label == "optional":
        return _absent_or(json_values.filled(values, each.schema), each)
    if _is_message(each):
        return _tagged(_untagged(values, each), each)
    return _implicit(values, each)


def _absent_or(values: pa.Array, each: Field) -> pa.BinaryArray:
    found = _tagged(_untagged(values, each), each)
    return pc.if_else(values.is_valid(), found, _NOTHING) if values.null_count else found


def _implicit(values: pa.Array, each: Field) -> pa.BinaryArray:
    """Return a field that is omitted if it is 0, false or empty."""
    found = _untagged(values, each)
    zero = {_VARINT: b"\0", _I32: bytes(4), _I64: bytes(8), _LEN: b"\0"}[_wire(each)]
    return pc.if_else(pc.equal(found, zero), _NOTHING, _tagged(found, each))


def _repeated(values: pa.ListArray, each: Field) -> pa.BinaryArray:
    elements = _untagged(values.flatten(), each)
    if _wire(each) == _LEN:
        lists, _ = json_values.relisted(values, _tagged(elements, each))
        found = pc.binary_join(lists, _NOTHING)
    else:
        lists, lengths = json_values.relisted(values, elements)
        packed = _tagged_as(each.number, _LEN, _sized(pc.binary_join(lists, _NOTHING)))
        found = pc.if_else(pc.equal(lengths, 0), _NOTHING, packed)
    return pc.if_else(values.is_valid(), found, _NULL)


def _entries(values: pa.MapArray, each: Field) -> pa.BinaryArray:
    lists = json_values.as_lists(values)
    keys, items = lists.flatten().flatten()
    key, item = each.entry
    entries = _joined(_tagged(_untagged(keys, key), key), _tagged(_untagged(items, item), item))
    found, _ = json_values.relisted(lists, _tagged_as(each.number, _LEN, _sized(entries)))
    return pc.if_else(values.is_valid(), pc.binary_join(found, _NOTHING), _NULL)


def _untagged(values: pa.Array, each: Field) -> pa.BinaryArray:
    """Return a value without its tag; null stays null."""
    if each.message is not None:
        found = _body(values, each.message)
        return _sized(pc.if_else(values.is_valid(), found, _NULL) if values.null_count else found)
    if each.schema.logical is not None:
        return _sized(_logical(values, each.schema))
    if each.symbols is not None:
        return varint(_numbers(values, each))
    if each.kind in _FIXED:
        kind = _FIXED[each.kind]
        bits = values.cast(pa.int64()).cast(kind, safe=False) if each.schema.bits else values
        return _fixed(bits.cast(kind, safe=False))
    if each.kind in ("string", "bytes"):
        return _sized(values.cast(pa.binary()))
    if each.kind.startswith("sint"):
        return signed_varints(values)
    return varint(values)


def _numbers(values: pa.Array, each: Field) -> pa.Int64Array:
    """Return the numbers of an enum's symbols, null for unknown ones."""
    if values.type == pa.int32() or each.symbols is None:
        return values.cast(pa.int64())
    known: dict[str, int] = {}
    for symbol, number in each.symbols.numbers:
        known.setdefault(symbol, number)
    coded = values.dictionary_encode()
    numbers = [known.get(text, _unknown(text)) for text in coded.dictionary.to_pylist()]
    return pa.array(numbers, pa.int64()).take(coded.indices)


def _unknown(text: str) -> int | None:
    """Return the number in the placeholder of a number that has no symbol."""
    number = text.rpartition("_")[2]
    is_one = text.startswith(_UNKNOWN) and number.lstrip("-").isdecimal() and len(number) < 12
    return int(number) if is_one else None


def _logical(values: pa.Array, schema: ConnectSchema) -> pa.BinaryArray:
    """Return the message of a logical type, without its length."""
    if schema.logical == DECIMAL:
        number = pa.repeat(pa.scalar(schema.scale, pa.int64()), len(values))
        return _joined(_tagged_as(1, _LEN, _sized(values)), _integer(3, number))
    if schema.logical == DATE:
        days = values.cast(pa.date32())
        parts = [pc.year(days), pc.month(days), pc.day(days)]
        return _joined(*(_integer(at, part) for at, part in enumerate(parts, 1)))
    number = values.cast(pa.int64())
    if schema.logical == TIME:
        seconds, nanos = _split(number)
        minutes = pc.divide(seconds, 60)
        hours = pc.divide(minutes, 60)
        rest = pc.subtract(minutes, pc.multiply(hours, 60))
        second = pc.subtract(seconds, pc.multiply(minutes, 60))
        parts = [hours, rest, second, nanos]
        return _joined(*(_integer(at, part) for at, part in enumerate(parts, 1)))
    seconds, nanos = _split(number)
    return _joined(_integer(1, seconds), _integer(2, nanos))


def _split(ms: pa.Int64Array) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Return whole seconds, rounded down, and the rest in ns."""
    cut = pc.divide(ms, 1000)
    below = pc.less(pc.subtract(ms, pc.multiply(cut, 1000)), 0)
    seconds = pc.subtract(cut, below.cast(pa.int64()))
    rest = pc.subtract(ms, pc.multiply(seconds, 1000))
    return seconds, pc.multiply(rest, 1_000_000)


def _integer(number: int, values: pa.Array) -> pa.BinaryArray:
    found = varint(values)
    return pc.if_else(pc.equal(found, b"\0"), _NOTHING, _tagged_as(number, _VARINT, found))


def _is_message(each: Field) -> bool:
    return each.message is not None or each.schema.logical is not None


def _wire(each: Field) -> int:
    """Return the wire type: the low bits of the tag."""
    if _is_message(each) or (each.symbols is None and each.kind in ("string", "bytes")):
        return _LEN
    if each.symbols is None and each.kind in _FIXED:
        return _I32 if _FIXED[each.kind].bit_width == 32 else _I64
    return _VARINT


def _tagged(found: pa.BinaryArray, each: Field) -> pa.BinaryArray:
    return _tagged_as(each.number, _wire(each), found)


def _tagged_as(number: int, wire: int, found: pa.BinaryArray) -> pa.BinaryArray:
    [head] = varint(pa.array([number << 3 | wire], pa.int64()))
    return pc.binary_join_element_wise(head, found, _NOTHING)


def _sized(found: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(varint(pc.binary_length(found)), found, _NOTHING)


def _fixed(values: pa.Array) -> pa.BinaryArray:
    return values.view(pa.binary(values.type.bit_width // 8)).cast(pa.binary())


def _joined(*parts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, _NOTHING)


def varint(numbers: pa.Array) -> pa.BinaryArray:
    """Return integers or booleans in Protobuf's variable-length encoding; null stays null."""
    return unsigned_varints(numbers.cast(pa.int64()).view(pa.uint64()))
