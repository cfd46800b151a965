"""Files of record batches: what goes in comes out byte for byte, and damage is named."""

import hashlib
import io
import json
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backports import zstd

from kbackup import formats
from kbackup.batches import CONTROL, Batches, crc32c, native, walk
from kbackup.batches.decoding import Tally
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions, StoresBatches, log
from kbackup.formats.log import LogFormat
from kbackup.naming import View
from kbackup.records import Facts
from tests.support.encoded import GZIP, LZ4, NONE, ZSTD, Sent, batch, sealed

OPTIONS = FormatOptions()
FORM = LogFormat()


def batches(*parts: bytes) -> Batches:
    return walk(pa.py_buffer(b"".join(parts))).check()


def some(codec: int = NONE, count: int = 40, start: int = 100) -> list[bytes]:
    chance = random.Random(codec)
    return [
        batch(
            start + 5 * at,
            [Sent(chance.randbytes(300).hex().encode(), b"k", timestamp=1000 + at)] * 3,
            codec,
        )
        for at in range(count)
    ]


def written(*given: Batches, **metadata: str) -> bytes:
    file = io.BytesIO()
    writer = FORM.batch_writer(file)
    for each in given:
        writer.write(each)
    writer.close(metadata)
    return file.getvalue()


def stored(data: bytes) -> bytes:
    found = FORM.batches(io.BytesIO(data), OPTIONS)
    return b"".join(bytes(piece) for each in found for piece in each.pieces())


def rows(data: bytes, options: FormatOptions = OPTIONS) -> pa.Table:
    return pa.Table.from_batches([*FORM.read(io.BytesIO(data), View.RECORD, ".log.zst", options)])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make frames small, so that a file has several."""
    monkeypatch.setattr(log, "FRAME_BYTES", 4_000)


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4, ZSTD])
@pytest.mark.usefixtures("small")
def test_batches_come_back_byte_for_byte(codec: int) -> None:
    """The file has the batches as they were, and any zstd gives the segment."""
    parts = some(codec)
    data = written(batches(*parts), topic="orders")

    assert b"".join(parts) == stored(data)
    assert b"".join(parts) == zstd.decompress(data)
    assert {"topic": "orders"} == FORM.own_metadata(io.BytesIO(data))
    assert list(range(100, 300, 5)) == rows(data)["offset"].to_pylist()[::3]


@pytest.mark.usefixtures("small")
def test_how_batches_come_does_not_show() -> None:
    """A retry gets the same batches in other answers, and writes the same bytes."""
    parts = some() + some(GZIP, start=400)
    whole = batches(*parts)

    assert written(whole) == written(*(whole.slice(at, 1) for at in range(len(whole))))
    assert written(whole) == written(*map(batches, parts)) == written(whole.slice(0, 0), whole)


@pytest.mark.usefixtures("small")
def test_what_is_compressed_is_not_compressed_again() -> None:
    """Frames of compressed batches hold them as they are: a few bytes more, and no work."""
    packed, plain = b"".join(some(ZSTD)), b"".join(some(NONE))

    assert packed[:3_000] in written(batches(packed))
    assert len(written(batches(packed))) < 1.02 * len(packed) + 500
    assert len(written(batches(plain))) < 0.7 * len(plain)


def test_a_large_raw_frame_has_several_blocks() -> None:
    """A block of zstd holds 128 KiB at most."""
    large = [batch(at, [Sent(random.Random(at).randbytes(300_000))], LZ4) for at in range(3)]

    assert b"".join(large) == zstd.decompress(written(batches(*large)))


def test_a_raw_frame_takes_no_memory_of_its_own_size() -> None:
    """One of 130 MiB is read again, where a window as large as the frame would be refused."""
    data = random.Random(0).randbytes(2**20) * 130

    stream = pa.CompressedInputStream(pa.BufferReader(log._raw(data)), "zstd")
    found = hashlib.sha256()
    while piece := stream.read(2**20):
        found.update(piece)

    assert hashlib.sha256(data).digest() == found.digest()


def test_batches_beside_those_that_were_left_out() -> None:
    """What a reader left out of its bytes is in no file."""
    parts = [*some(count=3), sealed(500, b"\0" * 9, 1, 0, attributes=CONTROL), *some(start=600)]
    found = batches(*parts)

    kept = found.where(pc.invert(found.flagged(CONTROL)))

    assert b"".join(parts[:3] + parts[4:]) == stored(written(kept))


def test_its_facts_are_those_of_its_records() -> None:
    """Offsets, counts and times of a file are its records', compacted ones too."""
    ends = [
        batch(7, [Sent(timestamp=50)] * 2, deltas=[1, 3], last_delta=5),
        *some(ZSTD),
        batch(900, [Sent(timestamp=-1), Sent(timestamp=2**40)], deltas=[0, 2], last_delta=9),
    ]
    tally, again = Tally(), Tally()
    tally.add(batches(*ends))
    for each in ends:
        again.add(batches(each))

    facts, other = tally.facts(), again.facts()

    assert Facts(8, 902, 124, 50, 2**40, "") == facts == other
    assert None is Tally().facts()
    assert facts is not None
    assert other is not None
    assert facts.digest == other.digest
    assert (facts.digest or "").startswith("b1:")


