"""Parquet files of values, keys or headers: what the connectors' ``ParquetFormat`` writes.

A value is a struct, and each of its fields a column; keys and headers are in a struct of their
own, as in the connector's files.  The Avro schema in the footer holds what only Kafka Connect
knows.

Source: kafka-connect-storage-cloud 87eb7d39, ``ParquetRecordWriterProvider``, ``RecordViews``.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup.connect import avro_writing, json_values
from kbackup.connect import schema as connect
from kbackup.connect.avro_reading import from_avro
from kbackup.connect.avro_writing import to_avro
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.errors import ConfigurationError, CorruptObjectError, UnsupportedObjectError
from kbackup.formats import COLUMNS, choose
from kbackup.formats.column_files import column_schema
from kbackup.formats.parquet_types import STYLE, file_fields, from_parquet, of_parquet, to_parquet
from kbackup.formats.record_reading import BYTES, METADATA_PREFIX, READ_BYTES, RECORDS
from kbackup.naming import View
from kbackup.records import Schema

AVRO_SCHEMA: Final = "parquet.avro.schema"
"""Name in the footer, as in parquet-avro."""

_TEXT: Final = ConnectSchema(Type.STRING)
_HEADERS: Final = ConnectSchema(
    Type.ARRAY, value=ConnectSchema(Type.STRUCT, fields=(("key", _TEXT), ("value", _TEXT)))
)
_ENVELOPES: Final = {View.KEY: "RecordKey", View.HEADERS: "RecordHeaders"}
_SETTINGS: Final[dict[str, Any]] = {
    "write_page_checksum": True,
    "store_schema": False,  # Parquet's own types say all, to every reader alike
    "write_time_adjusted_to_utc": True,  # as parquet-avro; only then older readers see a time
    "version": "2.6",
}


class ValueWriter:
    """A Parquet file of one view being written; holds at most one row group and one batch.

    Args:
        file: Where the bytes go; never closed here.
        view: The part of each record that it holds.
        schema: The schema of the values, None if the batches have it.
        codec: Arrow's name of the compression.
        level: The compression level, None for the codec's default.
    """

    def __init__(
        self, file: BinaryIO, view: View, schema: Schema | None, codec: str, level: int | None
    ) -> None:
        self._file, self._codec, self._level = file, codec, level
        self._view, self._column = view, COLUMNS[view]
        self._schema = _HEADERS if view is View.HEADERS else connect.of(schema)
        self._parquet: pq.ParquetWriter | None = None
        self._avro = ""
        self._held: list[pa.Array] = []
        self._held_rows = self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column.

        Raises:
            ConfigurationError: If the values are not structs, or have no schema.
        """
        if self._schema is None:
            self._schema = column_schema(batch.schema.field(self._column), "a Parquet file")
        if self._view is View.VALUE and self._schema.type is not Type.STRUCT:
            raise ConfigurationError(
                f"a parquet file cannot hold values of the type {self._schema.type}",
                "each of its columns is a field of a struct",
                choose(self._view, "avro", "json"),
            )
        column = batch[self._column]
        while len(column):
            part, size, is_full = self._room(column)
            self._held.append(part)
            self._held_rows += len(part)
            self._held_bytes += size
            column = column.slice(len(part))
            if is_full:
                self._end_group()

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write what is left and the footer, with *metadata* under our prefix."""
        if self._schema is None:  # nothing was written
            self._schema = ConnectSchema(Type.STRUCT)
        if self._held or self._parquet is None:
            self._end_group()
        assert self._parquet is not None  # noqa: S101
        named = {METADATA_PREFIX + name.replace("-", "_"): text for name, text in metadata.items()}
        self._parquet.add_key_value_metadata(
            {**dict(sorted(named.items())), AVRO_SCHEMA: self._avro}
        )
        self._parquet.close()

    def _whole(self) -> ConnectSchema:
        """Return the schema of a row: the struct, or the one that wraps anything else."""
        assert self._schema is not None  # noqa: S101
        if self._view is View.VALUE:
            return self._schema
        return ConnectSchema(
            Type.STRUCT, name=_ENVELOPES[self._view], fields=((self._column, self._schema),)
        )

    def _room(self, column: pa.Array) -> tuple[pa.Array, int, bool]:
        """The first rows that the open group takes, their bytes, and whether they fill it."""
        assert self._schema is not None  # noqa: S101
        part = column.slice(0, RECORDS - self._held_rows)
        sizes = pc.binary_length(avro_writing.encode_avro(part, self._schema, STYLE)).cast(
            pa.int64()
        )
        up_to = pc.cumulative_sum(pc.fill_null(sizes, 0))
        left = BYTES - self._held_bytes
        if up_to[-1].as_py() < left:
            return part, up_to[-1].as_py(), len(part) + self._held_rows == RECORDS
        at = pc.index(pc.greater_equal(up_to, left), True).as_py()
        return part.slice(0, at + 1), up_to[at].as_py(), True

    def _end_group(self) -> None:
        assert self._schema is not None  # noqa: S101
        whole = self._whole()
        column = pa.concat_arrays(self._held) if self._held else pa.array([], self._schema.arrow())
        parts = (
            json_values.struct_fields(column, self._schema)
            if self._view is View.VALUE
            else [column]
        )
        schemas = [schema for _, schema in whole.fields]
        try:
            self._avro = json.dumps(to_avro(whole, STYLE), separators=(",", ":"))
            arrays = [to_parquet(*each) for each in zip(parts, schemas, strict=True)]
        except ValueError as error:  # Arrow raises it too: a Decimal with too many digits
            raise ConfigurationError(
                f"{self._column}s do not fit into a Parquet file",
                str(error),
                choose(self._view, "avro", "json"),
            ) from None
        found = pa.schema(
            pa.field(name, array.type, nullable=schema.optional)
            for array, (name, schema) in zip(arrays, file_fields(whole), strict=True)
        )
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._file, found, compression=self._codec, compression_level=self._level,
                **_SETTINGS,
            )  # fmt: skip
        if self._held:
            table = pa.Table.from_arrays(arrays, schema=found)
            self._parquet.write_table(table, row_group_size=len(column))
        self._held, self._held_rows, self._held_bytes = [], 0, 0


def read_values(file: BinaryIO, view: View) -> Iterator[pa.RecordBatch]:
    """Read a file of one view, lazily; its column has the schema in the footer.

    Raises:
        CorruptObjectError: If it is truncated or altered.
        UnsupportedObjectError: If another tool wrote it, with values that Connect has no type for.
    """
    try:
        parquet = pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
        whole = _footer_schema(parquet)
        schema = whole if view is View.VALUE else dict(whole.fields)[COLUMNS[view]]
        rows = _batch_rows(parquet)
        groups = range(parquet.num_row_groups)
        for batch in itertools.chain.from_iterable(
            parquet.iter_batches(batch_size=rows, row_groups=[group], use_threads=False)
            for group in groups
        ):
            struct = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            column = from_parquet(struct, whole)
            if view is not View.VALUE:
                column = column.field(COLUMNS[view])
            field = schema.of_column().on(pa.field(COLUMNS[view], column.type))
            yield pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))
    except OSError as error:
        if error.errno is not None:
            raise
        raise _corrupt(error) from error
    except UnsupportedObjectError:
        raise
    except (pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise _corrupt(error) from error


def _footer_schema(parquet: pq.ParquetFile) -> ConnectSchema:
    named = parquet.metadata.metadata or {}
    text = named.get(AVRO_SCHEMA.encode())
    if text is not None:
        return from_avro(json.loads(text))
    return of_parquet(pa.struct(list(parquet.schema_arrow)))


def _batch_rows(parquet: pq.ParquetFile) -> int:
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1)
    return max(1, min(RECORDS, int(READ_BYTES / max(32, row))))


def _corrupt(error: BaseException) -> CorruptObjectError:
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return CorruptObjectError(
        "the Parquet file is cut short or altered",
        why,
        "restore an earlier version of the object, or skip it with behavior.on.error",
    )
