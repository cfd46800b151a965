"""A task whose cluster is away, or whose disk is full."""

import os
import time
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from backup_samples import JSON, RECORD, sink_job

from kbackup.events import ObjectStored, Plain
from kbackup.kafka import KafkaSettings
from kbackup.kafka import client as kafka_client
from kbackup.local.servers import free_ports
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ViewSpec
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.sink.job import SinkUnit
from kbackup.sink.task import back_up
from kbackup.stores import StoreSettings, open_store
from tests.support.fakes import OneLog, SilentLine
from tests.unit.test_spool import one_mib_files

__all__ = ["one_mib_files"]


def test_a_cluster_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unit says so in its own name, and a hundred of them do not wait a hundred times."""
    monkeypatch.setattr(kafka_client, "PATIENCE_S", 2.0)
    kafka = KafkaSettings(f"127.0.0.1:{free_ports(1)[0]}", timeout_s=2.0)
    job = sink_job(kafka=kafka, store=StoreSettings(f"memory://{uuid4()}"))
    units = [SinkUnit(TopicPartition("orders", at), Span(0, 10)) for at in range(20)]
    begin = time.monotonic()

    reports = list(back_up(job, units, SilentLine()))

    assert time.monotonic() - begin < 30  # 40 s of patience, if each unit had its own
    failures = [report.failure for report in reports if report.failure is not None]
    assert list(range(20)) == [failure.place["partition"] for failure in failures]
    assert {"kafka"} == {failure.code for failure in failures}
    assert {0} == {report.committed for report in reports}


def log_of(values: Iterable[bytes]) -> pa.RecordBatch:
    """Records that have a value and nothing else."""
    rows: list[dict[str, Any]] = [
        {"offset": at, "timestamp": 1, "timestamp_type": 1, "key": None, "headers": [],
         "value": value}
        for at, value in enumerate(values)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize("views", [RECORD, JSON], ids=["parquet", "json"])
def test_a_full_disk_is_a_report_that_says_how_much_is_needed(
    one_mib_files: None, views: tuple[ViewSpec, ...]
) -> None:
    """E1: TMPDIR without room fails the partition, exit 1, and no writer's error hides it."""
    kafka = OneLog(log_of(b'"%s"' % os.urandom(100_000).hex().encode() for _ in range(100)))
    place = StoreSettings(f"memory://{uuid4()}")
    job = sink_job(views, kafka=kafka, store=place, spool_bytes=100_000)
    where = TopicPartition("orders", 0)

    (report,) = back_up(job, [SinkUnit(where, Span(0, 100))], SilentLine())

    failure = report.failure
    assert failure is not None
    assert ("no_space", 1, 0) == (failure.code, failure.exit_code, report.committed)
    assert failure.why.startswith("about ")


class LineThatStops(SilentLine):
    """A driver that asks the task to stop as soon as it hears of an object."""

    def tell(self, event: Plain) -> None:
        if isinstance(event, ObjectStored):
            self._stopped.set()


def test_a_task_stops_between_two_cuts_of_one_batch() -> None:
    """A stop waits only for files on their way, however many records are at hand."""
    kafka = OneLog(log_of(b"%d" % at for at in range(1000)), rows=1000)
    settings = StoreSettings(f"memory://{uuid4()}")
    job = sink_job(kafka=kafka, store=settings, rule=Rule(records=2))

    (report,) = back_up(
        job, [SinkUnit(TopicPartition("orders", 0), Span(0, 1000))], LineThatStops()
    )
    stored = list(open_store(settings).list("topics/"))

    assert report.failure is not None
    assert "stopped" == report.failure.code
    assert 1 <= len(stored) <= 2
    assert 2 * len(stored) == report.committed == report.done.records
