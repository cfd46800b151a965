"""Pack rows into record batches, under the header with which one is sent.  Needs the C library.

A producer takes batches alone: rows that do not come in any, or whose batch cannot be sent as it
is stored, are packed into new ones, not compressed.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from kbackup.batches import (
    CODEC_BITS,
    DELETE_HORIZON,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchError,
    Batches,
    crc32c,
    native,
    walk,
)
from kbackup.batches.decoding import EVERYTHING, decoded
from kbackup.records import SCHEMA, Span

_HEAD: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""A header behind its CRC32C, which is over this and the records."""

_UNCOUNTED: Final = 12
"""Bytes of a batch that its length leaves out: offset and length themselves."""

SEQUENCES: Final = 2**31
"""A producer counts its records to a partition; after the highest number comes 0."""

_MOST: Final = 2**31 - 1
"""What a batch may have."""


class Identity(NamedTuple):
    """Whose a batch is: a producer's, in its epoch, and the number of its first record there."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


def encoded(rows: pa.RecordBatch, most: int, now_ms: int) -> Iterator[Batches]:
    """Yield the records of *rows* as batches of at most so many bytes, or of one record.

    Args:
        rows: ``records.SCHEMA``; of their offsets only that of each batch's first one is kept.
        most: Bytes.
        now_ms: The timestamp of a record that has a null there.
    """
    row = 0
    while row < len(rows):
        base = rows["offset"][row].as_py()
        made = _packed(rows, row, most, now_ms, _BatchHead(base))
        yield made
        row += made.records


def cut_from(one: Batches, offset: int) -> Batches:
    """Return the records of a batch from *offset* on, as a batch, not compressed.

    Returns:
        A batch of which the first record is the base, and whose last offset is the same; none if
        there are no such records.

    Raises:
        BatchError: If the batch does not hold what its header says, or has too much in it.
    """
    (header,) = one.headers.to_pylist()
    parts = list(decoded(one, Span(offset, EVERYTHING.end_offset)))
    if not parts:
        return one.slice(0, 0)
    rows, *more = pa.Table.from_batches(parts, SCHEMA).combine_chunks().to_batches()
    base, sequence = rows["offset"][0].as_py(), header["base_sequence"]
    if sequence >= 0:
        sequence = (sequence + base - header["base_offset"]) % SEQUENCES
    head = _BatchHead(
        base, one.next_offset - 1, header["leader_epoch"],
        header["attributes"] & ~(CODEC_BITS | DELETE_HORIZON),
        Identity(header["producer_id"], header["producer_epoch"], sequence),
    )  # fmt: skip
    made = _packed(rows, 0, _MOST, 0, head)
    if more or made.records < len(rows):
        raise BatchError("it is too large to begin in the middle of it", header["base_offset"])
    return made


class _BatchHead(NamedTuple):
    """What a header says that its records do not; without a last offset, they have no gaps."""

    base: int
    last: int | None = None
    leader_epoch: int = -1
    attributes: int = 0
    own: Identity = Identity()


def _packed(rows: pa.RecordBatch, row: int, most: int, now_ms: int, head: _BatchHead) -> Batches:
    """Return as many records from *row* on as a batch of *most* bytes holds."""
    pack, found = native.library().records_pack, native.Packed()
    _capsule, array = native.lent(rows)
    is_dense = head.last is None
    pack(array, row, most - HEADER_BYTES, now_ms, is_dense, None, found)
    batch = pa.allocate_buffer(HEADER_BYTES + found.bytes)
    records = batch.address + HEADER_BYTES
    pack(array, row, most - HEADER_BYTES, now_ms, is_dense, records, found)
    checked = _CHECKED.pack(
        head.attributes, found.rows - 1 if head.last is None else head.last - head.base,
        found.base_timestamp, found.max_timestamp, *head.own, found.rows,
    )  # fmt: skip
    crc = _joined(checked, native.library().crc32c(records, found.bytes), found.bytes)
    length = batch.size - _UNCOUNTED
    memoryview(batch).cast("B")[:HEADER_BYTES] = (
        _HEAD.pack(head.base, length, head.leader_epoch, 2, crc) + checked
    )
    return walk(batch).check()


def sent_headers(batches: Batches, own: Identity) -> Iterator[tuple[bytes, int, int]]:
    """Yield the header under which a transaction's producer sends each batch, as it is.

    The new CRC32C is made of the stored one: what was altered since does not fit it either.

    Args:
        batches: Each of which has as many records as offsets.
        own: Whose they are now; the sequence is the first one's.

    Yields:
        The header, and where the records behind it are and their size.
    """
    columns = (batches.headers[name].to_pylist() for name in _SENT)
    for position, length, records_crc, attributes, *rest, count in zip(*columns, strict=True):
        kind = attributes & CODEC_BITS | TRANSACTIONAL
        checked = _CHECKED.pack(kind, *rest, *own, count)
        size = length - HEADER_BYTES
        crc = _joined(checked, records_crc, size)
        yield (
            _HEAD.pack(0, length - _UNCOUNTED, -1, 2, crc) + checked, position + HEADER_BYTES, size,
        )  # fmt: skip
        own = own._replace(sequence=(own.sequence + count) % SEQUENCES)


_SENT: Final = (
    "position", "length", "records_crc", "attributes", "last_delta", "base_timestamp",
    "max_timestamp", "count",
)  # fmt: skip


def _joined(head: bytes, records_crc: int, size: int) -> int:
    found: int = native.library().crc32c_joined(crc32c(head), records_crc, size)
    return found
