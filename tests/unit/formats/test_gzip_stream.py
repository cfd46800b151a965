import gzip
import io
import random
import zlib

import pytest

from kbackup.errors import CorruptObjectError
from kbackup.formats import codecs
from kbackup.formats.codecs import GzipWriter, inflate_gzip

LINES = b"".join(b'{"id":%d,"name":"%x"}\n' % (at, at * at) for at in range(5000))
MEMBER = gzip.compress(LINES, mtime=0)


def member(data: bytes, level: int, pieces: int = 1) -> bytes:
    """Return *data* as a member, written in so many pieces of any size."""
    file = io.BytesIO()
    writer = GzipWriter(file, level)
    ends = sorted(random.Random(pieces).choices(range(len(data) + 1), k=pieces - 1))
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        writer.write(memoryview(data)[start:end])
    writer.finish()
    return file.getvalue()


def content(data: bytes) -> bytes:
    return b"".join(inflate_gzip(io.BytesIO(data)))


@pytest.fixture(params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read and write with isal, and with what machines without it use."""
    if request.param == "zlib":
        monkeypatch.setattr(codecs, "_inflate", zlib)
        monkeypatch.setattr(codecs, "_fast", zlib)
    elif codecs._inflate is zlib:
        pytest.skip("no isal here")
    return str(request.param)


@pytest.mark.parametrize("level", range(-1, 10))
def test_a_member_does_not_show_how_it_was_written(library: str, level: int) -> None:
    """The same bytes give the same member, in whatever pieces they came."""
    data = 12 * LINES + random.Random(level).randbytes(200_000)
    whole = member(data, level)

    assert data == gzip.decompress(whole)
    assert [whole] * 3 == [member(data, level, pieces) for pieces in (2, 7, 500)]


@pytest.mark.parametrize("level", range(1, 10))
def test_a_level_that_is_named_is_zlibs(level: int) -> None:
    """A compression level that a connector's configuration names yields the connector's bytes."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)

    assert deflate.compress(LINES) + deflate.flush() == member(LINES, level)[10:-8]


def test_the_header_is_javas() -> None:
    """A gzip header has no time, name or system, as GZIPOutputStream writes it."""
    assert bytes.fromhex("1f8b08000000000000ff") == member(b"", 9)[:10]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(MEMBER, LINES, id="one member"),
        pytest.param(MEMBER * 3, LINES * 3, id="several members"),
        pytest.param(MEMBER + bytes(1000), LINES, id="zeros behind it"),
        pytest.param(MEMBER + bytes(10**6), LINES, id="many zeros behind it"),
        pytest.param(gzip.compress(b""), b"", id="nothing in it"),
        pytest.param(gzip.compress(b"") + MEMBER, LINES, id="nothing, then something"),
        pytest.param(gzip.compress(bytes(2**20), 1), bytes(2**20), id="more than a piece"),
    ],
)
def test_what_gzip_reads_is_read(library: str, data: bytes, expected: bytes) -> None:
    """Any gzip file is read, not only our own."""
    assert expected == content(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"\x1f", "ends within", id="one byte"),
        pytest.param(MEMBER[:10], "ends within", id="header only"),
        pytest.param(MEMBER[:-1], "ends within", id="last byte missing"),
        pytest.param(MEMBER[:-8], "ends within", id="checksum and length missing"),
        pytest.param(MEMBER + MEMBER[:-1], "ends within", id="second member cut"),
        pytest.param(MEMBER[:-8] + bytes(4) + MEMBER[-4:], ".", id="wrong checksum"),
        pytest.param(MEMBER[:-4] + b"\x01\x00\x00\x00", ".", id="false length"),
        pytest.param(LINES, ".", id="not gzip"),
        pytest.param(MEMBER + b"\x00\x00x", "something other", id="something behind zeros"),
        pytest.param(MEMBER + b"x", ".", id="something behind it"),
        pytest.param(MEMBER + bytes(10**6) + MEMBER, "something other", id="a member behind zeros"),
    ],
)
def test_damage_is_noticed(library: str, data: bytes, reason: str) -> None:
    """A damaged gzip file is never taken for a whole one."""
    with pytest.raises(CorruptObjectError, match=reason):
        content(data)


def test_a_bomb_is_not_unpacked(library: str) -> None:
    """A small file cannot fill memory or time."""
    pieces = inflate_gzip(io.BytesIO(gzip.compress(bytes(100 * 2**20), 9)))
    sizes: list[int] = []

    with pytest.raises(CorruptObjectError, match="more than 1000 to one"):
        sizes.extend(map(len, pieces))

    assert sum(sizes) <= codecs.RATIO_FLOOR_BYTES


def test_pieces_are_small(library: str) -> None:
    """Memory does not grow with what a file holds."""
    data = gzip.compress(bytes(8 * 2**20), 1)

    assert max(map(len, inflate_gzip(io.BytesIO(data)))) <= codecs.PIECE_BYTES
