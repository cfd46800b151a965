"""What is written together and not committed yet, and how much that may be."""

from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from kbackup.records import TopicPartition
from kbackup.reports import Done, Place

TRANSACTION_RECORDS: Final = 500_000
TRANSACTION_BYTES: Final = 64 * 2**20
"""A transaction ends after this many records or bytes: what a kill makes a rerun write again."""

FIRST_BYTES: Final = 8 * 2**20
"""What the first transaction has.  The next ones grow while the cluster is quick, and shrink where
it is slow: one that outlasts the producer's timeout of five minutes is lost, and would be again."""

QUICK_S: Final = 10.0
SLOW_S: Final = 60.0
"""A transaction that takes less, or more, is followed by a larger, or a smaller one."""

_FACTOR: Final = 4
_LEAST_BYTES: Final = 2**18


@dataclass(slots=True)
class Transaction:
    """What has been done and is not committed yet.

    Attributes:
        done: What the run has done, with what is not committed; but for its records.
        place: Where a commit would leave the restore.
        passed: Whole records of the backup since the last commit; None: not known.
        records: Records sent since the last commit.
        sent: Of these, how many to each partition.
        bytes: Their size in memory.
        begun: Clock of the first of them.
    """

    done: Done
    place: Place
    passed: int | None = 0
    records: int = 0
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    bytes: int = 0
    begun: float = 0.0

    def count(self, **more: int) -> None:
        """Add to what has been done."""
        self.done = replace(self.done, **{n: getattr(self.done, n) + by for n, by in more.items()})

    def send(self, where: TopicPartition, records: int) -> None:
        """Note records that were sent to a partition."""
        self.sent[where] = self.sent.get(where, 0) + records

    def take(self, batch: pa.RecordBatch, place: Place, *, passed: int) -> None:
        """Take in records that were sent, which lead to *place*."""
        self.place = place
        self.passed = None if self.passed is None else self.passed + passed
        self.records += len(batch)
        self.bytes += batch.nbytes
        if len(batch):
            first, last = (batch["offset"][at].as_py() for at in (0, len(batch) - 1))
            begun = first if self.done.first is None else self.done.first
            self.done = replace(self.done, first=begun, last=last)


def next_limit(limit: int, seconds: float) -> int:
    """Return how many bytes the transaction has that follows one of *limit* bytes."""
    if seconds > SLOW_S:
        return max(_LEAST_BYTES, limit // _FACTOR)
    return min(TRANSACTION_BYTES, limit * _FACTOR) if seconds < QUICK_S else limit
