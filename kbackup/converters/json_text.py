"""JSON with and without schemas: Kafka Connect's ``JsonConverter``.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.json.JsonConverter``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.json_values import JsonForm, JsonStyle
from kbackup.connect.schema import ConnectSchema
from kbackup.converters import Traits
from kbackup.java import jackson
from kbackup.options import boolean, words
from kbackup.records import Bad, Column, Kind, Schema, all_bad

SCHEMAS_ENABLE: Final = boolean(
    "schemas.enable",
    "Each JSON value carries its schema; true is Kafka Connect's default, which applies if the "
    "converter is named by its Java class.",
    True,
)
DECIMAL_FORMAT: Final = words(
    "decimal.format",
    "When writing JSON, write a Decimal as base64 of its bytes, or as a number.",
    ("base64", "numeric"),
    "base64",
    any_case=True,
    commands="restore",
)

FILL: Final = boolean(
    "replace.null.with.default",
    "With schemas: whether null is the default of its schema, where that has one.",
    True,
)

OPTIONS: Final = (SCHEMAS_ENABLE, DECIMAL_FORMAT, FILL)


_ENVELOPE: Final = {"schema", "payload"}
_DO: Final = "set schemas.enable=false if the records carry no schema"


class JsonConverter:
    """Without schemas, bytes to ``pa.json_()`` and back; with schemas, typed columns.

    It keeps what a Connect worker would lose: the order of an object's keys (a worker keeps objects
    in a ``HashMap``), and integers beyond 64 bits.
    """

    traits: ClassVar = Traits(
        class_names=("JsonConverter",),
        options=OPTIONS,
        java_package="org.apache.kafka.connect.json",
        defaults={SCHEMAS_ENABLE.name: False},
        gives=frozenset({Kind.JSON, Kind.TYPED}),
    )

    def __init__(self) -> None:
        self._has_schemas = False
        self._style = JsonStyle()

    @property
    def is_schemaless(self) -> bool:
        """Whether its columns have no schema."""
        return not self._has_schemas

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take the options; ``schemas.enable`` is true by default, as in Connect."""
        self._has_schemas = SCHEMAS_ENABLE.of(properties)
        form = JsonForm(fills_defaults=FILL.of(properties))
        is_numeric = DECIMAL_FORMAT.of(properties) == "numeric"
        self._style = JsonStyle(numeric_decimals=is_numeric, form=form)

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* as JSON; ``null`` is null, as in Connect.

        Returns:
            Without schemas, text as Jackson writes it, see `jackson`; with schemas, a column for
            each run of one schema.  A value that is not a single JSON value, does not match its
            schema, or is empty is bad.
        """
        if self._has_schemas:
            return _Envelopes(self._style.form).read(column)
        text, bad = jackson.canonical(column)
        return (Column(jackson.column(text), bad=bad),)

    def encode(self, column: pa.Array, schema: Schema | None = None) -> Column:
        """Return *column* as JSON in UTF-8, in an envelope if schemas are enabled.

        The text of JSON is kept unchanged; JSON ``null`` is null.  Values of an Arrow type for
        which Connect has no schema are bad.
        """
        if isinstance(column.type, pa.JsonType):
            text = jackson.without_null(column.storage)
            return Column(self._enveloped(text, "null").cast(pa.binary()))
        found = connect.of(schema)
        if found is None and (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
            return Column(column.cast(pa.binary()))  # already JSON, as in a file's string column
        try:
            found = found or connect.of_arrow(column.type)
        except ValueError as problem:
            do = "choose the converter that the backup was written with"
            return all_bad(column, f"values of type {column.type} have no JSON", str(problem), do)
        text = json_values.encode_json(column, found, self._style)
        if column.null_count:
            text = pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))
        return Column(self._enveloped(text, found.text()).cast(pa.binary()))

    def _enveloped(self, text: pa.StringArray, schema: str) -> pa.StringArray:
        if not self._has_schemas:
            return text
        return pc.binary_join_element_wise(f'{{"schema":{schema},"payload":', text, "}", "")


@dataclass(slots=True)
class _Run:
    """Rows with one schema, None for JSON without."""

    schema: ConnectSchema | None
    values: list[Any] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)

    def column(self) -> Column:
        if self.schema is None:
            text, bad = jackson.canonical(pa.array(self.values, pa.binary()))
            bad = tuple(sorted((*self.bad, *bad), key=lambda at: at.row))
            return Column(jackson.column(text), bad=bad)
        values = pa.array(self.values, self.schema.arrow())
        return Column(values, self.schema.of_column(), tuple(self.bad))


@dataclass(frozen=True, slots=True)
class _Opening:
    """The bytes before a payload, which a producer's records share, and the schema in them."""

    text: bytes
    schema: ConnectSchema | None


