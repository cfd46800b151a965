"""What producers put into batches comes out of them, and what is wrong is said."""

import random
import struct
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from kbackup.batches import (
    APPEND_TIME,
    DELETE_HORIZON,
    TRANSACTIONAL,
    BatchError,
    Batches,
    decoding,
    native,
    walk,
)
from kbackup.batches.decoding import Times, alike, decoded, times
from kbackup.batches.plain import Piece, Why, crc32c
from kbackup.records import SCHEMA, Span
from tests.support.encoded import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Sent,
    batch,
    compressed,
    record,
    sealed,
    varint,
)

AWKWARD = [
    Sent(b"plain", b"key"),
    Sent(None, None),
    Sent(b"", b""),
    Sent(b"\xff" * 20_000, b"k" * 64, [(b"a", None), (b"a", b""), (b"", b"\0")]),
    Sent(b"nul", b"k", [(b"before\0after", b"x"), ("ключ".encode(), b"y" * 200)]),
    Sent(b"seventy", None, [(b"h%d" % at, b"v" * at) for at in range(70)]),
    Sent(b"zero", b"k", timestamp=0),
    Sent(b"none", b"k", timestamp=-1),
    Sent(b"early", b"k", timestamp=-(2**62)),
    Sent(b"late", b"k", timestamp=2**62),
]


def rows(
    *data: bytes, span: Span = decoding.EVERYTHING, most: int = decoding.MAX_RECORD_BYTES
) -> list[dict[str, Any]]:
    found = walk(pa.py_buffer(b"".join(data))).check()
    batches = list(decoded(found, span, most))
    for each in batches:
        each.validate(full=True)
        assert len(each)
    return list(pa.Table.from_batches(batches, SCHEMA).to_pylist())


