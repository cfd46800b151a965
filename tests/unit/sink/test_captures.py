"""Where consumer groups stand is captured beside the records, and never ahead of them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kbackup.catalog import groups
from kbackup.catalog.groups import Captures
from kbackup.clock import SystemClock
from kbackup.errors import KafkaError
from kbackup.kafka import GroupOffset
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import SinkPosition
from kbackup.runs.status import status
from kbackup.sink import captures, run
from kbackup.stores import StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.running import wait_until
from tests.support.sinks import following, run_sink

ORDERS = TopicPartition("orders", 0)
SOON_S = 30.0


@pytest.fixture
def kafka() -> FakeKafka:
    found = FakeKafka()
    found.create("orders", 10)
    found.consumers["billing"] = {ORDERS: GroupOffset(4, b"\xfe\0")}
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures come one after the other."""
    monkeypatch.setattr(run, "LOOK_S", 0.02)
    monkeypatch.setattr(captures, "CAPTURE_S", 0.05)
    monkeypatch.setattr(captures, "SETTLE_S", 0.05)


def back_up(kafka: FakeKafka, store: StoreSettings, **options: Any) -> dict[str, Any]:
    """A sink's summary."""
    return run_sink(kafka, store, **{"topics": "orders", **options})


def captured(store: StoreSettings) -> Captures:
    return groups.read(open_store(store), Layout("topics"), SystemClock())


def offsets(store: StoreSettings) -> dict[str | None, int | None]:
    found = captured(store).newest.get("orders")
    return {} if found is None else {one.group: one.offset for one in found.offsets}


