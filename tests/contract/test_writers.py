"""What every way from columns to Kafka promises; each test runs on both."""

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_samples import batch_of, cut_up, record_batches

from tests.contract.product import (
    BATCHES,
    COMMIT_S,
    HEADER,
    OVERDUE_S,
    OVERHEAD_BYTES,
    SCHEMA,
    BrokenOffError,
    KafkaError,
    KafkaSettings,
    KbackupError,
    Position,
    Span,
    TopicPartition,
    Writer,
)
from tests.support.mock_kafka import MockKafka

_COUNT = itertools.count()

COLUMNS = ["key", "value", "headers", "timestamp"]


@pytest.fixture
def target() -> TopicPartition:
    """A partition nobody else uses."""
    return TopicPartition(f"written-{next(_COUNT)}", 1)


def plain_writer(
    mock: MockKafka, target: TopicPartition, way: str, **properties: str
) -> Writer:  # fmt: skip
    """A writer without transactions."""
    producer = {name.replace("_", "."): value for name, value in properties.items()}
    kafka = KafkaSettings(mock.bootstrap_servers, producer=producer, client=way)
    return Writer(kafka, target, "group", exactly_once=False)


@dataclass
class Written:
    """A writer, its topic, and how many rows it wrote to partition 0."""

    writer: Writer
    topic: str
    rows: int = 0


@pytest.fixture
def long_lived(mock_kafka: MockKafka, way: str) -> Iterator[Written]:
    """A writer for all examples of a property."""
    target = TopicPartition(f"any-written-{next(_COUNT)}", 0)
    written = Written(plain_writer(mock_kafka, target, way), target.topic)
    yield written
    written.writer.close()


AWKWARD = batch_of(
    [
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"\0", "value": None, "headers": [{"key": "", "value": None}]},
        {"key": None, "value": b"", "headers": [{"key": "", "value": b""}]},
        {"headers": [{"key": "dup", "value": value} for value in (b"1", None, b"", b"1")]},
        {"headers": [{"key": "schlüssel \U0001f511", "value": b"\xff\0"}]},
        {"timestamp": -1},
        {"timestamp": -86_400_000},
        {"timestamp": 1},
        {"timestamp": 2**62},
        {"key": b"k" * 70_000, "value": b"v" * 70_000},
    ]
)  # fmt: skip


