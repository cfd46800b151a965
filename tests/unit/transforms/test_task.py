"""Transforms in a sink's task: what is stored, and where the position is afterwards."""

import json
from typing import Any, Final
from uuid import uuid4

from record_samples import batch_of

from kbackup.clock import SystemClock
from kbackup.formats import FormatOptions
from kbackup.kafka import KafkaSettings
from kbackup.naming import Layout, View
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ViewSpec
from kbackup.plugins import Condition, Step
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.fakes import FakePositions, FakeReader, SilentLine

WHERE: Final = TopicPartition("orders", 0)
VALUES: Final = ViewSpec(View.VALUE, "json", FormatOptions(), "json", {"schemas.enable": False})
DROP: Final = Step("drop", "filter", condition=Condition("old", "has_header_key", {"name": "old"}))
OFFSET: Final = Step("at", "insert_field", "value", {"offset.field": "o"})


def log(kept: set[int], end: int) -> Any:
    """Records of which all but some have the header ``old``."""
    old = [{"key": "old", "value": b""}]
    return batch_of(
        [
            {"offset": at, "timestamp": at, "value": b'{"n":%d}' % at,
             "headers": [] if at in kept else old}
            for at in range(end)
        ]
    )  # fmt: skip


def run(rows: Any, *steps: Step) -> tuple[PartitionReport[OfSink], Store, int | None]:
    """Return what a run reports, what it stored, and what it committed."""
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    positions, reader = FakePositions(), FakeReader(rows)
    job = SinkJob(
        "r1", KafkaSettings("-"), StoreSettings("-"), Layout(), SystemClock(), (VALUES,),
        "default", "record", Rule(records=2), "group", transforms=steps,
    )  # fmt: skip
    unit = SinkUnit(WHERE, Span(0, reader.end_offset))
    work = SinkPartitionTask(job, unit, TaskClients(store, positions, reader), SilentLine())  # type: ignore[arg-type]
    work.run()
    position = positions.read(WHERE)
    return work.report, store, None if position is None else position.offset


def lines(store: Store) -> dict[str, list[Any]]:
    """Return the values of each object."""
    found = {}
    for entry in store.list("topics/"):
        with store.open(entry.key) as body:
            name = entry.key.rpartition("/")[2]
            found[name] = [json.loads(line) for line in body.read().splitlines()]
    return found


def test_a_filter_leaves_records_out_and_the_position_goes_on() -> None:
    """Objects are named after the first record in them, and the rest is counted."""
    report, store, committed = run(log({3, 4, 9}, 20), DROP, OFFSET)

    assert {
        "orders+0+0000000003.json": [{"n": 3, "o": 3}, {"n": 4, "o": 4}],
        "orders+0+0000000009.json": [{"n": 9, "o": 9}],
    } == lines(store)
    assert 20 == committed == report.committed
    assert (3, 17) == (report.done.records, report.done.filtered)


def test_a_partition_that_is_filtered_wholly_is_done() -> None:
    """A partition whose records are all filtered out is committed, and not read again."""
    report, store, committed = run(log(set(), 7), DROP)

    assert {} == lines(store)
    assert (7, 7, 7) == (committed, report.committed, report.done.filtered)
