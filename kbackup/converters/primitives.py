"""Bytes, text and numbers, as Kafka's own serializers write them.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.converters``, and their serializers.
"""

import base64
import binascii
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.converters import Traits
from kbackup.errors import ConfigurationError, counted
from kbackup.java import jackson
from kbackup.options import text
from kbackup.records import Bad, Column, Kind, Schema, all_bad, bad_where, row_by_row

_DO: Final = "choose the converter that the backup was written with"
_DO_JSON: Final = (
    "choose value.converter=json for their JSON, or the converter that the backup was written with"
)


class ByteArrayConverter:
    """``binary`` both ways; in a JSON file it is base64."""

    traits: ClassVar = Traits(
        class_names=("ByteArrayConverter",),
        java_package="org.apache.kafka.connect.converters",
        gives=frozenset({Kind.BYTES}),
    )

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Return *column*."""
        return (Column(column),)

    def encode(
        self,
        column: pa.Array,
        schema: Schema | None = None,  # noqa: ARG002  # the Arrow type says it all
    ) -> Column:
        """Return the bytes of *column*: unchanged, decoded from base64 in JSON, or text as UTF-8.

        JSON that is not a string of base64 is bad, and so is a value of any other type.
        """
        if isinstance(column.type, pa.JsonType):
            # 0.8 us a record; Arrow has no base64
            what = "a JSON value does not hold bytes"
            return row_by_row(column.storage.to_pylist(), _from_base64, pa.binary(), what, _DO)
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            return Column(column.cast(pa.binary()))
        return all_bad(
            column,
            f"values of type {column.type} are not bytes",
            "ByteArrayConverter takes bytes and text",
            _DO_JSON,
        )


def _from_base64(text: str) -> bytes | None:
    if text == "null":
        return None
    try:
        value = jackson.string_value(text)
        if value is not None:
            return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise ValueError("it is not a string of base64")


ENCODING: Final = text(
    "converter.encoding", "Encoding of the text; UTF-8 is the only one.", "UTF-8"
)

OPTIONS: Final = (ENCODING,)


class StringConverter:
    """Bytes to ``string``, and the text of any type to bytes."""

    traits: ClassVar = Traits(
        class_names=("StringConverter",),
        options=OPTIONS,
        java_package="org.apache.kafka.connect.storage",
        gives=frozenset({Kind.TEXT}),
    )

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take ``converter.encoding``."""
        encoding = ENCODING.of(properties)
        if encoding.strip().upper() not in ("UTF-8", "UTF8"):
            raise ConfigurationError(
                f"converter.encoding={encoding} is not supported",
                "text is read and written as UTF-8",
                "use ByteArrayConverter, which keeps bytes as they are",
                property="converter.encoding",
            )

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* as UTF-8; invalid text is bad.

        Connect would replace invalid bytes with U+FFFD, and lose them.
        """
        try:
            return (Column(column.cast(pa.string())),)
        except pa.ArrowInvalid:  # rare
            what = "a value is not text in UTF-8"
            do = "use ByteArrayConverter, which keeps bytes as they are, or keep full records"
            return (row_by_row(column.to_pylist(), _decoded, pa.string(), what, do),)

    def encode(self, column: pa.Array, schema: Schema | None = None) -> Column:
        """Return the text of *column* in UTF-8: that of a JSON string, or any other JSON as it is.

        A JSON string that holds half of a surrogate pair is bad, and so is a value without a text,
        such as a struct.
        """
        if not isinstance(column.type, pa.JsonType):
            return _text(column, connect.of(schema))
        text = column.storage
        is_plain = pc.match_substring_regex(text, r'^"[^\\]*"$')
        if pc.all(is_plain).as_py() and not text.null_count:
            return Column(pc.binary_slice(text.cast(pa.binary()), 1, -1))  # 0.1 us a record
        what = "a JSON string is not text"
        return row_by_row(text.to_pylist(), _encoded, pa.binary(), what)


def _text(column: pa.Array, schema: ConnectSchema | None) -> Column:
    """Return what Java's ``toString`` returns for plain values."""
    if schema is not None and pa.types.is_floating(column.type):
        return Column(_floats(column, schema))
    if pa.types.is_binary(column.type):
        return Column(column)
    try:
        return Column(column.cast(pa.string()).cast(pa.binary()))
    except pa.ArrowNotImplementedError:
        return all_bad(
            column,
            f"values of type {column.type} are not text",
            "StringConverter takes text and numbers",
            _DO_JSON,
        )


def _floats(column: pa.Array, schema: ConnectSchema) -> pa.BinaryArray:
    text = json_values.encode_json(column, replace(schema, default=None))
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string())).cast(pa.binary())


def _encoded(text: str) -> bytes | None:
    if text == "null":
        return None
    value = jackson.string_value(text)
    return (text if value is None else value).encode()


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        why = f"byte {error.start} of {len(value)}: {error.reason}"
        raise ValueError(why) from None


_CODES: Final = {
    Type.INT16: "h", Type.INT32: "i", Type.INT64: "q", Type.FLOAT32: "f", Type.FLOAT64: "d",
}  # fmt: skip
_BOOLEANS: Final = pa.array([b"\0", b"\1"], pa.binary())


