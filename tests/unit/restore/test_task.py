"""Where a restore goes on, and what it leaves out."""

import pytest

from kbackup.backup.catalog import BackupFile, FileSet
from kbackup.kafka import Position
from kbackup.naming import View
from kbackup.records import TopicPartition
from kbackup.restore.place import Place
from kbackup.restore.task import FIRST_BYTES, TRANSACTION_BYTES, next_limit

WHERE = TopicPartition("orders", 0)


def file_set(start: int) -> FileSet:
    """A set of one whole-record object."""
    key = f"topics/orders/partition=0/orders+0+{start:010d}.record.zstd.parquet"
    main = BackupFile(key, View.RECORD, ".zstd.parquet", "parquet", 1, 0.0)
    return FileSet(WHERE, start, "partition=0", main)


SETS = [file_set(0), file_set(100), file_set(200)]


def test_a_position_finds_its_set_again() -> None:
    """
    A restore goes on in the set it stopped in, without reading those before.
    """
    for index in range(3):
        at = Place(index, 7, 107)
        assert at == Place.of(at.position(SETS), SETS)


@pytest.mark.parametrize("metadata", ["", "null", "{}", '{"key":"gone","rows":3}', "[1]"])
def test_a_position_that_names_no_set_begins_at_the_first(metadata: str) -> None:
    """
    From the beginning, records are left out by their offsets: nothing is lost, nothing is twice.
    """
    assert Place(0, 0, 150) == Place.of(Position(150, metadata), SETS)


def test_transactions_grow_while_the_cluster_is_quick() -> None:
    """
    A few small ones, then the size that costs least.
    """
    limits = [FIRST_BYTES]
    for _ in range(4):
        limits.append(next_limit(limits[-1], 1.0))

    assert limits == sorted(limits)
    assert [TRANSACTION_BYTES] * 2 == limits[-2:]


@pytest.mark.parametrize("bytes_per_s", [20_000, 100_000, 1_000_000, 50_000_000])
def test_a_slow_cluster_gets_transactions_that_end_in_time(bytes_per_s: int) -> None:
    """
    From the second one on, none comes near the five minutes after which it would be aborted.
    """
    limit, seconds = FIRST_BYTES, []
    for _ in range(20):
        seconds.append(limit / bytes_per_s)
        limit = next_limit(limit, seconds[-1])

    assert max(seconds[2:]) < 150