class _Envelopes:
    """Envelopes being read in Python: Arrow decodes no base64, and misses numbers too large."""

    def __init__(self, form: JsonForm) -> None:
        self._form = form
        self._opening: _Opening | None = None
        self._runs: list[_Run] = []
        self._nulls = 0  # before the first run: null has no schema, so it does not begin a run

    def read(self, column: pa.BinaryArray) -> Sequence[Column]:
        for text in column.to_pylist():
            if text is None:
                self._null()
                continue
            try:
                schema, value = self._value(text)
            except ValueError as error:
                self._bad(str(error))
                continue
            if schema is _NO_VALUE:
                self._null()
            else:
                self._run(schema).values.append(value)
        if not self._runs:
            return (Column(pa.nulls(self._nulls, pa.string())),)
        return [run.column() for run in self._runs]

    def _value(self, text: bytes) -> tuple[Any, Any]:
        """Return the schema of an envelope, and its value as `json_values.reader` returns it."""
        opening = self._opening
        if opening is not None and text.startswith(opening.text) and text.endswith(b"}"):
            rest = text[len(opening.text) : -1]
            if opening.schema is None:
                jackson.check(rest)
                return None, rest
            try:
                return opening.schema, _read(opening.schema, rest, self._form)
            except orjson.JSONDecodeError:
                pass  # it continues after the payload
        return self._whole(text)

    def _whole(self, text: bytes) -> tuple[Any, Any]:
        found = _parsed(text)
        if found is None:
            return _NO_VALUE, None
        if not isinstance(found, dict) or found.keys() != _ENVELOPE:
            raise ValueError('it is not {"schema":...,"payload":...} and nothing else')
        payload = found["payload"]
        if found["schema"] is None:
            if payload is None:
                return _NO_VALUE, None
            self._opening = _opening(text, found, None)
            return None, json.dumps(payload, ensure_ascii=False, default=float).encode()
        schema = ConnectSchema.from_json(found["schema"])
        self._opening = _opening(text, found, schema)
        read = json_values.reader(schema, self._form)
        try:
            return schema, read(payload)
        except json_values.DecimalAsDoubleError:
            return schema, read(json.loads(text, parse_float=Decimal)["payload"])

    def _run(self, schema: ConnectSchema | None) -> _Run:
        if not self._runs or self._runs[-1].schema != schema:
            self._runs.append(_Run(schema, [None] * self._nulls))
            self._nulls = 0
        return self._runs[-1]

    def _null(self) -> None:
        if self._runs:
            self._runs[-1].values.append(None)
        else:
            self._nulls += 1

    def _bad(self, why: str) -> None:
        run = self._runs[-1] if self._runs else self._run(_TEXT)
        what = "a value is not JSON with a schema, or does not match its schema"
        run.bad.append(Bad(len(run.values), what, why, _DO))
        run.values.append(None)


_NO_VALUE: Final = object()
_TEXT: Final = ConnectSchema(connect.Type.STRING, optional=True)


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:  # numbers of any size
            found = json.loads(text, parse_float=Decimal)
            json.dumps(found, ensure_ascii=False, default=str).encode()  # no half surrogate pairs
        except (ValueError, RecursionError):
            raise ValueError(str(error)) from None
        return found


def _read(schema: ConnectSchema, payload: bytes, form: JsonForm) -> Any:
    try:
        return json_values.reader(schema, form)(orjson.loads(payload))
    except json_values.DecimalAsDoubleError:
        return json_values.reader(schema, form)(json.loads(payload, parse_float=Decimal))


def _opening(text: bytes, found: Any, schema: ConnectSchema | None) -> _Opening | None:
    """Return what precedes the payload of *text*, None if it has another form."""
    at = text.find(b'"payload":')
    while at >= 0:
        before = text[: at + len(b'"payload":')]
        try:
            alone = orjson.loads(before + b"null}")
            payload = orjson.loads(text[len(before) : -1])
        except orjson.JSONDecodeError:
            at = text.find(b'"payload":', at + 1)
            continue
        if alone == {"schema": found["schema"], "payload": None} and payload == found["payload"]:
            return _Opening(before, schema)
        at = text.find(b'"payload":', at + 1)
    return None