def test_what_is_written_is_what_was_given(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """Null, empty, absent values, repeated headers and times before 1970 are written unchanged."""
    writer = plain_writer(mock_kafka, target, way)

    writer.write(AWKWARD)
    writer.flush()
    writer.close()

    found = mock_kafka.batch(target.topic, target.partition)
    assert AWKWARD.select(COLUMNS) == found.select(COLUMNS)


def as_read(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as every librdkafka reads them: a header's name ends at a NUL."""
    rows: list[dict[str, Any]] = batch.select(COLUMNS).to_pylist()
    for row in rows:
        for header in row["headers"]:
            header["key"] = header["key"].partition("\0")[0]
    return rows


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_batches(), st.lists(st.integers(0, 40), max_size=4))
def test_any_part_of_any_batch_is_written(
    mock_kafka: MockKafka, long_lived: Written, batch: pa.RecordBatch, cuts: list[int]
) -> None:
    """Slices are written like whole batches, with and without nulls, headers and rows, in order."""
    times = pa.array([7] * len(batch), pa.int64())
    rest = batch.set_column(1, SCHEMA.field("timestamp"), times).slice(1)
    start, long_lived.rows = long_lived.rows, long_lived.rows + len(rest)

    for part in cut_up(rest, cuts):
        long_lived.writer.write(part)
    long_lived.writer.flush()

    found = mock_kafka.batch(long_lived.topic, 0, start) if len(rest) else rest
    assert as_read(rest) == as_read(found)


def test_a_time_that_is_not_stored_is_the_time_of_writing(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """A null timestamp is the time of writing; 0, the client's "now", is sent as 1 and counted."""
    before = int(time.time() * 1000) - 1
    writer = plain_writer(mock_kafka, target, way)

    zeros = writer.write(batch_of([{"timestamp": None}, {"timestamp": 5}, {"timestamp": 0}]))
    writer.flush()
    writer.close()

    first, *others = mock_kafka.batch(target.topic, target.partition)["timestamp"].to_pylist()
    assert before < first < before + 60_000
    assert ([5, 1], 1) == (others, zeros)


def test_more_than_the_client_has_room_for_is_written_in_order(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """More records than the client has room for are written: a full queue is waited for."""
    rows = batch_of([{"value": b"%d" % at} for at in range(5000)])
    writer = plain_writer(mock_kafka, target, way, queue_buffering_max_messages="100")

    for at in range(0, 5000, 1000):
        writer.write(rows.slice(at, 1000))
    writer.flush()
    writer.close()

    assert rows["value"] == mock_kafka.batch(target.topic, target.partition)["value"]


def test_a_record_that_is_larger_than_the_queue_is_written(
    mock_kafka: MockKafka, way: str, target: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has room for whatever the topic takes: it would wait for more for ever."""
    monkeypatch.setattr(*BATCHES, 0)
    rows = batch_of([{"value": b"small"}, {"value": b"x" * 90_000}, {"value": b"small"}])
    kafka = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    writer = Writer(kafka, target, "group", exactly_once=False, max_message_bytes=100_000)

    writer.write(rows)
    writer.flush()
    writer.close()

    assert rows["value"] == mock_kafka.batch(target.topic, target.partition)["value"]


def test_transactions_follow_each_other(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """Records of successive transactions and writers arrive in order, once each."""
    kafka = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    rows = batch_of([{"value": b"%d" % at} for at in range(400)])

    for at in range(0, 400, 200):
        writer = Writer(kafka, target, f"group-{target}")
        for start in (at, at + 100):
            writer.write(rows.slice(start, 100))
            writer.commit(Position(start + 100, "here"))
        writer.close()

    assert rows["value"] == mock_kafka.batch(target.topic, target.partition)["value"]


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        pytest.param(1_000_000, 1_000_000, id="what the topic takes"),
        pytest.param(2**30, 2**28, id="what the client can send"),
        pytest.param(None, 2**26, id="not known"),
    ],
)
def test_the_largest_record_is_what_both_topic_and_client_can_take(
    mock_kafka: MockKafka, target: TopicPartition, asked: int | None, most: int
) -> None:
    """A record over the client's limit is reported as too large, not as a silent broker."""
    kafka = KafkaSettings(mock_kafka.bootstrap_servers)
    writer = Writer(kafka, target, "group", exactly_once=False, max_message_bytes=asked)
    writer.close()

    assert most - OVERHEAD_BYTES == writer.record_bytes_max


class Stuck:
    """A client whose commit waits for a broker that has left: librdkafka issue 5511."""

    def __init__(self, client: Any, released: threading.Event) -> None:
        self._client, self._released = client, released

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __len__(self) -> int:
        return len(self._client)

    def send_offsets_to_transaction(self, *_: object) -> None:
        """Wait, whatever the timeout."""
        self._released.wait()


def test_a_commit_that_never_ends_is_given_up(
    mock_kafka: MockKafka, way: str, target: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit without an answer fails in time, as closing does, and the next writer takes over."""
    settings = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    group, released = f"stuck-{target.topic}", threading.Event()
    first = Writer(settings, target, group)
    first.write(batch_of([{"value": b"first"}]))
    first.commit(Position(1))
    first.write(batch_of([{"value": b"lost"}]))
    monkeypatch.setattr(*COMMIT_S, 0.1)
    monkeypatch.setattr(*OVERDUE_S, 0.1)
    monkeypatch.setattr(first, "_producer", Stuck(first._producer, released))

    with pytest.raises(BrokenOffError, match="sending its position: no answer"):
        first.commit(Position(2))
    first.close()
    monkeypatch.undo()
    second = Writer(settings, target, group)
    second.write(batch_of([{"value": b"last"}]))
    second.commit(Position(2))
    second.close()
    released.set()

    assert b"last" == mock_kafka.batch(target.topic, target.partition)["value"][-1].as_py()


class Late(Stuck):
    """A client whose commit is not over in time, once."""

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        """Say so, or send them."""
        if not self._released.is_set():
            self._released.set()
            raise KafkaException(ClientError(ClientError._TIMED_OUT))
        self._client.send_offsets_to_transaction(*arguments)


def test_a_commit_that_takes_long_goes_on_where_it_was(
    mock_kafka: MockKafka, way: str, target: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is late is asked again, and what it was given is committed once."""
    group = f"late-{target.topic}"
    writer = Writer(KafkaSettings(mock_kafka.bootstrap_servers, client=way), target, group)
    writer.write(batch_of([{"value": b"slow"}]))
    late = Late(writer._producer, threading.Event())
    monkeypatch.setattr(writer, "_producer", late)

    writer.commit(Position(7))

    writer.close()
    assert late._released.is_set()
    assert [b"slow"] == mock_kafka.batch(target.topic, target.partition)["value"].to_pylist()


def test_a_transaction_may_span_the_partitions_of_a_topic(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """Within one transaction each batch goes to the partition it is written to."""
    settings = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    group, other = f"spread-{target.topic}", TopicPartition(target.topic, 0)
    writer = Writer(settings, target, group)
    writer.write(batch_of([{"value": b"home"}]))
    writer.write(batch_of([{"value": b"away"}]), other)
    writer.commit(Position(2, "here"), {other: Position(3, "there")})
    writer.close()

    assert [b"home"] == mock_kafka.batch(target.topic, target.partition)["value"].to_pylist()
    assert [b"away"] == mock_kafka.batch(target.topic, other.partition)["value"].to_pylist()


def test_positions_of_several_partitions_are_committed_without_transactions(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """Positions of several partitions are committed together, after their records are."""
    settings = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    other = TopicPartition(target.topic, 0)
    writer = Writer(settings, target, f"plain-{target.topic}", exactly_once=False)
    writer.write(batch_of([{"value": b"away"}]), other)
    writer.commit(Position(2), {other: Position(3)})
    found = writer.position(), writer.position(other)
    writer.close()

    assert (Position(2), Position(3)) == found


def test_other_partitions_positions_are_committed_without_the_targets_own(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """A commit carries the positions that it is given, and all are read in one request."""
    settings = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    other = TopicPartition(target.topic, 0)
    writer = Writer(settings, target, f"away-{target.topic}", exactly_once=False)
    writer.write(batch_of([{"value": b"away"}]), other)
    writer.commit(Position(3, "there"), where=other)
    found = writer.positions([target, other])
    writer.close()

    assert {target: None, other: Position(3, "there")} == found


def test_partitions_share_transactional_ids_whatever_the_run() -> None:
    """At most 64 stand for all partitions of a topic, and the first have ids of their own."""
    fence = KafkaSettings("-").fence

    assert [0, 1, 63, 0, 1, 40] == [
        fence(TopicPartition("t", at)).partition for at in (0, 1, 63, 64, 65, 1000)
    ]


def test_a_partition_that_is_not_there_is_said(
    mock_kafka: MockKafka, way: str, target: TopicPartition
) -> None:
    """A missing partition is an error that names it and does not crash the process."""
    mock_kafka.write(target.topic, [])
    writer = plain_writer(mock_kafka, TopicPartition(target.topic, 99), way)
    rows = batch_of([{"offset": 70 + at} for at in range(10)])

    with pytest.raises(KafkaError, match=f"{target.topic}-99: writing records") as caught:
        write_and_flush(writer, rows)
    writer.abort()
    writer.close()

    if way == "native":
        assert 70 == caught.value.place["offset"]


def write_and_flush(writer: Writer, rows: pa.RecordBatch) -> None:
    """Write rows until an error comes of it: the client may learn of a partition later."""
    writer.write(rows)
    writer.flush()


def write_on(writer: Writer, failures: list[str]) -> None:
    """Write again and again, until that fails."""
    rows = batch_of([{"value": b"x" * 100}] * 2000)
    try:
        while True:
            writer.write(rows)
    except KbackupError as error:
        failures.append(str(error))


@pytest.mark.parametrize("pause_s", [0.0, 0.02, 0.2])
def test_columns_may_be_closed_while_another_thread_writes(
    mock_kafka: MockKafka, target: TopicPartition, pause_s: float
) -> None:
    """The other thread gets an error soon, and closing waits for it, as the client's does not."""
    writer = plain_writer(mock_kafka, target, "native", queue_buffering_max_messages="1000")
    failures: list[str] = []
    thread = threading.Thread(target=write_on, args=(writer, failures))
    thread.start()
    time.sleep(pause_s)

    writer._sender.close()
    thread.join(60)

    assert not thread.is_alive()
    assert [True] == ["closed" in text for text in failures]


def test_other_columns_are_not_taken_for_a_record(
    mock_kafka: MockKafka, target: TopicPartition
) -> None:
    """The C library goes by column positions: a batch of anything else is stopped before it."""
    writer = plain_writer(mock_kafka, target, "native")

    with pytest.raises(TypeError, match="not the columns of a record"):
        writer.write(batch_of([{}]).select(["offset", "timestamp", "value"]))
    writer.close()


def test_damaged_columns_are_refused(mock_kafka: MockKafka, target: TopicPartition) -> None:
    """A column whose row ends before it begins is refused, and nothing is read from it."""
    writer = plain_writer(mock_kafka, target, "native")
    good = batch_of([{"value": b"abc"}] * 3)
    ends = pa.array([0, 6, 3, 9], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 3, [None, ends, pa.py_buffer(b"abcdefghi")])
    header = pa.array([{"key": "name", "value": b""}] * 9, HEADER)
    headers = pa.Array.from_buffers(
        SCHEMA.field("headers").type, 3, [None, ends], children=[header]
    )

    for at, column in ((4, value), (5, headers)):
        with pytest.raises(TypeError, match="not in order"):
            writer.write(good.set_column(at, SCHEMA.field(at), column))
    writer.close()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_writer_says_where_its_records_stand(
    mock_kafka: MockKafka, way: str, target: TopicPartition, *, exactly_once: bool
) -> None:
    """The C library hears of each record's offset, the client for Python of none."""
    settings = KafkaSettings(mock_kafka.bootstrap_servers, client=way)
    other, group = TopicPartition(target.topic, 0), f"told-{target.topic}"
    found = []
    for count in (2, 3):
        writer = Writer(settings, target, group, exactly_once=exactly_once)
        for _ in range(2):
            writer.write(batch_of([{"value": b"home"}] * count))
            writer.write(batch_of([{"value": b"away"}]), other)
            writer.flush()
            found.append([writer.written(target), writer.written(other), writer.written(other)])
            writer.commit(Position(1), {other: Position(1)})
        writer.close()

    marker = int(exactly_once)
    ends = [2, 4 + marker, 7 + 2 * marker, 10 + 3 * marker]
    expected = [
        [Span(end - count, end), Span(at * (1 + marker), at * (1 + marker) + 1), None]
        for at, (end, count) in enumerate(zip(ends, (2, 2, 3, 3), strict=True))
    ]
    assert (expected if way == "native" else [[None] * 3] * 4) == found
