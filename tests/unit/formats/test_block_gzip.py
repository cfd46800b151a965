"""Block-gzip files, their index and their names: as the original writes them."""

import io
import json
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.errors import ConfigurationError, CorruptObjectError, ObjectKeyError
from kbackup.formats import FormatOptions, HasIndex
from kbackup.formats.block_gzip import BlockGzipFormat
from kbackup.formats.block_index import BlockIndex
from kbackup.naming import (
    INDEX_EXTENSION,
    OFFSET_MAX,
    PARTITION_MAX,
    DatedLayout,
    Layout,
    ObjectKey,
    View,
)

FORM: Final = BlockGzipFormat()
LAYOUT: Final = DatedLayout("systest", file_delim="-", offset_width=12)
ORIGINALS: Final = sorted((Path(__file__).parents[2] / "conformance/block_gzip").glob("*.gz"))
values = st.lists(st.binary(max_size=40).filter(lambda value: b"\n" not in value), min_size=1)


def written(
    rows: list[bytes], block_bytes: int = 2**26, level: int = -1, first_offset: int = 0
) -> tuple[bytes, BlockIndex]:
    """Return a file and its index."""
    options = FormatOptions({"compressed_block_size": block_bytes, "s3.compression.level": level})
    file = io.BytesIO()
    writer = FORM.writer(file, View.VALUE, options)
    writer.write(pa.record_batch([pa.array(rows, pa.binary())], ["value"]))
    writer.close({})
    assert isinstance(writer, HasIndex)
    index = BlockIndex.from_bytes(writer.index(first_offset), first_offset)
    return file.getvalue(), index


def read(data: bytes) -> list[bytes]:
    """Return the values in a file, or in some blocks of one."""
    batches = FORM.read(io.BytesIO(data), View.VALUE, ".gz", FormatOptions())
    return [value for batch in batches for value in batch["value"].to_pylist()]


@pytest.mark.parametrize("path", ORIGINALS, ids=lambda path: path.name)
def test_a_file_and_its_index_are_the_originals_byte_for_byte(path: Path) -> None:
    """The same records, under the original's own level of gzip, make the same two objects."""
    parts = LAYOUT.parse(f"systest/2016-02-24/{path.name}")
    original = path.read_bytes()

    data, index = written(read(original), level=6, first_offset=parts.start_offset)

    assert original == data
    assert path.with_suffix(".index.json").read_bytes() == index.to_bytes()


@given(values, st.integers(1, 60), st.integers(0, 10**12))
def test_each_block_is_read_by_its_place_in_the_index(
    rows: list[bytes], block_bytes: int, first: int
) -> None:
    """Each block decompresses alone to its records, and is no larger than asked for."""
    data, index = written(rows, block_bytes, first_offset=first)

    found: list[bytes] = []
    for block in index.blocks:
        some = read(data[block.byte_offset : block.byte_offset + block.byte_length])
        assert len(some) == block.num_records
        assert block == index.at(first + len(found)) == index.at(block.next_offset - 1)
        assert block.byte_length_uncompressed == sum(len(value) + 1 for value in some)
        assert block.num_records == 1 or block.byte_length_uncompressed <= block_bytes
        found += some
    assert rows == found == read(data)
    assert (len(data), len(rows)) == (index.size, index.records)
    assert first + len(rows) == index.blocks[-1].next_offset


def test_a_block_ends_before_the_record_that_would_make_it_too_large() -> None:
    """A block ends before the record that would make it larger than allowed."""
    _, index = written([b"123", b"567", b"9"], 8)

    assert [(8, 2), (2, 1)] == [
        (block.byte_length_uncompressed, block.num_records) for block in index.blocks
    ]


