"""Records that do not fit the layout: left out, counted, named, and kept as dead letters."""

from datetime import UTC, datetime
from typing import Any

import pytest
from backup_samples import sink_job

from kbackup.catalog.findings import Finding
from kbackup.catalog.ledger.rows import TopicLedger, entries
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock
from kbackup.errors import KafkaError
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.rows import BadRecord
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs import backup_state, wiring
from kbackup.runs.dead_letters import CONTEXT
from kbackup.runs.report import Summary
from kbackup.sink.job import SinkUnit
from kbackup.sink.rejects import ErrorPolicy, context
from kbackup.sink.task import back_up
from kbackup.stores import StoreSettings, open_store
from kbackup.verify.run import Notes, verify
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import SilentLine
from tests.support.running import wait_until
from tests.support.sinks import Sink, following, sink_settings

ORDERS = TopicPartition("orders", 0)
LETTERS = "dead-orders"
CAST = "org.apache.kafka.connect.transforms.Cast$Value"
LAYOUT: dict[str, Any] = {
    "topics": "orders", "format_class": "json", "value_converter": "json", "flush_size": 4,
    "errors_tolerance": "all",
}  # fmt: skip
KEPT = {
    **LAYOUT,
    "errors_deadletterqueue_topic_name": LETTERS,
    "errors_deadletterqueue_context_headers_enable": True,
}


@pytest.fixture
def kafka() -> FakeKafka:
    """Ten records, of which 2, 3 and 8 are no JSON."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    kafka.values = {(ORDERS, at): b"no JSON" for at in (2, 3, 8)}
    return kafka


def ledger(store: StoreSettings) -> list[Span]:
    stream = topic_stream(open_store(store), Layout(), "orders", SystemClock())
    return TopicLedger.of(entries(stream.read().rows)).partition(0).skipped


def test_a_bad_record_is_left_out_counted_and_named(kafka: FakeKafka, store: StoreSettings) -> None:
    """The summary and the ledger name each offset, the run goes on, and its exit code is 3."""
    sink = Sink(kafka, store, **LAYOUT)
    summary = sink.wait()

    row = summary["partitions"][0]
    assert (3, {"bad_records": 3}, 7) == (
        summary["exit_code"], summary["skipped"], summary["records"],
    )  # fmt: skip
    assert (10, 3, [[2, 3], [8, 8]]) == (row["committed"], row["skipped"], row["skipped_offsets"])
    assert [Span(2, 4), Span(8, 9)] == ledger(store)
    assert sink.warned("skipped")
    [first] = [event for event in sink.told if event.get("code") == "bad_record"]
    assert ("orders", 0, 2) == (first["topic"], first["partition"], first["offset"])
    said = [each["text"] for each in summary["warnings"] if each["code"] == "bad_record"]
    assert [first["text"]] == said
    assert [] == kafka.letters


@pytest.mark.parametrize(("tolerance", "code"), [("none", 1), ("all", 3)])
def test_a_value_that_parquet_has_no_column_for_is_a_bad_record(
    store: StoreSettings, tolerance: str, code: int
) -> None:
    """A struct without fields: no file with fewer rows than records, and no exit 0."""
    kafka = FakeKafka()
    kafka.create("orders", 2)
    empty = b'{"schema":{"type":"struct","fields":[]},"payload":{}}'
    kafka.values = {(ORDERS, at): empty for at in range(2)}
    options = {**LAYOUT, "format_class": "parquet", "value_converter_schemas_enable": True}

    summary = Sink(kafka, store, **options | {"errors_tolerance": tolerance}).wait()

    assert (code, 0) == (summary["exit_code"], summary["records"])
    assert "without fields" in str(summary)


def test_a_record_that_cannot_be_read_is_left_out_too(store: StoreSettings) -> None:
    """A header's name that is not UTF-8: first, two in a row, and last; full records too."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    kafka.misnamed = {(ORDERS, at) for at in (0, 4, 5, 9)}

    stopped = Sink(kafka, store, topics="orders").wait()
    tolerant = Sink(
        kafka, store, topics="orders", errors_tolerance="all", errors_log_include_messages=True
    )
    summary = tolerant.wait()

    assert (1, 0) == (stopped["exit_code"], stopped["records"])
    row = summary["partitions"][0]
    assert (3, {"bad_records": 4}, 6) == (
        summary["exit_code"], summary["skipped"], summary["records"],
    )  # fmt: skip
    assert (10, [[0, 0], [4, 5], [9, 9]]) == (row["committed"], row["skipped_offsets"])
    assert [Span(0, 1), Span(4, 6), Span(9, 10)] == ledger(store)
    [first, *_] = [event for event in tolerant.told if event.get("code") == "bad_record"]
    assert "orders-0 offset 0: the name of a header is not UTF-8" in first["text"]


