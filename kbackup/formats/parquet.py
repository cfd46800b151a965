"""Parquet files of whole records: everything Kafka knows of a record, in one file.

The file is specified in ``docs/reference/record-file.md``; what is written there and what is done
here must agree.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions, refuse_view
from kbackup.formats.row_groups import BYTES, RowGroups
from kbackup.naming import View
from kbackup.records import SCHEMA

FORMAT_VERSION: Final = 1
"""Of the whole-record file; raised when a reader of today would misread what is written."""

METADATA_PREFIX: Final = "kbackup."
"""Before each of our names in the file's own metadata."""

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
    "lz4_raw": ("lz4", None),  # what Arrow calls lz4 is the raw one; it writes no other
}
"""Codec to Arrow's name and level."""

# Measured on one core with zstd level 1, 1 M records of 100 B | 100 k of 1 KB, JSON values, a key
# and one header each, groups as in `row_groups`: M records/s | MB/s (and size in MB):
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

SLACK_BYTES: Final = 64 * 2**20
"""What the lengths and levels of a row group's columns may add to its records."""

READ_BYTES: Final = 8 * 2**20
"""What a batch that is read has about at most, where a row group is larger than ours."""


class ParquetFormat:
    """Whole records in Parquet; each batch has ``records.SCHEMA``."""

    class_names: ClassVar[tuple[str, ...]] = ("ParquetFormat",)

    def extension(self, options: FormatOptions) -> str:
        """Return ``.parquet`` behind the codec's part."""
        if options.codec not in EXTENSIONS:
            raise _unknown_codec(options.codec)
        return EXTENSIONS[options.codec]

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is that of a codec."""
        return extension in EXTENSIONS.values()

    def writer(self, file: BinaryIO, view: View, options: FormatOptions) -> "RecordWriter":
        """Begin a file of whole records.

        Raises:
            ConfigurationError: If *view* is another, or the codec cannot be written.
        """
        if view is not View.RECORD:
            raise refuse_view("parquet", view)
        if options.codec not in _ARROW_CODECS:
            raise _unknown_codec(options.codec)
        return RecordWriter(file, *_ARROW_CODECS[options.codec])

    def read(
        self,
        file: BinaryIO,
        view: View,
        extension: str,  # noqa: ARG002
        options: FormatOptions,
    ) -> Iterator[pa.RecordBatch]:
        """Read a file of whole records, and check it while reading.

        Raises:
            ConfigurationError: If *view* is another.
            CorruptObjectError: If the file is not as it was written, or of a later version.
        """
        if view is not View.RECORD:
            raise refuse_view("parquet", view)
        return _read(file, options.max_record_bytes)


class RecordWriter:
    """A file of whole records being written; holds at most one row group and one batch.

    Args:
        file: Where the bytes go; never closed here.
        codec: Arrow's name of the compression.
        level: Of the compression, None for the codec's own.
    """

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


def _read(file: BinaryIO, max_record_bytes: int) -> Iterator[pa.RecordBatch]:
    with _translated():
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        expected = _check_footer(parquet)
        _check_sizes(parquet.metadata, max_record_bytes)
    records, first, last = 0, None, None
    for batch in _batches(parquet):
        with _translated():
            _check_rows(batch, last)
        first = batch["offset"][0].as_py() if first is None else first
        last = batch["offset"][-1].as_py()
        records += len(batch)
        yield batch
    found = {"records": records, "first_offset": first, "last_offset": last}
    for name, value in expected.items():
        if found[name] != value:
            raise _corrupt(f"{name} should be {value} and is {found[name]}")


def _batches(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each row group, as many as its footer entry says."""
    for number in range(parquet.num_row_groups):
        with _translated():
            group = parquet.metadata.row_group(number)
            row_bytes = max(1, group.total_byte_size) / max(1, group.num_rows)
            found = 0
            batches = parquet.iter_batches(
                batch_size=max(1, min(group.num_rows, int(READ_BYTES / row_bytes))),
                row_groups=[number],
                columns=SCHEMA.names,
                use_threads=False,
            )
        while True:
            with _translated():
                batch = next(batches, None)
            if batch is None:
                break
            if len(batch):
                found += len(batch)
                with _translated():
                    columns = [batch[name] for name in SCHEMA.names]
                    whole = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
                yield whole
        if found != group.num_rows:
            raise _corrupt(f"row group {number} should have {group.num_rows} rows and has {found}")


