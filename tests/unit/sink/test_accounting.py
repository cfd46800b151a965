"""What a sink's plan says of each topic."""

import time

from kbackup.errors import KafkaError, TopicChangedError
from kbackup.events import Progress, to_json
from kbackup.kafka import Position, Topic
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import SPANS_MOST, OfSink, PartitionReport, Summary
from kbackup.sink.accounting import SinkProgress, plan_topics
from kbackup.sink.plan import SinkPartitionPlan, SinkPlan
from kbackup.sink.start import Evidence, decide
from tests.support.json_lines import LINES


def at(topic: str, partition: int, seen: Evidence) -> SinkPartitionPlan:
    """A partition of which this is known."""
    where = TopicPartition(topic, partition)
    return SinkPartitionPlan(where, seen, decide(where, seen, reset="earliest"))


def test_a_plan_has_a_line_for_each_topic() -> None:
    """What is new, what goes on, what has nothing new and what is refused is said before a run."""
    known = Evidence(Span(0, 90), Position(50), is_confirmed=True, has_objects=True)
    refused = TopicChangedError("orders is another topic")
    plan = SinkPlan(
        {name: Topic(name, 2, "id") for name in ("new", "begun", "done", "other")},
        (
            at("new", 0, Evidence(Span(0, 10))),
            at("new", 1, Evidence(Span(0, 5))),
            at("begun", 0, known),
            at("begun", 1, Evidence(Span(0, 0))),
            at("done", 0, Evidence(Span(0, 50), Position(50), True, has_objects=True)),
            SinkPartitionPlan(TopicPartition("other", 0), known, None, refused),
        ),
        "g",
    )

    lines = {line.source: to_json(line) for line in plan_topics(plan, Layout())}

    assert {
        "new": ("create", 15, 0), "begun": ("resume", 40, 1), "done": ("done", 0, 1),
        "other": ("refuse", 0, 1),
    } == {
        name: (line["action"], line["offsets"], line["partitions"]["backup"])
        for name, line in lines.items()
    }  # fmt: skip
    assert ("topic_changed", "topics/new/") == (lines["other"]["code"], lines["new"]["target"])
    for line in lines.values():
        LINES.validate(line)


def test_a_task_that_fails_before_it_looks_takes_nothing_back() -> None:
    """What a dead task had committed stays in the summary, whenever its successor ends."""
    account = SinkProgress(Summary("r1", "sink"))
    partition = at("orders", 0, Evidence(Span(0, 90)))
    account.begin(partition)
    account.progress(Progress("r1", partition.where, 50, 50, 5, 0, end=90, bytes_stored=700))

    failure = KafkaError("no answer").issue()
    account.take(PartitionReport(partition.where, 0, 90, 0, OfSink(), failure=failure))

    row = to_json(account.rows()[0].shown())
    assert (50, 40, 50, 5, 700, "failed") == tuple(
        row[name] for name in ("committed", "lag", "records", "objects", "bytes_stored", "state")
    )


def test_what_has_expired_is_counted_once() -> None:
    """A gap that is named again, or has grown since, counts once."""
    summary = Summary("r1", "sink")
    account, partition = SinkProgress(summary), at("orders", 0, Evidence(Span(0, 90)))
    account.begin(partition)

    for gaps in ([(0, 10)], [(0, 10), (20, 25)], [(20, 27)], [(20, 27), (30, 31)]):
        own = OfSink(gaps=tuple(Span(*gap) for gap in gaps))
        account.take(PartitionReport(partition.where, 0, 90, 50, own))

    assert {"expired_offsets": 10 + 7 + 1} == summary.skipped
    assert {partition.where: 31} == account.gap_ends()


def test_reports_that_name_many_bad_records_are_compared_in_no_time() -> None:
    """A partition that follows reports every few seconds, each time the same thousand spans."""
    account, partition = SinkProgress(Summary("r1", "sink")), at("orders", 0, Evidence(Span(0, 90)))
    account.begin(partition)
    skipped = tuple(Span(2 * at, 2 * at + 1) for at in range(SPANS_MOST))
    account.take(PartitionReport(partition.where, 0, 90, 50, OfSink(skipped=skipped[1:])))
    report = PartitionReport(partition.where, 0, 90, 50, OfSink(skipped=skipped))
    begin = time.process_time()

    found = [account.newly_skipped(report) for _ in range(100)]

    assert [[[0, 0]]] * 100 == found
    assert time.process_time() - begin < 2
