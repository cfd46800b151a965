"""Record batches of one partition as a broker sent them, byte for byte, in offset order.

A file is frames of zstd, each with whole batches, and at its end a skippable frame, the index::

    frame     batches, until they have FRAME_BYTES; in raw blocks where most bytes are compressed
    index     magic u32, size u32, metadata (JSON), an entry a frame, trailer
    entry     first offset i64, max timestamp i64, position i64, length u32, CRC32C u32
    trailer   entries u32, size of metadata u32, CRC32C u32 of the index from the metadata to here,
              "KLG1"

Numbers are little-endian.  ``docs/reference/storage-format.md`` specifies it; keep both alike.

Source: RFC 8878, sections 3.1.1 and 3.1.2.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import CODEC_BITS, CONTROL, BatchError, Batches, crc32c, walk
from kbackup.batches.decoding import decoded
from kbackup.batches.plain import Why
from kbackup.errors import CorruptObjectError, is_of_memory
from kbackup.formats import FormatOptions, OnlyRead, Traits, codecs, corrupt, too_large
from kbackup.naming import View
from kbackup.records import ANY_KIND, NO_TIMESTAMP

FRAME_BYTES: Final = 4 * 2**20
"""A frame ends with the batch that makes this many bytes."""

LEVEL: Final = 1
"""Of zstd."""

_INDEX: Final = struct.Struct("<II")
_INDEX_MAGIC: Final = 0x184D2A5B
_ENTRY: Final = struct.Struct("<qqqII")
_COUNTS: Final = struct.Struct("<II")
_END: Final = struct.Struct("<I4s")
_TRAILER_BYTES: Final = _COUNTS.size + _END.size
_MAGIC: Final = b"KLG1"
_RAW_HEAD: Final = struct.Struct("<IBBQ")
_RAW_BLOCK: Final = 2**17
_RAW_WINDOW: Final = 7 << 3
"""A block: a window of the frame's size takes as much memory, and above 128 MiB none is read."""

_MOST_INDEX: Final = 2**24
"""The largest index that is read, of half a million frames."""

_SLACK: Final = 2**20
"""What a batch may have besides one record of the largest size."""


class _Frame(NamedTuple):
    """An entry of the index; the timestamp is the highest that a header says, -1 for none."""

    first_offset: int
    max_timestamp: int
    position: int
    length: int
    crc: int


