"""A whole run of the sink over a cluster in memory, its tasks in threads of this process."""

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from kbackup.clock import SystemClock
from kbackup.errors import BadRecordError, ConfigurationError, StoreError
from kbackup.kafka import Position
from kbackup.local.servers import free_ports
from kbackup.records import Span, TopicPartition
from kbackup.runs import report
from kbackup.sink import follow
from kbackup.sink.plan import make_plan
from kbackup.stores import StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.running import wait_until
from tests.support.sinks import Sink, following, run_sink, sink_settings


def committed(kafka: FakeKafka, *wheres: TopicPartition) -> list[int]:
    return [kafka.positions_.get(where, Position(-1)).offset for where in wheres]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_pattern_that_matches_nothing_is_exit_3_and_no_good_run(
    dry_run: bool, store: StoreSettings
) -> None:
    """A typing error in topics.regex must not look like a backup."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    sink = Sink(kafka, store, topics_regex="oders.*", dry_run=dry_run)
    summary = sink.wait()

    assert (3, {"missing_topics": 1}, 0) == (
        summary["exit_code"], summary["skipped"], sink.tasks.jobs,
    )  # fmt: skip
    assert "oders.*" in summary["reason"]
    if not dry_run:
        found = sink.status()
        assert (7, None) == (found["exit_code"], found["last_success"])
        assert "no topic that matches oders.*" in found["errors"][0]["why"]


@pytest.mark.parametrize(("pattern", "is_said"), [("test.*", True), ("pay.*", False)])
def test_a_pattern_that_leaves_nothing_out_is_said(
    pattern: str, is_said: bool, store: StoreSettings
) -> None:
    """The plan warns, and the run is none the worse for it."""
    kafka = FakeKafka()
    for topic in ("orders", "payments"):
        kafka.create(topic, 10)
    sink = Sink(kafka, store, topics_exclude=pattern, dry_run=True)

    summary = sink.wait()

    assert (0, is_said) == (summary["exit_code"], sink.warned("excludes_nothing"))


@pytest.mark.parametrize("options", [
    pytest.param({}, id="once"), pytest.param({"dry_run": True}, id="a plan"),
    pytest.param({"follow": True, "dry_run": True}, id="a plan to follow"),
])  # fmt: skip
def test_leaving_out_every_topic_is_a_wrong_configuration(
    options: dict[str, Any], store: StoreSettings
) -> None:
    """As for every other command: the pattern is named, and what it matches."""
    kafka: Any = FakeKafka()
    kafka.create("orders", 10)
    settings = sink_settings(topics_exclude="ord.*", **options)

    with pytest.raises(ConfigurationError, match=r"leaves out every topic .* it matches orders"):
        make_plan(settings, kafka, open_store(store), SystemClock())


@pytest.mark.parametrize(("topics", "named"), [
    pytest.param("orders,a", "topic a does not exist", id="one"),
    pytest.param("a,b", "topics a, b do not exist", id="several"),
    pytest.param("a,b,c,d,e,f,g", "topics a, b, c, d, e and 2 more do not exist", id="many"),
])  # fmt: skip
def test_topics_that_do_not_exist_are_exit_5(topics: str, named: str, store: StoreSettings) -> None:
    """They are named, as far as an error has room, whatever else there is."""
    kafka = FakeKafka()
    kafka.create("orders", 10)

    found = run_sink(kafka, store, topics=topics)

    assert (5, [named]) == (found["exit_code"], [error["what"] for error in found["errors"]])


def test_a_run_that_leaves_out_every_topic_exits_2(store: StoreSettings) -> None:
    """Unlike one for whose topics nothing was there."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    wrong = run_sink(kafka, store, topics_exclude="ord.*")
    none = run_sink(kafka, store, topics_regex="pay.*", topics_exclude="ord.*")

    assert (2, 3) == (wrong["exit_code"], none["exit_code"])


