"""Read ``.proto`` text and Protobuf messages as Connect schemas and columns.

The compiler runs in a separate process, because a registry's text is not trusted, and because the
compiler writes its errors to a console.  0.25 s per schema, once in a process.

The way back is in `protobuf_writing`.

Source: schema-registry, ``ProtobufData``, ``ProtobufDataConfig``.
"""

import base64
import binascii
import datetime as dt
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kbackup.connect.json_values import integer, unscaled
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.errors import ConfigurationError, with_extra

try:
    import grpc_tools
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.descriptor import FieldDescriptor as F
    from google.protobuf.message import DecodeError
except ImportError as problem:
    raise ConfigurationError(
        "Protobuf needs libraries that are not installed",
        str(problem),
        with_extra("protobuf"),
    ) from problem

_OWN: Final = "io.confluent.connect.protobuf"
ENUM: Final = f"{_OWN}.Enum"
"""Parameter that marks a string as an enum; with ``.SYMBOL`` appended, the symbol's number."""
UNION: Final = f"{_OWN}.Union"
"""Prefix of the name of a struct that represents a ``oneof``."""
TAG: Final = f"{_OWN}.Tag"
"""Parameter with a field's number."""
KIND: Final = f"{_OWN}.Type"
"""Parameter with a number's type if it is not the default one of its size."""
PRECISION: Final = "connect.decimal.precision"

DECIMAL_MESSAGE: Final = "confluent.type.Decimal"
DATE_MESSAGE: Final = "google.type.Date"
TIME_MESSAGE: Final = "google.type.TimeOfDay"
TIMESTAMP_MESSAGE: Final = "google.protobuf.Timestamp"

WRAPPERS: Final = {
    "google.protobuf.DoubleValue": Type.FLOAT64,
    "google.protobuf.FloatValue": Type.FLOAT32,
    "google.protobuf.Int64Value": Type.INT64,
    "google.protobuf.UInt64Value": Type.INT64,
    "google.protobuf.Int32Value": Type.INT32,
    "google.protobuf.UInt32Value": Type.INT64,
    "google.protobuf.BoolValue": Type.BOOLEAN,
    "google.protobuf.StringValue": Type.STRING,
    "google.protobuf.BytesValue": Type.BYTES,
}
"""Messages that wrap one value, and its type."""

_SCALARS: Final = {
    F.TYPE_INT32: ("int32", Type.INT32),
    F.TYPE_SINT32: ("sint32", Type.INT32),
    F.TYPE_SFIXED32: ("sfixed32", Type.INT32),
    F.TYPE_UINT32: ("uint32", Type.INT64),
    F.TYPE_FIXED32: ("fixed32", Type.INT64),
    F.TYPE_INT64: ("int64", Type.INT64),
    F.TYPE_UINT64: ("uint64", Type.INT64),
    F.TYPE_SINT64: ("sint64", Type.INT64),
    F.TYPE_FIXED64: ("fixed64", Type.INT64),
    F.TYPE_SFIXED64: ("sfixed64", Type.INT64),
    F.TYPE_FLOAT: ("float", Type.FLOAT32),
    F.TYPE_DOUBLE: ("double", Type.FLOAT64),
    F.TYPE_BOOL: ("bool", Type.BOOLEAN),
    F.TYPE_STRING: ("string", Type.STRING),
    F.TYPE_BYTES: ("bytes", Type.BYTES),
}
_SMALL: Final = {"int8": Type.INT8, "int16": Type.INT16}
_FIELDS_MAX: Final = 10_000
_DEPTH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ProtobufStyle:
    """The configuration of Protobuf messages.

    Attributes:
        enhanced: ``enhanced.protobuf.schema.support``: names have their package.
        int_enums: ``int.for.enums``: an enum is the number of its symbol.
        optional_by_keyword: ``optional.for.nullables``: a field is optional if the file says so.
        wrapped: ``wrapper.for.nullables``: a message such as ``Int64Value`` is an optional number.
        wrapped_alone: ``wrapper.for.raw.primitives``: the same where it is the whole value.
        indexed_unions: ``generate.index.for.unions``: fields of ``oneof`` have its index in their
            name.
    """

    enhanced: bool = False
    int_enums: bool = False
    optional_by_keyword: bool = False
    wrapped: bool = False
    wrapped_alone: bool = True
    indexed_unions: bool = True


