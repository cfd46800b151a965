"""A task that follows, over a cluster in memory: what it owns, sets aside and keeps."""

import gc
import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psutil
import pytest
from backup_samples import sink_job

from kbackup.errors import BadRecordError, KafkaError, SparkError, StoreError
from kbackup.kafka import Position
from kbackup.pipeline.rotate import Rule, Schedule
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.runs.report import GAPS_MOST, OfSink, PartitionReport
from kbackup.sink.follow import FollowedPartitions, TaskShare, Watch, deal, follow
from kbackup.sink.job import BrokersGone, FollowOrder, FollowReport, SinkUnit
from kbackup.sink.start import StoredCut
from kbackup.spark.channel import ChannelServer, TaskChannel
from kbackup.stores import Store, StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import SilentLine
from tests.support.hand_clock import HandClock
from tests.support.own_process import measured


class Task:
    """One task that follows, a look at a time.

    Attributes:
        kafka: The cluster.
        store: Where objects go.
        line: What it told.
    """

    def __init__(self, kafka: Any, wheres: list[TopicPartition], size: int = 10) -> None:
        settings = StoreSettings(f"memory://{uuid4()}")
        self.kafka, self.store, self.time = kafka, open_store(settings), HandClock()
        self.line = SilentLine()
        job = sink_job(kafka=kafka, store=settings, clock=self.time, rule=Rule(size))
        share = TaskShare(0, 1, tuple(SinkUnit(where, Span(0, 0)) for where in wheres))
        self.following = FollowedPartitions(job, share, 5.0, self.line)

    def turn(self, seconds: float = 1.0) -> None:
        """Look once more, after a while."""
        self.time.pass_s(seconds)
        self.following.turn()

    def turns(self, count: int) -> None:
        """Look once a second."""
        for _ in range(count):
            self.turn()

    def told(self, where: TopicPartition) -> list[PartitionReport[OfSink]]:
        """What was reported of a partition."""
        told = [event for event in self.line.told if event["type"] == FollowReport.TYPE]
        reports = [FollowReport.from_dict(event).report for event in told]
        return [report for report in reports if report.where == where]

    def committed(self, *wheres: TopicPartition) -> list[int]:
        """The group's positions."""
        return [self.kafka.positions_.get(where, Position(0)).offset for where in wheres]


def code_of(report: PartitionReport[OfSink]) -> str | None:
    """Why the partition is set aside, in a word."""
    return None if report.failure is None else report.failure.code


