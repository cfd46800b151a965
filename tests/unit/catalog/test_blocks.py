"""Blocks of a file by the index beside it: the records of a whole read, without the rest of it."""

import hashlib
import io
from typing import BinaryIO, Final
from uuid import uuid4

import orjson
import pytest
from backup_samples import OPTIONS
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.listing import EVERY_OFFSET, FileSet, Interval
from kbackup.catalog.merging import Failed, StoredRows, steps
from kbackup.formats import FormatOptions, HasIndex
from kbackup.formats.block_gzip import BlockGzipFormat
from kbackup.inspect.peek import peek
from kbackup.naming import INDEX_EXTENSION, DatedLayout, ObjectKey, View
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore

LAYOUT: Final = DatedLayout("systest", file_delim="-", offset_width=12)
FIRST: Final = 1000
RECORDS: Final = 60


class Watched(MemoryStore):
    """A store that notes what is read of it."""

    def __init__(self) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self.opened: list[str] = []
        self.parts: list[tuple[int, int]] = []

    def open(self, key: str) -> BinaryIO:
        """Read all of it."""
        self.opened.append(key.rpartition("/")[2].partition(".")[2])
        return super().open(key)

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Read a part of it."""
        self.parts.append((start, length))
        return io.BytesIO(super().open(key).read()[start : start + length])


def put(store: MemoryStore, key: str, body: bytes) -> None:
    """Store an object that carries no facts, as another tool does."""
    digest = hashlib.sha256(body).hexdigest()
    store.put(key, io.BytesIO(body), sha256=digest, metadata={})


def filled(block_bytes: int = 50, edit: bytes | None = None) -> Watched:
    """A store with one object of `RECORDS` records of five bytes, and its index or *edit*."""
    store, file = Watched(), io.BytesIO()
    options = FormatOptions({"compressed_block_size": block_bytes})
    writer = BlockGzipFormat().writer(file, View.VALUE, options)
    rows = batch_of([{"value": b"%04d" % at} for at in range(RECORDS)])
    writer.write(rows.select(["value"]))
    writer.close({})
    parts = ObjectKey("orders", 0, FIRST, "2026-03-05", ".gz", View.VALUE)
    put(store, LAYOUT.key(parts), file.getvalue())
    assert isinstance(writer, HasIndex)
    index = writer.index(FIRST) if edit is None else edit
    beside = ObjectKey("orders", 0, FIRST, "2026-03-05", INDEX_EXTENSION, View.VALUE)
    put(store, LAYOUT.key(beside), index)
    return store


def only_set(store: MemoryStore) -> FileSet:
    """The one set of records in the store."""
    (files,) = listing.list_backup(store, LAYOUT, OPTIONS).sets[TopicPartition("orders", 0)]
    return files


def rows(store: MemoryStore, wanted: Interval) -> tuple[list[tuple[int, bytes]], list[str]]:
    """Offsets and values of a window, and what kept them from being read."""
    found, errors = [], []
    for step in steps(Reading(store, ReadOptions()), [only_set(store)], wanted=wanted):
        if isinstance(step, StoredRows):
            last = step.batch["offset"][-1].as_py()
            assert last - FIRST + 1 == step.end_row
            found += [(row["offset"], row["value"]) for row in step.batch.to_pylist()]
        elif isinstance(step, Failed):
            errors.append(str(step.error))
    return found, errors


ALL: Final = [(FIRST + at, b"%04d" % at) for at in range(RECORDS)]


@given(st.integers(FIRST - 5, FIRST + 65), st.integers(0, 70), st.integers(1, 400))
def test_a_window_has_the_records_of_a_whole_read(low: int, length: int, block_bytes: int) -> None:
    """For any blocks, a window misses none of its records and gives none a wrong offset."""
    wanted = Interval(low, low + length)
    store = filled(block_bytes)

    found, errors = rows(store, wanted)

    assert not errors
    assert set(found) <= set(ALL)
    assert [row for row in ALL if wanted.low <= row[0] <= wanted.high] == [
        row for row in found if wanted.low <= row[0] <= wanted.high
    ]


def test_peek_reads_one_block_of_the_object() -> None:
    """Peeking costs the index and one ranged request, never the whole object."""
    store = filled()

    (record,) = peek(store, LAYOUT, ReadOptions(), f"orders:0@{FIRST + 42}", count=1)

    assert (FIRST + 42, "0042") == (record["offset"], record["payload"])
    assert ["index.json"] == store.opened
    assert 1 == len(store.parts)
    size = only_set(store).files[0].size
    assert store.parts[0][1] < size / 5


def test_what_follows_the_first_block_is_fetched_together() -> None:
    """A window of many small blocks costs two requests, not one each."""
    store = filled()

    found, errors = rows(store, Interval(FIRST + 15, FIRST + 49))

    assert (40, []) == (len(found), errors)
    assert ["index.json"] == store.opened
    assert 2 == len(store.parts)


@pytest.mark.parametrize(
    "wanted", [EVERY_OFFSET, Interval(FIRST), Interval(0), Interval(FIRST, FIRST + 99)]
)
def test_a_window_of_everything_reads_the_object_whole(wanted: Interval) -> None:
    """A window of everything is read in one request, whose checksum can be compared."""
    store = filled()

    assert (ALL, []) == rows(store, wanted)
    assert not store.parts


@pytest.mark.parametrize(
    "edit",
    [b"", b'{"chunks":[]}', b"{}"],
    ids=["empty", "no blocks", "no index"],
)
def test_a_damaged_index_is_not_used(edit: bytes) -> None:
    """A damaged index is ignored: the object itself has all the records."""
    store = filled(edit=edit)

    assert (ALL, []) == rows(store, Interval(FIRST + 15, FIRST + 49))
    assert not store.parts


def chunk(records: int, length: int) -> bytes:
    """An index of one block."""
    return orjson.dumps(
        {"chunks": [{"byte_length_uncompressed": 5, "num_records": records, "byte_length": length,
                     "byte_offset": 0, "first_record_offset": FIRST}]}
    )  # fmt: skip


def test_an_index_of_another_state_of_the_object_is_not_used() -> None:
    """An index that a crash left behind its grown object is ignored."""
    size = only_set(filled()).files[0].size

    for length in (size - 1, size + 1):
        store = filled(edit=chunk(RECORDS, length))
        assert (ALL, []) == rows(store, Interval(FIRST + 15, FIRST + 49))
        assert not store.parts


def test_an_object_that_holds_more_lines_than_its_index_says_is_bad() -> None:
    """A value held a line feed: where nothing else is known, the index says how many there are."""
    size = only_set(filled()).files[0].size
    store = filled(edit=chunk(RECORDS - 1, size))

    _, errors = rows(store, EVERY_OFFSET)

    assert 1 == len(errors)
    assert "its index says 59" in errors[0]


def test_blocks_that_hold_other_records_than_the_index_says_are_bad() -> None:
    """A part is compared with the index, as a whole object is with its facts."""
    store = filled()
    index = orjson.loads(super(Watched, store).open(str(only_set(store).index)).read())
    first, second = index["chunks"][:2]
    first["num_records"] -= 1
    second["first_record_offset"] -= 1
    second["num_records"] += 1
    put(store, str(only_set(store).index), orjson.dumps(index))

    _, errors = rows(store, Interval(FIRST + 12, FIRST + 13))

    assert 1 == len(errors)
    assert "its index says" in errors[0]