def test_a_record_that_cannot_be_read_cannot_become_a_dead_letter(store: StoreSettings) -> None:
    """What was asked for cannot be done: its partition stops before it, and says so."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    kafka.misnamed = {(ORDERS, 4)}

    summary = Sink(kafka, store, **KEPT).wait()

    row = summary["partitions"][0]
    assert (4, 4) == (summary["records"], row["committed"])
    assert "dead letter topic either" in str(summary)


def test_a_dead_letter_is_the_record_and_says_what_is_wrong_with_it(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Key, value, headers and timestamp are the record's; Kafka Connect's headers say the rest."""
    summary = Sink(kafka, store, name="s3-orders", **KEPT).wait()

    assert [LETTERS] * 3 == [topic for topic, _ in kafka.letters]
    letter = kafka.letters[0][1]
    assert (b"k2", b"no JSON", 1_700_000_000_002) == (
        letter["key"], letter["value"], letter["timestamp"],
    )  # fmt: skip
    assert {"key": "trace", "value": b"t2"} == letter["headers"][0]
    context = {one["key"].removeprefix(CONTEXT): one["value"] for one in letter["headers"][1:]}
    assert (b"orders", b"0", b"2", b"s3-orders", b"VALUE_CONVERTER") == (
        context["topic"], context["partition"], context["offset"], context["connector.name"],
        context["stage"],
    )  # fmt: skip
    assert b"orders-0 offset 2" in context["exception.message"]
    assert b"org.apache.kafka.connect.json.JsonConverter" == context["class.name"]
    assert {"task.id", "exception.class.name", "exception.stacktrace"} < {*context}
    assert (3, {"retention.ms": "-1"}) == (summary["exit_code"], kafka.configs[LETTERS])


