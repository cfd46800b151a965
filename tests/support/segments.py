"""A writer of osodevops/kafka-backup's segments, from the description of their layout."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kbackup.records import TimestampType

COMPRESSIONS: Final = ("none", "zstd", "lz4")
"""In the order of their numbers."""


@dataclass(frozen=True)
class SegmentRecord:
    """A record; None is null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()

    def to_bytes(self) -> bytes:
        """The record as a segment has it."""
        data = struct.pack("<qq", self.timestamp, self.offset)
        data += _sized(self.key) + _sized(self.value) + struct.pack("<H", len(self.headers))
        for name, value in self.headers:
            data += struct.pack("<H", len(name.encode())) + name.encode() + _sized(value)
        return struct.pack("<I", len(data)) + data

    def row(self) -> dict[str, Any]:
        """The record as a restore has it."""
        kind = TimestampType.NONE if self.timestamp < 0 else TimestampType.CREATE
        return {
            "offset": self.offset,
            "timestamp": self.timestamp,
            "timestamp_type": int(kind),
            "key": self.key,
            "value": self.value,
            "headers": [{"key": name, "value": value} for name, value in self.headers],
        }


RECORDS: Final = (
    SegmentRecord(7, 1_577_836_801_000, b"k", b"v", (("h", b"x"), ("h", None), ("", b""))),
    SegmentRecord(9, -1, None, b"", (("ä", "ö".encode()),)),
    SegmentRecord(2**53 + 1, 0, b"", None),
)


@dataclass(frozen=True)
class Segment:
    """Some records as one file."""

    records: Sequence[SegmentRecord]
    compression: str = "zstd"

    def body(self) -> bytes:
        """The records, uncompressed."""
        return b"".join(record.to_bytes() for record in self.records)

    def to_bytes(self, *, lz4_more: int = 0, **wrong: Any) -> bytes:
        """The file; *wrong* replaces what its header and footer should say."""
        body = self.body()
        if self.compression == "zstd":
            body = pa.Codec("zstd").compress(body, asbytes=True)
        elif self.compression == "lz4":
            size = struct.pack("<I", len(body) + lz4_more)
            body = size + pa.Codec("lz4_raw").compress(body, asbytes=True)
        right = {
            "code": COMPRESSIONS.index(self.compression),
            "count": len(self.records),
            "first": self.records[0].offset,
            "last": self.records[-1].offset,
        }
        return sealed(body, **(right | wrong))


def sealed(
    body: bytes,
    *,
    version: int = 1,
    code: int = 0,
    count: int = 1,
    first: int = 0,
    last: int = 0,
    crc: int | None = None,
    end: bytes = b"BKAE",
) -> bytes:
    """Return header, *body* and footer, whose checksum is right unless it is given."""
    data = b"KBAK" + struct.pack("<BBHQqq", version, code, 0, count, first, last) + body
    return data + struct.pack("<I", zlib.crc32(data) if crc is None else crc) + end


def _sized(data: bytes | None) -> bytes:
    return struct.pack("<i", -1) if data is None else struct.pack("<i", len(data)) + data