def of_one(count: int) -> tuple[FakeKafka, TopicPartition, Task]:
    """A cluster with one partition of so many records, and its task."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", count)
    return kafka, where, Task(kafka, [where])


def scheduled() -> tuple[FakeKafka, TopicPartition, Task]:
    """The same, whose files close every ten minutes and for no other reason."""
    kafka, where, task = of_one(3)
    rule = Rule(10, schedule=Schedule(600_000, "UTC"))
    task.following.job = replace(task.following.job, rule=rule, flush_tail=False)
    task.following.idle_s = None
    return kafka, where, task


def test_a_schedule_closes_files_at_its_boundaries() -> None:
    """What waits when the clock passes a boundary is stored, and nothing before, however long."""
    kafka, where, task = scheduled()

    steps = []
    for seconds in (1, 500, 98, 2, 1, 600):  # the clock begins at a boundary
        task.turn(seconds)
        steps += task.committed(where)
        if seconds == 2:
            kafka.append(where, 2)

    assert [0, 0, 0, 3, 3, 5] == steps


def test_a_schedule_goes_by_a_clock_that_was_set_back() -> None:
    """After a clock that was a day ahead is corrected, nothing waits for the next day."""
    kafka, where, task = scheduled()

    steps = []
    for ahead_ms, seconds in ((86_400_000, 1), (0, 1), (0, 1), (0, 600)):
        kafka.append(where, 1)
        task.time.ahead_ms = ahead_ms
        task.turn(seconds)
        steps += task.committed(where)

    assert [0, 5, 5, 7] == steps


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(StoreError("put", "503 Slow Down"), id="store"),
        pytest.param(KafkaError("reading", "no answer"), id="kafka"),
        pytest.param(BadRecordError("offset 3", "no value"), id="tombstone"),
    ],
)
def test_a_partition_that_fails_is_set_aside_and_its_neighbours_go_on(error: Exception) -> None:
    """A partition that fails is reported at once, retried after growing pauses, then stored."""
    kafka = FakeKafka()
    bad, *good = kafka.create("orders", 10, 10, 10)
    kafka.faults[bad] = error  # type: ignore[assignment]
    task = Task(kafka, [bad, *good])

    task.turns(3)
    first = code_of(task.told(bad)[-1]), task.committed(bad, *good)
    for where in (bad, *good):
        kafka.append(where, 10)
    task.turns(30)
    second = task.told(bad)[-1], task.committed(bad, *good)
    del kafka.faults[bad]
    task.turn(4000)

    assert (error.code, [0, 10, 10]) == first  # type: ignore[attr-defined]
    assert (20, 0, [0, 20, 20]) == (second[0].end, second[0].committed, second[1])
    assert ([20, 20, 20], None) == (
        task.committed(bad, *good), task.told(bad)[-1].failure,
    )  # fmt: skip


def test_failures_are_tried_less_and_less_often() -> None:
    """A store that refuses one partition for ten minutes is not asked six hundred times."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", 10)
    kafka.faults[where] = StoreError("put", "503")
    task = Task(kafka, [where])

    task.turns(600)

    visits = [report for report in task.told(where) if report.failure is not None]
    assert kafka.opened == 1
    assert len({report.own.until for report in visits}) == 1
    assert 8 <= _reads(task) <= 20


def _reads(task: Task) -> int:
    aside = next(iter(task.following.watches.values()))._aside
    assert aside is not None
    return aside.tries


def test_clients_of_kafka_are_opened_anew_after_its_fault_and_only_then() -> None:
    """One store, one reader and one positions client serve all visits."""
    kafka = FakeKafka()
    first, second = kafka.create("orders", 10, 10)
    task = Task(kafka, [first, second])
    task.turns(2)
    before = kafka.opened
    for _ in range(20):
        kafka.append(first, 10)
        kafka.append(second, 10)
        task.turn()
    after = kafka.opened
    kafka.append(first, 10)
    kafka.faults[first] = KafkaError("reading", "broken connection")
    task.turn()

    assert (1, 1, 2) == (before, after, kafka.opened)
    assert [210, 210] == task.committed(first, second)


def test_a_deleted_and_a_recreated_topic_are_set_aside() -> None:
    """Nothing of a topic that is another one is stored, and the others go on."""
    kafka = FakeKafka()
    (gone,) = kafka.create("gone", 10)
    (anew,) = kafka.create("anew", 10)
    (kept,) = kafka.create("kept", 10)
    share = [gone, anew, kept]
    task = Task(kafka, [])
    for where in share:
        identity = TopicIdentity(topic_id=kafka.ids[where.topic])
        task.following._adopt(SinkUnit(where, Span(0, 0), identity=identity))
    task.turns(2)
    kafka.delete("gone")
    kafka.delete("anew")
    kafka.create("anew", 50, topic_id="another")
    kafka.append(kept, 10)
    task.turns(5)

    codes = [code_of(task.told(where)[-1]) for where in share]
    assert ["topic_deleted", "topic_changed", None] == codes
    assert [0, 0, 20] == task.committed(*share)
    assert 3 + 1 == len(list(task.store.list("topics/")))