def test_a_digest_tells_batches_apart() -> None:
    """It changes with records, times and codec, and not with where the batches are."""

    def digest(*parts: bytes) -> str | None:
        tally = Tally()
        tally.add(batches(*parts))
        facts = tally.facts()
        return None if facts is None else facts.digest

    one, two = [Sent(b"a")], [Sent(b"b")]
    texts = [
        digest(batch(0, one)), digest(batch(0, two)), digest(batch(0, one, GZIP)),
        digest(batch(0, one), batch(1, two)), digest(batch(0, two), batch(1, one)),
        digest(batch(0, [Sent(b"a", timestamp=1)])), digest(batch(0, one, attributes=8)),
        digest(batch(0, one, last_delta=4)),
    ]  # fmt: skip

    assert len(texts) == len({*texts})
    assert texts[0] == digest(batch(77, one))


def test_what_has_no_batches_is_a_whole_file() -> None:
    """An empty run of batches is a file of none."""
    assert 0 == len([*FORM.batches(io.BytesIO(written()), OPTIONS)])


DATA = b"".join(some(count=12))


@pytest.mark.usefixtures("small")
def test_every_flipped_bit_is_noticed() -> None:
    """Each bit of a file counts, offsets included, which no batch's own checksum covers."""
    data = written(batches(DATA), topic="orders")
    step = 1 if native.library() else 97
    for bit in range(0, 8 * len(data), 5 * step):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8

        with pytest.raises(CorruptObjectError):
            stored(bytes(bad))


@pytest.mark.usefixtures("small")
def test_a_file_that_is_cut_short_is_no_shorter_file() -> None:
    """Wherever it ends early, it is an error, between frames too."""
    data = written(batches(DATA))
    for length in (*range(0, len(data), 31), len(data) - 1):
        with pytest.raises(CorruptObjectError):
            stored(data[:length])


@pytest.mark.usefixtures("small")
def test_batches_are_read_without_the_index_too() -> None:
    """Where only the index is damaged, all batches come before the error, which doubts them."""
    data = written(batches(DATA))
    frames = data[: data.rindex(b"\x5b\x2a\x4d\x18")]
    read: list[bytes] = []

    def pieces(data: bytes) -> Iterator[bytes]:
        for each in FORM.batches(io.BytesIO(data), OPTIONS):
            yield from map(bytes, each.pieces())

    with pytest.raises(CorruptObjectError, match="index") as raised:
        read.extend(pieces(frames))

    assert DATA == b"".join(read)
    assert raised.value.is_doubtful


def file_of(*frames: bytes, first: int = 100) -> bytes:
    """Return frames with an index that fits them."""
    writer = log.BatchWriter(file := io.BytesIO())
    for frame in frames:
        packed = log._raw(frame)
        writer._frames.append(log._Frame(first, -1, file.tell(), len(packed), crc32c(packed)))
        file.write(packed)
    writer.close({})
    return file.getvalue()