class LogFormat(OnlyRead):
    """Files of batches; rows of ``records.SCHEMA`` when they are read as any other."""

    name: ClassVar = "log"
    ending: ClassVar = ".log.zst"
    traits: ClassVar = Traits(
        views=frozenset({View.RECORD}), takes=ANY_KIND, has_checksum=True, reads_only=True,
        stores_batches=True,
    )  # fmt: skip

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:
        """Return what the index says besides its entries."""
        found = _index(file)
        return {} if isinstance(found, str) else found[0]

    def batch_writer(self, file: BinaryIO) -> "BatchWriter":
        """Begin a file of batches: `kbackup.formats.StoresBatches`."""
        return BatchWriter(file)

    def batches(self, file: BinaryIO, options: FormatOptions) -> Iterator[Batches]:
        """Read a file from its start: `kbackup.formats.StoresBatches`."""
        most, following = options.max_record_bytes + _SLACK, 0
        found = _index(file)
        file.seek(0)
        pieces = _whole(file) if isinstance(found, str) else _framed(file, found[1], most)
        try:
            for some in _found(pieces, most):
                if some.first_offset < following:
                    raise _corrupt(
                        f"the batch at offset {some.first_offset} is not behind those before it"
                    )
                left_out = pc.or_(some.flagged(CONTROL), pc.equal(some.headers["count"], 0))
                if pc.any(left_out).as_py():
                    offset = some.where(left_out).first_offset
                    raise _bad(BatchError("it is a control batch, or empty", offset))
                yield some
                following = some.next_offset
        except BatchError as error:
            raise _bad(error) from None
        if isinstance(found, str):
            raise _corrupt(found).doubting()

    def rows(self, batches: Batches, options: FormatOptions) -> Iterator[pa.RecordBatch]:
        """Unpack batches: `kbackup.formats.StoresBatches`."""
        try:
            yield from decoded(batches, max_record_bytes=options.max_record_bytes)
        except BatchError as error:
            raise _bad(error) from None

    def _read(
        self, file: BinaryIO, _view: View, _extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        for some in self.batches(file, options):
            yield from self.rows(some, options)


class BatchWriter:
    """One file being written: batches in, frames out.

    Where frames end depends on the batches alone.  Holds less than a frame, and what is added.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held: list[Batches] = []
        self._held_bytes = self._position = 0
        self._frames: list[_Frame] = []
        self._zstd = pa.Codec("zstd", compression_level=LEVEL)

    def write(self, batches: Batches) -> None:
        """Add batches, all of which are behind those before."""
        while len(batches):
            up_to = pc.cumulative_sum(batches.headers["length"])
            full = pc.greater_equal(up_to, FRAME_BYTES - self._held_bytes)
            at = pc.index(full, True).as_py()
            taken = batches if at < 0 else batches.slice(0, at + 1)
            self._held.append(taken)
            self._held_bytes += taken.bytes
            if at >= 0:
                self._end_frame()
            batches = batches.slice(len(taken))

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write what is left and the index, with *metadata*; its owner closes the file."""
        if self._held:
            self._end_frame()
        said = json.dumps(dict(metadata), sort_keys=True, separators=(",", ":")).encode()
        body = said + b"".join(_ENTRY.pack(*frame) for frame in self._frames)
        body += _COUNTS.pack(len(self._frames), len(said))
        self._file.write(_INDEX.pack(_INDEX_MAGIC, len(body) + _END.size))
        self._file.write(body + _END.pack(crc32c(body), _MAGIC))

    def _end_frame(self) -> None:
        data = b"".join(piece for some in self._held for piece in some.pieces())
        packed = sum(some.where(some.flagged(CODEC_BITS)).bytes for some in self._held)
        is_raw = 2 * packed >= len(data)
        frame = _raw(data) if is_raw else bytes(self._zstd.compress(data, asbytes=True))
        latest = (pc.max(some.headers["max_timestamp"]).as_py() for some in self._held)
        first = self._held[0].first_offset
        self._file.write(frame)
        self._frames.append(
            _Frame(first, max(NO_TIMESTAMP, *latest), self._position, len(frame), crc32c(frame))
        )
        self._position += len(frame)
        self._held, self._held_bytes = [], 0


def _raw(data: bytes) -> bytes:
    """Return a frame of zstd that holds *data*, whose size it says, as it is."""
    parts = [_RAW_HEAD.pack(0xFD2FB528, 0xC0, _RAW_WINDOW, len(data))]
    for at in range(0, len(data), _RAW_BLOCK):
        block = data[at : at + _RAW_BLOCK]
        is_last = at + _RAW_BLOCK >= len(data)
        parts += [(len(block) << 3 | is_last).to_bytes(3, "little"), block]
    return b"".join(parts)


def _index(file: BinaryIO) -> tuple[Mapping[str, str], list[_Frame]] | str:
    """Return what the index says, metadata and entries; or why it cannot be used."""
    try:
        body, start = _index_bytes(file)
        count, said_bytes = _COUNTS.unpack_from(body, len(body) - _TRAILER_BYTES)
        said = json.loads(body[:said_bytes])
    except (ValueError, RecursionError) as error:
        return f"its index is not there or altered: {error}"
    frames = [_Frame(*each) for each in _ENTRY.iter_unpack(body[said_bytes:-_TRAILER_BYTES])]
    at = 0
    for frame in frames:
        if frame.position != at:
            break
        at += frame.length
    if at != start or len(frames) != count or not isinstance(said, dict):
        return "its index does not fit"
    return said, frames


def _index_bytes(file: BinaryIO) -> tuple[bytes, int]:
    """Return the index from the metadata on, and where its frame begins."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _TRAILER_BYTES))
    tail = file.read(_TRAILER_BYTES)
    if len(tail) < _TRAILER_BYTES or tail[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("the file does not end with it")
    count, said_bytes = _COUNTS.unpack_from(tail)
    body_bytes = said_bytes + _ENTRY.size * count + _TRAILER_BYTES
    start = size - body_bytes - _INDEX.size
    if start < 0 or body_bytes > _MOST_INDEX:
        raise ValueError("it says more than the file can have")
    file.seek(start)
    head, body = file.read(_INDEX.size), file.read(body_bytes)
    crc, _ = _END.unpack_from(body, body_bytes - _END.size)
    if _INDEX.unpack(head) != (_INDEX_MAGIC, body_bytes) or crc32c(body[: -_END.size]) != crc:
        raise ValueError("its CRC32C does not match")
    return body, start


def _framed(file: BinaryIO, frames: list[_Frame], most: int) -> Iterator[bytes | None]:
    """Yield what each frame holds in pieces, None behind each frame."""
    for frame in frames:
        where = f"the frame of offset {frame.first_offset}"
        if frame.length > most + 2 * FRAME_BYTES:
            raise _large(f"{where} has {frame.length} bytes")
        file.seek(frame.position)
        data = file.read(frame.length)
        if crc32c(data) != frame.crc:
            raise _corrupt(f"{where} is altered: its CRC32C does not match")
        stream: Any = pa.CompressedInputStream(pa.BufferReader(data), "zstd")
        first = True
        try:
            while piece := stream.read(FRAME_BYTES + _SLACK):
                if first and int.from_bytes(piece[:8], "big") != frame.first_offset:
                    raise _corrupt(f"{where} begins at another one")
                first = False
                yield piece
        except (OSError, pa.ArrowException) as error:
            if is_of_memory(error):
                raise
            raise _corrupt(f"{where} cannot be decompressed: {error}") from None
        yield None


def _whole(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield what all frames hold in pieces, where no index says where each is."""
    yield from codecs.inflate(codecs.ZSTD, file)
    yield None


def _found(pieces: Iterator[bytes | None], most: int) -> Iterator[Batches]:
    """Yield the batches in *pieces*, some at a time; none goes on beyond a None."""
    held, wanted = bytearray(), 0
    for piece in pieces:
        data = piece or b""
        if held:
            held += data
            if piece is not None and len(held) < wanted:
                continue
            data = bytes(held)
        found = walk(pa.py_buffer(data))  # most pieces are whole frames, and are not copied
        if len(found.batches):
            yield found.batches
        found.check(may_be_cut=piece is not None)
        held = bytearray(data[found.end :])
        wanted = 0
        if found.why is Why.CUT_SHORT and len(held) >= 12:
            wanted = int.from_bytes(held[8:12], "big", signed=True) + 12
            if wanted > most:
                raise _large(f"the batch at offset {found.offset} has {wanted} bytes")


def _bad(error: BatchError) -> CorruptObjectError:
    if error.is_large:
        return _large(str(error))
    found = _corrupt(str(error))
    if error.offset is not None:
        found.place["offset"] = error.offset
    return found


def _large(why: str) -> CorruptObjectError:
    return too_large("the log holds a record or a batch", why)


def _corrupt(why: str) -> CorruptObjectError:
    return corrupt("the log is cut short or altered", why)
