"""The input and output of a transform: converted keys, values and headers."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.java import jackson
from kbackup.options import boolean
from kbackup.records import Bad, Column, Schema, bad_where, known_times, replaced

REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)
"""Of every transform of fields, as Kafka has it."""

_TEXT: Final = ConnectSchema(Type.STRING, optional=True)
_BYTES: Final = ConnectSchema(Type.BYTES, optional=True)
_PLAIN: Final = (_TEXT, _BYTES)
"""The schema of columns without one of their own, as in Connect's converters."""


@dataclass(frozen=True, slots=True)
class Data:
    """The keys, or the values, of records with one schema.

    Attributes:
        values: One row per record.
        schema: Their schema; None for JSON without a schema, whose column is ``pa.json_()``.
        origin: The schema of the column as it was converted, until something changes it.
    """

    values: pa.Array
    schema: ConnectSchema | None
    origin: Schema | None = None

    @classmethod
    def of(cls, column: Column) -> Self:
        """Return what a converter returned."""
        values = column.values
        if isinstance(values.type, pa.JsonType):
            return cls(values, None, column.schema)
        found = connect.of(column.schema)
        if found is None:
            found = _BYTES if pa.types.is_binary(values.type) else _TEXT
        return cls(values, found, column.schema)

    def column(self) -> Column:
        """Return what a format accepts."""
        if self.origin is not None or self.schema is None or self.schema in _PLAIN:
            return Column(self.values, self.origin)
        return Column(self.values, self.schema.of_column())

    @property
    def is_struct(self) -> bool:
        """Whether values are structs, so that they have fields."""
        return self.schema is not None and self.schema.type is Type.STRUCT

    def columns(self, *, fills_defaults: bool = True) -> dict[str, pa.Array]:
        """Return the fields of a struct by name: null where it is, or a field's default."""
        assert self.schema is not None  # noqa: S101
        names = [name for name, _ in self.schema.fields]
        found = json_values.struct_fields(self.values, self.schema, fills_defaults=fills_defaults)
        return dict(zip(names, found, strict=True))

    def rebuilt(
        self, fields: Sequence[tuple[str, ConnectSchema]], columns: Sequence[pa.Array]
    ) -> Self:
        """Return structs with other fields, null where these are, as Connect's transforms do.

        The schema keeps name, version, doc and parameters, and is no longer optional.

        Raises:
            ValueError: If two fields have the same name.
        """
        assert self.schema is not None  # noqa: S101
        names = [name for name, _ in fields]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"there would be two fields named {name!r}")
        schema = replace(self.schema, optional=False, default=None, fields=tuple(fields))
        return replace(
            self, values=structs(columns, schema, self.values), schema=schema, origin=None
        )

    def take(self, rows: pa.Array) -> Self:
        """Return the rows at the indices *rows*."""
        return replace(self, values=self.values.take(rows))