def test_a_pattern_that_matches_nothing_keeps_the_date_of_the_last_good_run(
    store: StoreSettings,
) -> None:
    """A pattern that matches nothing does not make the backup look new."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    good = Sink(kafka, store, topics_regex="ord.*").wait()
    kafka.delete("orders")
    bad = Sink(kafka, store, topics_regex="ord.*").wait()

    assert (0, 3) == (good["exit_code"], bad["exit_code"])
    assert good["run"][:20] == good["last_success"] == bad["last_success"]


@pytest.mark.usefixtures("quick")
def test_a_sink_that_follows_waits_for_a_first_topic_and_takes_up_what_comes(
    store: StoreSettings,
) -> None:
    """New topics that match and partitions that are added are backed up from their beginning."""
    kafka = FakeKafka()
    with following(kafka, store, topics_regex="pay.*", auto_offset_reset="latest") as sink:
        wait_until(lambda: sink.warned("no_topic"), "the warning")
        (first,) = kafka.create("pay_a", 10)
        kafka.create("orders", 10)
        wait_until(lambda: committed(kafka, first) == [10], "the first topic")
        (second,) = kafka.create("pay_b", 20)
        (added,) = kafka.create("pay_a", 30)
        wait_until(lambda: committed(kafka, second, added) == [20, 30], "what came later")
        summary = sink.end()

    assert (143, 60, []) == (summary["exit_code"], summary["records"], summary["errors"])
    assert {("pay_a", 0, 10), ("pay_a", 1, 30), ("pay_b", 0, 20)} == {
        (row["topic"], row["partition"], row["records"]) for row in summary["partitions"]
    }
    assert {"pay_a": 2, "pay_b": 1} == {
        name: entry["partitions"] for name, entry in summary["topic_settings"].items()
    }


@pytest.mark.usefixtures("quick")
def test_a_partition_that_is_followed_is_complete_up_to_its_last_visit(
    store: StoreSettings,
) -> None:
    """Of one that is set aside that does not move; a scrape of the sink tells each one's lag."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", 10)
    (port,) = free_ports(1)
    with following(kafka, store, topics="orders", metrics_listen=str(port)) as sink:
        wait_until(lambda: committed(kafka, where) == [10], "all records")
        wait_until(lambda: "complete_until" in sink.record()["partitions"][0], "the time")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            served = answer.read().decode()
        summary = sink.end()

    (row,) = summary["partitions"]
    assert summary["last_success"] <= row["complete_until"]
    assert "kbackup_lag_seconds{" in served


@pytest.mark.usefixtures("quick")
def test_the_record_of_a_sink_that_follows_is_kept_up(store: StoreSettings) -> None:
    """A following sink's run record has current counts, and does not age while it is healthy."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", 10)
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: sink.record().get("records") == 10, "the first record")
        wait_until(lambda: sink.record()["last_success"], "its first date")
        before = sink.record()
        kafka.append(where, 15)
        wait_until(lambda: sink.record().get("records") == 25, "the next record")
        wait_until(lambda: sink.record()["last_success"] > before["last_success"], "its date")
        found = sink.status(2.0)
        summary = sink.end()

    (row,) = found["partitions"]
    assert (0, 25, 0, 25) == (
        found["exit_code"], row["committed"], row["lag"], found["runs"][0]["records"],
    )  # fmt: skip
    assert 1 == len(found["runs"])
    assert (143, 25, 24) == (
        summary["exit_code"], summary["records"], summary["partitions"][0]["last"],
    )  # fmt: skip


@pytest.mark.usefixtures("quick")
def test_a_sink_that_follows_counts_what_is_held_up(
    store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that opens while a run follows is lag, and the backup is not complete."""
    monkeypatch.setattr(report, "LONG_S", 0.3)
    kafka = FakeKafka()
    (where,) = kafka.create("orders", 10)
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: sink.record().get("last_success"), "all records")
        kafka.behind[where] = 50
        wait_until(lambda: sink.record()["skipped"] == {"held_up_offsets": 50}, "the count")
        before = sink.record()
        wait_until(lambda: sink.status()["age_s"] >= 2, "a second")
        after = sink.record()
        del kafka.behind[where]
        kafka.append(where, 50)
        wait_until(lambda: not sink.record()["skipped"], "its end")
        wait_until(lambda: sink.record()["last_success"] > after["last_success"], "its date")

    assert (50, before["last_success"]) == (after["partitions"][0]["lag"], after["last_success"])
    assert ["held_up"] == [each["code"] for each in after["warnings"]]


