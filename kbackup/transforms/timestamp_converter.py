"""``TimestampConverter``: times as text, as numbers, or as Connect's own types.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.TimestampConverter``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.schema import DATE, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.errors import ConfigurationError
from kbackup.java.joda import DAY_MS
from kbackup.java.simple_date_format import FIRST_MS, LAST_MS, SimpleDateFormat
from kbackup.options import text, words
from kbackup.records import Bad
from kbackup.transforms import of_kafka
from kbackup.transforms.data import (
    REPLACE_NULL,
    Data,
    Records,
    fields_of,
    json_kind,
    no_fields,
    parse_json,
    refused,
    structs,
    write_json,
)

FIELD: Final = text("field", "The field with the time; empty: the whole value is one.")
TARGET: Final = words(
    "target.type", "Type to convert it to.", ("string", "unix", "Date", "Time", "Timestamp"), "",
    is_required=True,
)  # fmt: skip
FORMAT: Final = text(
    "format", "SimpleDateFormat pattern of a time as text, for writing and reading."
)
PRECISION: Final = words(
    "unix.precision", "Unit of a time as a number, for writing and reading.",
    ("seconds", "milliseconds", "microseconds", "nanoseconds"), "milliseconds",
)  # fmt: skip

_PER_MS: Final = {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
_SCHEMAS: Final = {
    "string": ConnectSchema(Type.STRING),
    "unix": ConnectSchema(Type.INT64),
    "Date": ConnectSchema(Type.INT32, name=DATE, version=1),
    "Time": ConnectSchema(Type.INT32, name=TIME, version=1),
    "Timestamp": ConnectSchema(Type.INT64, name=TIMESTAMP, version=1),
}


class TimestampConverter:
    """Converts times to another form; null stays null."""

    traits: ClassVar = of_kafka(
        "TimestampConverter", FIELD, TARGET, FORMAT, PRECISION, REPLACE_NULL
    )

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the field, and the target type."""
        self._side = side
        self._field, self._target = FIELD.of(options), TARGET.of(options)
        self._precision, self._fills = PRECISION.of(options), REPLACE_NULL.of(options)
        pattern = FORMAT.of(options)
        if self._target == "string" and not pattern:
            raise ConfigurationError(
                "target.type=string cannot be used", "it needs a format", "add it",
                property=FORMAT.name,
            )  # fmt: skip
        try:
            self._format = SimpleDateFormat(pattern) if pattern else None
        except ValueError as error:
            raise FORMAT.refusal(str(error), value=pattern) from error

    def apply(self, records: Records) -> Records:
        """Return the records with the times converted."""
        data = records.side(self._side)
        try:
            if data.schema is None:
                return self._json(records, data)
            if not self._field:
                values, schema, bad = self._turned(data.values, data.schema)
                found = Data(values, schema)
                return records.with_side(self._side, found).refuse(bad)
            return self._structs(records, data, data.schema)
        except ValueError as error:
            return refused(records, self._side, str(error))

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        if not data.is_struct:
            raise ValueError(no_fields(self._side, f"of type {schema.type}"))
        columns, fields = data.columns(fills_defaults=self._fills), []
        bad: Sequence[Bad] = ()
        for name, field in schema.fields:
            turned = field
            if name == self._field:
                columns[name], turned, bad = self._turned(columns[name], field)
            fields.append((name, turned))
        whole = replace(schema, fields=tuple(fields), default=None)
        values = structs([*columns.values()], whole, data.values)
        return records.with_side(self._side, Data(values, whole)).refuse(bad)

    def _turned(
        self, values: pa.Array, schema: ConnectSchema
    ) -> tuple[pa.Array, ConnectSchema, Sequence[Bad]]:
        """Return a column of times in the other form, its schema, and the rows without a time."""
        ms, bad = self._ms(values, schema)
        target = replace(_SCHEMAS[self._target], optional=schema.optional)
        return self._of_ms(ms, bad).cast(target.arrow()), target, bad

    def _ms(self, values: pa.Array, schema: ConnectSchema) -> tuple[pa.Array, list[Bad]]:
        if schema.logical == TIMESTAMP:
            return values, []
        if schema.logical == DATE:
            return pc.multiply(values.cast(pa.int64()), DAY_MS), []
        if schema.logical == TIME:
            return values.cast(pa.int64()), []
        if schema.type is Type.STRING:
            coded = values.dictionary_encode()
            each, wrong = self._read(coded.dictionary.to_pylist())
            ms = pa.array(each, pa.int64()).take(coded.indices)
            indices = coded.indices.to_pylist() if wrong else ()
            return ms, [Bad(row, wrong[at]) for row, at in enumerate(indices) if at in wrong]
        if schema.type is Type.INT64:
            return self._of_unix(values), []
        raise ValueError(f"a time cannot be of type {schema.logical or schema.type}")

    def _of_unix(self, values: pa.Array) -> pa.Array:
        if self._precision == "seconds":
            return pc.multiply_checked(values, 1000)
        return pc.divide(values, _PER_MS[self._precision])

    def _read(self, texts: Sequence[Any]) -> tuple[list[int | None], dict[int, str]]:
        """Return the times of *texts*, and why some are not times."""
        found: list[int | None] = []
        wrong = {}
        for at, each in enumerate(texts):
            ms = None
            if self._format is None:
                wrong[at] = "a time is text, and no format is given to read it by"
            elif each is not None:
                try:
                    ms = self._format.ms(each)
                except ValueError as error:
                    wrong[at] = str(error)
            found.append(ms)
        return found, wrong

    def _of_ms(self, ms: pa.Array, bad: list[Bad]) -> pa.Array:
        """Return the requested form; times that do not fit it are null and among the *bad*."""
        match self._target:
            case "unix" if self._precision == "seconds":
                return pc.divide(ms, 1000)
            case "unix":
                return pc.multiply_checked(ms, _PER_MS[self._precision])
            case "Date":
                return _floor(ms)
            case "Time":
                return pc.subtract(ms, pc.multiply(_floor(ms), DAY_MS))
            case "Timestamp":
                return ms
        is_out = pc.or_(pc.less(ms, FIRST_MS), pc.greater(ms, LAST_MS))
        if pc.any(is_out).as_py():
            why = "a time is before 15 October 1582 or after the year 9999"
            bad += [Bad(row, why) for row in pc.indices_nonzero(is_out).to_pylist()]
            ms = pc.if_else(is_out, pa.scalar(None, pa.int64()), ms)
        assert self._format is not None  # noqa: S101  (configure has seen to it)
        return self._format.texts(ms)

    def _json(self, records: Records, data: Data) -> Records:
        """Return JSON with the times converted; a Java Date is in ms there, whatever it was."""
        values, bad = parse_json(data.values), []
        found: list[Any] = []
        for row, value in enumerate(values):
            ms: int | None = None
            try:
                ms = None if value is None else self._json_ms(value)
            except ValueError as error:
                bad.append(Bad(row, str(error)))
            found.append(ms)
        ms_column = pa.array(found, pa.int64())
        turned = self._of_ms(ms_column, bad)
        if self._target == "Date":
            turned = pc.multiply(turned, DAY_MS)
        for row, time in enumerate(turned.to_pylist()):
            if not self._field:
                values[row] = time
            elif isinstance(values[row], dict):
                values[row][self._field] = time
        found_data = Data(write_json(values), None)
        return records.with_side(self._side, found_data).refuse(bad)

    def _json_ms(self, value: Any) -> int | None:
        if self._field:
            value = fields_of(value, self._side).get(self._field)
        if value is None:
            return None
        if isinstance(value, str):
            (ms,), wrong = self._read([value])
            if wrong:
                raise ValueError(wrong[0])
            return ms
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
            raise ValueError(f"a time cannot be {json_kind(value)} such as {value}")
        if self._precision == "seconds":
            return value * 1000
        each = _PER_MS[self._precision]
        return value // each if value >= 0 else -(-value // each)


def _floor(ms: pa.Array) -> pa.Int64Array:
    """Return the days since the epoch, rounded down."""
    days = pc.divide(ms, DAY_MS)
    return pc.if_else(pc.less(ms, pc.multiply(days, DAY_MS)), pc.subtract(days, 1), days)
