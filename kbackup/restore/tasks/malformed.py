"""What a restore leaves out because it cannot read it, in a topic: ``parse.error.topic.prefix``.

A record that can be read, but not be changed or converted as it is to be written, is written there
as it was.  Of anything else the topic gets what is wrong, as JSON.  Both have headers that say what
it is about.  Records there are dead letters: acknowledged before the position after them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa

from kbackup.errors import Failure
from kbackup.records import NO_TIMESTAMP, SCHEMA, TopicPartition
from kbackup.runs.letters import CONTEXT, with_headers


def letters(
    failure: Failure, where: TopicPartition, records: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return what to write to the topic, ``records.SCHEMA``.

    Args:
        failure: What is left out, and why.
        where: Its partition in the backup.
        records: The records themselves; None where they cannot be read.
    """
    context = list(_context(failure, where))
    if records is not None:
        return with_headers(records, [context] * len(records))
    key = failure.place.get("key")
    row: dict[str, Any] = {
        "offset": 0, "timestamp": NO_TIMESTAMP, "timestamp_type": 0,
        "key": None if key is None else str(key).encode(),
        "value": orjson.dumps(failure.to_dict()), "headers": context,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row], SCHEMA)


def _context(failure: Failure, where: TopicPartition) -> Iterator[dict[str, Any]]:
    facts: Sequence[tuple[str, object]] = (
        ("topic", where.topic),
        ("partition", where.partition),
        ("offset", failure.place.get("offset")),
        ("object", failure.place.get("key")),
        ("exception.message", ": ".join(filter(None, (failure.what, failure.why)))),
    )
    for name, fact in facts:
        if fact is not None:
            yield {"key": CONTEXT + name, "value": str(fact).encode()}
