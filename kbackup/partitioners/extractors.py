"""Extension point: the time of a record, for rotation and time-based directories."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import plugins
from kbackup.connect import fields
from kbackup.connect import schema as connect
from kbackup.java import joda
from kbackup.options import Option, Unsupported, check_path, text
from kbackup.records import known_times, schema_of


@dataclass(frozen=True, slots=True)
class Traits:
    """What a timestamp extractor declares of itself.

    Attributes:
        class_names: Words, and simple names of the Java classes, that stand for this extractor.
        options: Its options, as `kbackup.plugins` has them.
    """

    class_names: tuple[str, ...] = ()
    options: tuple[Option[Any] | Unsupported, ...] = ()


class TimestampExtractor(Protocol):
    """Finds the time of each record."""

    traits: ClassVar[Traits]

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take what was given for its options, such as ``timestamp.field``; called once, first.

        Raises:
            ConfigurationError: If a property asks for what this extractor cannot do.
        """
        ...

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:
        """Return the time of each row.

        Args:
            batch: ``records.SCHEMA``, and, where values are converted, ``decoded``: each value as
                its file holds it.
            now_ms: The time that stands for "now", ms since the epoch; no other clock is read.

        Returns:
            ``int64``, ms since the epoch, one row per row of *batch*; null where there is none.
        """
        ...


def by_name(name: str, properties: Mapping[str, Any]) -> TimestampExtractor:
    """Return the extractor registered as *name*, configured."""
    found: TimestampExtractor = plugins.load("extractors", name)()
    found.configure(properties)
    return found


class RecordExtractor:
    """The record's own timestamp, set by its producer or its broker."""

    traits: ClassVar = Traits(("Record", "RecordTimestampExtractor"))

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take nothing: there is nothing to choose."""

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:  # noqa: ARG002
        """Return the timestamps, null for Kafka's "none"."""
        return known_times(batch["timestamp"])


class WallclockExtractor:
    """The time of the backup: directories say when a record was backed up, not when it was made.

    It is the connectors' default.  A run that is repeated after a crash may put records into
    other directories than it did before.
    """

    traits: ClassVar = Traits(("Wallclock", "WallclockTimestampExtractor"))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take nothing: there is nothing to choose."""

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:
        """Return "now" for each row."""
        return pa.repeat(pa.scalar(now_ms, pa.int64()), len(batch))


def _path(name: str) -> None:
    if name:  # without one, the first record is named
        check_path(name)


TIMESTAMP_FIELD: Final = text(
    "timestamp.field",
    "The field of the value that holds the time; dots separate the names of nested fields.",
    "timestamp",
    check=_path,
    commands="sink",
    example="meta.created",
)
OPTIONS: Final = (TIMESTAMP_FIELD,)


_UTC: Final = joda.zone_by_id("UTC")
_MS: Final = (pa.int32(), pa.int64())
"""Types whose numbers are ms; the connectors take no other number of a struct."""


class RecordFieldExtractor:
    """Epoch ms, a Date, or text with epoch ms or a date of ISO 8601, inside the value.

    Text without an offset is UTC; the connectors take the zone of their JVM.  A record without a
    value has no field, and goes by its own timestamp, as theirs do.
    """

    traits: ClassVar = Traits(
        ("RecordField", "RecordFieldTimestampExtractor"),
        options=OPTIONS,
    )

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the path."""
        self._path = tuple(TIMESTAMP_FIELD.of(options).split("."))

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:
        """Return the times, null where the field is no time, or is not there."""
        column = fields.values(batch)
        if fields.holds_json(column):
            (each,) = fields.in_json(column, [self._path])
            found = pa.array(map(_from_json, each), pa.int64())
        else:
            found = _from_typed(fields.typed(column, self._path), len(batch))
            if self._is_date(batch):
                found = pc.multiply(found, joda.DAY_MS)
        if not column.null_count:
            return found
        return pc.if_else(column.is_null(), RecordExtractor().extract(batch, now_ms), found)

    def _is_date(self, batch: pa.RecordBatch) -> bool:
        """Whether the field is Connect's Date, whose numbers are days; the connectors die of it."""
        if fields.DECODED not in batch.schema.names:
            return False
        schema = connect.of(schema_of(batch.schema.field(fields.DECODED)))
        for name in self._path:
            if schema is not None:
                schema = schema.value or dict(schema.fields).get(name)
        return schema is not None and schema.logical == connect.DATE


def _from_typed(field: pa.Array | None, rows: int) -> pa.Int64Array:
    if field is None:
        return pa.nulls(rows, pa.int64())
    if field.type in _MS:
        return field.cast(pa.int64())
    if pa.types.is_timestamp(field.type):
        return field.cast(pa.timestamp("ms"), safe=False).view(pa.int64())
    if pa.types.is_string(field.type):
        found = field.dictionary_encode()
        each = [joda.parse_iso(text, _UTC) for text in found.dictionary.to_pylist()]
        return pa.array(each, pa.int64()).take(found.indices)
    return pa.nulls(rows, pa.int64())


def _from_json(found: object) -> int | None:
    match found:
        case bool():
            return None
        case int() | float():
            return int(found) if abs(found) < 2**63 else None  # NaN and infinity are not
        case str():
            return joda.parse_iso(found, _UTC)
    return None
