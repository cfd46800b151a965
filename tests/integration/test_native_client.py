"""Columns in C, and by batches, against a real Kafka: what a mock broker cannot show."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic
from record_samples import batch_of

from tests.integration.product import (
    PATIENCE,
    SCHEMA,
    AnyReader,
    BatchReader,
    KafkaSettings,
    KbackupError,
    LocalKafka,
    Position,
    Reader,
    RecordTooLargeError,
    Span,
    TakenOverError,
    TopicPartition,
    Writer,
    start_kafka,
)
from tests.support.brokers import AnotherBroker, LargeKafka, SecureKafka, limit_consumers
from tests.support.cluster import Record, TestCluster, send, varied
from tests.support.mock_kafka import objects_batch
from tests.support.ways import usable

pytestmark = pytest.mark.integration

COLUMNS = ["key", "value", "headers", "timestamp"]


BATCHES = "batches"
"""The way that is none of ``kafka.client``."""


def opened(kafka: KafkaSettings, way: str) -> AnyReader:
    """A reader by columns, or by batches."""
    return BatchReader(kafka) if way == BATCHES else Reader(kafka, "native-client")


def read(kafka: KafkaSettings, topic: str, span: Span, way: str = "") -> pa.RecordBatch:
    """A span of partition 0, read by a reader of its own."""
    reader = opened(kafka, way)
    try:
        batches = list(reader.read(TopicPartition(topic, 0), span))
    finally:
        reader.close()
    for batch in batches:
        batch.validate(full=True)
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], SCHEMA)


def write(kafka: KafkaSettings, topic: str, rows: pa.RecordBatch, group: str) -> None:
    """Write rows to partition 0 in one transaction."""
    writer = Writer(kafka, TopicPartition(topic, 0), group)
    try:
        writer.write(rows)
        writer.commit(Position(len(rows)))
    finally:
        writer.close()


def test_a_writer_takes_over_from_those_that_share_its_transactional_id(
    cluster: TestCluster, way: str
) -> None:
    """What earlier writers had begun is dropped, they write no more, positions are the newest's."""
    topic, group = cluster.create(f"fenced-{way}", 66), f"fenced-{way}"
    near, far = TopicPartition(topic, 1), TopicPartition(topic, 65)
    kafka = KafkaSettings(cluster.servers, client=way)
    rows = batch_of([{"value": b"row"}])
    first = Writer(kafka, near, group)
    first.write(rows, near)
    first.write(rows, far)

    second = Writer(kafka, far, group)
    second.write(rows)
    with pytest.raises(TakenOverError):
        first.commit(Position(1), {far: Position(1)})
    second.write(rows, near)
    second.commit(Position(7, "near"), where=near)
    second.commit(Position(8, "far"))

    found = second.positions([near, far])
    first.close()
    second.close()
    assert {near: Position(7, "near"), far: Position(8, "far")} == found
    assert [1, 1] == [len(cluster.read(topic, at)) for at in (1, 65)]


@pytest.fixture(scope="module")
def large_kafka() -> Iterator[LargeKafka]:
    """A broker that takes giants, which would leave the shared one without memory."""
    with LargeKafka() as kafka:
        yield kafka


# -- what a log may hold -------------------------------------------------------------------------


@pytest.fixture(scope="session")
def awkward_logs(cluster: TestCluster) -> list[str]:
    """Topics with aborted transactions, times that the broker has set, and compaction's holes."""
    aborted = cluster.create("awkward-aborted")
    appended = cluster.create("awkward-appended", message_timestamp_type="LogAppendTime")
    compacted = cluster.create(
        "awkward-compacted", cleanup_policy="compact", segment_ms="100",
        min_cleanable_dirty_ratio="0.01", delete_retention_ms="0",
    )  # fmt: skip
    for at, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = cluster.producer(transactional_id=f"awkward-{codec}", compression_type=codec)
        producer.init_transactions(30)
        for is_kept in (True, False, True):
            producer.begin_transaction()
            send(producer, aborted, varied(40, at))
            producer.flush(30)
            (producer.commit_transaction if is_kept else producer.abort_transaction)(30)
        plain = cluster.producer(compression_type=codec)
        send(plain, appended, varied(60, at))
        send(plain, compacted, map(_now, filter(_has_key, varied(60, at))))
        assert plain.flush(30) == 0
        time.sleep(0.15)  # the next one begins a new segment
    _wait_for_holes(cluster, compacted)
    return [aborted, appended, compacted]


@pytest.mark.parametrize("road", ["native", "python", BATCHES])
def test_columns_of_awkward_logs_are_what_the_client_says(
    cluster: TestCluster, awkward_logs: list[str], road: str
) -> None:
    """Aborted transactions, markers, compaction's holes, times of the broker, every codec."""
    kafka = KafkaSettings(cluster.servers, client="auto" if road == BATCHES else usable(road))

    for log in awkward_logs:
        found = read(kafka, log, Span(0, cluster.end_offsets(log)[0]), road)
        want = objects_batch(cluster.servers, log)
        if not log.endswith("compacted"):  # which may go on between the two
            assert want == found, log
        rows = {row["offset"]: row for row in found.to_pylist()}
        assert [rows[row["offset"]] for row in want.to_pylist()] == want.to_pylist(), log
        assert len(want)


