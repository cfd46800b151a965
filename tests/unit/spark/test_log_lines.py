"""Log lines of tasks, in the driver's log."""

import logging
import threading

import pytest

from kbackup.events import Event, Progress
from kbackup.records import TopicPartition
from kbackup.spark.channel import ChannelServer, TaskChannel, logged, sent


def test_the_driver_logs_what_a_task_warns_of(caplog: pytest.LogCaptureFixture) -> None:
    """A worker's stderr is read by nobody: its warnings reach the operator, each once."""
    told: list[Event] = []
    came = threading.Event()

    def hear(event: Event) -> None:
        told.append(event)
        if event["type"] == "progress":
            came.set()

    hub = ChannelServer("127.0.0.1", hear)
    with TaskChannel(hub.address) as line, sent(line):
        logging.getLogger("kbackup.formats.x").info("not that")
        logging.getLogger("kbackup.formats.x").warning("a value of %s bytes", 7)
        line.tell(Progress("r1", TopicPartition("orders", 0), 1, 1, 1, 0))
        assert came.wait(60)
    hub.close()
    logging.getLogger("kbackup.formats.x").warning("a task that has ended says nothing")

    assert ["log", "progress"] == [event["type"] for event in told]
    caplog.clear()
    shown: list[Event] = []
    driver = logged(shown.append)
    for event in (*told, *told):
        driver(event)
    (said,) = caplog.records
    assert (logging.WARNING, "a value of 7 bytes") == (said.levelno, said.getMessage())
    assert ["progress"] * 2 == [event["type"] for event in shown]
