"""Batches come as they are stored where one object has their offsets, in order with all others."""

from collections.abc import Sequence
from hashlib import sha256

import pytest
from backup_samples import Backup
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup import batches as batches_module
from kbackup.batches import APPEND_TIME, Kept
from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.merging import Failed, Finished, Step, StoredBatches, StoredRows, steps
from kbackup.catalog.reading import unpacked
from kbackup.errors import CorruptObjectError
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from tests.support.encoded import LZ4, NONE, ZSTD, Sent, batch

WHERE = TopicPartition("orders", 0)
KEPT = Kept(2**20)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch be large when it has some records."""
    monkeypatch.setattr(batches_module, "LEAST_BYTES", (200, 150))


def one(base: int, count: int, codec: int = NONE, attributes: int = 0) -> bytes:
    """A batch; one of three records is large."""
    records = [Sent(sha256(b"%d" % at).digest()) for at in range(base, base + count)]
    return batch(base, records, codec, attributes=attributes)


def read(backup: Backup, offset: int = 0, kept: Kept = KEPT) -> list[Step]:
    """All steps."""
    sets = listing.list_backup(backup.store, backup.layout, ReadOptions().formats).sets[WHERE]
    return [*steps(Reading(backup.store, ReadOptions()), sets, offset=offset, kept=kept)]


def kinds(found: Sequence[Step]) -> list[tuple[type[Step], list[int]]]:
    """What came, in order: by which of them, and the offsets."""
    made: list[tuple[type[Step], list[int]]] = []
    for step in found:
        match step:
            case StoredRows(batch=rows):
                made.append((StoredRows, rows["offset"].to_pylist()))
            case StoredBatches(batches, files):
                parts = unpacked(files, batches, ReadOptions())
                offsets = [at for part in parts for at in part["offset"].to_pylist()]
                made.append((StoredBatches, offsets))
    return made


def test_small_batches_come_as_rows_and_others_as_they_are() -> None:
    """Also those that are compacted, or have a broker's time, which nobody can send as they are."""
    backup = Backup()
    compacted = batch(30, [Sent(b"v" * 200)] * 3, deltas=[0, 2, 4])
    backup.put_batches(
        "orders", one(0, 1), one(1, 1), one(2, 9), one(11, 9, ZSTD), one(20, 9, NONE, APPEND_TIME),
        compacted, one(35, 9),
    )  # fmt: skip

    found = kinds(read(backup))

    rows, whole = StoredRows, StoredBatches
    assert [
        (rows, [0, 1]), (whole, [*range(2, 20)]), (rows, [*range(20, 29), 30, 32, 34]),
        (whole, [*range(35, 44)]),
    ] == found  # fmt: skip


@pytest.mark.parametrize(
    ("kept", "whole"),
    [(Kept(2**20, ZSTD), [*range(9, 18)]), (Kept(300), []), (Kept(2**20, -1), [])],
)
def test_what_the_target_would_change_or_refuse_comes_as_rows(kept: Kept, whole: list[int]) -> None:
    """Batches of another codec than the target's own, and those that are larger than it takes."""
    backup = Backup()
    backup.put_batches("orders", one(0, 9), one(9, 9, ZSTD), one(18, 9, LZ4))

    found = kinds(read(backup, kept=kept))

    assert whole == [at for kind, offsets in found if kind is StoredBatches for at in offsets]
    assert [*range(27)] == [at for _, offsets in found for at in offsets]


def test_small_batches_are_kept_sooner_where_they_are_compressed() -> None:
    """Packed anew, they would be larger."""
    backup = Backup()
    backup.put_batches("orders", one(0, 3), one(3, 3, ZSTD))

    assert [(StoredRows, [0, 1, 2]), (StoredBatches, [3, 4, 5])] == kinds(read(backup))


def test_a_start_within_a_batch_unpacks_it_and_no_other() -> None:
    """A restore by records may have ended anywhere."""
    backup = Backup()
    backup.put_batches("orders", one(0, 9), one(9, 9), one(18, 9))

    found = kinds(read(backup, 12))

    assert [(StoredRows, [*range(12, 18)]), (StoredBatches, [*range(18, 27)])] == found
    assert [(StoredBatches, [*range(9, 27)])] == kinds(read(backup, 9))


def test_objects_that_overlap_are_merged_by_records() -> None:
    """Each record comes once, and what only one object has goes on as it is."""
    backup = Backup()
    backup.put_batches("orders", one(0, 9), one(9, 9), one(18, 9))
    backup.put_batches("orders", one(9, 9), directory="partition=again")

    found = read(backup)

    assert [*range(27)] == [at for _, offsets in kinds(found) for at in offsets]
    assert 9 == sum(step.duplicates for step in found if isinstance(step, StoredRows))
    assert 2 == sum(isinstance(step, Finished) for step in found)


def test_a_damaged_batch_is_named_with_its_object_and_offset() -> None:
    """Nothing of it comes, though its records are never unpacked."""
    backup = Backup()
    damaged = bytearray(one(0, 9) + one(9, 9))
    damaged[-3] ^= 4
    key = backup.put_batches("orders", one(0, 9), one(9, 9), altered=bytes(damaged))

    found = read(backup)

    assert [(StoredBatches, [*range(9)])] == kinds(found)
    (failed,) = [step for step in found if isinstance(step, Failed)]
    assert isinstance(failed.error, CorruptObjectError)
    assert (key, True) == (failed.error.place["key"], "offset 9" in failed.error.why)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([NONE, ZSTD])), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.integers(0, 60),
)
def test_records_are_those_that_come_without(
    sizes: list[tuple[int, int]], cuts: list[bool], offset: int
) -> None:
    """However batches are spread over objects, and wherever it begins."""
    backup, base, parts = Backup(), 0, list[bytes]()
    for (count, codec), is_cut in zip(sizes, cuts, strict=False):
        parts.append(one(base, count, codec))
        base += count
        if is_cut:
            backup.put_batches("orders", *parts)
            parts = []
    if parts:
        backup.put_batches("orders", *parts)

    found = kinds(read(backup, offset))

    assert [*range(offset, base)] == [at for _, offsets in found for at in offsets]