def _check_footer(parquet: pq.ParquetFile) -> dict[str, int]:
    """Check version, columns and counts; return what the rows must come to."""
    metadata = {
        name.decode().removeprefix(METADATA_PREFIX): text.decode()
        for name, text in (parquet.metadata.metadata or {}).items()
        if name.decode().startswith(METADATA_PREFIX)
    }
    if "format_version" not in metadata:
        raise CorruptObjectError(
            "not a file of whole records",
            f"it is Parquet, but has no {METADATA_PREFIX}format_version",
            "only files that kbackup wrote carry .record in their name",
        )
    version = int(metadata["format_version"])
    if version != FORMAT_VERSION:
        raise CorruptObjectError(
            "a whole-record file of another version",
            f"it has version {version}, this program reads {FORMAT_VERSION}",
            "restore it with a newer kbackup",
        )
    _check_columns(parquet.schema_arrow)
    numbers = ("records", "first_offset", "last_offset")
    expected = {name: int(metadata[name]) for name in numbers if name in metadata}
    expected.setdefault("records", parquet.metadata.num_rows)
    if parquet.metadata.num_rows != expected["records"]:
        raise _corrupt(
            f"{METADATA_PREFIX}records is {expected['records']}, "
            f"the footer says {parquet.metadata.num_rows}"
        )
    return expected


def _check_columns(schema: pa.Schema) -> None:
    for field in SCHEMA:
        found = schema.get_all_field_indices(field.name)
        if len(found) != 1:
            count = "twice" if found else "missing"
            raise _corrupt(f"column {field.name} is {count}")
        if not schema.field(found[0]).equals(field):
            raise _corrupt(f"column {field.name} should be {field}, is {schema.field(found[0])}")


def _check_sizes(metadata: pq.FileMetaData, max_record_bytes: int) -> None:
    """Check that no row group asks for more memory than a group of ours can."""
    most = BYTES + max_record_bytes + SLACK_BYTES
    for number in range(metadata.num_row_groups):
        size = metadata.row_group(number).total_byte_size
        if size > most:
            raise CorruptObjectError(
                "the whole-record file holds a record that is too large, or is altered",
                f"row group {number} has {size} bytes, more than {most}",
                "if records are this large, raise --max-record-bytes",
            )


def _check_rows(batch: pa.RecordBatch, last: int | None) -> None:
    """Check what no checksum of a page can: types, null where null cannot be, order."""
    for field in SCHEMA:
        if not field.nullable and batch[field.name].null_count:
            raise _corrupt(f"column {field.name} has no value in some row")
    batch["headers"].flatten().validate(full=True)  # header names must be UTF-8
    offsets = batch["offset"]
    rises = pc.all(pc.less(offsets[:-1], offsets[1:])).as_py() is not False
    if not rises or (last is not None and offsets[0].as_py() <= last):
        raise _corrupt("offsets do not rise from row to row")


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what pyarrow says of bad bytes into our error; an error of the disk stays what it is."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        raise _corrupt(_first_line(error)) from error
    except (pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise _corrupt(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _corrupt(why: str) -> CorruptObjectError:
    return CorruptObjectError(
        "the whole-record file is cut short or altered",
        why,
        "restore an earlier version of the object, or leave it out by behavior.on.error",
    )


def _unknown_codec(codec: str) -> ConfigurationError:
    return ConfigurationError(
        f"parquet.codec={codec} cannot be written",
        "lzo and Hadoop's lz4 framing are for reading only" if codec in EXTENSIONS else "",
        f"choose one of {', '.join(_ARROW_CODECS)}",
    )
