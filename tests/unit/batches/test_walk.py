"""Batches are found in bytes as a broker sends them, and none that was altered."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kbackup.batches import CONTROL, TRANSACTIONAL, BatchError, walk
from kbackup.batches.plain import Why, crc32c
from tests.support.encoded import Sent, batch, sealed

FIRST, SECOND = batch(7, [Sent(b"a"), Sent(b"b" * 300)]), batch(9, [Sent()], 4, attributes=0x10)


def buffer(*parts: bytes) -> pa.Buffer:
    return pa.py_buffer(b"".join(parts))


def test_headers_come_as_columns() -> None:
    """Each batch has a row: where it is, its offsets, counts, times, flags and producer."""
    sent = batch(2**40, [Sent(timestamp=5), Sent(timestamp=3)], attributes=16, producer=(8, 2, 31))

    found = walk(buffer(FIRST, sent))

    assert (Why.SOUND, len(FIRST) + len(sent)) == (found.why, found.end)
    row = found.batches.headers.slice(1).to_pylist()[0]
    assert {
        "base_offset": 2**40, "position": len(FIRST), "length": len(sent), "leader_epoch": 0,
        "base_timestamp": 5, "max_timestamp": 5, "producer_id": 8, "producer_epoch": 2,
        "base_sequence": 31, "last_delta": 1, "count": 2, "attributes": 16,
        "crc": crc32c(memoryview(sent)[21:]), "records_crc": crc32c(memoryview(sent)[61:]),
    } == row  # fmt: skip
    assert (4, 2**40 + 2) == (found.batches.records, found.batches.next_offset)


def test_a_crc_is_that_of_castagnoli() -> None:
    """The checksum is CRC32C, by its published example."""
    assert 0xE3069283 == crc32c(memoryview(b"123456789"))


@pytest.mark.parametrize("size", [8_100, 8_192, 20_001, 70_001])
def test_a_large_batch_is_checked_as_a_small_one_is(size: int) -> None:
    """Its CRC32C may be taken in stretches side by side; each bit counts all the same."""
    sent = bytearray(batch(3, [Sent(random.Random(size).randbytes(size))]))
    crc = 0xFFFFFFFF
    for byte in sent[61:]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)

    (header,) = walk(buffer(bytes(sent))).check().headers.to_pylist()

    assert crc ^ 0xFFFFFFFF == header["records_crc"]
    for at in (62, size // 2, len(sent) - 1):
        sent[at] ^= 4
        assert Why.BAD_CRC is walk(buffer(bytes(sent))).why
        sent[at] ^= 4


def test_an_answer_to_a_fetch_may_end_within_a_batch() -> None:
    """What a broker cuts off is left for the next fetch, and is an error anywhere else."""
    for left in (0, 1, 16, 17, 60, len(SECOND) - 1):
        found = walk(buffer(FIRST, SECOND[:left]))

        assert [7] == found.check(may_be_cut=True).headers["base_offset"].to_pylist()
        assert len(FIRST) == found.end
        if left:
            with pytest.raises(BatchError, match="cut short"):
                found.check()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(FIRST[:16] + b"\1" + FIRST[17:], "before version 2", id="magic"),
        pytest.param(FIRST[:16] + b"\3" + FIRST[17:], "does not begin", id="later magic"),
        pytest.param(FIRST[:10] + b"\0\1" + FIRST[12:], "does not begin", id="short length"),
        pytest.param(FIRST[:8] + b"\xff" + FIRST[9:], "does not begin", id="negative length"),
        pytest.param(FIRST[:-1] + b"!", "CRC32C", id="altered"),
        pytest.param(sealed(0, b"", -1, 0), "counts more", id="negative count"),
        pytest.param(sealed(0, b"", 0, -1), "counts more", id="negative delta"),
        pytest.param(sealed(0, b"", 2**31 - 1, 0), "counts more", id="endless count"),
        pytest.param(sealed(-1, b"", 0, 0), "does not begin after", id="negative offset"),
        pytest.param(sealed(2**63 - 1, b"", 0, 0), "does not begin after", id="no next offset"),
        pytest.param(SECOND + FIRST, "at offset 7: it does not begin after", id="order"),
        pytest.param(FIRST + FIRST, "at offset 7: it does not begin after", id="twice"),
    ],
)
def test_what_is_no_batch_is_named(data: bytes, why: str) -> None:
    """Whatever is wrong with a batch is said, with its offset, and those before it are kept."""
    found = walk(pa.py_buffer(data))

    assert found.end == found.batches.bytes
    with pytest.raises(BatchError, match=why):
        found.check(may_be_cut=True)


def test_every_bit_that_its_crc_covers_counts() -> None:
    """A flipped bit from the CRC on is noticed."""
    for bit in range(8 * 17, 8 * len(FIRST)):
        data = bytearray(FIRST)
        data[bit // 8] ^= 1 << bit % 8

        assert walk(pa.py_buffer(bytes(data))).why is not Why.SOUND, bit


def test_some_batches_are_taken_without_copying() -> None:
    """Those that are left out leave gaps, and what lies side by side is one piece."""
    control = batch(10, [Sent()], attributes=TRANSACTIONAL | CONTROL)
    last = batch(11, [Sent(), Sent()])
    found = walk(buffer(FIRST, SECOND, control, last)).check()

    kept = found.where(pc.invert(found.flagged(CONTROL)))

    assert [FIRST + SECOND, last] == [bytes(piece) for piece in kept.pieces()]
    assert [SECOND + control] == [bytes(piece) for piece in found.slice(1, 2).pieces()]
    assert [] == list(found.slice(4).pieces())
    assert len(FIRST + SECOND + last) == kept.bytes
