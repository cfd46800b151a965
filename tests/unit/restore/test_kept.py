"""Batches that a restore sends as they are stored."""

import random

import pyarrow as pa
import pytest

from kbackup import batches as batches_module
from kbackup.batches import walk
from kbackup.batches.decoding import decoded
from kbackup.records import batch_bytes
from tests.support.encoded import ZSTD, Sent, batch
from tests.support.target import KeepingTarget, Restoring


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