def from_message(found: Any, style: ProtobufStyle) -> ConnectSchema:
    """Return the schema of Connect for the message with the descriptor *found*.

    A ``ValueError`` says why there is none, for example for a recursive message.
    """
    if style.wrapped_alone and found.full_name in WRAPPERS:
        return ConnectSchema(WRAPPERS[found.full_name])
    return _MessageReading(style).message(found)


def _parts(found: Any, style: ProtobufStyle) -> list[tuple[str, Any, bool]]:
    """Return what a message has: by its name a ``oneof``, which is true, or a field in none."""
    proto = descriptor_pb2.DescriptorProto()
    found.CopyToProto(proto)
    synthetic = {each.oneof_index for each in proto.field if each.proto3_optional}  # for `optional`
    unions = [each for each in found.oneofs if each.index not in synthetic]
    chosen = {each.number for union in unions for each in union.fields}
    plain = [(each.name, each, False) for each in found.fields if each.number not in chosen]
    indexed = style.indexed_unions
    return [(f"{o.name}_{o.index}" if indexed else o.name, o, True) for o in unions] + plain


def is_map(found: Any) -> bool:
    """Whether a field is a map."""
    if found.type != F.TYPE_MESSAGE or not found.is_repeated:
        return False
    return bool(found.message_type.GetOptions().map_entry)


@dataclass(slots=True)
class _MessageReading:
    style: ProtobufStyle
    begun: list[str] = field(default_factory=list)  # no message may contain itself
    fields: int = 0  # nested messages can multiply a short file

    def message(self, found: Any) -> ConnectSchema:
        if found.full_name in self.begun:
            raise ValueError(
                f"{found.full_name} contains itself, and no column is as deep as its values"
            )
        if len(self.begun) > _DEPTH_MAX:
            raise ValueError(f"{found.full_name} is nested too deeply")
        self.begun.append(found.full_name)
        fields = [
            (name, self._union(part) if is_union else self._field(part))
            for name, part, is_union in _parts(found, self.style)
        ]
        self.begun.pop()
        if len({name for name, _ in fields}) < len(fields):
            raise ValueError(f"{found.full_name} has a field that is called as one of its oneof is")
        return ConnectSchema(Type.STRUCT, name=self._name(found), fields=tuple(fields))

    def _name(self, found: Any) -> str:
        return str(found.full_name if self.style.enhanced else found.name)

    def _union(self, found: Any) -> ConnectSchema:
        fields = tuple((each.name, self._field(each).as_optional()) for each in found.fields)
        name = f"{UNION}.{self._name(found)}"
        return ConnectSchema(Type.STRUCT, optional=True, name=name, fields=fields)

    def _field(self, found: Any) -> ConnectSchema:
        self.fields += 1
        if self.fields > _FIELDS_MAX:
            raise ValueError(f"a message has more than {_FIELDS_MAX} fields, those in it included")
        schema = self._map(found) if is_map(found) else self._plain(found)
        if found.is_repeated and schema.type is not Type.MAP:
            schema = ConnectSchema(Type.ARRAY, optional=True, value=schema.as_optional())
        is_optional = schema.optional or (
            _has_keyword(found) if self.style.optional_by_keyword else not self.style.wrapped
        )
        parameters = (*schema.parameters, (TAG, str(found.number)))
        return replace(schema, optional=is_optional, parameters=parameters)

    def _plain(self, found: Any) -> ConnectSchema:
        if found.type in _SCALARS:
            return _scalar(found)
        if found.type == F.TYPE_ENUM:
            return self._enum(found.enum_type)
        if found.type != F.TYPE_MESSAGE:
            raise ValueError(f"{found.full_name} is a group, which has no column")
        name = found.message_type.full_name
        if name in _LOGICAL:
            return ConnectSchema(_LOGICAL[name][1], True, _LOGICAL[name][0], 1)
        if name == DECIMAL_MESSAGE:
            return _decimal(found)
        if self.style.wrapped and name in WRAPPERS:
            return ConnectSchema(WRAPPERS[name], optional=True)
        return self.message(found.message_type).as_optional()

    def _enum(self, found: Any) -> ConnectSchema:
        pairs = {ENUM: found.name} | {
            f"{ENUM}.{value.name}": str(value.number) for value in found.values
        }
        kind = Type.INT32 if self.style.int_enums else Type.STRING
        return ConnectSchema(kind, True, self._name(found), parameters=tuple(pairs.items()))

    def _map(self, found: Any) -> ConnectSchema:
        entry = found.message_type
        key, value = (self._field(each) for each in entry.fields)
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", self._name(entry).removesuffix("Entry")).lower()
        return ConnectSchema(Type.MAP, True, name, key=key, value=value)