def expected(base: int, records: Sequence[Sent], deltas: Sequence[int] = ()) -> list[Any]:
    return [
        {
            "offset": base + delta, "timestamp": sent.timestamp, "timestamp_type": 1,
            "key": sent.key, "value": sent.value,
            "headers": [{"key": n.decode(), "value": v} for n, v in sent.headers],
        }
        for sent, delta in zip(records, deltas or range(len(records)), strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_all_of_a_record_comes_back(codec: int) -> None:
    """Nulls, empties, headers with any name and any time, by each codec."""
    assert expected(7, AWKWARD) == rows(batch(7, AWKWARD, codec))


def test_snappy_without_blocks_is_read_too() -> None:
    """librdkafka compresses with snappy in another way than Java."""
    assert expected(0, AWKWARD) == rows(batch(0, AWKWARD, SNAPPY, is_raw=True))


def test_batches_of_several_codecs_follow_each_other() -> None:
    """Each batch says how it is compressed."""
    parts = [batch(100 * codec, AWKWARD, codec) for codec in range(5)]

    assert [r for c in range(5) for r in expected(100 * c, AWKWARD)] == rows(*parts)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_small_batches_are_decompressed_together(codec: int) -> None:
    """Of one record or of a few, more of them than one stream takes, with larger ones between."""
    sizes = [1, 3, 1, 2, 200, 1, *[1] * 300]
    parts, read = [], []
    for at, size in enumerate(sizes):
        records = [Sent(b"%d-%d" % (at, each), b"k") for each in range(size)]
        parts.append(batch(1000 * at, records, codec))
        read += expected(1000 * at, records)

    assert read == rows(*parts)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@pytest.mark.parametrize(
    "wrong", ["cut short", "altered", "one record more", "one record less", "much larger"]
)
def test_one_of_many_small_batches_is_named(codec: int, wrong: str) -> None:
    """Where they do not fit together, each is read alone, and what comes before it is returned."""
    count = {"one record more": 4, "one record less": 2}.get(wrong, 3)
    data = compressed(b"".join(record(Sent(b"v"), delta, 0) for delta in range(3)), codec)
    packed = {
        "cut short": data[:-3],
        "altered": data[:-12] + b"\xff\xff\xff" + data[-9:],
        "much larger": compressed(varint(2**30) + bytes(2**14), codec),
    }.get(wrong, data)
    good = [batch(100 * at, [Sent(b"v")], codec) for at in range(20)]
    bad = sealed(1050, packed, count, 5, attributes=codec)

    with pytest.raises(BatchError, match="the batch at offset 1050: "):
        rows(*good[:10], bad, *good[11:])


def test_a_compacted_batch_keeps_its_offsets() -> None:
    """Neither the first nor the last offset of a batch needs a record, and some hold none."""
    kept = batch(50, AWKWARD[:3], deltas=[2, 3, 8], last_delta=10)

    assert expected(50, AWKWARD[:3], [2, 3, 8]) == rows(kept, batch(61, [], last_delta=4))


def test_the_brokers_time_is_that_of_all_records() -> None:
    """Under LogAppendTime the batch's highest timestamp is each record's."""
    data = sealed(
        0, bytes.fromhex("0e00020001027600") + bytes.fromhex("0e00000201027600"), 2, 1,
        attributes=APPEND_TIME, times=(5, 99),
    )  # fmt: skip

    assert [(99, 2), (99, 2)] == [(r["timestamp"], r["timestamp_type"]) for r in rows(data)]
    assert Times(99, 99) == times(walk(pa.py_buffer(data)).check())


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_span_cuts_within_batches(codec: int) -> None:
    """Records before it and behind it are left out."""
    data = batch(10, AWKWARD, codec) + batch(20, AWKWARD, codec)
    every = expected(10, AWKWARD) + expected(20, AWKWARD)

    for start, end in ((0, 10), (10, 30), (12, 13), (19, 21), (25, 99), (30, 31)):
        found = rows(data, span=Span(start, end))

        assert [row for row in every if start <= row["offset"] < end] == found


def test_times_are_those_of_the_records() -> None:
    """The lowest and highest time of records that have one; a header has no lowest one."""

    def span(*stamps: int, codec: int = NONE, attributes: int = 0) -> Times:
        data = batch(0, [Sent(timestamp=at) for at in stamps], codec, attributes=attributes)
        return times(walk(pa.py_buffer(data)).check())

    assert Times(3, 9) == span(5, 3, 9, -1) == span(5, 3, 9, -1, codec=GZIP)
    assert Times(0, 0) == span(0) == span(0, attributes=DELETE_HORIZON)
    swept = sealed(
        0, record(Sent(timestamp=5), 0, 500), 1, 0, attributes=DELETE_HORIZON, times=(500, 5)
    )
    assert Times(5, 5) == times(walk(pa.py_buffer(swept)).check())
    assert Times(None, None) == span(-1) == span(-1, -1) == span()


@pytest.mark.parametrize("attributes", [0, APPEND_TIME], ids=["own times", "the broker's time"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_what_is_to_be_stored_is_read(codec: int, count: int, attributes: int) -> None:
    """A broker takes what no reader could restore: it is found by whoever asks for the times."""
    named = [Sent(timestamp=5)] * (count - 1) + [Sent(headers=((b"\xff\xfe", b""),), timestamp=5)]
    astray = sealed(
        0, compressed(record(Sent(timestamp=5), 5, 5), codec), 1, 0,
        attributes=attributes | codec, times=(5, 5),
    )  # fmt: skip
    good = batch(0, [Sent(timestamp=5)] * count, codec, attributes=attributes)

    assert Times(5, 5) == times(walk(pa.py_buffer(good)).check())
    with pytest.raises(BatchError, match="not UTF-8") as caught:
        times(walk(pa.py_buffer(batch(0, named, codec, attributes=attributes))).check())
    assert (count - 1, True) == (caught.value.offset, caught.value.is_name)
    with pytest.raises(BatchError, match="do not rise within it"):
        times(walk(pa.py_buffer(astray)).check())


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch, codec: int) -> None:
    """A batch larger than a piece gives the same rows, wherever the pieces end."""
    records = [Sent(b"v" * (at % 90), b"k%d" % at, timestamp=at) for at in range(300)]
    data = batch(5, records, codec) + batch(400, records[:3], codec)

    for size in (1, 7, 100, 999, 20_000):
        monkeypatch.setattr(decoding, "PIECE_BYTES", size)
        monkeypatch.setattr(decoding, "_GUESS", 0)

        assert expected(5, records) + expected(400, records[:3]) == rows(data)


def body(*records: bytes) -> bytes:
    return b"".join(varint(len(each)) + each for each in records)


SOUND = b"\0" + varint(0) + varint(0) + varint(-1) + varint(1) + b"v" + varint(0)
HUGE = varint(2**31)


@pytest.mark.parametrize(
    ("data", "count", "why"),
    [
        pytest.param(body(SOUND), 2, "ends before its last", id="fewer"),
        pytest.param(body(SOUND, SOUND), 1, "more bytes than records", id="more"),
        pytest.param(body(SOUND) + b"\0", 1, "more bytes than records", id="a byte more"),
        pytest.param(body(SOUND)[:-1], 1, "ends before its last", id="cut"),
        pytest.param(body(SOUND, SOUND), 2, "do not rise", id="offset twice"),
        pytest.param(body(b"\0\0" + varint(9) + SOUND[3:]), 1, "do not rise", id="offset beyond"),
        pytest.param(body(b"\0\0" + varint(-1) + SOUND[3:]), 1, "do not rise", id="negative"),
        pytest.param(body(b""), 1, "length", id="empty record"),
        pytest.param(varint(-5) + b"abc", 1, "length", id="negative length"),
        pytest.param(varint(2**40) + b"abc", 1, "too large", id="endless record"),
        pytest.param(body(b"\0"), 1, "number", id="no time"),
        pytest.param(b"\xff" * 11, 1, "number", id="endless varint"),
        pytest.param(b"\xff" * 9 + b"\2" + b"\0", 1, "number", id="65 bits"),
        pytest.param(body(SOUND[:3] + HUGE), 1, "length", id="endless key"),
        pytest.param(body(SOUND[:3] + varint(-2)), 1, "length", id="key of -2"),
        pytest.param(body(SOUND[:4] + HUGE), 1, "length", id="endless value"),
        pytest.param(body(SOUND[:4] + varint(-2)), 1, "length", id="value of -2"),
        pytest.param(body(SOUND[:-1] + HUGE), 1, "length", id="endless headers"),
        pytest.param(body(SOUND[:-1] + varint(-1)), 1, "length", id="headers of -1"),
        pytest.param(body(SOUND[:-1] + varint(1) + varint(-1) * 2), 1, "length", id="null name"),
        pytest.param(body(SOUND[:-1] + varint(1) + HUGE), 1, "length", id="endless name"),
        pytest.param(body(SOUND + b"\0"), 1, "length", id="longer than it says"),
    ],
)
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_what_is_wrong_in_records_is_said(data: bytes, count: int, why: str, codec: int) -> None:
    """A batch whose records are not sound is named by its offset, and what came before is kept."""
    bad = sealed(77, compressed(data, codec), count, 5, attributes=codec)

    with pytest.raises(BatchError, match=f"the batch at offset 77: .*{why}"):
        rows(batch(0, AWKWARD), bad)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD, 5, 7])
def test_what_cannot_be_decompressed_is_said(codec: int) -> None:
    """Cut short, altered, or by a codec that nobody knows."""
    whole = compressed(body(SOUND) * 50, codec) if codec < 5 else b"1234"
    for packed in (whole[:-3], b"\xff" * 20, b"", whole[:4]):
        with pytest.raises(BatchError, match="the batch at offset 3: it"):
            rows(sealed(3, packed, 50, 60, attributes=codec))


def test_a_block_of_snappy_that_claims_too_much_is_not_tried() -> None:
    """What a block says it becomes is judged before memory is taken."""
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 100
    blocks = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(claim)) + claim

    for packed in (claim, blocks):
        with pytest.raises(BatchError, match="would become 4294967295"):
            rows(sealed(3, packed, 1, 1, attributes=SNAPPY))


