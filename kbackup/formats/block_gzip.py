"""Lines in separately compressed blocks: what the block-gzip sink writes.

A file is one gzip stream of many members, or the equivalent in zstd or bzip2, so any tool can read
the whole file.  Its index says where each member begins, so a few records can be read by requesting
a part of the object.

A value ends with a line feed.  A value that already ends with one gets no second, and a value that
contains others is read back as several: full records do not have these flaws.

Source: the published objects and the description of the block-gzip sink for Kafka Connect.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.tables import Files, TableColumn
from kbackup.errors import ConfigurationError
from kbackup.formats import FileFormat, FormatOptions, Traits, codecs, json_lines
from kbackup.formats.block_index import BlockIndex, IndexedBlock
from kbackup.formats.codecs import GZIP, Codec, Compressor
from kbackup.formats.separated import LEVEL, all_with, bytes_of, nulls, read_rows
from kbackup.naming import UPLOAD_DATE, View
from kbackup.options import integer, words
from kbackup.records import Bad, Kind, Schema

BLOCK_BYTES: Final = integer(
    "compressed_block_size",
    "Uncompressed bytes that a block of a block-gzip file holds at most; one larger record has a "
    "block to itself.",
    67_108_864,
    ge=1,
    le=2**31 - 1,
    commands="sink",
)

CODEC: Final = words(
    "compressed_block_codec",
    "Compression of the blocks; the original has gzip alone.",
    ("gzip", "zstd", "bzip2"),
    "gzip",
    commands="sink",
)

OPTIONS: Final = (BLOCK_BYTES, CODEC, LEVEL)


_log = logging.getLogger(__name__)
_NEWLINE: Final = b"\n"
_SCHEMA: Final = pa.schema([("value", pa.binary())])


class BlockGzipFormat(FileFormat):
    """Values as lines, in blocks; rows have one binary column, ``value``.

    Its files are named by the date of their upload, each with an index beside it.
    """

    name: ClassVar = "block_gzip"
    traits: ClassVar = Traits(
        class_names=("BlockGZIPFileWriter",),
        options=OPTIONS,
        connectors=("com.deviantart.kafka_connect_s3.S3SinkConnector",),
        settings={
            "file_delim": "-",
            "filename_offset_zero_pad_width": 12,
            "partitioner_class": "upload_date",
        },
        connector_settings={"topics_dir": ""},
        directory=UPLOAD_DATE,
        views=frozenset({View.VALUE}),
        takes=frozenset({Kind.BYTES, Kind.TEXT}),
        assumed={View.VALUE: "bytes"},
        splits_at="format.class",
    )

    def extension(self, options: FormatOptions) -> str:
        """Return the codec's extension, by default ``.gz``."""
        return _codec(options).extension

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is only a codec's."""
        return extension in {codec.extension for codec in codecs.CODECS}

    def refuses(self, _view: View, values: pa.Array, _options: FormatOptions) -> Sequence[Bad]:
        """Refuse null, which would be read back as empty."""
        return nulls(values, "value", "a line")

    def _writer(
        self, file: BinaryIO, _view: View, options: FormatOptions, _schema: Schema | None
    ) -> "BlockGzipWriter":
        return BlockGzipWriter(file, options)

    def _read(
        self, file: BinaryIO, _view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        rows = read_rows(file, _NEWLINE, codecs.of_extension(extension) or GZIP, options)
        return (pa.RecordBatch.from_arrays([each], schema=_SCHEMA) for each in rows)

    def table(self, file: BinaryIO, view: View, extension: str, options: FormatOptions) -> Files:
        """Return the fields of lines that are JSON objects, or one column of text.

        Only Spark can tell the files from their indexes, which share their directories.
        """
        batches = self.read(file, view, extension, options)
        rows = (value for batch in batches for value in batch.column(0).to_pylist())
        lines = [value.decode(errors="replace") for value in islice(rows, json_lines.TABLE_LINES)]
        try:
            return Files(json_lines.table_columns(lines), (extension,), "json", _nowhere)
        except (ConfigurationError, ValueError):
            return Files((TableColumn("value", "string"),), (extension,), "text", _nowhere)


def _nowhere(_engine: str, _away: Collection[str]) -> tuple[str, ...]:
    return ()


class BlockGzipWriter:
    """A file being written; its blocks do not depend on how rows are divided into calls."""

    def __init__(self, file: BinaryIO, options: FormatOptions) -> None:
        self._file = file
        self._most_bytes = BLOCK_BYTES.of(options.values)
        self._level = LEVEL.of(options.values)
        self._codec = _codec(options)
        self._stream: Compressor | None = None
        self._began = self._bytes = self._records = 0  # of the open block
        self._blocks: list[tuple[int, int, int, int]] = []
        self._has_warned = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column."""
        rows = batch["value"].cast(pa.binary())
        if not len(rows):
            return
        if not self._has_warned and all_with(rows, _NEWLINE):
            self._has_warned = True
            _log.warning(
                "a value contains a line feed: a restore will split it there, or drop it at the "
                "value's end; keep full records to keep such values as they are"
            )
        ends = pc.if_else(pc.ends_with(rows, _NEWLINE), b"", _NEWLINE)
        lines = pc.binary_join_element_wise(rows, ends, b"")
        while len(lines):
            taken = self._room(lines)
            if taken:
                self._add(lines.slice(0, taken))
            if taken < len(lines):
                self._finish()
            lines = lines.slice(taken)

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002  # no room for it
        """Complete the file."""
        self._finish()

    def index(self, first_offset: int) -> bytes:
        """Return what is stored beside the closed file, whose first record has *first_offset*."""
        blocks = []
        for raw, records, length, start in self._blocks:
            blocks.append(IndexedBlock(raw, records, length, start, first_offset))
            first_offset += records
        return BlockIndex(tuple(blocks)).to_bytes()

    def _room(self, lines: pa.BinaryArray) -> int:
        """Return how many of *lines* fit the open block."""
        up_to = pc.cumulative_sum(pc.binary_length(lines).cast(pa.int64()))
        at: int = pc.index(pc.greater(up_to, self._most_bytes - self._bytes), True).as_py()
        if at < 0:
            return len(lines)
        return at if at or self._records else 1

    def _add(self, lines: pa.BinaryArray) -> None:
        if self._stream is None:
            self._began = self._file.tell()
            self._stream = codecs.compressor(self._codec, self._file, self._level)
        data = bytes_of(lines)
        self._stream.write(data)
        self._bytes += len(data)
        self._records += len(lines)

    def _finish(self) -> None:
        if self._stream is None:
            return
        self._stream.finish()
        length = self._file.tell() - self._began
        self._blocks.append((self._bytes, self._records, length, self._began))
        self._stream, self._bytes, self._records = None, 0, 0


def _codec(options: FormatOptions) -> Codec:
    return codecs.by_name(CODEC.of(options.values)) or GZIP