def test_topics_that_do_not_answer_keep_no_other_from_it() -> None:
    """A permission that was taken away, and a partition without a leader, stand still alone."""
    kafka = FakeKafka()
    (denied,) = kafka.create("denied", 10)
    silent, kept = kafka.create("orders", 10, 10)
    kafka.denied.add("denied")
    kafka.leaderless.add(silent)
    task = Task(kafka, [denied, silent, kept])

    task.turns(40)
    before = [code_of(task.told(where)[-1]) for where in (denied, silent)]
    kafka.denied.clear()
    kafka.leaderless.clear()
    task.turns(2)

    assert (["kafka", "kafka"], [10, 10, 10]) == (before, task.committed(denied, silent, kept))


class FakeKafkaWithoutOffsets(FakeKafka):
    """A cluster that does not say where the logs of one topic end, nor those of a request with it.

    Attributes:
        without: The topic.
    """

    without = "denied"

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end."""
        if any(where.topic == self.without for where in wheres):
            raise KafkaError("reading offsets", "denied")
        return super().ends(wheres)


def test_a_topic_whose_offsets_are_denied_keeps_no_other_from_it() -> None:
    """Where one topic's offsets may not be read any more, the others are backed up."""
    kafka = FakeKafkaWithoutOffsets()
    (denied,) = kafka.create("denied", 10)
    kept, more = kafka.create("orders", 10, 10)
    task = Task(kafka, [denied, kept, more])

    task.turns(40)

    assert "kafka" == code_of(task.told(denied)[-1])
    assert [0, 10, 10] == task.committed(denied, kept, more)


def test_a_cluster_that_is_away_is_an_error_of_the_whole_task() -> None:
    """If the look at the cluster fails, no partition is blamed."""
    kafka, where, task = of_one(10)
    kafka.is_away = True

    with pytest.raises(KafkaError):
        task.turn()

    assert task.following.watches[where].report.failure is None


def test_what_expires_before_it_is_read_is_written_down() -> None:
    """The gap is reported, and the backup continues after it."""
    kafka, where, task = of_one(10)
    task.turn()
    kafka.logs[where] = Span(30, 45)
    task.following.watches[where]._log = Span(0, 20)

    task.turns(8)

    assert (Span(10, 30),) == task.told(where)[-1].own.gaps
    assert [45] == task.committed(where)
    assert any(event.get("code") == "gap" for event in task.line.told)


def test_a_log_that_expires_for_weeks_makes_no_long_reports() -> None:
    """A report names the last gaps only, as the driver reads no longer line than a MiB."""
    where = TopicPartition("orders", 0)
    watch = Watch.begin(SinkUnit(where, Span(0, 0)), 10)
    for at in range(0, 10 * GAPS_MOST, 5):
        own = OfSink(gaps=(Span(at, at + 1),))
        watch.visited(PartitionReport(where, 0, at + 5, at + 5, own), None, 0.0, 0.0)

    gaps = watch.report.own.gaps

    assert (GAPS_MOST, Span(10 * GAPS_MOST - 5, 10 * GAPS_MOST - 4)) == (len(gaps), gaps[-1])


def test_what_the_bucket_holds_is_no_gap_when_it_expires() -> None:
    """The group was set back before the run, and retention overtakes the second backup."""
    kafka, where, task = of_one(10)
    task.turn()
    watch = task.following.watches[where]
    watch.begun, watch._log = replace(watch.begun, kept=(Span(5, 25),)), Span(0, 20)
    kafka.logs[where] = Span(30, 45)

    task.turns(8)

    assert ([45], (Span(25, 30),)) == (task.committed(where), task.told(where)[-1].own.gaps)


def test_a_partition_that_comes_keeps_what_is_known_of_it() -> None:
    """A task learns which cuts the bucket has all of, and continues after such a one alone."""
    cuts = StoredCut(Span(10, 20), 2), StoredCut(Span(20, 40), 1, is_whole=False)
    unit = SinkUnit(TopicPartition("orders", 0), Span(10, 90), held=cuts, kept=(Span(0, 40),))

    assert unit == FollowOrder.from_dict(json.loads(json.dumps(FollowOrder(unit).to_dict()))).unit