def _has_key(record: Record) -> bool:
    return record.key is not None


def _now(record: Record) -> Record:
    """The record with the time at hand, by which segments roll."""
    return record._replace(timestamp=int(time.time() * 1000))


def _wait_for_holes(cluster: TestCluster, topic: str) -> None:
    """Wait until compaction has removed something in the middle."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        offsets = objects_batch(cluster.servers, topic)["offset"].to_pylist()
        if any(after - before > 1 for before, after in pairwise(offsets)):
            return
        time.sleep(0.3)
        cluster.write(topic, [_now(Record(b"tick", b"tock"))])
    pytest.fail("compaction removed nothing")


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(100_000_000, id="100 MB"),
        pytest.param(265_000_000, id="all that the client can", marks=pytest.mark.nightly),
    ],
)
def test_a_giant_goes_through(large_kafka: LargeKafka, topic: str, size: int) -> None:
    """A giant record among small ones is written and read."""
    cluster = TestCluster(large_kafka.bootstrap_servers)
    cluster.create(topic, max_message_bytes=str(size + 1_000_000))
    kafka = KafkaSettings(
        cluster.servers,
        client="native",
        consumer={"fetch.message.max.bytes": str(size), "receive.message.max.bytes": "2000000000"},
        producer={"queue.buffering.max.kbytes": "2000000", "request.timeout.ms": "120000"},
    )
    rows = batch_of([{"value": b"before"}, {"value": b"\xa5" * size}, {"value": b"behind"}])

    write(kafka, topic, rows, f"group-{topic}")

    found = read(kafka, topic, Span(0, 3))
    assert rows.select(COLUMNS) == found.select(COLUMNS)


# -- refusals ------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_is_named(cluster: TestCluster, topic: str) -> None:
    """A record too large is reported by its backup's offset; those before it are delivered."""
    cluster.create(topic, max_message_bytes="100000")
    target = TopicPartition(topic, 0)
    kafka = KafkaSettings(cluster.servers, client="native")
    writer = Writer(kafka, target, f"group-{topic}", max_message_bytes=100_000)
    writer.write(batch_of([{"offset": at} for at in range(1000, 1100)]))
    writer.flush()

    with pytest.raises(RecordTooLargeError, match="from offset 2000 of the backup on") as caught:
        _write_all(writer, batch_of([{"offset": 2000, "value": b"x" * 200_000}]))
    writer.abort()
    writer.close()

    assert 2000 == caught.value.place["offset"]


def _write_all(writer: Writer, rows: pa.RecordBatch) -> None:
    writer.write(rows)
    writer.flush()


