"""The hash by which Kafka's Java producer chooses the partition of a key, over whole columns.

Source: Apache Kafka, ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``;
``BuiltInPartitioner.partitionForKey``.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

_WORD: Final = 4
"""Bytes that are mixed in at a time."""

_COLUMN_BYTES: Final = 256
"""Keys up to this length are hashed in columns, those of one length together."""


def partitions_of(keys: pa.Array, count: int) -> pa.Array:
    """Return the partition of each key, as Kafka's Java producer would choose it.

    Args:
        keys: ``binary``; a null has no partition.
        count: How many partitions there are.

    Returns:
        ``int32``, one row per row of *keys*, null where it is.
    """
    unique = keys.dictionary_encode()
    hashes = murmur2(unique.dictionary)
    positive = pc.bit_wise_and(hashes, _word(_POSITIVE))
    whole = pc.multiply(pc.divide(positive, _word(count)), _word(count))
    return pc.subtract(positive, whole).cast(pa.int32()).take(unique.indices)


def murmur2(keys: pa.Array) -> pa.Array:
    """Return the hash of each key: ``uint32``, none of *keys* is null."""
    lengths = pc.binary_length(keys)
    numbers = pa.array(range(len(keys)), pa.int64())
    rows, hashes = [pa.array([], pa.int64())], [pa.array([], pa.uint32())]
    for length in pc.unique(lengths).to_pylist():
        is_one = pc.equal(lengths, length)
        group = keys.filter(is_one)
        rows.append(numbers.filter(is_one))
        hashes.append(
            _of_length(group, length)
            if length <= _COLUMN_BYTES
            else pa.array(map(_of_key, group.to_pylist()), pa.uint32())
        )
    return pa.concat_arrays(hashes).take(pc.sort_indices(pa.concat_arrays(rows)))


def _of_length(keys: pa.Array, length: int) -> pa.Array:
    """Return the hashes of keys that are *length* bytes long."""
    found = pa.repeat(_word(_SEED ^ length), len(keys))
    end = length // _WORD * _WORD
    for start in range(0, end, _WORD):
        word = _times_m(_words(pc.binary_slice(keys, start, start + _WORD)))
        word = _times_m(_shifted(word, 24))
        found = pc.bit_wise_xor(_times_m(found), word)
    if end < length:
        padding = b"\0" * (_WORD - (length - end))
        rest = pc.binary_slice(keys, end, length)
        found = _times_m(
            pc.bit_wise_xor(found, _words(pc.binary_join_element_wise(rest, padding, b"")))
        )
    return _shifted(_times_m(_shifted(found, 13)), 15)


def _words(chunks: pa.Array) -> pa.Array:
    """Return chunks of four bytes as little-endian numbers."""
    return chunks.cast(pa.binary(_WORD)).view(pa.uint32())


def _shifted(numbers: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _word(bits)))


def _times_m(numbers: pa.Array) -> pa.Array:
    return pc.multiply(numbers, _word(_M))  # wraps around, as Java's does


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


def _of_key(key: bytes) -> int:
    """Return the hash of one key, however long it is."""
    found = _SEED ^ len(key)
    end = len(key) // _WORD * _WORD
    for word in memoryview(key[:end]).cast("I"):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        found = found * _M & _MASK ^ mixed
    if end < len(key):
        found = (found ^ int.from_bytes(key[end:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15
