"""Batches that are made of records hold these records; what is sent as stored stays as it is."""

import pyarrow as pa
import pytest

from kbackup.batches import APPEND_TIME, CODEC_BITS, DELETE_HORIZON, TRANSACTIONAL, native, walk
from kbackup.batches.decoding import decoded
from kbackup.batches.encoding import Identity, cut_from, encoded, sent_headers
from kbackup.records import SCHEMA
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


@pytest.fixture(autouse=True)
def either() -> None:
    """There is no other way than in C."""
    if native.library() is None:
        pytest.skip("the library was not built here")


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


@pytest.mark.parametrize("most", [0, 100, 21_000, 2**20])
@pytest.mark.parametrize("start", [0, 1, 9])
def test_records_are_packed_as_they_are(start: int, most: int) -> None:
    """Also those of a slice, whose nulls begin within a byte; a null time is that of writing."""
    sent = walk(pa.py_buffer(batch(100, AWKWARD * 2))).check()
    (whole,) = decoded(sent)
    untimed = pa.array([None if at % 5 == 1 else at for at in range(len(whole))], pa.int64())
    rows = whole.set_column(1, SCHEMA.field(1), untimed).slice(start)

    found = list(encoded(rows, most, 77))

    made = [row for one in found for part in decoded(one) for row in part.to_pylist()]
    names = ("timestamp", "key", "value", "headers")
    expected = [{n: row[n] for n in names} for row in rows.to_pylist()]
    for row in expected:
        row["timestamp"] = 77 if row["timestamp"] is None else row["timestamp"]
    assert expected == [{n: row[n] for n in names} for row in made]
    (headers,) = pa.Table.from_batches([one.headers for one in found]).combine_chunks().to_batches()
    assert all(size <= most or count == 1 for size, count in zip(
        headers["length"].to_pylist(), headers["count"].to_pylist(), strict=True
    ))  # fmt: skip
    offset = 100 + start
    for header in headers.to_pylist():
        assert (offset, header["count"] - 1) == (header["base_offset"], header["last_delta"])
        offset += header["count"]
    assert len(found) == {0: len(rows), 2**20: 1}.get(most, len(found))


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_is_sent_with_nothing_but_its_header_changed(codec: int) -> None:
    """Its records keep their bytes; what only the other cluster knew of it leaves."""
    flags = TRANSACTIONAL | DELETE_HORIZON
    one, two = batch(5, AWKWARD, codec, attributes=flags), batch(20, AWKWARD[:3], codec)
    stored = walk(pa.py_buffer(one + two)).check()

    found = list(sent_headers(stored, Identity(9, 4, 2**31 - 5)))

    made = []
    for header, at, size in found:
        made.append(walk(pa.py_buffer(header + (one + two)[at : at + size])).check())
    for before, (after,), sequence in zip(
        stored.headers.to_pylist(), [m.headers.to_pylist() for m in made], [2**31 - 5, 3],
        strict=True,
    ):  # fmt: skip
        changed = {
            "base_offset": 0, "leader_epoch": -1, "attributes": codec | TRANSACTIONAL,
            "producer_id": 9, "producer_epoch": 4, "base_sequence": sequence,
            "position": 0, "crc": after["crc"],
        }  # fmt: skip
        assert before | changed == after