@pytest.mark.parametrize("partition", [0, 7], ids=["no topic", "no partition"])
def test_what_is_not_there_is_said_and_ends_no_process(
    cluster: TestCluster, topic: str, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing partition is reported as an error and does not end the process."""
    monkeypatch.setattr(*PATIENCE, lambda *_: 3.0)
    if partition:
        cluster.create(topic)
    reader = Reader(KafkaSettings(cluster.servers, client="native"), "native-client")

    with pytest.raises(KbackupError, match=f"{topic}-{partition}"):
        list(reader.read(TopicPartition(topic, partition), Span(0, 10)))
    reader.close()


def test_a_topic_that_is_deleted_while_it_is_read_is_said(
    cluster: TestCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a topic is deleted while it is read, what was fetched is returned before the error."""
    monkeypatch.setattr(*PATIENCE, lambda *_: 5.0)
    cluster.create(topic)
    cluster.write(topic, [Record(None, b"x" * 1000)] * 20_000)
    reader = Reader(_in_small_steps(cluster.servers), "native-client")
    batches = reader.read(TopicPartition(topic, 0), Span(0, 20_000))
    first = next(batches)
    cluster.delete(topic)

    with pytest.raises(KbackupError, match=topic):
        list(batches)
    reader.close()

    assert list(range(len(first))) == first["offset"].to_pylist()


def _in_small_steps(servers: str) -> KafkaSettings:
    """Settings of a consumer that fetches little ahead, so that much is still to be fetched."""
    consumer = {
        "queued.max.messages.kbytes": "256",
        "queued.min.messages": "100",
        "fetch.message.max.bytes": "100000",
    }
    return KafkaSettings(servers, client="native", consumer=consumer)


# -- a broker that protects itself ---------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A broker with TLS, SCRAM and OAuth."""
    with SecureKafka(tmp_path_factory.mktemp("secure")) as kafka:
        yield kafka


@pytest.mark.parametrize(
    ("listener", "road"), [("scram", "native"), ("oauth", "native"), ("scram", BATCHES)]
)
def test_columns_pass_through_tls_scram_and_oauth(
    secure: SecureKafka, topic: str, listener: str, road: str
) -> None:
    """Security is the client's: C only sees records.  Tokens are renewed on the way."""
    TestCluster(secure.plain).create(topic)
    address = secure.scram if listener == "scram" else secure.oauth
    properties = secure.properties(listener)
    kafka = KafkaSettings(
        address, consumer=properties, producer=properties, admin=properties, client="native"
    )
    rows = batch_of([{"value": b"%d" % at} for at in range(1000)])

    write(kafka, topic, rows, f"group-{topic}")
    if listener == "oauth":
        time.sleep(2.5)  # the tokens of what follows are others
    found = read(kafka, topic, Span(0, 1001), road)

    assert rows.select(COLUMNS) == found.select(COLUMNS)


@pytest.mark.parametrize("road", ["native", BATCHES])
def test_a_wrong_password_is_said(
    secure: SecureKafka, topic: str, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's refusal is reported in the broker's words."""
    monkeypatch.setattr(*PATIENCE, lambda *_: 2.0)
    properties = {**secure.properties("scram"), "sasl.password": "wrong"}
    kafka = KafkaSettings(secure.scram, consumer=properties, timeout_s=1.0, client="native")

    with pytest.raises(KbackupError, match="Authentication failed"):
        read(kafka, topic, Span(0, 10), road)


@pytest.mark.nightly
def test_who_speaks_no_tls_where_it_is_spoken_is_told_at_once(secure: SecureKafka) -> None:
    """A real listener lets such a client fall without a word, again and again."""
    login = {**secure.properties("scram"), "security.protocol": "SASL_PLAINTEXT"}
    tls = {**secure.properties("scram"), "security.protocol": "SSL"}
    for address, admin in ((secure.scram, {}), (secure.scram, login), (secure.oauth, tls)):
        with pytest.raises(KbackupError, match=r"speaks (no )?TLS, and security.protocol is"):
            KafkaSettings(address, admin=admin, timeout_s=60.0).cluster()


# -- a broker that is slow, or not alone ---------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("road", ["native", BATCHES])
def test_a_broker_that_holds_back_and_restarts_is_waited_for(topic: str, road: str) -> None:
    """A quota delays records, and a crash in the middle of reading and writing loses none."""
    rows = batch_of([{"value": b"%06d" % at + b"x" * 1000} for at in range(6000)])
    with start_kafka() as broker:
        cluster = TestCluster(broker.bootstrap_servers)
        cluster.create(topic)
        kafka = KafkaSettings(broker.bootstrap_servers, client="native")
        writer = Writer(kafka, TopicPartition(topic, 0), f"group-{topic}")
        writer.write(rows.slice(0, 3000))
        crash = threading.Thread(target=lambda: (broker.kill(), broker.restart()))
        crash.start()
        writer.write(rows.slice(3000))
        writer.flush()
        writer.commit(Position(6000))
        writer.close()
        crash.join()
        limit_consumers(cast("LocalKafka", broker), 1_000_000)
        begin = time.monotonic()

        reader = opened(_in_small_steps(broker.bootstrap_servers), road)
        batches = reader.read(TopicPartition(topic, 0), Span(0, 6001))
        found = [next(batches)]
        crash = threading.Thread(target=lambda: (broker.kill(), broker.restart()))
        crash.start()
        found += batches
        crash.join()
        reader.close()

    assert rows.select(COLUMNS) == pa.concat_batches(found).select(COLUMNS)
    assert time.monotonic() - begin > 2


@contextmanager
def _with_coordinators(broker: LocalKafka) -> Iterator[None]:
    """Let groups and transactions be kept by this broker, whoever joins it later."""
    topic = TestCluster(broker.bootstrap_servers).create("early")
    kafka = KafkaSettings(broker.bootstrap_servers, client="native")
    write(kafka, topic, batch_of([{"value": b"early"}]), "early")
    yield


@pytest.mark.nightly
@pytest.mark.parametrize("road", ["native", BATCHES])
def test_a_leader_that_dies_is_followed_by_another(topic: str, road: str) -> None:
    """Two brokers: the one that leads is killed in the middle of writing, and of reading."""
    rows = batch_of([{"value": b"%06d" % at + b"x" * 1000} for at in range(12_000)])
    where = TopicPartition(topic, 0)
    first = cast("LocalKafka", start_kafka())
    with first, _with_coordinators(first), AnotherBroker(first) as second:
        cluster = TestCluster(first.bootstrap_servers)
        new = NewTopic(topic, 1, replica_assignment=[[2, 1]], config={"retention.ms": "-1"})
        cluster.admin.create_topics([new])[topic].result(30)
        servers = f"{first.bootstrap_servers},{second.bootstrap_servers}"
        writer = Writer(KafkaSettings(servers, client="native"), where, f"group-{topic}")
        for at in range(0, 12_000, 1000):
            writer.write(rows.slice(at, 1000))
            if at == 4000:
                second.kill()
        writer.flush()
        writer.commit(Position(12_000))
        writer.close()

        second.restart()
        time.sleep(8)  # it leads again, as the first of its replicas
        reader = opened(_in_small_steps(servers), road)
        batches = reader.read(where, Span(0, 12_001))
        found = [next(batches)]
        second.kill()
        found += batches
        reader.close()

    assert rows.select(COLUMNS) == pa.concat_batches(found).select(COLUMNS)