def test_a_partition_that_comes_is_taken_by_one_task() -> None:
    """Every task hears of a new partition, and exactly one owns it, however often announced."""
    units = [SinkUnit(TopicPartition("orders", at), Span(0, 9)) for at in range(7)]
    shares = [share for slot in deal(units, 3) for share in slot]

    owners = {
        at: [share.index for share in shares if share.owns(TopicPartition("new", at))]
        for at in range(60)
    }

    assert sorted(units, key=str) == sorted((u for s in shares for u in s.units), key=str)
    assert {1} == set(map(len, owners.values()))
    assert {0, 1, 2} == {index for (index,) in owners.values()}
    assert [(), (), ()] == [share.units for slot in deal([], 3) for share in slot]


def test_orders_of_the_driver_add_partitions_once() -> None:
    """A new topic is followed from its beginning; hearing of it again changes nothing."""
    kafka = FakeKafka()
    (old,) = kafka.create("orders", 10)
    task = Task(kafka, [old])
    task.turns(2)
    (new,) = kafka.create("payments", 25)
    order = FollowOrder(SinkUnit(new, Span(0, 25))).to_dict()
    for _ in range(2):
        task.following.take(order)
        task.turns(7)

    assert [10, 25] == task.committed(old, new)
    assert [(0, 25)] == list({(report.start, report.committed) for report in task.told(new)[-2:]})


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked to stop", "line lost"])
def test_a_task_that_loses_its_line_fails(is_asked: bool) -> None:
    """A task that loses its line fails, so that its partitions are not left without an owner."""
    kafka = FakeKafka()
    wheres = kafka.create("orders", 10, 10)
    task = Task(kafka, wheres)
    shares = [task.following.share]
    heard = threading.Event()
    hub = ChannelServer("127.0.0.1", lambda _: heard.set())
    with TaskChannel(hub.address) as line:
        line.tell(BrokersGone())
        assert heard.wait(60)
        if is_asked:
            hub.stop()
        hub.close()
        assert line.wait(60)
        work = follow(task.following.job, 1000, shares, line)

        if is_asked:
            assert 2 == len(list(work))
        else:
            with pytest.raises(SparkError, match="no other task follows its 2 partitions"):
                list(work)


def test_a_task_that_never_had_a_line_fails() -> None:
    """A task that never had a line to the driver fails, since it could not be stopped."""
    hub = ChannelServer("127.0.0.1", lambda _: None)
    hub.close()
    task = Task(FakeKafka(), [])

    with TaskChannel(hub.address) as line, pytest.raises(SparkError, match="lost its connection"):
        list(follow(task.following.job, 1000, [task.following.share], line))


def grows(visits: int) -> float:
    """Bytes of memory a visit, after the first thousand."""
    return measured(__file__, str(visits))


def _grown(visits: int) -> float:
    kafka = FakeKafka()
    wheres = kafka.create("orders", *[0] * 10)
    task = Task(kafka, wheres, size=5)
    process = psutil.Process()

    def work(turns: int) -> int:
        for _ in range(turns):
            for where in wheres:
                kafka.append(where, 5)
            task.turn()
            _forget(task.store, task.line)
        gc.collect()
        return process.memory_info().rss

    before = work(100)
    after = work(visits // len(wheres))
    assert {5 * (100 + visits // len(wheres))} == set(task.committed(*wheres))
    return (after - before) / visits


def _forget(store: Store, line: SilentLine) -> None:
    """Throw away what the fakes keep, and no bucket or driver would in this process."""
    for entry in list(store.list("")):
        store.delete(entry.key)
    line.told.clear()


def test_visits_cost_no_memory() -> None:
    """Under 1 KB each, so that the formula for memory holds for a week."""
    assert grows(1_500) < 1024


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_thirty_thousand_visits_cost_no_memory() -> None:
    """A day of a partition that is visited each three seconds, under 100 bytes a visit."""
    assert grows(30_000) < 100


if __name__ == "__main__":
    sys.stdout.write(f"{_grown(int(sys.argv[1]))}\n")