PARTS = some(count=4)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(
            file_of(PARTS[1] + PARTS[0], first=105), "offset 100: .* not begin", id="order"
        ),
        pytest.param(file_of(PARTS[0], PARTS[0]), "offset 100 is not behind", id="order of frames"),
        pytest.param(file_of(PARTS[0][:-1]), "offset 100: it is cut short", id="cut"),
        pytest.param(file_of(PARTS[0], first=101), "begins at another", id="another frame"),
        pytest.param(file_of(PARTS[0] + b"\0" * 30), "before version 2", id="something else"),
        pytest.param(
            file_of(PARTS[0] + sealed(900, b"\0", 1, 0, attributes=CONTROL)),
            "offset 900: .* control",
            id="control",
        ),
        pytest.param(
            file_of(PARTS[0] + sealed(900, b"", 0, 3)), "offset 900: .* empty", id="empty"
        ),
        pytest.param(
            file_of(PARTS[0] + sealed(900, b"\xff", 1, 0)),
            "offset 900: .*last record",
            id="records",
        ),
        pytest.param(
            file_of(batch(100, [Sent(headers=[(b"\xff", b"")])])), "offset 100: the name", id="name"
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_offset(data: bytes, why: str) -> None:
    """What a file holds is judged as if anybody had made it."""
    with pytest.raises(CorruptObjectError, match=why):
        rows(data)


def with_index(metadata: bytes, frames: int = 0) -> bytes:
    """Return a file whose index has a right CRC32C, and no frames."""
    body = metadata + log._COUNTS.pack(frames, len(metadata))
    head = log._INDEX.pack(log._INDEX_MAGIC, len(body) + log._END.size)
    return head + body + log._END.pack(crc32c(body), log._MAGIC)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_index(b"[" * 50_000), id="nested"),
        pytest.param(with_index(b"{}", 2**32 - 1), id="more frames than bytes"),
        pytest.param(with_index(b"[]"), id="no names"),
        pytest.param(with_index(b" " * 2**24 + b"{}"), id="larger than any"),
    ],
)
def test_an_index_that_makes_no_sense_is_no_index(data: bytes) -> None:
    """Whatever an index says, it is told from one that a writer made."""
    with pytest.raises(CorruptObjectError, match="index"):
        stored(data)


def test_a_batch_that_claims_too_much_takes_no_memory() -> None:
    """Its length is judged before its bytes are waited for, and a frame's before it is read."""
    claim = PARTS[0][:8] + (2**31 - 13).to_bytes(4, "big") + PARTS[0][12:]
    most = FormatOptions(max_record_bytes=2**16)
    bomb = bytes(pa.Codec("zstd").compress(bytes(2**26), asbytes=True))

    with pytest.raises(CorruptObjectError, match="too large"):
        rows(file_of(claim + bytes(2**22)), most)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptObjectError):
        rows(bomb, most)

    assert pa.total_allocated_bytes() - before < 2**24


def test_it_stores_batches_and_no_rows() -> None:
    """It is registered, reads its own extension alone, and refuses rows, and values."""
    form = formats.by_name("log")

    assert isinstance(form, StoresBatches)
    assert "log" == formats.by_extension(".log.zst", OPTIONS)
    assert None is formats.by_extension(".log", OPTIONS)
    with pytest.raises(ConfigurationError):
        form.writer(io.BytesIO(), View.RECORD, OPTIONS)
    with pytest.raises(ConfigurationError):
        form.read(io.BytesIO(), View.VALUE, ".log.zst", OPTIONS)


def test_an_index_is_plain_to_others() -> None:
    """The index says where each frame is, and ends with the counts, a CRC32C and its name."""
    data = written(batches(*PARTS), a="b")
    tail = data[-16:]

    assert b"KLG1" == tail[-4:]
    assert (1, 9) == (int.from_bytes(tail[:4], "little"), int.from_bytes(tail[4:8], "little"))
    entry = log._ENTRY.unpack(data[-16 - log._ENTRY.size : -16])
    assert (100, 1003, 0) == entry[:3]
    assert {"a": "b"} == json.loads(data[-16 - log._ENTRY.size - 9 : -16 - log._ENTRY.size])
