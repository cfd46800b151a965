"""Read and write files whose rows each end with a separator: lines of JSON, raw bytes."""

import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import CorruptObjectError
from kbackup.formats import FormatOptions, codecs
from kbackup.formats.codecs import Codec
from kbackup.options import integer, words
from kbackup.records import Bad, bad_where

COMPRESSION: Final = words(
    "s3.compression.type",
    "Compression of files of lines or of raw bytes as a whole; the connectors have none and gzip.",
    ("none", "gzip", "zstd", "bzip2"),
    "none",
    must_fit=True,
    commands="sink",
)
LEVEL: Final = integer(
    "s3.compression.level",
    "Compression level: -1 for the fastest gzip library, level 3 of zstd, level 9 of bzip2; 1 to 9 "
    "for gzip's own library, which gives a connector's bytes, and for the others.",
    -1,
    ge=-1,
    le=9,
    commands="sink",
)

OPTIONS: Final = (COMPRESSION, LEVEL)


def extension(own: str, options: FormatOptions) -> str:
    """Return *own*, followed by the extension of the compression."""
    codec = codecs.by_name(COMPRESSION.of(options.values))
    return own if codec is None else own + codec.extension


class SeparatedWriter:
    """Rows, each followed by the separator, the last one too, compressed as the options say."""

    def __init__(self, file: BinaryIO, separator: bytes, options: FormatOptions) -> None:
        self._separator = separator
        codec = codecs.by_name(COMPRESSION.of(options.values))
        self._stream = (
            None if codec is None else codecs.compressor(codec, file, LEVEL.of(options.values))
        )
        self._write = file.write if self._stream is None else self._stream.write

    def write_rows(self, rows: pa.BinaryArray) -> None:
        """Add *rows*, ``binary`` without null."""
        # 1.5 GB/s; a join in Python does 0.3
        self._write(bytes_of(pc.binary_join_element_wise(rows, b"", self._separator)))

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002  # no room for it
        """Complete the file."""
        if self._stream is not None:
            self._stream.finish()


def all_with(rows: pa.BinaryArray, separator: bytes) -> list[int]:
    """Return those of *rows* that contain *separator*; a null contains nothing."""
    # 1.3 GB/s over all rows at once, 0.4 row by row; a hit may span two rows
    if re.search(re.escape(separator), bytes_of(rows)) is None:
        return []
    found: list[int] = pc.indices_nonzero(pc.match_substring(rows, separator)).to_pylist()
    return found


def read_rows(
    file: BinaryIO, separator: bytes, codec: Codec | None, options: FormatOptions
) -> Iterator[pa.BinaryArray]:
    """Yield the rows of a file, without their separators, about `codecs.PIECE_BYTES` at a time.

    Raises:
        CorruptObjectError: If the file does not end with a separator, unless ``options.is_ended``
            is false, a row is too long, or the compression is damaged.
    """
    begun = bytearray()  # a row whose end has not been seen
    rows = 0
    for piece in codecs.inflate(codec, file):
        seen = max(0, len(begun) - len(separator) + 1)
        begun += piece
        if begun.find(separator, seen) >= 0:
            parts = pc.split_pattern(pa.array([begun], pa.binary()), separator).values
            begun = bytearray(parts[-1].as_buffer())
            rows += len(parts) - 1
            yield parts[:-1]
        if len(begun) > options.max_record_bytes:
            raise CorruptObjectError(
                f"record {rows + 1} of the file is longer than {options.max_record_bytes} bytes",
                "or a separator is missing",
                "if records are this long, raise --max-record-bytes",
            )
    if begun and not options.is_ended:
        yield pa.array([bytes(begun)], pa.binary())
    elif begun or (options.is_ended and not rows):
        raise CorruptObjectError(
            "the file is cut short",
            f"there is no {separator!r} after record {rows + 1}" if begun else "it is empty",
        )


def whole(rows: Iterator[pa.RecordBatch | Bad]) -> Iterator[pa.RecordBatch]:
    """Yield what a format salvages; the first row that cannot be read is a `CorruptObjectError`."""
    for each in rows:
        if isinstance(each, Bad):
            raise CorruptObjectError(each.what, each.why, each.do)
        yield each


def parted(rows: pa.Array, bad: Mapping[int, Bad]) -> Iterator[pa.Array | Bad]:
    """Yield *rows* without those that are *bad*, by their rows in rising order, and these."""
    start = 0
    for row, why in bad.items():
        if row > start:
            yield rows.slice(start, row - start)
        yield why
        start = row + 1
    if start < len(rows):
        yield rows.slice(start)


def nulls(values: pa.Array, name: str, place: str) -> list[Bad]:
    """Return the rows that are null, and would come back as empty: a *name*, such as ``value``."""
    what, why = f"a null {name} cannot be written to {place}", "it would come back as an empty one"
    do = "leave such records out with behavior.on.null.values=ignore, or keep full records"
    return [*bad_where(values.is_null(), what, why, do)]


def bytes_of(rows: pa.BinaryArray) -> memoryview:
    """Return the bytes of *rows*, one after the other, without copying."""
    _, offsets, data = rows.buffers()
    if data is None or not len(rows):
        return memoryview(b"")
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)]]