def test_a_bomb_takes_no_memory() -> None:
    """Megabytes that become gigabytes are refused after a piece of them."""
    zstd = pa.Codec("zstd")
    bombs = [zstd.compress(start + bytes(2**26), asbytes=True) for start in (b"", varint(2**40))]
    tracemalloc.start()
    before = pa.total_allocated_bytes()

    for packed in bombs:
        with pytest.raises(BatchError):
            rows(sealed(0, packed, 2**31 - 1, 2**31 - 2, attributes=ZSTD))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 6 * decoding.PIECE_BYTES
    assert pa.total_allocated_bytes() - before < decoding.PIECE_BYTES


def test_a_record_larger_than_allowed_is_refused() -> None:
    """The limit is that of the caller, with room for the record's numbers."""
    data = batch(4, [Sent(b"v" * 2**21)], ZSTD)

    assert 1 == len(rows(data, most=2**20 + 100))
    with pytest.raises(BatchError, match="too large") as raised:
        rows(data, most=2**20 - 100)

    assert raised.value.is_large


def test_a_name_that_is_no_text_is_named_by_its_record() -> None:
    """All records before it are returned, and the error has its offset."""
    records = [*AWKWARD, Sent(headers=[(b"ok", b""), (b"\xff", b"")]), Sent()]
    found = walk(pa.py_buffer(batch(90, records))).check()
    read: list[pa.RecordBatch] = []

    with pytest.raises(BatchError, match="offset 100: the name of a header") as raised:
        read.extend(decoded(found))

    assert (100, True) == (raised.value.offset, raised.value.is_name)
    assert expected(90, AWKWARD) == pa.Table.from_batches(read).to_pylist()


