"""Segments of osodevops/kafka-backup, which are only read: full records, in offset order.

A segment is a header, a body and a footer; numbers are little-endian::

    header  "KBAK", version u8, compression u8, 2 bytes unused, records u64,
            first offset i64, last offset i64
    body    the records, compressed as one
    footer  CRC-32 of header and body u32, "BKAE"

A record, and a header of it::

    record  length u32 of what follows, timestamp i64, offset i64, key, value,
            number of headers u16, headers
    header  length of the name u16, the name in UTF-8, value

Keys and values begin with their length i32, -1 for null.  Nothing says who set a timestamp.

Source: the crate kafka-backup-core 0.25.2, ``segment/format.rs`` and ``compression.rs``; the tool's
web site describes another format, which no published version writes.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import CorruptObjectError, UnsupportedObjectError, counted
from kbackup.files import Section
from kbackup.formats import FormatOptions, OnlyRead, Traits, codecs, too_large
from kbackup.naming import View
from kbackup.records import ANY_KIND, HEADER, SCHEMA, Facts, TimestampType

READ_BYTES: Final = 8 * 2**20
"""Of the uncompressed body in one batch; more if a single record is larger."""

_record = struct.Struct("<Iqqi").unpack_from  # length, timestamp, offset, the key's length
_i32 = struct.Struct("<i").unpack_from
_u16 = struct.Struct("<H").unpack_from
_RECORD_BYTES: Final = 24
_FIXED_BYTES: Final = 26
"""Of the length of a record without key, value and headers."""


def batches(
    pieces: Iterator[bytes | memoryview], max_record_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the records of an uncompressed body, about `READ_BYTES` at a time.

    Raises:
        CorruptObjectError: If it ends within a record, or holds one that is too large or altered.
    """
    held, wanted = bytearray(), READ_BYTES
    for piece in pieces:
        held += piece
        if len(held) < wanted:
            continue
        batch, end, wanted = _parsed(bytes(held), max_record_bytes)
        del held[:end]
        if len(batch):
            yield batch
    batch, end, _ = _parsed(bytes(held), max_record_bytes)
    if end != len(held):
        raise corrupt("it ends within a record")
    if len(batch):
        yield batch


def _parsed(data: bytes, max_record_bytes: int) -> tuple[pa.RecordBatch, int, int]:
    """Return the records that *data* begins with, where they end, and how much is needed next."""
    # one by one, as only its length says where one ends: 400,000 records/s, 300 MB/s
    times: list[int] = []
    offsets: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    names: list[bytes] = []
    contents: list[bytes | None] = []
    ends = [0]  # of the headers of each record, among all
    at, size, wanted = 0, len(data), READ_BYTES
    while at + _RECORD_BYTES <= size:
        length, time, offset, key_size = _record(data, at)
        end = at + 4 + length
        if length > max_record_bytes + _FIXED_BYTES:
            why = f"the record after {counted(len(offsets), 'other')} has {length} bytes"
            raise too_large("the segment holds a record", why)
        if end > size:
            wanted = max(wanted, end - at)
            break
        try:
            place, key = _bytes(data, at + _RECORD_BYTES, key_size)
            place, value = _bytes(data, place + 4, _i32(data, place)[0])
            (count,) = _u16(data, place)
            place += 2
            for _ in range(count):
                (name_size,) = _u16(data, place)
                place += 2 + name_size
                names.append(data[place - name_size : place])
                place, content = _bytes(data, place + 4, _i32(data, place)[0])
                contents.append(content)
        except struct.error:
            place = -1
        if place != end:
            raise corrupt(f"the record at offset {offset} is not as long as it says")
        times.append(time)
        offsets.append(offset)
        keys.append(key)
        values.append(value)
        ends.append(len(names))
        at = end
    return _batch(times, offsets, keys, values, _headers(ends, names, contents)), at, wanted


def _bytes(data: bytes, at: int, size: int) -> tuple[int, bytes | None]:
    """Return where the *size* bytes at *at* end, and them; -1 is null."""
    if size >= 0:
        return at + size, data[at : at + size]
    if size == -1:
        return at, None
    raise corrupt(f"a length is {size}")


