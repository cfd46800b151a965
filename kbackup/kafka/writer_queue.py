"""What a producer keeps until it is acknowledged: enough to be busy, and no more.

Of an idempotent producer librdkafka (2.12 to 2.16) has one request at a time on its way to a
partition: it compares the five that it allows with the records that are on their way.  While it
waits for the answer, its thread goes round and round as soon as a record has waited for
``linger.ms``, and takes the processor time that a broker on the same machine needs: of 20 million
records of 100 bytes, restored where the broker was the limit, 25 s of CPU instead of 5.

So records to one partition may wait for long: a full batch is sent at once, a flush sends the rest,
and the queue has room for a batch beside the largest record, so that no batch waits for room.
Where the operator has made the queue smaller than that, they wait for others as briefly as those
to several partitions.  A flush lets no record wait, so it comes last:
`kbackup.kafka.writer_answers`.
"""

from collections.abc import Mapping
from typing import Any, Final

BATCH_BYTES: Final = 2**20
"""What the client sends at once, where the topic takes as much; below Kafka's default limit."""

BATCHES: Final = 4
"""Batches in the queue to one partition: one on its way, one that is ready, and two to be filled
while the broker answers."""

QUEUE_RECORDS: Final = 40_000
"""The same in records, 10,000 a batch: the client needs some 300 bytes for each, however small."""

SPREAD_BYTES: Final = 16 * BATCH_BYTES
SPREAD_RECORDS: Final = 100_000
"""The queue of a writer to several partitions, none of which may have a batch full."""

LINGER_MS: Final = 500
SPREAD_LINGER_MS: Final = 20
"""How long records wait for others of their batch, to one partition and to several."""

BATCH_RECORDS: Final = 10_000
"""librdkafka's ``batch.num.messages``."""

_LIVES: Final = ("message.timeout.ms", "delivery.timeout.ms")
"""How long a record may wait in all; two names of the same."""

_OF_QUEUES: Final = ("queue.buffering.max.messages", "queue.buffering.max.kbytes", *_LIVES)

NUMBERS: Final = ("batch.size", "batch.num.messages", *_OF_QUEUES)
"""The operator's properties that are looked at here."""


def limits(
    largest: int,
    max_message_bytes: int | None,
    operators: Mapping[str, str],
    *,
    is_spread: bool,
) -> dict[str, Any]:
    """Return the producer's properties that say how much it keeps, and how long.

    Args:
        largest: Bytes of the largest record that it is to take.
        max_message_bytes: What the topic takes at once; None if that is not known.
        operators: The operator's own properties, which win over these.
        is_spread: Whether records go to several partitions.
    """
    ours = min(BATCH_BYTES, max_message_bytes or BATCH_BYTES)
    batch = max(ours, int(operators.get("batch.size", ours)))
    records = max(BATCH_RECORDS, int(operators.get("batch.num.messages", BATCH_RECORDS)))
    least = SPREAD_BYTES if is_spread else BATCHES * batch
    waits = not is_spread and _fills(largest + batch, records, operators)
    return {
        "batch.size": ours,
        "linger.ms": LINGER_MS if waits else SPREAD_LINGER_MS,
        "queue.buffering.max.messages": max(
            SPREAD_RECORDS if is_spread else QUEUE_RECORDS, 2 * records
        ),
        # a record that is larger than the queue would wait for room for ever
        "queue.buffering.max.kbytes": max(least, largest + batch) // 1024 + 1,
    }


def _fills(least_bytes: int, records: int, operators: Mapping[str, str]) -> bool:
    """Whether a batch is full before it has waited for long, whatever the operator has set.

    In a smaller queue each batch would wait for `LINGER_MS`, and the client does not start where
    records are given up by then.
    """
    given = {name: int(operators[name]) for name in _OF_QUEUES if name in operators}
    room = given.get("queue.buffering.max.messages", 0) or records  # 0: no limit
    room_bytes = 1024 * given.get("queue.buffering.max.kbytes", least_bytes)
    lives = (given.get(name, 0) or 2 * LINGER_MS for name in _LIVES)  # 0: for ever
    return room >= records and room_bytes >= least_bytes and min(lives) > LINGER_MS
