"""Parquet files of full records: everything Kafka knows about a record, in one file.

Files of values, keys and headers are in `parquet_values`.

``docs/reference/storage-format.md`` specifies the file; keep it in agreement with this module.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kbackup.connect.tables import Files, TableColumn, struct
from kbackup.errors import CorruptObjectError
from kbackup.formats import (
    COLUMNS,
    FileFormat,
    FormatOptions,
    Traits,
    all_rows,
    choose,
    null_keys,
    translated,
)
from kbackup.formats.parquet_records import FORMAT_VERSION, METADATA_PREFIX, RowGroups, read_records
from kbackup.formats.parquet_values import DAMAGED, ValueWriter, read_values
from kbackup.naming import View
from kbackup.options import words
from kbackup.records import ANY_KIND, SCHEMA, Bad, Schema

CODEC: Final = words(
    "parquet.codec",
    "Compression inside Parquet files.",
    ("none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"),
    "zstd",
    for_values="snappy",  # the connector's own default, which its extension shows
    commands="sink",
)

OPTIONS: Final = (CODEC,)


_ARROW: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time32("ms"): "int",
    pa.time64("us"): "bigint",
}


def table_columns(schema: pa.Schema) -> tuple[TableColumn, ...]:
    """Return the columns of a Parquet file."""
    return tuple(TableColumn(field.name, _of_arrow(field.type)) for field in schema)


def _of_arrow(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{_of_arrow(kind.key_type)},{_of_arrow(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_of_arrow(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return struct((field.name, _of_arrow(field.type)) for field in kind)
    return _plain(kind)


def _plain(kind: pa.DataType) -> str:
    """Return the name of a type that is not nested."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    return _ARROW.get(kind, "string")


def table_stored_as(_engine: str, _away: Collection[str]) -> tuple[str, ...]:
    """Return the same for every engine: columns are found by their names."""
    return ("STORED AS PARQUET",)


EXTENSIONS: Final = {
    "none": ".parquet",
    "snappy": ".snappy.parquet",
    "gzip": ".gz.parquet",
    "lzo": ".lzo.parquet",
    "brotli": ".br.parquet",
    "lz4": ".lz4hadoop.parquet",
    "zstd": ".zstd.parquet",
    "lz4_raw": ".lz4raw.parquet",
}
"""Codec, in the connectors' words, to extension.

Source: parquet-mr 1.15.2, ``CompressionCodecName``.
"""

_ARROW_CODECS: Final = {
    "none": ("none", None),
    "snappy": ("snappy", None),
    "gzip": ("gzip", None),
    "brotli": ("brotli", None),
    "zstd": ("zstd", 1),
    "lz4_raw": ("lz4", None),  # Arrow's lz4 is lz4_raw; it cannot write the other
}
"""Codec to Arrow's name and level."""

# Measured on one core with zstd level 1, 1 M records of 100 B | 100 k of 1 KB, JSON values, a key
# and one header each, groups as in `RowGroups`: M records/s | MB/s (and size in MB):
#
#     Arrow's defaults, dictionary on      1.27 (36.7)  |  344 (17.6)
#     no dictionary                        1.74 (29.0)  |  377 (16.9)
#     and statistics of two columns only   1.87 (29.0)  |  381 (16.8)
#     and delta-encoded offset, timestamp  2.01 (27.4)  |  388 (16.6)
#     and a whole group in each page       2.07 (27.2)  |  392 (16.5)   <- these settings
#     and no checksums                     2.10 (27.2)  |  397 (16.5)
#     snappy instead of zstd               2.62 (60.4)  |  476 (41.5)
#
# Reading takes 0.22 s | 0.09 s.  Delta-encoded lengths of keys and values cost 15% and save
# nothing; statistics of all columns would also put record bytes into the footer.
_SETTINGS: Final[dict[str, Any]] = {
    "use_dictionary": False,
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_statistics": ["offset", "timestamp"],
    "write_page_checksum": True,
    "write_batch_size": 2**20,
    "data_page_size": 2**30,
    "store_schema": False,  # Parquet's own types say all, to every reader alike
    "version": "2.6",
}


