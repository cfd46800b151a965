"""The records that a sink left out, as dead letters: with headers that say what is wrong.

Source of the headers: Kafka Connect's ``DeadLetterQueueReporter``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.flow.rows import BadRecord
from kbackup.records import TopicPartition
from kbackup.runs.letters import CONTEXT, with_headers

_CLASS: Final = "org.apache.kafka.connect.sink.SinkTask"
"""In whose name Connect reports what a sink connector complains of."""
_EXCEPTION: Final = "org.apache.kafka.connect.errors.DataException"


def with_context(
    letters: pa.RecordBatch,
    bad: Sequence[BadRecord],
    where: TopicPartition,
    connector: str,
    classes: Mapping[str, str],
) -> pa.RecordBatch:
    """Add headers that say where records came from and what is wrong with them.

    Args:
        letters: ``records.SCHEMA``, a row for each of *bad*.
        bad: What is wrong with each.
        where: Their partition.
        connector: Its name.
        classes: The Java class at work in a stage; what is missing is the sink's task.
    """
    return with_headers(letters, (_context(one, where, connector, classes) for one in bad))


def _context(
    bad: BadRecord, where: TopicPartition, connector: str, classes: Mapping[str, str]
) -> Iterable[dict[str, Any]]:
    error = bad.error(where)
    facts = {
        "topic": where.topic,
        "partition": str(where.partition),
        "offset": str(bad.offset),
        "connector.name": connector,
        "task.id": "0",
        "stage": bad.stage,
        "class.name": bad.by or classes.get(bad.stage, _CLASS),
        "exception.class.name": _EXCEPTION,
        "exception.message": str(error),
        "exception.stacktrace": "\n".join(filter(None, (error.what, bad.why, bad.do))),
    }
    for name, text in facts.items():
        yield {"key": CONTEXT + name, "value": text.encode()}


def of_offsets(batch: pa.RecordBatch, offsets: Sequence[int]) -> pa.RecordBatch:
    """Return the rows of *batch* that have these offsets."""
    return batch.filter(pc.is_in(batch["offset"], pa.array(offsets, pa.int64())))