def outcome(data: bytes) -> tuple[Any, ...]:
    """What is made of bytes in which each batch's CRC is made right again."""
    found = walk(pa.py_buffer(data))
    if found.why is Why.BAD_CRC:
        at = found.end
        length = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        crc = crc32c(memoryview(data)[at + 21 : at + length])
        data = data[: at + 17] + crc.to_bytes(4, "big") + data[at + 21 :]
        found = walk(pa.py_buffer(data))
    read: list[pa.RecordBatch] = []
    try:
        read.extend(decoded(found.batches, max_record_bytes=2**20))
        span: Any = times(found.batches, 2**20)
    except BatchError as error:
        span = str(error)
    for each in read:
        each.validate(full=True)
    return found.why, found.end, span, [each.to_pylist() for each in read]


MUTATIONS = [
    100_000,
    pytest.param(10_000_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3 * 3600)]),
]
SAMPLES = [
    batch(7, AWKWARD[:3]) + batch(10, AWKWARD[4:5]),
    *(batch(3, [*AWKWARD[:3], AWKWARD[4]], codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)),
]


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Return *data* with some bytes changed, as a rule of the records."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.choice((chance.randrange(len(found)), 61 + chance.randrange(20)))
        match chance.randrange(4):
            case 0:
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                found[at] = chance.choice((0, 1, 127, 128, 255))
            case 2:
                found[at : at + 5] = chance.randbytes(5)
            case _:
                found[at] = chance.randrange(256)
    return bytes(found)


@pytest.mark.parametrize("rounds", MUTATIONS)
def test_whatever_records_hold_is_sound_rows_or_an_error(rounds: int, either: str) -> None:
    """Altered records never harm the process: what is measured is what is copied."""
    if either == "python":
        pytest.skip("it cannot read beyond its bytes")
    chance, copied = random.Random(rounds), 0
    records = [*AWKWARD[:3], AWKWARD[4], Sent(b"v" * 70, b"k")]
    whole = batch(0, records)[61:]
    for _ in range(rounds):
        data = bytearray(whole[chance.randrange(3) and 40 :])
        for _ in range(chance.choice((1, 1, 2, 4))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 128, 255, 8, 14))
        count = chance.choice((len(records), 1, 2, 100))
        piece = Piece(pa.py_buffer(bytes(data)), 0, 5, 9, False, 9, count, -1, count != 100)
        with suppress(BatchError):
            copied += len(decoding._RecordGroup.part(piece, Span(0, 4), 10_000).rows())

    assert copied > 0


def test_altered_bytes_are_sound_rows_or_an_error_and_both_ways_the_same(
    monkeypatch: pytest.MonkeyPatch, either: str
) -> None:
    """Altered batches with a right CRC harm no process, and C and Python say the same of them."""
    chance, library = random.Random(23), native.library()
    for _ in range(1_500):
        data = mutated(chance, chance.choice(SAMPLES))
        one = outcome(data)
        if either == "native":
            monkeypatch.setattr(native, "library", lambda: None)

            assert one == outcome(data), data.hex()
            monkeypatch.setattr(native, "library", lambda: library)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(batch(3, AWKWARD[:2], ZSTD), id="a codec"),
        pytest.param(batch(3, AWKWARD[:2], attributes=APPEND_TIME), id="whose time"),
        pytest.param(batch(3, AWKWARD[:2], last_delta=4), id="a gap at the end"),
        pytest.param(batch(3, AWKWARD[:1]), id="a record less"),
        pytest.param(batch(3, [AWKWARD[0], AWKWARD[2]]), id="another record"),
        pytest.param(batch(3, [one._replace(timestamp=1) for one in AWKWARD[:2]]), id="times"),
    ],
)
def test_a_batch_is_no_copy_if_anything_of_its_records_differs(other: bytes) -> None:
    """Its offsets and its producer may."""
    one, last = batch(3, AWKWARD[:2]), batch(20, AWKWARD)
    copy = batch(7, AWKWARD[:2], attributes=TRANSACTIONAL, producer=(1, 2, 3))
    mine, copies, others = (walk(pa.py_buffer(each + last)).check() for each in (one, copy, other))

    assert 2 == alike(mine, copies) == alike(mine, copies.slice(0)) == alike(copies, mine)
    assert 1 == alike(mine.slice(0, 1), copies)
    assert 0 == alike(mine, others)
    assert 1 == alike(mine.slice(1), others.slice(1))


def test_what_has_the_same_checksum_is_compared_all_the_same() -> None:
    """Somebody may have altered records so that nothing shows."""
    one = walk(pa.py_buffer(batch(3, AWKWARD[:2]))).check()
    altered = bytearray(one.data.to_pybytes())
    altered[-1] ^= 1

    assert 0 == alike(one, Batches(pa.py_buffer(bytes(altered)), one.headers))
