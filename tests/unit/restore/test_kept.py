"""Batches that a restore sends as they are stored."""

import random
from itertools import count

import pyarrow as pa
import pytest

from kbackup import batches as batches_module
from kbackup.batches import HEADER_BYTES, walk
from kbackup.batches.decoding import decoded
from kbackup.records import batch_bytes
from kbackup.restore import against_target, transaction
from kbackup.restore.transaction import RateLimit
from tests.support.encoded import ZSTD, Sent, batch, sealed
from tests.support.standby import Standby
from tests.support.target import COPY, FakeTarget, KeepingTarget, Log, Restoring
from tests.unit.restore.test_against_target import compared


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch be large when it has some records."""
    monkeypatch.setattr(batches_module, "LEAST_BYTES", (2000, 1500))


def noise(base: int, size: int, codec: int = 0) -> bytes:
    """A batch of three records, of so many bytes each."""
    chance = random.Random(base)
    return batch(base, [Sent(chance.randbytes(size), b"k") for _ in range(3)], codec)


def test_what_went_as_stored_is_counted_in_bytes() -> None:
    """Of batches their size in Kafka, of records that are packed anew what each counts."""
    of = Restoring(cluster=KeepingTarget())
    large, small = (noise(0, 900), noise(3, 800, ZSTD)), noise(6, 10)
    of.backup.put_batches("orders", *large, small)

    (report,) = of.restore()

    (rows,) = decoded(walk(pa.py_buffer(small)).check())
    as_stored = sum(map(len, large))
    assert as_stored == report.done.as_stored
    assert as_stored + batch_bytes(rows) == report.done.bytes_written
    assert 9 == report.done.records


@pytest.mark.parametrize(("policy", "code"), [("fail", 7), ("log", 3)])
def test_a_batch_that_the_cluster_cannot_unpack_is_bad_as_it_is_elsewhere(
    policy: str, code: int
) -> None:
    """Its CRC32C is right; what stands before it is restored, and the object is named."""
    standby = Standby(target=KeepingTarget())
    parts = [noise(base, 900, ZSTD) for base in (0, 3, 6)]
    bad = sealed(3, b"\xff" * (len(parts[1]) - HEADER_BYTES), 3, 2, attributes=ZSTD)
    altered = b"".join([parts[0], bad, parts[2]])
    key = standby.backup.put_batches("orders", *parts, altered=altered)

    done = standby.follow(lambda _: False, follow=False, behavior_on_error=policy)

    assert (code, 3) == (done["exit_code"], done["records"])
    assert 3 == len(standby.target.values(COPY.topic))
    said = [one["key"] for one in done["errors"]] or [one["text"] for one in done["warnings"]]
    assert any(key in one for one in said)


def backed_up() -> Restoring:
    """Batches of which every third is small, twelve in each of three objects."""
    of = Restoring(cluster=KeepingTarget())
    for start in range(0, 108, 36):
        parts = (noise(at, 10 if at % 9 == 3 else 900) for at in range(start, start + 36, 3))
        of.backup.put_batches("orders", *parts)
    return of


def log_of(of: Restoring) -> Log:
    """The copy."""
    log: Log = of.cluster.logs[COPY]
    return log


@pytest.mark.parametrize("units", [1, 4])
def test_a_copy_is_compared_in_its_batches(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tasks share it, and where some were packed anew."""
    if units > 1:
        monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 20)
        monkeypatch.setattr(against_target, "RECORDS_MOST", 30)
    of = backed_up()
    of.restore()

    found = compared(of)

    assert (0, 108, "same") == (found.exit_code, found.row.records, found.row.state)
    assert of.cluster.batches_read == 24 + 36  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", [0, 10, 53, 107])
def test_a_record_that_was_altered_in_a_copied_batch_is_named(at: int) -> None:
    """By its offset; all others are the same."""
    of = backed_up()
    of.restore()
    rows = log_of(of).rows
    rows[at] = {**rows[at], "value": b"altered"}

    found = compared(of)

    assert (7, 107, 1) == (found.exit_code, found.row.records, found.row.different)
    assert [(at, at, "value")] == [
        (one.offset, one.kafka_offset, one.what) for one in found.row.differences
    ]


@pytest.mark.parametrize("at", [0, 50])
def test_a_record_that_a_copied_batch_lacks_is_named(at: int) -> None:
    """What follows is the same, whatever its offset is now."""
    of = backed_up()
    of.restore()
    del log_of(of).rows[at]

    found = compared(of)

    assert (7, 107, 1) == (found.exit_code, found.row.records, found.row.backup_only)


def test_a_copy_that_was_made_by_records_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its batches is one of the backup, nor do its transactions end where one does."""
    of = backed_up()
    monkeypatch.setattr(against_target, "RECORDS_MOST", 30)
    with monkeypatch.context() as patch:
        patch.setattr(KeepingTarget, "new_writer", FakeTarget.new_writer)
        patch.setattr(transaction, "TRANSACTION_RECORDS", 20)
        of.pace = RateLimit(records=20, steady_s=count().__next__)
        of.restore()
    rows = log_of(of).rows
    rows[70] = {**rows[70], "value": b"altered"}

    found = compared(of)

    assert (7, 107, 1) == (found.exit_code, found.row.records, found.row.different)


def test_an_object_whose_end_was_not_restored_is_compared_up_to_there() -> None:
    """The end of what was asked for is in the middle of a batch."""
    of = backed_up()
    of.restore(to_offset=50)

    found = compared(of, to_offset=50)

    assert (0, 50, "same") == (found.exit_code, found.row.records, found.row.state)
    assert not of.cluster.batches_read  # type: ignore[attr-defined]