def test_a_sink_of_some_partitions_leaves_captures_of_others(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Where groups stand in each partition is known by the newest run that had it."""
    kafka.create("orders", 20)
    other = TopicPartition("orders", 1)
    kafka.consumers["billing"] = {ORDERS: GroupOffset(4, b""), other: GroupOffset(7, b"")}
    back_up(kafka, store)
    kafka.consumers["billing"] = {ORDERS: GroupOffset(5, b""), other: GroupOffset(8, b"")}
    back_up(kafka, store, partitions="1")

    (found,) = captured(store).newest.values()

    assert [(0, 4), (1, 8)] == [(row.partition, row.offset) for row in found.offsets]


def test_a_sink_of_some_groups_leaves_captures_of_others(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A pattern chooses by whole names; another group is known by the newest run that looked."""
    kafka.consumers["audit"] = {ORDERS: GroupOffset(2, b"")}
    kafka.consumers["audit2"] = {ORDERS: GroupOffset(3, b"")}
    back_up(kafka, store)
    moved = {ORDERS: GroupOffset(9, b"")}
    kafka.consumers |= {"billing": moved, "audit": moved, "an_audit": moved}
    del kafka.consumers["audit2"]
    back_up(kafka, store, groups="audit.*")

    assert {"billing": 4, "audit": 9} == offsets(store)


def test_offsets_come_first_then_high_watermarks_then_records(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Nothing that was written before a captured offset was committed is missing in the backup."""
    begin = len(kafka.asked)
    back_up(kafka, store)

    assert ["offsets", "ends", "ends"] == kafka.asked[begin : begin + 3]
    assert {"billing": 4} == offsets(store)
    (row,) = captured(store).newest["orders"].offsets
    assert (b"\xfe\0", 10, None, "consumer", "id-of-orders") == (
        row.metadata, row.high_watermark, row.beyond, row.protocol_type, row.topic_id,
    )  # fmt: skip


def test_what_is_written_after_the_offsets_were_read_is_in_the_backup(
    kafka: FakeKafka, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """High watermarks are asked for after the offsets, so a commit is never ahead of them."""
    ask = kafka.offsets

    def late(names: Any) -> Any:
        found = list(ask(names))
        kafka.logs[ORDERS] = Span(0, 15)
        return iter(found)

    monkeypatch.setattr(kafka, "offsets", late)
    summary = back_up(kafka, store)

    (row,) = captured(store).newest["orders"].offsets
    assert (15, 15) == (row.high_watermark, summary["partitions"][0]["committed"])


def test_a_run_with_nothing_new_captures_too(kafka: FakeKafka, store: StoreSettings) -> None:
    """Positions move without records, and the newest are captured."""
    back_up(kafka, store)
    kafka.consumers["billing"] = {ORDERS: GroupOffset(9, b"")}
    summary = back_up(kafka, store)

    assert (0, 0) == (summary["exit_code"], summary["records"])
    assert {"billing": 9} == offsets(store)


def test_kbackups_own_groups_are_left_out(kafka: FakeKafka, store: StoreSettings) -> None:
    """Neither this sink's group nor that of another run of kbackup is a consumer's."""
    text = SinkPosition("key").position(4).metadata.encode()
    kafka.consumers["nightly"] = {ORDERS: GroupOffset(4, text)}
    kafka.consumers["ours"] = {ORDERS: GroupOffset(2, b"")}
    back_up(kafka, store, group="ours")

    assert {"billing"} == offsets(store).keys()


def test_a_group_whose_metadata_look_like_kbackups_is_captured(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """An application that commits JSON with a version of its own is not taken for kbackup."""
    kafka.consumers["billing"] = {ORDERS: GroupOffset(4, b'{"v": 99}')}
    kafka.consumers["later"] = {ORDERS: GroupOffset(4, b'{"v":99,"backup":"id","source":[]}')}
    back_up(kafka, store)

    assert {"billing"} == offsets(store).keys()


def test_groups_of_other_topics_are_left_out(kafka: FakeKafka, store: StoreSettings) -> None:
    """Only offsets in the sink's topics are captured."""
    kafka.create("payments", 3)
    kafka.consumers["ledger"] = {TopicPartition("payments", 0): GroupOffset(1, b"")}
    back_up(kafka, store)

    assert {"billing"} == offsets(store).keys()
    assert ["orders"] == list(captured(store).newest)


def test_none_captures_nothing_and_asks_nothing(kafka: FakeKafka, store: StoreSettings) -> None:
    """With groups=none no group is asked for."""
    summary = back_up(kafka, store, groups="none")

    assert "offsets" not in kafka.asked
    assert (0, {}) == (summary["exit_code"], captured(store).newest)


def test_a_broker_that_does_not_answer_drops_the_capture(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """The records are backed up all the same, a warning says so, and the exit code is 3."""
    kafka.no_groups = KafkaError("listing consumer groups", "no answer")
    summary = back_up(kafka, store)

    assert (3, 10, {"missing_captures": 1}) == (
        summary["exit_code"], summary["records"], summary["skipped"],
    )  # fmt: skip
    assert ["groups_not_captured"] == [one["code"] for one in summary["warnings"]]
    assert {} == captured(store).newest


@pytest.mark.parametrize(("options", "exit_code"), [({}, 0), ({"groups": ".*"}, 3)])
@pytest.mark.parametrize("what", ["cluster", "group"])
def test_a_list_that_may_lack_groups_says_so(
    what: str, options: dict[str, str], exit_code: int, kafka: FakeKafka, store: StoreSettings
) -> None:
    """Without permission the capture is stored as perhaps not whole; asked for, it is exit 3."""
    if what == "cluster":
        kafka.sees_all_groups = False
    else:
        kafka.consumers["secret"] = None
    summary = back_up(kafka, store, **options)

    assert exit_code == summary["exit_code"]
    assert ["groups_incomplete"] == [one["code"] for one in summary["warnings"]]
    assert {"billing": 4} == offsets(store)
    assert captured(store).newest["orders"].topic.is_complete is False


def test_groups_without_offsets_are_named(kafka: FakeKafka, store: StoreSettings) -> None:
    """Share groups, and new ones of Streams: nothing is wrong, and neither is called the other."""
    kafka.consumers["shared"] = {}

    summary = back_up(kafka, store)

    assert (0, ["groups_without_offsets"]) == (
        summary["exit_code"], [one["code"] for one in summary["warnings"]]
    )  # fmt: skip
    said = summary["warnings"][0]["text"]
    assert "shared: not captured" in said
    assert "Kafka Streams groups that have committed nothing" in said
    assert {"billing": 4} == offsets(store)


def test_a_group_of_streams_is_captured_as_such(kafka: FakeKafka, store: StoreSettings) -> None:
    """Kafka does not say of what kind it is, but no other kind looks like that and has offsets."""
    kafka.consumers["app"] = {ORDERS: GroupOffset(2, b"")}
    kafka.undescribed.add("app")

    summary = back_up(kafka, store)

    rows = captured(store).newest["orders"].offsets
    assert {"app": "streams", "billing": "consumer"} == {
        row.group: row.protocol_type for row in rows
    }
    assert [] == summary["warnings"]


def test_an_open_transaction_leaves_its_partition_unsettled(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A partition that is not whole is named, and so is an offset that lies beyond the backup."""
    kafka.behind[ORDERS] = 5
    kafka.consumers["billing"] = {ORDERS: GroupOffset(12, b"")}
    back_up(kafka, store)

    found = captured(store).newest["orders"]
    assert {ORDERS: "transaction"} == found.unsettled
    assert [(12, 15, 2)] == [(one.offset, one.high_watermark, one.beyond) for one in found.offsets]


def test_a_partition_that_fails_is_named_and_keeps_no_other_from_being_captured(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A partition that an error stops is unsettled; where groups stand elsewhere is captured."""
    kafka.create("payments", 3)
    other = TopicPartition("payments", 0)
    kafka.consumers["billing"] = {ORDERS: GroupOffset(4, b""), other: GroupOffset(2, b"")}
    kafka.faults[ORDERS] = KafkaError("reading orders-0", "no answer")
    summary = back_up(kafka, store, topics="orders,payments")

    found = captured(store).newest
    assert summary["exit_code"] != 0
    assert ({ORDERS: "failed"}, {}) == (found["orders"].unsettled, found["payments"].unsettled)
    assert [(4, 4), (2, None)] == [
        (row.offset, row.beyond) for name in sorted(found) for row in found[name].offsets
    ]


def test_a_topic_that_is_missing_does_not_look_like_a_capture_that_failed(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """What is wrong with a topic is said once, in the words of the plan."""
    summary = back_up(kafka, store, topics="orders,absent")

    assert [] == [one for one in summary["warnings"] if one["code"].startswith("groups")]
    assert {} == summary["skipped"]


def test_a_topic_that_is_refused_keeps_its_earlier_captures(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Where groups stand in a topic that was created again says nothing of what is backed up."""
    back_up(kafka, store)
    kafka.ids["orders"] = "another"
    kafka.create("payments", 3)
    kafka.consumers["billing"] = {ORDERS: GroupOffset(2, b"")}
    summary = back_up(kafka, store, topics="orders,payments")

    found = captured(store).newest
    assert (4, ["orders", "payments"]) == (summary["exit_code"], sorted(found))
    assert ("id-of-orders", {"billing": 4}) == (found["orders"].topic.topic_id, offsets(store))


def test_a_last_file_that_is_left_open_is_named(kafka: FakeKafka, store: StoreSettings) -> None:
    """A partition whose last, short file waits for the next run is unsettled."""
    back_up(kafka, store, flush_on_stop=False)

    found = captured(store).newest["orders"]
    assert {ORDERS: "tail"} == found.unsettled
    assert [(4, 4)] == [(row.offset, row.beyond) for row in found.offsets]


@pytest.mark.usefixtures("quick", "soon")
def test_a_run_that_follows_captures_again(kafka: FakeKafka, store: StoreSettings) -> None:
    """With --follow positions are captured as they move, and after an outage again."""
    with following(kafka, store, topics="orders") as sink:
        wait_until(lambda: offsets(store) == {"billing": 4}, "a capture", SOON_S)
        kafka.no_groups = KafkaError("listing consumer groups", "no answer")
        wait_until(
            lambda: "missing_captures" in sink.record().get("skipped", ()), "an outage", SOON_S
        )
        kafka.consumers["billing"] = {ORDERS: GroupOffset(8, b"")}
        kafka.no_groups = None
        wait_until(lambda: offsets(store) == {"billing": 8}, "another capture", SOON_S)
        summary = sink.end()

    assert {} == summary["skipped"]


@pytest.mark.usefixtures("quick", "soon")
def test_a_capture_waits_until_the_backup_has_reached_it(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """An offset whose records wait in an open file is not in a capture yet."""
    with following(kafka, store, topics="orders", flush_size=10, rotate_idle_ms=3_600_000):
        wait_until(lambda: offsets(store) == {"billing": 4}, "a capture", SOON_S)
        kafka.logs[ORDERS] = Span(0, 15)
        kafka.consumers["billing"] = {ORDERS: GroupOffset(15, b"")}
        asked = kafka.asked.count("offsets")
        wait_until(lambda: kafka.asked.count("offsets") > asked, "another look", SOON_S)

    assert {"billing": 4} == offsets(store)


@pytest.mark.usefixtures("quick", "soon")
def test_a_run_that_follows_captures_beside_a_partition_that_is_set_aside(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A partition that fails again and again is named, and does not hold up every capture."""
    kafka.create("payments", 3)
    kafka.faults[ORDERS] = KafkaError("reading orders-0", "no answer")
    with following(kafka, store, topics="orders,payments"):
        wait_until(lambda: offsets(store) == {"billing": 4}, "a capture", SOON_S)
        kafka.consumers["billing"] = {ORDERS: GroupOffset(8, b"")}
        wait_until(lambda: offsets(store) == {"billing": 8}, "another capture", SOON_S)

    found = captured(store).newest
    assert ({ORDERS: "failed"}, {}) == (found["orders"].unsettled, found["payments"].unsettled)


def test_status_says_since_when_there_are_captures(kafka: FakeKafka, store: StoreSettings) -> None:
    """An operator sees whether groups are captured, since when, and whether perhaps not all."""
    opened, layout = open_store(store), Layout("topics")
    before = status(opened, layout, max_age_s=None, now=datetime.now(UTC)).facts["captures"]
    kafka.sees_all_groups = False
    back_up(kafka, store)
    back_up(kafka, store)

    found = status(opened, layout, max_age_s=None, now=datetime.now(UTC)).facts["captures"]
    assert (None, 1, 1, False) == (before, found.topics, found.groups, found.is_complete)
    assert found.since < found.newest