def _headers(ends: list[int], names: list[bytes], contents: list[bytes | None]) -> pa.ListArray:
    try:
        keys = pa.array(names, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise corrupt(f"the name of a header is not UTF-8: {error}") from None
    flat = pa.StructArray.from_arrays([keys, pa.array(contents, pa.binary())], fields=[*HEADER])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, SCHEMA.field("headers").type)


def _batch(
    times: list[int],
    offsets: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: pa.ListArray,
) -> pa.RecordBatch:
    moments = pa.array(times, pa.int64())
    none, create = (
        pa.scalar(int(kind), pa.int8()) for kind in (TimestampType.NONE, TimestampType.CREATE)
    )
    columns = [
        pa.array(offsets, pa.int64()),
        moments,
        pc.if_else(pc.less(moments, 0), none, create),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        headers,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def corrupt(why: str) -> CorruptObjectError:
    """Return the error of a segment whose records, or all of it, are not as they should be."""
    return CorruptObjectError("the segment is cut short or altered", why)


LZ4_BYTES: Final = 2**30
"""The largest body compressed by LZ4, which has to be held in memory as a whole."""

_LZ4_RATIO: Final = 255  # no byte of an LZ4 block becomes more
_PIECE_BYTES: Final = 2**20
_VERSION: Final = 1
_MAGIC: Final = b"KBAK"
_END: Final = b"BKAE"
_HEAD: Final = struct.Struct("<4sBBHQqq")
_FOOT: Final = struct.Struct("<I4s")
_NONE, _ZSTD, _LZ4 = range(3)

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ELSEWHERE: Final = (
    "leave it out with a narrower expression in topic.regex.list; restore encrypted segments, and "
    "those of the tool's first versions, with kafka-backup itself"
)


class KafkaBackupFormat(OnlyRead):
    """Segments; rows that are read have ``records.SCHEMA``."""

    name: ClassVar = "kafka_backup"
    ending: ClassVar = ".bin.lz4"  # the one of its extensions that no other format reads
    traits: ClassVar = Traits(
        views=frozenset({View.RECORD}), takes=ANY_KIND, has_checksum=True, reads_only=True
    )
    extent_bytes: ClassVar[int] = _HEAD.size

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is that of a segment; without ``format.class`` most are bytes."""
        return extension in (".bin", ".bin.zst", ".bin.lz4")

    def extent(self, data: bytes) -> Facts | None:
        """Return what a header says, with which no checksum has been compared."""
        magic, version, _, _, records, first, last = _HEAD.unpack(data)
        if (magic, version) != (_MAGIC, _VERSION) or not _is_possible(records, first, last):
            return None
        return Facts(first, last, records, None, None, "")

    def _read(
        self, file: BinaryIO, _view: View, _extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        # the header says how it is compressed
        return _read(file, options.max_record_bytes)


def _other_form(data: bytes) -> str | None:
    """Return what else the tool keeps that begins like *data*; None if that cannot be told."""
    if data[1 : len(_MAGIC)] == _MAGIC[1:]:  # a K in which a bit is flipped may be a bracket
        return None
    if data.lstrip()[:1] in (b"{", b"["):
        return "JSON, as a manifest or a segment of the tool's first versions is"
    if data.startswith(_ZSTD_MAGIC):
        return "a file that is compressed as a whole, as segments of the tool's first versions are"
    return None


class _SegmentHead(NamedTuple):
    """What the header says of the body."""

    compression: int
    records: int
    first: int
    last: int


def _read(file: BinaryIO, max_record_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment, none of them before its checksum has been compared."""
    head, size = _checked(file)
    body = Section(file, _HEAD.size, size)
    read, last = 0, None
    for batch in batches(_inflated(body, size, head.compression), max_record_bytes):
        offsets = batch["offset"]
        if last is None and offsets[0].as_py() != head.first:
            raise corrupt(f"its first offset is {offsets[0]}, its header says {head.first}")
        _check_order(offsets, last)
        read, last = read + len(batch), offsets[-1].as_py()
        if read > head.records:
            break
        yield batch
    if read != head.records:
        more = "more" if read > head.records else str(read)
        said = counted(head.records, "record")
        raise corrupt(f"its header says {said}, and it holds {more}")
    if last is not None and last != head.last:
        raise corrupt(f"its last offset is {last}, its header says {head.last}")


def _checked(file: BinaryIO) -> tuple[_SegmentHead, int]:
    """Check everything but the body; return the header, and the bytes of the body."""
    data = file.read(_HEAD.size)
    if (form := _other_form(data)) is not None:
        raise UnsupportedObjectError(
            f"{form}, and not a segment of kafka-backup", "it does not begin with KBAK", _ELSEWHERE
        )
    if data[: len(_MAGIC)] != _MAGIC[: len(data)] or not data:
        raise CorruptObjectError(
            "not a segment of kafka-backup",
            "it does not begin with KBAK: it is encrypted, damaged, or something else",
            _ELSEWHERE,
        )
    size = file.seek(0, 2) - _HEAD.size - _FOOT.size
    if size < 0:
        all_of_it = counted(size + _HEAD.size + _FOOT.size, "byte")
        raise corrupt(f"it has {all_of_it}, too few for a segment")
    _, version, compression, unused, records, first, last = _HEAD.unpack(data)
    known = _HEAD.pack(_MAGIC, _VERSION, compression, unused, records, first, last)
    file.seek(_HEAD.size)
    digest, left = zlib.crc32(known), size
    while left and (piece := file.read(min(left, _PIECE_BYTES))):
        digest, left = zlib.crc32(piece, digest), left - len(piece)
    expected, end = _FOOT.unpack(file.read(_FOOT.size))
    if version != _VERSION:
        if digest == expected:
            raise corrupt(f"its version was {_VERSION} and is now {version}")
        raise UnsupportedObjectError(
            "a segment of another version",
            f"it has version {version}, this program reads {_VERSION}",
            "restore it with kafka-backup, or with a newer kbackup",
        )
    if end != _END:
        raise corrupt("it does not end with BKAE")
    if digest != expected:
        raise corrupt(f"its checksum is {digest:08x} and should be {expected:08x}")
    if compression not in (_NONE, _ZSTD, _LZ4):
        raise UnsupportedObjectError(
            "a segment compressed in another way",
            f"its compression is {compression}, which is not known",
            "restore it with kafka-backup, or with a newer kbackup",
        )
    if records and not _is_possible(records, first, last):
        said = counted(records, "record")
        raise corrupt(f"its header says {said} at the offsets {first} to {last}")
    return _SegmentHead(compression, records, first, last), size


def _is_possible(records: int, first: int, last: int) -> bool:
    return 0 <= first <= last and 0 < records <= last - first + 1


def _inflated(body: Any, size: int, compression: int) -> Iterator[bytes | memoryview]:
    """Yield the body as it was before it was compressed."""
    if compression == _LZ4:
        yield from _unlz4(body.read(), size)
    else:
        yield from codecs.inflate(codecs.ZSTD if compression == _ZSTD else None, body)


def _unlz4(data: bytes, size: int) -> Iterator[memoryview]:
    """Yield what one raw block holds, which follows its uncompressed size."""
    if size < 4:
        raise corrupt("its LZ4 block has no size")
    unpacked = int.from_bytes(data[:4], "little")
    if unpacked > _LZ4_RATIO * size:
        raise corrupt(f"{size} bytes of LZ4 cannot become {unpacked}")
    if unpacked > LZ4_BYTES:
        raise UnsupportedObjectError(
            "a segment compressed with LZ4 is too large to be read",
            f"it holds {unpacked} bytes, more than {LZ4_BYTES}",
            "restore it with kafka-backup",
        )
    if not unpacked:
        return
    codec, block = pa.Codec("lz4_raw"), memoryview(data)[4:]
    try:
        whole = codec.decompress(block, unpacked)
    except OSError as error:
        raise corrupt(str(error)) from None
    with suppress(OSError):  # if the block holds less, Arrow leaves the rest as it was in memory
        codec.decompress(block, unpacked - 1)
        raise corrupt(f"its LZ4 block holds less than the {unpacked} bytes it says")
    view = memoryview(whole)
    for start in range(0, unpacked, _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


def _check_order(offsets: pa.Int64Array, last: int | None) -> None:
    if last is not None and offsets[0].as_py() <= last:
        raise corrupt(f"offset {offsets[0]} follows offset {last}")
    row = pc.index(pc.greater(offsets[1:], offsets[:-1]), False).as_py()
    if row >= 0:
        raise corrupt(f"offset {offsets[row + 1]} follows offset {offsets[row]}")
