"""A partition's records from any number of directories: in order, each once, few objects open."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest
from backup_samples import JSON, Backup, batch
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.listing import FileSet
from kbackup.catalog.merging import Failed, Finished, Step, StoredRows, steps
from kbackup.errors import CorruptObjectError
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.stores import Store
from tests.support.target import Restoring

WHERE = TopicPartition("orders", 0)


def found(backup: Backup) -> list[FileSet]:
    """The file sets of the partition."""
    return listing.list_backup(backup.store, backup.layout, ReadOptions().formats).sets[WHERE]


def read(backup: Backup, *, offset: int = 0) -> list[Step]:
    """All steps."""
    return [*steps(Reading(backup.store, ReadOptions()), found(backup), offset=offset)]


def offsets(read: Sequence[Step]) -> list[int]:
    """The offsets of all rows."""
    batches = [step.batch for step in read if isinstance(step, StoredRows)]
    return [at for rows in batches for at in rows["offset"].to_pylist()]


@st.composite
def spread(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Objects, each a directory and its offsets, that hold every offset of a partition once."""
    all_offsets = sorted(draw(st.sets(st.integers(0, 60), min_size=1)))
    homes = [draw(st.sampled_from(["a=1", "a=2", "a=3"])) for _ in all_offsets]
    objects = []
    for home in sorted(set(homes)):
        mine = [at for at, its in zip(all_offsets, homes, strict=True) if its == home]
        size = draw(st.integers(1, 9))
        objects += [(home, mine[at : at + size]) for at in range(0, len(mine), size)]
    return objects


@settings(deadline=None, max_examples=60)
@given(spread(), st.integers(0, 70), st.integers(1, 400))
def test_offsets_rise_over_all_directories(
    objects: list[tuple[str, list[int]]], offset: int, woven_bytes: int
) -> None:
    """Whatever the partitioner, records come in order, from any offset on, none of them twice."""
    backup = Backup()
    for directory, held in objects:
        backup.put_in(directory, "orders", 0, held)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbackup.catalog.merging.WOVEN_BYTES", woven_bytes)
        done = read(backup, offset=offset)

    expected = sorted(at for _, held in objects for at in held if at >= offset)
    assert expected == offsets(done)
    assert [] == [step for step in done if isinstance(step, Failed)]
    assert 0 == sum(step.duplicates for step in done if isinstance(step, StoredRows))
    assert len(objects) == sum(isinstance(step, Finished) for step in done)


class CountingStore:
    """A store that counts the objects that are open at once."""

    def __init__(self, store: Store) -> None:
        self._store, self.open_now, self.most = store, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, key: str) -> Any:
        """Open an object that counts itself."""
        body = self._store.open(key)
        self.open_now += 1
        self.most = max(self.most, self.open_now)
        close = body.close

        def closed() -> None:
            if not body.closed:
                self.open_now -= 1
            close()

        body.close = closed  # type: ignore[method-assign]
        return body


def test_only_objects_that_overlap_are_open() -> None:
    """A partition of a hundred objects in two directories takes the memory of two."""
    backup = Backup()
    for at in range(0, 200, 4):
        backup.put_in("odd=0", "orders", 0, [at, at + 2])
        backup.put_in("odd=1", "orders", 0, [at + 1, at + 3])
    store = CountingStore(backup.store)

    reading = Reading(store, ReadOptions())  # type: ignore[arg-type]
    done = [*steps(reading, found(backup))]

    assert list(range(200)) == offsets(done)
    assert (2, 0) == (store.most, store.open_now)


def test_leaving_early_lets_go_of_every_object() -> None:
    """A merge that is abandoned closes every object."""
    backup = Backup()
    backup.put_in("a=1", "orders", 0, range(0, 10, 2))
    backup.put_in("a=2", "orders", 0, range(1, 10, 2))
    store = CountingStore(backup.store)

    reading: Any = steps(Reading(store, ReadOptions()), found(backup))  # type: ignore[arg-type]
    next(reading)
    reading.close()

    assert 0 == store.open_now


def test_the_same_record_in_two_objects_comes_once() -> None:
    """A rerun with another cut leaves such objects; each record that is held twice is counted."""
    backup = Backup()
    backup.put("orders", 0, range(10))
    backup.put("orders", 0, range(5, 15))

    done = read(backup)

    assert list(range(15)) == offsets(done)
    assert 5 == sum(step.duplicates for step in done if isinstance(step, StoredRows))


def test_other_records_at_the_same_offsets_are_not_chosen_from() -> None:
    """Which of two objects is wrong cannot be known here: one is named, and the other stays."""
    backup = Backup()
    backup.put("orders", 0, range(10))
    (bad,) = backup.put("orders", 0, batch(range(5, 8), value=b"{}"))

    done = read(backup)

    (failed,) = [step for step in done if isinstance(step, Failed)]
    assert isinstance(failed.error, CorruptObjectError)
    assert (bad, "a different record at offset 5") == (
        failed.files.id, failed.error.why.partition("holds ")[2][:30],
    )  # fmt: skip
    assert list(range(10)) == offsets(done)


def test_a_damaged_object_does_not_hide_those_beside_it() -> None:
    """A damaged object does not stop the others from being read in order."""
    backup = Backup()
    for at in range(2):
        key = backup.put_in(f"a={at}", "orders", 0, range(at, 20, 2))
    backup.replace(key, backup.body(key)[:-20])

    done = read(backup)

    assert [key] == [step.files.id for step in done if isinstance(step, Failed)]
    assert list(range(0, 20, 2)) == offsets(done)


def test_rows_without_offsets_come_object_after_object() -> None:
    """Order within a directory is kept; objects of several directories follow by first offset."""
    backup = Backup()
    for directory, held in (("a=1", [0, 2]), ("a=2", [1, 3]), ("a=1", [4])):
        backup.put_in(directory, "orders", 0, held, views=JSON)

    done = read(backup)

    by_set = groupby(
        (step for step in done if isinstance(step, StoredRows)), key=lambda step: step.files[0].id
    )
    assert [0, 1, 4] == [min(offsets([*rows])) for _, rows in by_set]


def _rows(restoring: Restoring) -> Iterator[bytes | None]:
    yield from restoring.cluster.values("copy_of_orders")


def test_a_restore_of_several_directories_is_the_topic_again() -> None:
    """Every record of every directory comes back in order of offsets, and again after more."""
    again = Restoring()
    for at in range(0, 40, 20):
        again.backup.put_in("odd=0", "orders", 0, range(at, at + 20, 2))
        again.backup.put_in("odd=1", "orders", 0, range(at + 1, at + 20, 2))
    (first,) = again.restore(run="r1")
    again.backup.put_in("odd=0", "orders", 0, range(40, 60, 2))
    again.backup.put_in("odd=1", "orders", 0, range(41, 60, 2))

    again.restore(run="r2")

    assert [b'{"n":%d}' % at for at in range(60)] == list(_rows(again))
    assert (40, 0) == (first.done.records, first.done.duplicates)
