"""Record batches as a producer sends them, one record at a time."""

import gzip
import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from kbackup.batches.plain import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


class Sent(NamedTuple):
    """A record."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp: int = 1_700_000_000_000


def varint(number: int) -> bytes:
    """Return a zigzag varint."""
    bits, found = (number << 1 ^ number >> 63) & (2**64 - 1), bytearray()
    while bits > 127:
        found.append(bits & 127 | 128)
        bits >>= 7
    return bytes([*found, bits])


def sized(data: bytes | None) -> bytes:
    """Return *data* behind its length."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(sent: Sent, delta: int, base_timestamp: int) -> bytes:
    """Return one record as it is in a batch."""
    headers = b"".join(sized(name) + sized(value) for name, value in sent.headers)
    body = b"\0" + varint(sent.timestamp - base_timestamp) + varint(delta)
    body += sized(sent.key) + sized(sent.value) + varint(len(sent.headers)) + headers
    return varint(len(body)) + body


def compressed(data: bytes, codec: int, *, is_raw: bool = False) -> bytes:
    """Return *data* as a producer compresses it; *is_raw*: snappy as librdkafka has it."""
    if codec == GZIP:
        return gzip.compress(data, 1)
    if codec == SNAPPY:
        packed = pa.Codec("snappy").compress(data, asbytes=True)
        if is_raw:
            return bytes(packed)
        blocks = [data[at : at + 32768] for at in range(0, len(data), 32768)]
        packed = [pa.Codec("snappy").compress(block, asbytes=True) for block in blocks]
        head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        return head + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    if codec:
        return bytes(pa.Codec({LZ4: "lz4", ZSTD: "zstd"}[codec]).compress(data, asbytes=True))
    return data


def sealed(
    base: int,
    body: bytes,
    count: int,
    last_delta: int,
    *,
    attributes: int = 0,
    times: tuple[int, int] = (1_700_000_000_000, 1_700_000_000_000),
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch around *body*."""
    tail = struct.pack(">hiqqqhii", attributes, last_delta, *times, *producer, count) + body
    head = struct.pack(">qiib", base, len(tail) + 9, 0, 2)
    return head + struct.pack(">I", crc32c(memoryview(tail))) + tail


def batch(
    base: int,
    records: Sequence[Sent],
    codec: int = NONE,
    *,
    deltas: Sequence[int] | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    is_raw: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch of *records*, at the offsets *base* plus *deltas*."""
    at = range(len(records)) if deltas is None else deltas
    times = [each.timestamp for each in records] or [-1]
    body = b"".join(record(each, d, times[0]) for each, d in zip(records, at, strict=True))
    last = max([*at, 0]) if last_delta is None else last_delta
    return sealed(
        base, compressed(body, codec, is_raw=is_raw), len(records), last,
        attributes=attributes | codec, times=(times[0], max(times)), producer=producer,
    )  # fmt: skip
