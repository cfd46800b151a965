"""Compression around files of rows: what is written is read, and damage is never a shorter file."""

import bz2
import gzip
import io
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup import formats, plugins
from kbackup.errors import CorruptObjectError
from kbackup.formats import FormatOptions, codecs
from kbackup.formats.block_gzip import CODEC
from kbackup.formats.codecs import BZIP2, CODECS, ZSTD, Codec
from kbackup.formats.separated import COMPRESSION
from kbackup.naming import View
from kbackup.records import Kind

COMPRESSED = [
    plugin.name
    for plugin in plugins.installed("formats")
    if not formats.by_name(plugin.name).traits.reads_only
    and {COMPRESSION, CODEC} & {*(declared := plugins.options("formats", plugin.name))}
    and not any(option.is_required for option in declared)
]
"""The formats that are compressed by one of the codecs, and need nothing else to be set."""

every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


def compressed(codec: Codec, pieces: Sequence[bytes], level: int = -1) -> bytes:
    """Return one stream."""
    file = io.BytesIO()
    stream = codecs.compressor(codec, file, level)
    for piece in pieces:
        stream.write(memoryview(piece))
    stream.finish()
    return file.getvalue()


def inflated(codec: Codec, data: bytes) -> bytes:
    """Return what a file holds."""
    return b"".join(codecs.inflate(codec, io.BytesIO(data)))


@every_codec
@pytest.mark.parametrize("level", [-1, 0, 1, 9])
@given(pieces=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6))
def test_streams_in_a_row_are_read_and_calls_leave_no_trace(
    codec: Codec, level: int, pieces: list[bytes]
) -> None:
    """A retry gets its rows in other pieces, and must write the same bytes."""
    whole = b"".join(pieces)
    data = compressed(codec, pieces, level)

    assert data == compressed(codec, [whole], level)
    assert whole * 2 == inflated(codec, data * 2)


@pytest.mark.parametrize(
    ("codec", "size"), [(ZSTD, 9 * 2**20 + 5), (BZIP2, 1_000_005)], ids=["zstd", "bzip2"]
)
def test_more_than_a_frame_is_written_the_same_in_any_pieces(codec: Codec, size: int) -> None:
    """Compressed frames have the same lengths, however rows arrive."""
    whole = b"".join(b"%d," % at for at in range(1_400_000))[:size]
    pieces = [whole[at : at + 300_003] for at in range(0, len(whole), 300_003)]

    data = compressed(codec, pieces)

    assert compressed(codec, [whole]) == data
    assert whole == inflated(codec, data)


@every_codec
def test_a_file_that_is_cut_anywhere_is_an_error(codec: Codec) -> None:
    """A compressed file that was cut short is damaged: it never reads as fewer rows."""
    data = compressed(codec, [bytes(range(256)) * 3])

    for end in range(len(data)):
        with pytest.raises(CorruptObjectError):
            inflated(codec, data[:end])
    for junk in (b"x", b"BZ", b"\x28\xb5"):
        with pytest.raises(CorruptObjectError):
            inflated(codec, data + junk)


@pytest.mark.parametrize("codec", [ZSTD, BZIP2], ids=lambda codec: codec.name)
def test_a_bomb_is_not_unpacked(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops at a compression ratio that no real lines have."""
    monkeypatch.setattr(codecs, "RATIO_FLOOR_BYTES", 2**18)
    monkeypatch.setattr(codecs, "RATIO_MAX", 100)

    with pytest.raises(CorruptObjectError, match="more than 100 to one"):
        inflated(codec, compressed(codec, [bytes(2**20)]))


def test_other_tools_read_them() -> None:
    """Compressed files can be read by other tools."""
    text = b"a\nb\n" * 1000

    assert text == bz2.decompress(compressed(BZIP2, [text]))
    assert text == gzip.decompress(compressed(CODECS[0], [text]))
    assert text == pa.Codec("zstd").decompress(
        compressed(ZSTD, [text]), decompressed_size=len(text), asbytes=True
    )


@every_codec
@pytest.mark.parametrize("name", COMPRESSED)
def test_each_format_of_rows_writes_and_reads_it(codec: Codec, name: str) -> None:
    """The extension says which codec it is, whatever is configured when it is read."""
    options = FormatOptions(
        {
            "s3.compression.type": codec.name,
            "compressed_block_codec": codec.name,
            "compressed_block_size": 10,
        }
    )
    form = formats.by_name(name)
    rows = pa.array([b'{"a":%d}' % at for at in range(50)], pa.binary())
    file = io.BytesIO()
    writer = form.writer(file, View.VALUE, options)
    column = rows if Kind.BYTES in form.traits.takes else pa.ExtensionArray.from_storage(
        pa.json_(), rows.cast(pa.string())
    )  # fmt: skip
    writer.write(pa.record_batch([column], ["value"]))
    writer.close({})
    extension = form.extension(options)
    file.seek(0)

    assert extension.endswith(codec.extension)
    assert name == formats.by_extension(extension, FormatOptions())
    assert codec.has_checksum == formats.checks_itself("bytes", extension)
    found = form.read(file, View.VALUE, extension, FormatOptions())
    assert rows.to_pylist() == [
        value
        for each in found
        for value in pa.array(each["value"]).cast(pa.string()).cast(pa.binary()).to_pylist()
    ]