@pytest.mark.parametrize(
    ("value", "stored", "restored"),
    [
        (b"a", b"a\n", [b"a"]),
        (b"", b"\n", [b""]),
        (b"a\n", b"a\n", [b"a"]),
        (b"\n", b"\n", [b""]),
        (b"a\nb", b"a\nb\n", [b"a", b"b"]),
    ],
)
def test_what_a_line_loses(
    value: bytes, stored: bytes, restored: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A line feed at a value's end is dropped, one within splits it; a warning says so."""
    data, index = written([value])

    assert len(stored) == index.blocks[0].byte_length_uncompressed
    assert restored == read(data)
    assert (b"\n" in value) == ("contains a line feed" in caplog.text)


SOUND: Final = {
    "byte_length_uncompressed": 2, "num_records": 1, "byte_length": 22, "byte_offset": 0,
    "first_record_offset": 7,
}  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"chunks":[]}', '{"chunks":[{}]}', "\xff"])
def test_what_is_no_index_is_refused(text: str) -> None:
    """Text that is not an index is refused, and no request is based on it."""
    with pytest.raises(CorruptObjectError):
        BlockIndex.from_bytes(text.encode("latin-1"), 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("byte_offset", 1),
        ("first_record_offset", 8),
        ("num_records", True),
        ("num_records", -1),
        ("byte_length", 2**63),
        ("byte_length", "22"),
    ],
)
def test_an_index_whose_blocks_do_not_add_up_is_refused(name: str, value: object) -> None:
    """The blocks follow each other, from the offset in the name of the object on."""
    sound = json.dumps({"chunks": [SOUND]}).encode()
    unsound = json.dumps({"chunks": [SOUND | {name: value}]}).encode()

    assert 8 == BlockIndex.from_bytes(sound, 7).blocks[-1].next_offset
    with pytest.raises(CorruptObjectError):
        BlockIndex.from_bytes(unsound, 7)


@pytest.mark.parametrize("view", [view for view in View if view is not View.VALUE])
def test_it_holds_values_alone(view: View) -> None:
    """Keys and headers are not stored, and this is stated."""
    with pytest.raises(ConfigurationError, match="block_gzip"):
        FORM.writer(io.BytesIO(), view, FormatOptions())


@given(
    st.from_regex(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,60}", fullmatch=True),
    st.integers(0, PARTITION_MAX), st.integers(0, OFFSET_MAX), st.dates(date(1970, 1, 1)),
    st.sampled_from([".gz", INDEX_EXTENSION]), st.sampled_from(["", "systest", "a/b"]),
)  # fmt: skip
def test_a_dated_key_is_read_back(
    topic: str, partition: int, offset: int, day: date, extension: str, folder: str
) -> None:
    """Dated keys are parsed: topics that end in digits too, and numbers wider than padded."""
    layout = DatedLayout(folder, file_delim="-", offset_width=12)
    parts = ObjectKey(topic, partition, offset, day.isoformat(), extension, View.VALUE)

    key = layout.key(parts)

    assert parts == layout.parse(key)
    assert key.startswith(layout.day_prefix(day, topic, partition))


def test_dated_keys_are_the_originals() -> None:
    """Five digits for the partition, twelve for the offset, and one pointer a partition."""
    parts = ObjectKey("system-test", 0, 100, "2016-02-24", ".gz", View.VALUE)

    assert "systest/2016-02-24/system-test-00000-000000000100.gz" == LAYOUT.key(parts)
    assert "systest/last_chunk_index.system-test-00000.txt" == LAYOUT.pointer("system-test", 0)
    assert LAYOUT.is_pointer("systest/last_chunk_index.system-test-00000.txt")
    assert not Layout("systest").is_pointer("systest/last_chunk_index.system-test-00000.txt")


@pytest.mark.parametrize(
    "key",
    [
        "systest/last_chunk_index.a-00000.txt", "systest/20160224/a-00000-000000000000.gz",
        "systest/2016-02-24/a-000000000000.gz", "systest/2016-02-24/x/a-00000-000000000000.gz",
        "2016-02-24/a-00000-000000000000.gz", "systest/2016-02-24/..-00000-000000000000.gz",
    ],
)  # fmt: skip
def test_other_names_are_no_dated_keys(key: str) -> None:
    """A key that only resembles a dated one is foreign."""
    with pytest.raises(ObjectKeyError):
        LAYOUT.parse(key)
