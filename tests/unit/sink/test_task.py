"""A task whose cluster is away."""

import time
from uuid import uuid4

import pytest

from kbackup.flow.cut import Rule
from kbackup.flow.views import ViewSpec
from kbackup.formats import FormatOptions
from kbackup.kafka import KafkaSettings, coordinator
from kbackup.local.process import free_ports
from kbackup.naming import Layout, View
from kbackup.records import Span, TopicPartition
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.task import back_up
from kbackup.stores import StoreSettings
from tests.support.fakes import SilentLine


def test_a_cluster_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each unit says so in its own name, and a hundred of them do not wait a hundred times.
    """
    monkeypatch.setattr(coordinator, "PATIENCE_S", 1.0)
    kafka = KafkaSettings(f"127.0.0.1:{free_ports(1)[0]}", timeout_s=1.0)
    whole = ViewSpec(View.RECORD, "parquet", FormatOptions())
    job = SinkJob(
        "r1", kafka, StoreSettings(f"memory://{uuid4()}"), Layout(), (whole,), "default", Rule(),
        "group",
    )  # fmt: skip
    units = [SinkUnit(TopicPartition("orders", at), Span(0, 10)) for at in range(20)]
    begin = time.monotonic()

    reports = list(back_up(job, units, SilentLine()))

    assert time.monotonic() - begin < 15
    assert list(range(20)) == [report["failure"]["partition"] for report in reports]
    assert {("kafka", 0)} == {(found["failure"]["code"], found["records"]) for found in reports}
