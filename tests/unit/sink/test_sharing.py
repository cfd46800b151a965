"""A run whose tasks share a partition, with real lines to the driver."""

import threading
import time
from typing import Any
from uuid import uuid4

import pytest
from backup_samples import batch

from kbackup.clock import SystemClock
from kbackup.errors import SparkError, StoreError
from kbackup.events import Event, ObjectStored, Plain, to_json
from kbackup.kafka import Position
from kbackup.pipeline.rows import BadRecord, Rows
from kbackup.records import TopicPartition
from kbackup.runs.context import Environment, Stop
from kbackup.sink.rejects import ErrorPolicy, Rejects
from kbackup.sink.run import SinkRun
from kbackup.sink.spans.lease import DroppedError
from kbackup.sink.spans.scheduler import SpanWorker
from kbackup.sink.spans.worker import back_up
from kbackup.spark.channel import Address, Line
from kbackup.stores import StoreSettings
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import SilentLine
from tests.support.in_threads import InThreads


class Sharing:
    """Sinks of one store, whose spans meet at multiples of ten offsets.

    Attributes:
        told: The events of all of them.
        clock: Their time.
    """

    def __init__(self, *ends: int) -> None:
        self.clock = SystemClock()
        self.kafka, self.stop = FakeKafka(), Stop()
        self.told: list[Event] = []
        self.wheres = self.kafka.create("orders", *ends)
        self.store = StoreSettings(f"memory://{uuid4()}")

    def run(self, slots: int = 3, **options: object) -> dict[str, Any]:
        """Run a sink; return its summary."""
        given = {
            "bootstrap_servers": "h:1", "s3_bucket_name": "b", "no_lock": True, "topics": "orders",
            "flush_size": "4", **options,
        }  # fmt: skip
        world: Any = Environment(self.kafka, self.store, InThreads(slots), self.clock)  # type: ignore[arg-type]
        summary: dict[str, Any] = {}
        run = SinkRun(load("sink", **given).settings, self.hear, self.stop, world, 10)
        thread = threading.Thread(target=lambda: summary.update(run()), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return summary

    def hear(self, event: Plain) -> None:
        """Remember what a sink tells."""
        self.told.append(to_json(event))

    def stored(self) -> list[str]:
        """Where the objects are stored, in the order in which they are."""
        return [event["key"] for event in self.told if event["type"] == "object"]

    def committed(self) -> dict[TopicPartition, int]:
        """The group's positions."""
        return {at: found.offset for at, found in self.kafka.positions_.items()}


def test_tasks_that_share_a_partition_have_one_row_and_store_in_order() -> None:
    """
    The summary counts each record once, as one partition, and objects are stored by their offsets.
    """
    sharing = Sharing(97, 3)
    summary = sharing.run()

    assert (0, 100, 30) == (summary["exit_code"], summary["records"], summary["objects"])
    rows = [(row["partition"], row["first"], row["last"], row["state"], row["lag"])
            for row in summary["partitions"]]  # fmt: skip
    assert [(0, 0, 96, "done", 0), (1, 0, 2, "done", 0)] == rows
    shared = [key for key in sharing.stored() if "/partition=0/" in key]
    assert shared == sorted(shared)
    shown = [event for event in sharing.told if event["type"] == "progress"]
    assert {(0, 97), (1, 3)} == {(event["partition"], event["end"]) for event in shown}
    assert dict(zip(sharing.wheres, (97, 3), strict=True)) == sharing.committed()


def test_one_task_makes_the_same_files() -> None:
    """
    Files end at multiples, whether or not anybody shares the partition.
    """
    alone, together = Sharing(57), Sharing(57)
    alone.run(1), together.run(3)

    assert alone.stored() == together.stored()
    assert {"0000000000", "0000000008", "0000000010"} <= {
        key.split("+")[2].split(".")[0] for key in alone.stored()
    }


def test_a_span_that_fails_is_one_error_and_the_run_ends() -> None:
    """
    The tasks that wait for it end without a word, and what comes before it is safe.
    """
    sharing = Sharing(97)
    (where,) = sharing.wheres
    sharing.kafka.faults[where] = StoreError("put", "503 Slow Down")

    failed = sharing.run()
    del sharing.kafka.faults[where]
    good = sharing.run()

    (error,) = failed["errors"]
    assert ("store", 6, 0) == (error["code"], failed["exit_code"], failed["records"])
    assert (0, 97) == (good["exit_code"], good["records"])


def test_a_stop_ends_all_of_them() -> None:
    """
    Tasks that wait for their turn end too; the partition counts as stopped, and a later run
    continues where it was.
    """
    sharing = Sharing(997)
    hear = sharing.hear

    def heard(event: Plain) -> None:
        hear(event)
        if isinstance(event, ObjectStored):
            sharing.stop.ask(15)

    sharing.hear = heard  # type: ignore[method-assign]
    stopped = sharing.run(flush_size="1")
    sharing.hear, sharing.stop = hear, Stop()  # type: ignore[method-assign]
    rest = sharing.run(flush_size="1")

    (row,) = stopped["partitions"]
    assert (143, "stopped") == (stopped["exit_code"], row["state"])
    assert 0 < stopped["records"] < 997
    assert (0, 997) == (rest["exit_code"], stopped["records"] + rest["records"])


class SetBack(dict[TopicPartition, Position]):
    """A group that somebody sets back as soon as it is at offset 10."""

    def __setitem__(self, where: TopicPartition, position: Position) -> None:
        super().__setitem__(where, Position(5) if position.offset == 10 else position)


def test_a_position_that_somebody_moved_is_not_built_upon() -> None:
    """
    Before a span is stored its task looks where the group is, whatever the driver says.
    """
    sharing = Sharing(97)
    sharing.kafka.positions_ = SetBack()

    summary = sharing.run()

    assert 0 != summary["exit_code"]
    assert ["offset_moved"] == [error["code"] for error in summary["errors"]]


def test_a_task_without_a_driver_says_so() -> None:
    """
    It cannot know what to do, and a run in which it did nothing must not look good.
    """
    line = Line(Address("127.0.0.1", 1, "no one listens"))

    with pytest.raises(SparkError, match="lost its connection"):
        list(back_up(None, [SpanWorker(0)], line))  # type: ignore[arg-type]


class Hasty(SystemClock):
    """A clock by which a minute has passed in 6 ms."""

    def steady_s(self) -> float:
        """Return ten thousand times the seconds."""
        return super().steady_s() * 10_000


def test_a_driver_that_is_held_up_fails_nothing() -> None:
    """
    Whoever reads what it prints may pause; its tasks wait as long as they are connected.
    """
    sharing = Sharing(97)
    sharing.clock, hear = Hasty(), sharing.hear

    def heard(event: Plain) -> None:
        hear(event)
        if isinstance(event, ObjectStored) and len(sharing.stored()) == 1:
            time.sleep(0.3)

    sharing.hear = heard  # type: ignore[method-assign]
    summary = sharing.run()

    assert (0, 97) == (summary["exit_code"], summary["records"])


def test_a_larger_flush_size_is_kept_to() -> None:
    """
    Spans meet at its multiples then, so that no file is smaller than the user wants it.
    """
    sharing = Sharing(97)
    sharing.run(flush_size="30")

    starts = [int(key.split("+")[2].split(".")[0]) for key in sharing.stored()]
    assert [0, 30, 60, 90] == starts


def test_nothing_is_said_of_a_bad_record_before_its_turn() -> None:
    """
    Its span may be given up before; what is said or sent twice cannot be taken back.
    """
    line, where = SilentLine(), TopicPartition("orders", 0)

    def dropped() -> None:
        raise DroppedError

    rejects = Rejects(where, ErrorPolicy(tolerates=True), "r", line, before_said=dropped)
    found = batch(range(3))
    rows = Rows(found.slice(0, 0), (), bad=(BadRecord(1, "it does not fit"),))

    with pytest.raises(DroppedError):
        rejects.take(found, rows)
    assert [] == line.told
    rejects.before_said = lambda: None
    rejects.take(found, rows)
    assert ["warning"] == [event["type"] for event in line.told]