@pytest.mark.usefixtures("quick")
def test_status_says_that_a_partition_stands_still(store: StoreSettings) -> None:
    """Status shows the lag of a partition that fails and a backup that ages; the exit says why."""
    kafka = FakeKafka()
    bad, good = kafka.create("orders", 10, 10)
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: sink.record().get("last_success"), "all records")
        kafka.faults[bad] = StoreError("put orders-0", "503 Slow Down")
        kafka.append(bad, 5)
        kafka.append(good, 5)
        wait_until(lambda: sink.warned("set_aside"), "the warning")
        wait_until(lambda: committed(kafka, good) == [15], "its neighbour")
        wait_until(lambda: sink.record()["partitions"][1]["lag"] == 0, "its row")
        wait_until(lambda: sink.status(1.0)["exit_code"] == 7, "exit 7 of status")
        found = sink.status(1.0)
        summary = sink.end()

    lags = {row["partition"]: (row["lag"], row["state"]) for row in found["partitions"]}
    assert {0: (5, "failed"), 1: (0, "done")} == lags
    assert "put orders-0" in found["errors"][0]["why"]
    assert (6, ["store"]) == (
        summary["exit_code"], [error["code"] for error in summary["errors"]],
    )  # fmt: skip


@pytest.mark.usefixtures("quick")
def test_a_partition_that_goes_on_again_leaves_no_error(store: StoreSettings) -> None:
    """A fault that has passed does not affect the exit code."""
    kafka = FakeKafka()
    (bad,) = kafka.create("orders", 10)
    kafka.faults[bad] = StoreError("put", "503 Slow Down")
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: sink.warned("set_aside"), "the warning")
        del kafka.faults[bad]
        wait_until(lambda: sink.warned("goes_on"), "its end")
        summary = sink.end()

    assert (143, [], 10) == (summary["exit_code"], summary["errors"], summary["records"])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("anew", "code"), [(False, 5), (True, 4)])
def test_a_topic_that_is_gone_is_the_reason_at_the_end(
    anew: bool, code: int, store: StoreSettings
) -> None:
    """A deleted topic is exit 5 and a recreated one 4, and the other was followed meanwhile."""
    kafka = FakeKafka()
    kafka.create("gone", 10)
    (kept,) = kafka.create("kept", 10)
    with following(kafka, store, topics="gone,kept") as sink:
        wait_until(lambda: sink.record().get("records") == 20, "all records")
        kafka.delete("gone")
        if anew:
            kafka.create("gone", 50, topic_id="another")
        wait_until(lambda: sink.warned("set_aside"), "the warning")
        kafka.append(kept, 10)
        wait_until(lambda: committed(kafka, kept) == [20], "the other topic")
        summary = sink.end()

    assert (code, 30) == (summary["exit_code"], summary["records"])


@pytest.mark.usefixtures("quick")
def test_a_run_ends_by_itself_when_nothing_is_left_to_follow(store: StoreSettings) -> None:
    """If all named topics are gone, the run ends."""
    kafka = FakeKafka()
    kafka.create("gone", 10)
    with following(kafka, store, topics="gone") as sink:
        wait_until(lambda: sink.record().get("records") == 10, "all records")
        kafka.delete("gone")
        summary = sink.wait()

    assert (5, ["topic_deleted"]) == (
        summary["exit_code"], [error["code"] for error in summary["errors"]],
    )  # fmt: skip


