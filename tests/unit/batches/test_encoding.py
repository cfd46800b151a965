"""A batch in the middle of which a read begins is made anew, and nothing of its records changes."""

import pyarrow as pa
import pytest

from kbackup.batches import APPEND_TIME, CODEC_BITS, DELETE_HORIZON, TRANSACTIONAL, walk
from kbackup.batches.decoding import decoded
from kbackup.batches.encoding import cut_from
from tests.support.encoded import GZIP, LZ4, NONE, SNAPPY, ZSTD, Sent, batch

AWKWARD = [
    Sent(b"plain", b"key", timestamp=10),
    Sent(None, None, timestamp=30),
    Sent(b"", b"", timestamp=20),
    Sent(b"\xff" * 20_000, b"k" * 64, [(b"a", None), (b"a", b""), (b"", b"\0")]),
    Sent(b"nul", b"k", [(b"before\0after", b"x"), ("ключ".encode(), b"y" * 200)]),
    Sent(b"none", b"k", timestamp=-1),
    Sent(b"early", b"k", timestamp=-(2**62)),
    Sent(b"late", b"k", timestamp=2**62),
]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("attributes", [0, APPEND_TIME, DELETE_HORIZON, TRANSACTIONAL])
def test_records_from_an_offset_on_are_the_same(codec: int, attributes: int) -> None:
    """Each later start gives the records from there on, under a sound header of their own."""
    deltas = [0, 1, 2, 5, 6, 7, 8, 9]
    sent = batch(
        100, AWKWARD, codec, deltas=deltas, last_delta=11, attributes=attributes,
        producer=(7, 3, 2**31 - 3),
    )  # fmt: skip
    whole = walk(pa.py_buffer(sent)).check()
    rows = [row for some in decoded(whole) for row in some.to_pylist()]

    for start in range(101, 110):
        found = cut_from(whole, start)
        kept = [row for row in rows if row["offset"] >= start]

        assert kept == [row for some in decoded(found) for row in some.to_pylist()]
        (header,) = found.headers.to_pylist()
        base = kept[0]["offset"]
        assert (base, 111 - base, len(kept)) == tuple(
            header[name] for name in ("base_offset", "last_delta", "count")
        )
        assert not header["attributes"] & (CODEC_BITS | DELETE_HORIZON)
        assert attributes & ~DELETE_HORIZON == header["attributes"]
        assert (7, 3, (2**31 - 3 + base - 100) % 2**31) == tuple(
            header[name] for name in ("producer_id", "producer_epoch", "base_sequence")
        )
        assert max(row["timestamp"] for row in kept) == header["max_timestamp"]


def test_no_records_are_no_batch() -> None:
    """Behind the last record there is none, whatever the batch's last offset says."""
    whole = walk(pa.py_buffer(batch(0, [Sent()], last_delta=9))).check()

    assert 0 == len(cut_from(whole, 1))