class PrimitiveConverter:
    """A single value of a type that needs no schema: mostly a big-endian number; null is null."""

    traits: ClassVar[Traits]
    type: ClassVar[Type]
    code: ClassVar[str]
    """The type code of `array.array`, which swaps bytes in C; empty for a boolean."""

    def __init_subclass__(cls, of: Type | None = None) -> None:
        if of is not None:
            cls.type, cls.code = of, _CODES.get(of, "")
            package = "org.apache.kafka.connect.converters"
            cls.traits = Traits(frozenset({Kind.TYPED}), (cls.__name__,), package)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read each row as a value; bytes that the type's serializer never writes are bad."""
        found, fits = self._read(column)
        wrong = pc.and_(pc.invert(fits), column.is_valid())
        do = "choose the converter that fits what producers write"
        bad = tuple(
            Bad(row, self._what, self._why(column[row].as_py()), do)
            for row in pc.indices_nonzero(wrong).to_pylist()
        )
        return (Column(found, ConnectSchema(self.type, optional=True).of_column(), bad),)

    def encode(
        self,
        column: pa.Array,
        schema: Schema | None = None,  # noqa: ARG002  # the Arrow type says it all
    ) -> Column:
        """Return the bytes of values, or of the values in JSON; those of another type are bad."""
        kind = ConnectSchema(self.type).arrow()
        if isinstance(column.type, pa.JsonType):  # 0.4 us; Arrow casts text that is not JSON
            texts = column.storage.to_pylist()
            typed = row_by_row(texts, lambda text: _of_json(text, kind), kind, self._what, _DO)
        else:
            typed = Column(column) if column.type == kind else self._cast(column, kind)
        return replace(typed, values=self._written(typed.values))

    @property
    def _what(self) -> str:
        """What is wrong with a bad row."""
        return f"a value is no {self.type}"

    def _unfit(self, column: pa.Array, kind: pa.DataType, why: str) -> Column:
        """Return nulls of *kind* for *column*, no value of which can be one."""
        bad = bad_where(column.is_valid(), self._what, why, _DO)
        return Column(pa.nulls(len(column), kind), bad=bad)

    def _read(self, column: pa.BinaryArray) -> tuple[pa.Array, pa.BooleanArray]:
        """Return the values, null where there is none, and the rows that have one."""
        size = array(self.code).itemsize
        fits = pc.fill_null(pc.equal(pc.binary_length(column), size), False)
        return json_values.spread(
            self._turned(column.filter(fits).cast(pa.binary(size))), fits
        ), fits

    def _why(self, value: bytes) -> str:
        return f"it has {counted(len(value), 'byte')} instead of {array(self.code).itemsize}"

    def _cast(self, column: pa.Array, kind: pa.DataType) -> Column:
        try:
            return Column(column.cast(kind))
        except pa.ArrowNotImplementedError as error:
            return self._unfit(column, kind, str(error))
        except pa.ArrowInvalid:  # rare: some values do not fit
            return row_by_row(column, lambda value: value.cast(kind).as_py(), kind, self._what, _DO)

    def _written(self, values: pa.Array) -> pa.BinaryArray:
        size = array(self.code).itemsize
        valid = values.is_valid()
        turned = self._turned(_fixed(values.drop_null(), size))
        return json_values.spread(_fixed(turned, size).cast(pa.binary()), valid)

    def _turned(self, numbers: pa.FixedSizeBinaryArray) -> pa.Array:
        """Return fixed-size bytes of one byte order as numbers of the other."""
        data = array(self.code)
        size = data.itemsize
        start = numbers.offset * size
        if len(numbers):
            data.frombytes(memoryview(numbers.buffers()[1])[start : start + len(numbers) * size])
        data.byteswap()
        kind = ConnectSchema(self.type).arrow()
        return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


class ShortConverter(PrimitiveConverter, of=Type.INT16):
    """Numbers of two bytes."""


class IntegerConverter(PrimitiveConverter, of=Type.INT32):
    """Numbers of four bytes."""


class LongConverter(PrimitiveConverter, of=Type.INT64):
    """Numbers of eight bytes."""


class FloatConverter(PrimitiveConverter, of=Type.FLOAT32):
    """Floating-point numbers of four bytes."""


class DoubleConverter(PrimitiveConverter, of=Type.FLOAT64):
    """Floating-point numbers of eight bytes."""


class BooleanConverter(PrimitiveConverter, of=Type.BOOLEAN):
    """A byte, 0 or 1."""

    def _read(self, column: pa.BinaryArray) -> tuple[pa.Array, pa.BooleanArray]:
        found = pc.index_in(column, _BOOLEANS)
        return found.cast(pa.bool_()), found.is_valid()

    def _why(self, value: bytes) -> str:  # noqa: ARG002
        return "it is not one byte, 0 or 1"

    def _cast(self, column: pa.Array, kind: pa.DataType) -> Column:
        return self._unfit(column, kind, f"it is {column.type}")

    def _written(self, values: pa.Array) -> pa.BinaryArray:
        return _BOOLEANS.take(values.cast(pa.int8()))


def _fixed(numbers: pa.Array, size: int) -> pa.FixedSizeBinaryArray:
    return numbers.view(pa.binary(size))


def _of_json(text: str, kind: pa.DataType) -> float | bool | str | None:
    """Return the value of JSON."""
    try:
        value = jackson.scalar(text)
        pa.scalar(value, kind)
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise ValueError(str(error)) from None
    return value
