"""A broker in this process that answers as one of a release has answered; what both are asked."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from kbackup.batches import walk
from kbackup.batches.decoding import decoded
from kbackup.kafka import KafkaSettings, Position
from kbackup.kafka.fetch import BatchReader
from kbackup.kafka.produce import BatchProducer
from kbackup.records import Span, TopicPartition
from tests.support.encoded import Sent, batch
from tests.support.fake_broker import FakeBroker, _is_compact
from tests.support.recorded import ADDRESS, Asked, exchanges

WHERE: Final = TopicPartition("t", 0)
RECORDS: Final = [Sent(b"a"), Sent(None, b"k"), *[Sent(b"", b"")] * 3]
BATCHES: Final = walk(pa.py_buffer(batch(40, RECORDS[:2]) + batch(42, RECORDS[2:]))).check()
"""What is written in one transaction, and read again."""


class NoPositions:
    """Those of a group, which nobody reads: the client library would ask for much else."""

    def borrow(self, _settings: KafkaSettings, _group: str) -> None:
        """Lend none."""

    def give_back(self, _positions: None) -> None:
        """Take none back."""


def write(servers: str) -> None:
    """Write `BATCHES` in a transaction that has a position; `produce.WRITERS` are `NoPositions`."""
    writer = BatchProducer(KafkaSettings(servers), WHERE, "g", max_message_bytes=10_000)
    with closing(writer):
        writer.write_batches(BATCHES)
        writer.commit(Position(45, "said"))


def read(servers: str) -> list[dict[str, Any]]:
    """Read what `write` has written to a new topic."""
    with closing(BatchReader(KafkaSettings(servers))) as opened:
        found = [rows for some in opened.batches(WHERE, Span(0, 5)) for rows in decoded(some)]
    return list(pa.Table.from_batches(found).to_pylist())


@dataclass
class RecordedBroker(FakeBroker):
    """A broker that answers what was asked in a recording as it was answered then.

    The answers to one request come in their order, and the last one stays; what was not asked then
    closes the connection.

    Attributes:
        release: Of Kafka.
        unknown: What was not asked in the recording.
    """

    answers: list[Any] = field(default_factory=list)
    release: str = ""
    unknown: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left: dict[Asked, list[bytes]] = {}
        for asked, answer in exchanges(self.release):
            self._left.setdefault(asked, []).append(answer)

    def _answered(self, api: int, version: int, body: bytes) -> bytes | None:
        left = self._left.get((api, version, body))
        if left is None:
            self.unknown.append((api, version, body))
            return None
        found = left[0] if len(left) == 1 else left.pop(0)
        found = found.replace(ADDRESS + bytes(4), ADDRESS + self.port.to_bytes(4, "big"))
        return found[1:] if _is_compact(api, version) else found  # which `FakeBroker` begins


@contextmanager
def recorded(release: str) -> Iterator[RecordedBroker]:
    """A broker of a release, which is asked for nothing that the real one was not asked for."""
    with RecordedBroker(release=release) as broker:
        yield broker
    assert [] == broker.unknown