_LOGICAL: Final = {
    DATE_MESSAGE: (DATE, Type.INT32),
    TIME_MESSAGE: (TIME, Type.INT32),
    TIMESTAMP_MESSAGE: (TIMESTAMP, Type.INT64),
}


def _scalar(found: Any) -> ConnectSchema:
    name, kind = _SCALARS[found.type]
    if kind is Type.INT32 and (small := _meta(found).get("connect.type")) in _SMALL:
        return ConnectSchema(_SMALL[small])
    if kind not in (Type.INT32, Type.INT64) or name == str(kind):
        return ConnectSchema(kind)
    return ConnectSchema(kind, parameters=((KIND, name),))


def _decimal(found: Any) -> ConnectSchema:
    meta = _meta(found)
    scale = meta.get("scale", "")
    pairs = [("scale", scale if re.fullmatch(r"-?\d{1,5}", scale) else "0")]
    if re.fullmatch(r"\d{1,5}", meta.get("precision", "")):
        pairs.append((PRECISION, meta["precision"]))
    return ConnectSchema(Type.BYTES, True, DECIMAL, 1, parameters=tuple(pairs))


def _has_keyword(found: Any) -> bool:
    """Whether a field is declared ``optional``."""
    return bool(
        found.has_presence
        and not found.is_required
        and found.type != F.TYPE_MESSAGE
        and (found.containing_oneof is None or len(found.containing_oneof.fields) == 1)
    )


def _meta(found: Any) -> dict[str, str]:
    """Return Confluent's ``field_meta`` of a field."""
    options = found.GetOptions().SerializeToString()
    if not options:
        return {}
    return dict(_OPTIONS.FromString(options).meta.params)