def structs(columns: Sequence[pa.Array], schema: ConnectSchema, like: pa.Array) -> pa.StructArray:
    """Return structs of *columns*, null where *like* is."""
    kind = schema.arrow()
    if not columns:
        return pa.array([None if each is None else {} for each in like.to_pylist()], kind)
    mask = like.is_null() if like.null_count else None
    typed = [each.cast(field.type) for each, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(typed, fields=list(kind), mask=mask)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one Kafka partition, offsets rising, all with the same schemas.

    Attributes:
        batch: ``records.SCHEMA``; keys and values as in Kafka, headers as they are now.
        topics: The topic of each record: strings in a dictionary, none null.
        key: None if keys are not converted; *value* likewise.
        refused: The records that a transform could not be applied to: offset, and why.
        left_out: Offsets of the records that transforms dropped, rising.
    """

    batch: pa.RecordBatch
    partition: int
    topics: pa.DictionaryArray
    key: Data | None = None
    value: Data | None = None
    refused: tuple[tuple[int, Bad], ...] = ()
    left_out: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        topic: str,
        partition: int,
        key: Column | None = None,
        value: Column | None = None,
    ) -> Self:
        """Return records of one topic."""
        indices = pa.repeat(pa.scalar(0, pa.int32()), len(batch))
        topics = pa.DictionaryArray.from_arrays(indices, pa.array([topic], pa.string()))
        return cls(
            batch,
            partition,
            topics,
            None if key is None else Data.of(key),
            None if value is None else Data.of(value),
        )

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def timestamps(self) -> pa.Int64Array:
        """The timestamps, null if a record has none."""
        return known_times(self.batch["timestamp"])

    @property
    def headers(self) -> pa.ListArray:
        """The headers, as in ``records.SCHEMA``."""
        return self.batch["headers"]

    def side(self, side: str) -> Data:
        """Return the keys or the values, which must be converted."""
        found = self.key if side == "key" else self.value
        assert found is not None  # noqa: S101  (the configuration sees to it)
        return found

    def with_side(self, side: str, data: Data) -> Self:
        """Return the records with other keys or values."""
        return replace(self, key=data) if side == "key" else replace(self, value=data)

    def with_headers(self, headers: pa.ListArray) -> Self:
        """Return the records with other headers."""
        column = headers.cast(self.batch["headers"].type)
        return replace(self, batch=replaced(self.batch, "headers", column))

    def take(self, rows: pa.Array) -> Self:
        """Return the rows at the indices *rows*."""
        return replace(
            self,
            batch=self.batch.take(rows),
            topics=self.topics.take(rows),
            key=None if self.key is None else self.key.take(rows),
            value=None if self.value is None else self.value.take(rows),
        )

    def only(self, mask: pa.BooleanArray) -> Self:
        """Return the rows where *mask* is true."""
        if mask.true_count == len(self):
            return self
        return self.take(pc.indices_nonzero(mask))

    def leave_out(self, mask: pa.BooleanArray) -> Self:
        """Return the rows where *mask* is false; record the others as dropped."""
        gone = self.batch["offset"].filter(mask).to_pylist()
        left_out = tuple(sorted((*self.left_out, *gone)))
        return replace(self.only(pc.invert(mask)), left_out=left_out)

    def refuse(self, bad: Iterable[Bad]) -> Self:
        """Return the rows that are not *bad*; bad rows are numbered like these."""
        by_row = {each.row: each for each in bad}
        if not by_row:
            return self
        offsets = self.batch["offset"]
        named = tuple((offsets[row].as_py(), by_row[row]) for row in sorted(by_row))
        rows = pa.array([row for row in range(len(self)) if row not in by_row], pa.int64())
        kept = self.take(rows)
        return replace(kept, refused=(*self.refused, *named))


_LONG_INTEGER: Final = re.compile(r"\d{19}")


def parse_json(values: pa.Array) -> list[Any]:
    """Return the parsed value of each text, None for null; integers of any size are kept."""
    texts = values.storage if isinstance(values, pa.ExtensionArray) else values
    return [None if text is None else _parsed(text) for text in texts.to_pylist()]


def write_json(values: Sequence[Any]) -> pa.Array:
    """Return JSON texts as Jackson writes them, null for None."""
    return pa.ExtensionArray.from_storage(pa.json_(), jackson.write(values))


def change_json(values: pa.Array, change: Callable[[Any], Any]) -> tuple[pa.Array, list[Bad]]:
    """Return the JSON that *change* makes of each value that is not null.

    Returns:
        A row for each, and the rows for which *change* raised a ``ValueError``.
    """
    found: list[Any] = []
    bad = []
    for row, value in enumerate(parse_json(values)):
        try:
            found.append(None if value is None else change(value))
        except ValueError as error:
            bad.append(Bad(row, str(error)))
            found.append(None)
    return write_json(found), bad


def json_kind(value: Any) -> str:
    """Return the name of *value*'s JSON type."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _parsed(text: str) -> Any:
    if _LONG_INTEGER.search(text) is None:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # half of a surrogate pair
    return json.loads(text)


def on_objects(
    records: Records,
    side: str,
    structs: Callable[[Records, Data, ConnectSchema], Records],
    objects: Callable[[dict[str, Any]], Any],
    *,
    refuses_null: bool = False,
) -> Records:
    """Apply a transform that works on fields.

    Args:
        structs: Transforms structs of a schema; its ``ValueError`` refuses all that are not null.
        objects: Transforms one JSON object without a schema, which it may change in place;
            its ``ValueError`` refuses that object.
        refuses_null: Whether null is refused; otherwise it stays null.
    """
    if refuses_null:
        records = without_null(records, side)
    data = records.side(side)
    if data.schema is None:
        return on_json(records, side, lambda value: objects(fields_of(value, side)))
    if not data.is_struct:
        return refused(records, side, no_fields(side, f"of type {data.schema.type}"))
    try:
        return structs(records, data, data.schema)
    except ValueError as error:
        return refused(records, side, str(error))


def on_json(records: Records, side: str, change: Callable[[Any], Any]) -> Records:
    """Apply *change* to each JSON value without a schema that is not null.

    A ``ValueError`` refuses the record.
    """
    values, bad = change_json(records.side(side).values, change)
    return records.with_side(side, Data(values, None)).refuse(bad)


def refused(records: Records, side: str, why: str) -> Records:
    """Refuse all records whose key or value is not null."""
    return records.refuse(bad_where(records.side(side).values.is_valid(), why))


def without_null(records: Records, side: str) -> Records:
    """Refuse the records whose key or value is null."""
    values = records.side(side).values
    if not values.null_count:
        return records
    return records.refuse(bad_where(values.is_null(), f"its {side} is null"))


def no_fields(side: str, kind: str) -> str:
    """Return why a transform that works on fields cannot be applied."""
    return f"its {side} has no fields: it is {kind}"


def fields_of(value: Any, side: str) -> dict[str, Any]:
    """Return the fields of a JSON object; ``ValueError`` if it is none."""
    if not isinstance(value, dict):
        raise ValueError(no_fields(side, json_kind(value)))  # noqa: TRY004
    return value