def test_nothing_is_committed_before_its_dead_letters_are_acknowledged(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A broker that is down for a dead letter stops the run, and the next one writes it."""
    kafka.unwritten = [KafkaError("writing records", "no answer")]
    failed = Sink(kafka, store, **KEPT).wait()
    before = kafka.positions_.get(ORDERS)
    again = Sink(kafka, store, **KEPT).wait()

    assert (5, None) == (failed["exit_code"], before)
    assert "dead letters cannot be written to dead-orders" in failed["errors"][0]["what"]
    assert "no answer" == failed["errors"][0]["why"]
    assert (3, 10) == (again["exit_code"], kafka.positions_[ORDERS].offset)
    assert {2, 3, 8} == {row["offset"] for _, row in kafka.letters}
    assert [Span(2, 4), Span(8, 9)] == ledger(store)


def test_a_pattern_never_takes_its_own_dead_letter_topic(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A dead letter is not backed up, does not fail again, and makes no further dead letter."""
    named = {**KEPT, "topics": None, "topics_regex": ".*orders"}
    Sink(kafka, store, **named).wait()
    kafka.append(TopicPartition(LETTERS, 0), 3)
    again = Sink(kafka, store, **named).wait()

    assert (0, ["orders"]) == (again["exit_code"], [row["topic"] for row in again["partitions"]])


@pytest.mark.parametrize("dry_run", [True, False], ids=["plan", "run"])
def test_a_dead_letter_topic_that_kafka_takes_for_another_is_refused(
    kafka: FakeKafka, store: StoreSettings, *, dry_run: bool
) -> None:
    """Kafka creates no topic whose name differs from another's by dot and underscore alone."""
    kafka.create("dead.orders", 0)
    named = {**KEPT, "errors_deadletterqueue_topic_name": "dead_orders", "dry_run": dry_run}

    summary = Sink(kafka, store, **named).wait()

    [error] = summary["errors"]
    assert (4, "illegal_topic_name") == (summary["exit_code"], error["code"])
    assert "dead.orders and dead_orders differ only by . and _" == error["what"]
    assert ORDERS not in kafka.positions_
    assert "dead_orders" not in kafka.ids


def test_a_partition_of_bad_records_alone_is_committed(store: StoreSettings) -> None:
    """The group does not stand still where nothing can be stored."""
    kafka = FakeKafka()
    kafka.create("orders", 3)
    kafka.values = {(ORDERS, at): b"no JSON" for at in range(3)}
    summary = Sink(kafka, store, **KEPT).wait()
    again = Sink(kafka, store, **KEPT).wait()

    assert (3, 0, 3) == (summary["exit_code"], summary["objects"], len(kafka.letters))
    assert (0, 3) == (again["exit_code"], kafka.positions_[ORDERS].offset)


def test_without_tolerance_the_first_bad_record_ends_the_partition(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """What comes before it is stored and committed, and no dead letter topic is made."""
    summary = Sink(kafka, store, **{**KEPT, "errors_tolerance": "none", "flush_size": 1}).wait()

    [error] = summary["errors"]
    assert ("bad_record", 2) == (error["code"], error["offset"])
    assert "errors.tolerance=all" in error["do"]
    assert (2, []) == (kafka.positions_[ORDERS].offset, kafka.letters)
    assert LETTERS not in kafka.ids


def test_a_value_that_a_restore_would_split_is_a_dead_letter_where_asked(
    store: StoreSettings,
) -> None:
    """With format.bytearray.refuse.separator, files hold no value that contains their separator."""
    kafka = FakeKafka()
    kafka.create("orders", 3)
    kafka.values = {(ORDERS, 1): b"two\nlines"}
    raw = {"format_class": "bytes", "value_converter": "bytes"}
    more = {"format_bytearray_refuse_separator": True}
    summary = Sink(kafka, store, **{**KEPT, **raw, **more}).wait()

    assert (3, [Span(1, 2)]) == (summary["exit_code"], ledger(store))
    assert [b"two\nlines"] == [letter["value"] for _, letter in kafka.letters]


@pytest.mark.parametrize("reports", [True, False])
def test_null_values_that_are_left_out_are_dead_letters_where_asked(
    reports: bool, store: StoreSettings
) -> None:
    """report.null.values.to.dlq keeps them; they are no bad records, and the run exits 0."""
    kafka = FakeKafka()
    kafka.create("orders", 3)
    kafka.values = {(ORDERS, 1): None}
    summary = Sink(
        kafka, store, **KEPT, behavior_on_null_values="ignore", report_null_values_to_dlq=reports
    ).wait()

    row = summary["partitions"][0]
    assert (0, 1, 0) == (summary["exit_code"], row["nulls_left_out"], row["skipped"])
    assert [1] * reports == [letter["offset"] for _, letter in kafka.letters]


@pytest.mark.parametrize("times", [True, False])
def test_each_bad_record_is_reported_where_asked(
    times: bool, kafka: FakeKafka, store: StoreSettings
) -> None:
    """errors.log.enable reports all of them with their reasons, never with what is in them."""
    sink = Sink(kafka, store, **LAYOUT, errors_log_enable=True, errors_log_include_messages=times)
    sink.wait()

    reports = [event for event in sink.told if event.get("code") == "bad_record"]
    assert [2, 3, 8] == [event["offset"] for event in reports]
    assert [times] * 3 == ["timestamp 17000000000" in event["text"] for event in reports]
    assert not any("no JSON" in event["text"] for event in reports)


@pytest.mark.usefixtures("quick")
def test_a_sink_that_follows_leaves_them_out_too(kafka: FakeKafka, store: StoreSettings) -> None:
    """Each visit counts and names what it left out; a dead letter that fails is written later."""
    kafka.unwritten = [KafkaError("writing records", "no answer")]
    with following(kafka, store, **{**KEPT, "flush_size": 3}) as sink:
        wait_until(lambda: kafka.positions_.get(ORDERS, Position(0)).offset == 10, "ten")
        kafka.values[ORDERS, 11] = b"no JSON"
        kafka.append(ORDERS, 3)
        wait_until(lambda: kafka.positions_[ORDERS].offset == 13, "thirteen")
        summary = sink.end()

    row = summary["partitions"][0]
    assert [[2, 3], [8, 8], [11, 11]] == row["skipped_offsets"]
    assert (4, {"bad_records": 4}) == (row["skipped"], summary["skipped"])
    assert {2, 3, 8, 11} == {letter["offset"] for _, letter in kafka.letters}


def test_a_task_that_takes_over_names_what_the_one_before_it_left_out(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """A worker that died has committed more than its report says; the ledger has the offsets."""
    job = sink_job(
        wiring.views(sink_settings(**LAYOUT)), kafka=kafka, store=store, rule=Rule(records=1),
        errors=ErrorPolicy(tolerates=True),
    )  # fmt: skip
    [died] = back_up(job, [SinkUnit(ORDERS, Span(0, 7))], SilentLine())
    [report] = back_up(job, [SinkUnit(ORDERS, Span(0, 10))], SilentLine())

    assert (2, 3) == (died.done.bad_records, report.done.bad_records)
    assert (Span(2, 4), Span(8, 9)) == report.own.skipped


def test_verify_names_what_was_left_out_and_misses_nothing(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """The offsets of dead letters are not an unexplained gap."""
    Sink(kafka, store, **LAYOUT).wait()
    opened = open_store(store)
    summary = Summary("r", "restore verify")

    found = [
        one
        for one in verify(
            opened, Layout(), ReadOptions(), summary, now=datetime.now(UTC),
            notes=Notes(backup_state.read(opened, Layout(), SystemClock())),
        )
        if isinstance(one, Finding)
    ]  # fmt: skip

    assert (0, [("skipped", (2, 8))]) == (
        summary.exit_code(), [(one.code, one.offsets) for one in found],
    )  # fmt: skip
    assert "at 2-3, 8" in str(found[0].text)


@pytest.mark.parametrize(
    ("stage", "by", "expected"),
    [
        ("VALUE_CONVERTER", "", b"org.apache.kafka.connect.json.JsonConverter"),
        ("TRANSFORMATION", CAST, CAST.encode()),
        ("TASK_PUT", "", b"org.apache.kafka.connect.sink.SinkTask"),
    ],
)
def test_a_dead_letter_names_the_class_that_connect_names(
    stage: str, by: str, expected: bytes
) -> None:
    """What a plugin complains of is in its name, what a sink does in that of the sink task."""
    classes = {"VALUE_CONVERTER": "org.apache.kafka.connect.json.JsonConverter"}
    where, bad = TopicPartition("orders", 0), BadRecord(0, "wrong", stage=stage, by=by)

    headers = [*context(bad, where, "c", classes)]

    assert {"key": f"{CONTEXT}class.name", "value": expected} in headers