def _options_class() -> Any:
    """Return a message with only Confluent's part of a field's options."""
    file = descriptor_pb2.FileDescriptorProto(name="kbackup_options.proto", syntax="proto3")
    meta = file.message_type.add(name="Meta")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    text, other, one, many = F.TYPE_STRING, F.TYPE_MESSAGE, F.LABEL_OPTIONAL, F.LABEL_REPEATED
    entry.field.add(name="key", number=1, type=text, label=one)
    entry.field.add(name="value", number=2, type=text, label=one)
    meta.field.add(
        name="params", number=2, type=other, type_name=".Meta.ParamsEntry", label=many
    )  # fmt: skip
    options = file.message_type.add(name="Options")
    options.field.add(name="meta", number=1088, type=other, type_name=".Meta", label=one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Options"))


_OPTIONS: Final = _options_class()


_ROOT: Final = "kbackup_root.proto"
_SECONDS: Final = 60
_HEAD: Final = 'syntax = "proto3"; package {};'
_SAID: Final = re.compile(rf"^(?:{re.escape(_ROOT)}:|(?=[\w./-]+\.proto:))\s*(.*)$", re.MULTILINE)

KNOWN: Final = {
    "confluent/meta.proto": _HEAD.format("confluent")
    + """
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": _HEAD.format("confluent.type")
    + "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/types/decimal.proto": 'syntax = "proto3"; '
    'import public "confluent/type/decimal.proto";',
    "google/type/date.proto": _HEAD.format("google.type")
    + "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": _HEAD.format("google.type")
    + "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; "
    "int32 nanos = 4; }",
}
"""Files that registries know implicitly, without a reference in the schema."""


@lru_cache(100)
def compiled(text: str, imports: tuple[tuple[str, str], ...] = ()) -> Any:
    """Return the descriptor of the file *text*, or `ValueError` if the compiler refuses it.

    It is a ``.proto`` file, or base64 of its descriptor, as some clients register it.  *imports*
    are name and text of each file that it imports, directly or not.
    """
    pool = descriptor_pool.DescriptorPool()
    root = _packed(text)
    given = {**KNOWN, **dict(imports)}
    try:
        if root is None:
            texts = {**given, _ROOT: text}
            found = _compiled(texts, [_ROOT])
        else:
            root.name = _ROOT
            found = [*_compiled(given, list(root.dependency)), root]
        for each in found:
            pool.Add(each)
        return pool.FindFileByName(_ROOT)
    except (TypeError, KeyError) as problem:
        raise ValueError(f"it is not a Protobuf schema: {problem}") from None


def message_at(file: Any, indexes: Sequence[int]) -> Any:
    """Return the descriptor of the message that *indexes* select, from the outermost inwards.

    A ``ValueError`` says that there is none.
    """
    found, messages = None, [*file.message_types_by_name.values()]
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"its schema has no message {'.'.join(map(str, indexes))}")
        found = messages[index]
        messages = list(found.nested_types)
    return found


def _packed(text: str) -> Any:
    """Return the descriptor encoded in *text* as base64, None if it is a ``.proto`` file."""
    try:
        data = base64.b64decode(text, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data)
    except (ValueError, binascii.Error, DecodeError):
        return None


def _compiled(texts: dict[str, str], wanted: Sequence[str]) -> list[Any]:
    """Return the descriptors of *wanted* and of all that they import, each after its imports."""
    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix="kbackup-proto-") as folder:
        for name, text in texts.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name:
                raise ValueError(f"it refers to a file called {name!r}")
            place = Path(folder) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        out = Path(folder) / "kbackup.out"
        known = files(grpc_tools).joinpath("_proto")
        command = [
            sys.executable, "-m", "grpc_tools.protoc", "--proto_path=.",
            f"--proto_path={known}", "--include_imports", f"--descriptor_set_out={out}", *wanted,
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603  (our own interpreter; texts are in files)
                command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=folder
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"its compiler took longer than {_SECONDS} s") from None
        if done.returncode or not out.exists():
            raise ValueError(_why(done.stderr) or f"its compiler ended with {done.returncode}")
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _why(said: str) -> str:
    """Return the compiler's messages about files, without those about its log."""
    lines = [f"line {found}" if found[:1].isdigit() else found for found in _SAID.findall(said)]
    return "; ".join(lines[:3]) or said.strip()[-200:]


Read = Callable[[Any], Any]
"""Turns a value of a message into what `pyarrow.array` accepts."""

_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_SCALE_MAX: Final = 10_000


@lru_cache(100)
def reader(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Callable[[bytes], Any]:
    """Return the reader for bytes of a message with the descriptor *found* and *schema*.

    Its ``ValueError`` says why bytes are not such a message.
    """
    parse = message_factory.GetMessageClass(found).FromString
    read = (
        _message_reader(found, schema, style) if schema.type is Type.STRUCT else _unwrapped(found)
    )

    def of_bytes(body: bytes) -> Any:
        try:
            return read(parse(body))
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error) or "it is cut short, or not a message at all") from None

    return of_bytes


def _message_reader(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    fields = dict(schema.fields)
    readers = [
        (name, (_union_reader if is_union else _field_reader)(part, fields[name], style))
        for name, part, is_union in _parts(found, style)
    ]

    def read(value: Any) -> dict[str, Any]:
        return {name: of(value) for name, of in readers}

    return read


def _union_reader(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    fields = dict(schema.fields)
    readers = {each.name: _value_reader(each, fields[each.name], style) for each in found.fields}
    name = found.name

    def read(value: Any) -> dict[str, Any] | None:
        which = value.WhichOneof(name)
        return None if which is None else {which: readers[which](getattr(value, which))}

    return read


def _field_reader(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    """Return the reader of a field, which returns None if it is not set and need not be."""
    name = found.name
    if is_map(found):
        key, item = found.message_type.fields
        read_key, read_item = (
            _value_reader(key, schema.keys, style), _value_reader(item, schema.items, style)
        )  # fmt: skip
        return lambda value: [
            (read_key(key), read_item(item)) for key, item in getattr(value, name).items()
        ]
    if found.is_repeated:
        read_one = _value_reader(found, schema.items, style)
        if read_one is _same:
            return lambda value: list(getattr(value, name))
        return lambda value: [read_one(each) for each in getattr(value, name)]
    read = _value_reader(found, schema, style)
    if not found.has_presence:
        return lambda value: read(getattr(value, name))
    return lambda value: read(getattr(value, name)) if value.HasField(name) else None


def _value_reader(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    if found.type == F.TYPE_ENUM:
        return _same if style.int_enums else _symbol(found.enum_type)
    if found.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return _signed
    if schema.bits is not None and schema.bits < 32:
        return integer(schema.bits)
    if found.type != F.TYPE_MESSAGE:
        return _same
    name = found.message_type.full_name
    if name == DECIMAL_MESSAGE:
        return _decimal_reader(schema.scale)
    if name in _READERS:
        return _READERS[name]
    if style.wrapped and name in WRAPPERS:
        return _unwrapped(found.message_type)
    return _message_reader(found.message_type, schema, style)


def _unwrapped(found: Any) -> Read:
    is_unsigned = found.full_name == "google.protobuf.UInt64Value"
    return lambda value: _signed(value.value) if is_unsigned else value.value


def _same(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """Return the bits of an unsigned number as a signed one, as in Java."""
    return value - 2**64 if value >= 2**63 else value


def _symbol(found: Any) -> Read:
    """Read an enum as text; of several symbols with the same number, the first one counts."""
    symbols: dict[int, str] = {}
    for value in found.values:
        symbols.setdefault(value.number, value.name)
    unknown = f"UNKNOWN_ENUM_VALUE_{found.name}_"
    return lambda value: symbols.get(value) or f"{unknown}{value}"


def _decimal_reader(scale: int) -> Read:
    def read(value: Any) -> bytes:
        number = int.from_bytes(value.value, "big", signed=True)
        shift = scale - value.scale
        if abs(shift) > _SCALE_MAX:
            raise ValueError(f"a Decimal has the scale {value.scale}")
        if shift >= 0:
            return unscaled(number * 10**shift)
        whole, rest = divmod(number, 10**-shift)
        if rest:
            raise ValueError(f"a Decimal has more digits after its point than {scale}")
        return unscaled(whole)

    return read


def _date(value: Any) -> int:
    return dt.date(value.year, value.month, value.day).toordinal() - _EPOCH


def _time(value: Any) -> int:
    is_time = 0 <= value.hours < 24 and 0 <= value.minutes < 60 and 0 <= value.seconds < 60
    if not is_time or not 0 <= value.nanos < 10**9:
        raise ValueError(
            f"{value.hours}:{value.minutes}:{value.seconds} and {value.nanos} ns "
            "is not a time of day"
        )
    seconds: int = (value.hours * 60 + value.minutes) * 60 + value.seconds
    return seconds * 1000 + int(value.nanos) // 1_000_000


def _timestamp(value: Any) -> int:
    if not 0 <= value.nanos < 10**9:
        raise ValueError(f"a Timestamp has {value.nanos} ns")
    return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000


_READERS: Final = {DATE_MESSAGE: _date, TIME_MESSAGE: _time, TIMESTAMP_MESSAGE: _timestamp}