class ParquetFormat(FileFormat):
    """Parquet: full records, rows of ``records.SCHEMA``, or one view of them."""

    name: ClassVar = "parquet"
    traits: ClassVar = Traits(
        class_names=("ParquetFormat",),
        options=OPTIONS,
        views=frozenset({View.RECORD, *COLUMNS}),
        takes=ANY_KIND,
        assumed={View.VALUE: "json", View.KEY: "string"},
        assumed_to_write={View.VALUE: "avro"},
        needs_schema=True,
        has_checksum=True,
    )

    def extension(self, options: FormatOptions) -> str:
        """Return the codec's part, followed by ``.parquet``."""
        return EXTENSIONS[CODEC.of(options.values)]

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is that of a codec."""
        return extension in EXTENSIONS.values()

    def refuses(self, view: View, values: pa.Array, _options: FormatOptions) -> Sequence[Bad]:
        """Refuse null keys, values that are not structs, and structs without fields."""
        if view is not View.HEADERS and _has_empty(values.type):
            why = "each column of a Parquet file is a field of a struct, and it has none"
            what = f"a {COLUMNS[view]} is or has a struct without fields"
            do = choose(view, "avro", "json")
            return all_rows(values, what, why, do)
        if view is View.VALUE and not pa.types.is_struct(values.type):
            do = choose(view, "avro", "json")
            why = "each column of a Parquet file is a field of a struct"
            return all_rows(values, "a value is not a struct", why, do)
        if isinstance(values.type, pa.JsonType):
            do = f"set schemas.enable=true of its converter, or {choose(view, 'json')}"
            return all_rows(values, "a key has no schema", "a Parquet file needs one", do)
        return null_keys(values) if view is View.KEY else ()

    def _writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> "RecordWriter | ValueWriter":
        if view is not View.RECORD:
            return ValueWriter(file, view, schema, *_ARROW_CODECS[CODEC.of(options.values)])
        return RecordWriter(file, *_ARROW_CODECS[CODEC.of(options.values)])

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:
        """Return the footer's metadata with our prefix."""
        try:
            with translated(DAMAGED):
                metadata = pq.ParquetFile(file).metadata.metadata or {}
                named = {name.decode(): text.decode() for name, text in metadata.items()}
        except CorruptObjectError:
            return {}
        return {
            name.removeprefix(METADATA_PREFIX).replace("_", "-"): text
            for name, text in named.items()
            if name.startswith(METADATA_PREFIX)
        }

    def _read(
        self, file: BinaryIO, view: View, _extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        if view is not View.RECORD:
            return read_values(file, view)
        return read_records(file, options.max_record_bytes, options.columns)

    def table(self, file: BinaryIO, _view: View, _extension: str, _options: FormatOptions) -> Files:
        """Return a column for each of the file."""
        with translated(DAMAGED):
            schema = pq.read_schema(file)
        columns = table_columns(schema)
        extensions = tuple(EXTENSIONS.values())
        return Files(columns, extensions, "parquet", table_stored_as)


def _has_empty(kind: pa.DataType) -> bool:
    """Whether a type is or contains a struct without fields."""
    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    return pa.types.is_nested(kind) and any(
        _has_empty(kind.field(at).type) for at in range(kind.num_fields)
    )


class RecordWriter:
    """A file of full records being written; holds at most one row group and one batch."""

    def __init__(self, file: BinaryIO, codec: str, level: int | None) -> None:
        self._groups = RowGroups()
        self._parquet = pq.ParquetWriter(
            file, SCHEMA, compression=codec, compression_level=level, **_SETTINGS
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows of ``records.SCHEMA``; any record can be stored."""
        for group in self._groups.add(batch):
            self._write_group(group)

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write what is left and the footer, with *metadata* under our prefix."""
        rest = self._groups.rest()
        if rest is not None:
            self._write_group(rest)
        named = {name.replace("-", "_"): text for name, text in metadata.items()}
        named["format_version"] = str(FORMAT_VERSION)
        self._parquet.add_key_value_metadata(
            {METADATA_PREFIX + name: named[name] for name in sorted(named)}
        )
        self._parquet.close()

    def _write_group(self, group: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([group], SCHEMA)
        self._parquet.write_table(table, row_group_size=len(group))
