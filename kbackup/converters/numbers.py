"""Numbers as Kafka's own serializers write them: Connect's ``IntegerConverter`` and the like.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.converters``, and their serializers.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import jackson
from kbackup.columns import Bad, Column, Schema
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.errors import BadRecordError

_BOOLEANS: Final = pa.array([b"\0", b"\1"], pa.binary())


class PrimitiveConverter:
    """A single value of a type that needs no schema; null is null."""

    class_names: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    type: ClassVar[Type]

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read each row as a value; bytes that the type's serializer never writes are bad."""
        found, fits = self._read(column)
        wrong = pc.and_(pc.invert(fits), column.is_valid())
        do = "choose the converter that fits what producers write"
        bad = tuple(
            Bad(row, f"a value is no {self.type}", self._why(column[row].as_py()), do)
            for row in pc.indices_nonzero(wrong).to_pylist()
        )
        return (Column(found, ConnectSchema(self.type, optional=True).of_column(), bad),)

    def encode(
        self,
        column: pa.Array,
        schema: Schema | None = None,  # noqa: ARG002  # the Arrow type says it all
    ) -> pa.BinaryArray:
        """Return the bytes of values, or of the values in JSON.

        Raises:
            BadRecordError: With the first row that is not of this type.
        """
        kind = ConnectSchema(self.type).arrow()
        values = _of_json(column, kind) if isinstance(column.type, pa.JsonType) else column
        return self._written(values, kind)

    def _read(self, column: pa.BinaryArray) -> tuple[pa.Array, pa.BooleanArray]:
        """Return the values, null where there is none, and the rows that have one."""
        raise NotImplementedError

    def _why(self, value: bytes) -> str:
        """Report what is wrong with *value*."""
        raise NotImplementedError

    def _written(self, values: pa.Array, kind: pa.DataType) -> pa.BinaryArray:
        """Return the bytes of *values*, which must be of *kind*."""
        raise NotImplementedError


class NumberConverter(PrimitiveConverter):
    """Big-endian numbers of one size."""

    code: ClassVar[str]
    """The type code of `array.array`, which swaps bytes in C."""

    def _read(self, column: pa.BinaryArray) -> tuple[pa.Array, pa.BooleanArray]:
        size = array(self.code).itemsize
        fits = pc.fill_null(pc.equal(pc.binary_length(column), size), False)
        return _spread(self._turned(column.filter(fits).cast(pa.binary(size))), fits), fits

    def _why(self, value: bytes) -> str:
        return f"it has {len(value)} bytes instead of {array(self.code).itemsize}"

    def _written(self, values: pa.Array, kind: pa.DataType) -> pa.BinaryArray:
        try:
            values = values.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _no_number(self.type, str(error), 0) from None
        size = array(self.code).itemsize
        valid = values.is_valid()
        turned = self._turned(_fixed(values.drop_null(), size))
        return _spread(_fixed(turned, size).cast(pa.binary()), valid)

    def _turned(self, numbers: pa.FixedSizeBinaryArray) -> pa.Array:
        """Return fixed-size bytes of one byte order as numbers of the other."""
        size = array(self.code).itemsize
        start = numbers.offset * size
        data = array(self.code)
        if len(numbers):
            data.frombytes(memoryview(numbers.buffers()[1])[start : start + len(numbers) * size])
        data.byteswap()
        kind = ConnectSchema(self.type).arrow()
        return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


class ShortConverter(NumberConverter):
    """Numbers of two bytes."""

    class_names: ClassVar[tuple[str, ...]] = ("ShortConverter",)
    type = Type.INT16
    code = "h"


class IntegerConverter(NumberConverter):
    """Numbers of four bytes."""

    class_names: ClassVar[tuple[str, ...]] = ("IntegerConverter",)
    type = Type.INT32
    code = "i"


class LongConverter(NumberConverter):
    """Numbers of eight bytes."""

    class_names: ClassVar[tuple[str, ...]] = ("LongConverter",)
    type = Type.INT64
    code = "q"


class FloatConverter(NumberConverter):
    """Floating-point numbers of four bytes."""

    class_names: ClassVar[tuple[str, ...]] = ("FloatConverter",)
    type = Type.FLOAT32
    code = "f"


class DoubleConverter(NumberConverter):
    """Floating-point numbers of eight bytes."""

    class_names: ClassVar[tuple[str, ...]] = ("DoubleConverter",)
    type = Type.FLOAT64
    code = "d"


class BooleanConverter(PrimitiveConverter):
    """A byte, 0 or 1."""

    class_names: ClassVar[tuple[str, ...]] = ("BooleanConverter",)
    type = Type.BOOLEAN

    def _read(self, column: pa.BinaryArray) -> tuple[pa.Array, pa.BooleanArray]:
        found = pc.index_in(column, _BOOLEANS)
        return found.cast(pa.bool_()), found.is_valid()

    def _why(self, value: bytes) -> str:  # noqa: ARG002
        return "it is not one byte, 0 or 1"

    def _written(self, values: pa.Array, kind: pa.DataType) -> pa.BinaryArray:
        if values.type != kind:
            raise _no_number(self.type, f"it is {values.type}", 0)
        return _BOOLEANS.take(values.cast(pa.int8()))


def _spread(found: pa.Array, where: pa.BooleanArray) -> pa.Array:
    """Return *found*, a value for each row in *where*, with null for the others."""
    if len(found) == len(where):
        return found
    at = pc.subtract(pc.cumulative_sum(where.cast(pa.int64())), 1)
    return found.take(pc.if_else(where, at, pa.scalar(None, pa.int64())))


def _fixed(numbers: pa.Array, size: int) -> pa.FixedSizeBinaryArray:
    return numbers.view(pa.binary(size))


def _of_json(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read the JSON of a file; 0.4 us per row; Arrow's own casts accept text that is not JSON."""
    found = []
    for row, text in enumerate(column.storage.to_pylist()):
        try:
            value = None if text is None else jackson.scalar(text)
            pa.scalar(value, kind)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise _no_number(str(kind), str(error), row) from None
        found.append(value)
    return pa.array(found, kind)


def _no_number(kind: str, why: str, row: int) -> BadRecordError:
    do = "choose the converter that the backup was written with"
    return BadRecordError(f"a value is no {kind}", why, do, row=row)