@pytest.mark.usefixtures("quick")
def test_a_cluster_that_is_away_ends_the_run(
    store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that stays away is exit code 5, reported once and not once a partition."""
    monkeypatch.setattr(follow, "PATIENCE_S", 0.2)
    kafka = FakeKafka()
    kafka.create("orders", *[10] * 6)
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: sink.record().get("records") == 60, "all records")
        kafka.is_away = True
        summary = sink.wait()

    assert (5, ["kafka"]) == (
        summary["exit_code"], [error["code"] for error in summary["errors"]],
    )  # fmt: skip


@pytest.mark.usefixtures("quick")
def test_a_bad_record_stops_its_partition_alone(store: StoreSettings) -> None:
    """A bad record is reported once, and stops only its own partition."""
    kafka = FakeKafka()
    bad, good = kafka.create("orders", 10, 10)
    kafka.faults[bad] = BadRecordError("orders-0 offset 3", "no value")
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: committed(kafka, good) == [10], "its neighbour")
        wait_until(lambda: sink.warned("set_aside"), "the warning")
        wait_until(lambda: sink.record().get("errors"), "its record")
        summary = sink.end()

    assert (1, ["bad_record"]) == (
        summary["exit_code"], [error["code"] for error in summary["errors"]],
    )  # fmt: skip
    assert 1 == sum(event.get("code") == "set_aside" for event in sink.told)


def test_a_first_run_that_begins_at_the_end_says_so_to_the_next(store: StoreSettings) -> None:
    """With auto.offset.reset=latest, what is written after the first run comes in the next."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", 10)
    first = Sink(kafka, store, topics="orders", auto_offset_reset="latest").wait()
    kafka.append(where, 5)
    second = Sink(kafka, store, topics="orders", auto_offset_reset="latest").wait()

    assert (0, 0, 0, 5) == (
        first["exit_code"], first["records"], second["exit_code"], second["records"],
    )  # fmt: skip


def test_a_sink_leaves_topics_to_another_live_sink(store: StoreSettings, tmp_path: Path) -> None:
    """Two configurations over one topic: the second backs up the others, and names what it left."""
    kafka = FakeKafka()
    for name in ("t1", "t2", "u"):
        kafka.create(name, 10)
    locking = {"no_lock": False, "lock_dir": str(tmp_path)}
    with following(kafka, store, topics_regex="t.*", group="g1", **locking) as first:
        wait_until(lambda: committed(kafka, TopicPartition("t2", 0)) == [10], "the first sink")
        second = Sink(kafka, store, topics="t1,u", group="g2", **locking)
        summary = second.wait()
        assert not first.summary

    assert (3, {"locked_topics": 1}, ["u"]) == (
        summary["exit_code"], summary["skipped"], [row["topic"] for row in summary["partitions"]],
    )  # fmt: skip
    assert second.warned("locked_topics")
    assert summary["last_success"] is None


@pytest.mark.usefixtures("quick")
def test_a_sink_that_follows_takes_what_it_had_left_to_another(
    store: StoreSettings, tmp_path: Path
) -> None:
    """As soon as the run that worked on a topic has ended, the one that goes on backs it up."""
    kafka = FakeKafka()
    (left,) = kafka.create("t1", 10)
    kafka.create("u", 10)
    locking = {"no_lock": False, "lock_dir": str(tmp_path)}
    with following(kafka, store, topics="t1", group="g1", **locking) as first:
        wait_until(lambda: committed(kafka, left) == [10], "the first sink")
        with following(kafka, store, topics_regex=".*", group="g2", **locking) as second:
            wait_until(lambda: second.warned("locked_topics"), "a topic that is left")
            first.end()
            kafka.append(left, 5)
            wait_until(lambda: committed(kafka, left) == [15], "the topic that was left")


def test_a_plan_is_judged_by_past_runs(store: StoreSettings) -> None:
    """Nothing is known before the first one; where there is nothing to do, nothing is said."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    before = Sink(kafka, store, topics="orders", dry_run=True).wait()
    done = Sink(kafka, store, topics="orders").wait()
    idle = Sink(kafka, store, topics="orders", dry_run=True).wait()
    kafka.logs[TopicPartition("orders", 0)] = Span(0, 20)

    after = Sink(kafka, store, topics="orders", dry_run=True).wait()

    assert {"bytes": None, "requests": None, "seconds": None} == before["estimate"]
    assert "estimate" not in idle
    assert done["bytes_stored"] == after["estimate"]["bytes"]
