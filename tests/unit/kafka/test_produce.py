"""Batches go out in transactions that nothing doubtful ends, as recorded answers have it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from kbackup.batches import encoding, native, walk
from kbackup.batches.decoding import decoded
from kbackup.errors import KafkaError, RecordTooLargeError
from kbackup.kafka import BrokenOffError, KafkaSettings, Position, TakenOverError, produce
from kbackup.kafka.client import patience_s
from kbackup.kafka.produce import BatchProducer
from kbackup.kafka.writer import TAKEOVER_S
from kbackup.records import Span, TopicPartition
from tests.support.encoded import ZSTD, Sent, batch
from tests.support.fake_transactions import (
    ADD,
    COMMIT,
    COORDINATOR,
    END,
    INIT,
    LOST,
    OFFSETS,
    PRODUCE,
    FakeTransactions,
)
from tests.support.recorded import offered
from tests.support.recorded_broker import NoPositions

pytestmark = pytest.mark.skipif(native.library() is None, reason="the library was not built here")

WHERE = TopicPartition("t", 0)
ONE = batch(40, [Sent(b"a", timestamp=0), Sent(b"b", timestamp=-1)])
TWO = batch(42, [Sent(b"c")] * 3, ZSTD)
BOTH = walk(pa.py_buffer(ONE + TWO)).check()


@pytest.fixture(autouse=True)
def _no_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked where a group stands."""
    monkeypatch.setattr(produce, "WRITERS", NoPositions())


class Pausing:
    """Time that passes while a producer pauses, two seconds each, and not while it works."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """The seconds that were paused."""
        return self.now_s

    def sleep(self, _seconds: float) -> None:
        """Pause."""
        self.now_s += 2.0


@contextmanager
def opened(broker: FakeTransactions) -> Iterator[BatchProducer]:
    """A producer, which is left whatever happens."""
    writer = BatchProducer(KafkaSettings(broker.servers), WHERE, "g", max_message_bytes=10_000)
    try:
        yield writer
    finally:
        writer.close()


OLD = {COORDINATOR: 2, INIT: 1, ADD: 1, PRODUCE: 7, OFFSETS: 1, COMMIT: 2, END: 1}
NEW = {COORDINATOR: 2, INIT: 4, ADD: 3, PRODUCE: 8, OFFSETS: 3, COMMIT: 3, END: 3}
"""The versions that are spoken with the oldest brokers, and with those of our days."""


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("2.1.1", OLD),
        ("2.3.1", OLD),
        ("2.4.1", {**OLD, PRODUCE: 8}),
        ("2.6.3", {**OLD, PRODUCE: 8, COMMIT: 3}),
        *((release, NEW) for release in ("2.8.2", "3.3.2", "3.7.2", "3.9.1", "4.1.1")),
    ],
)
def test_a_transaction_is_spoken_in_versions_of_the_first_protocol(
    release: str, expected: dict[int, int]
) -> None:
    """The second one's are never asked for, though brokers offer them on any cluster."""
    with FakeTransactions([], versions=offered(release)) as broker, opened(broker) as writer:
        writer.write_batches(BOTH)
        for rows in decoded(BOTH.slice(0, 1)):
            assert 0 == writer.write(rows)
        writer.flush()
        stands = writer.written(WHERE), writer.written(WHERE)
        writer.commit(Position(45, "said"))

    assert (Span(0, 22), None) == stands
    assert expected == {kind: version for kind, version, _ in broker.asked}
    assert [COORDINATOR, INIT, ADD, PRODUCE, OFFSETS, COORDINATOR, COMMIT, END] == broker.kinds
    assert [True] == broker.ends()
    sent = [walk(pa.py_buffer(each)).check().headers.to_pylist()[0] for each in broker.log]
    names = ("base_offset", "producer_id", "producer_epoch", "base_sequence", "attributes")
    assert [(0, 77, 5, 0, 16), (0, 77, 5, 2, 16 | ZSTD), (0, 77, 5, 5, 16)] == [
        tuple(each[name] for name in names) for each in sent
    ]
    assert [ONE[61:], TWO[61:], ONE[61:]] == [each[61:] for each in broker.log]
    (committed,) = [body for kind, _, body in broker.asked if kind == COMMIT]
    assert (45).to_bytes(8, "big") in committed
    assert b"said\0" in committed


def test_several_partitions_are_written_to_in_one_transaction() -> None:
    """Each joins it once; what was sent before over the coordinator's connection is answered."""
    other = TopicPartition("t", 1)
    with FakeTransactions([], partitions=2) as broker, opened(broker) as writer:
        for _ in range(2):
            for where in (WHERE, other):
                writer.write_batches(BOTH, where)
        writer.flush()
        stands = writer.written(WHERE), writer.written(other)
        writer.commit(Position(45), {other: Position(45)})

    assert (Span(0, 53), Span(20, 73)) == stands
    assert 2 == broker.kinds.count(ADD)
    sent = [walk(pa.py_buffer(each)).check().headers.to_pylist()[0] for each in broker.log]
    assert [0, 2] * 2 + [5, 7] * 2 == [each["base_sequence"] for each in sent]
    assert [True] == broker.ends()


def test_sequences_begin_anew_after_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on from one transaction to the next."""
    for module in (produce, encoding):
        monkeypatch.setattr(module, "SEQUENCES", 8)
    with FakeTransactions([]) as broker, opened(broker) as writer:
        for _ in range(2):
            writer.write_batches(BOTH)
            writer.commit(Position(45))

    sent = [walk(pa.py_buffer(each)).check().headers.to_pylist()[0] for each in broker.log]
    assert [0, 2, 5, 7] == [each["base_sequence"] for each in sent]


@pytest.mark.parametrize("kind", [COORDINATOR, INIT, ADD, OFFSETS, COMMIT, END])
@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_a_coordinator_that_has_done_nothing_is_asked_again(kind: int, code: int) -> None:
    """It is loading, it has moved, or the last transaction's markers are being written."""
    with (
        FakeTransactions([], errors={kind: [code] * 3}) as broker,
        opened(broker) as writer,
    ):
        writer.write_batches(BOTH)
        writer.commit(Position(45))

    assert 4 <= sum(kind == each for each, _, _ in broker.asked)
    assert 2 == len(broker.log)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        pytest.param(COORDINATOR, 15, id="the topic of transactions is made"),
        pytest.param(INIT, 14, id="it is loading"),
        pytest.param(INIT, 16, id="it has moved"),
        pytest.param(INIT, 51, id="markers are being written"),
        pytest.param(INIT, 7, id="it waits for producer ids"),
        pytest.param(INIT, LOST, id="no answer"),
    ],
)
def test_a_busy_cluster_has_longer_to_give_a_transactional_id(
    kind: int, error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore of 1,000 topics waits behind their creation, where others wait for an answer."""
    monkeypatch.setattr(produce, "time", Pausing())
    assert patience_s(KafkaSettings("-"), {}) < 20 * 2.0 < TAKEOVER_S
    with (
        FakeTransactions([], errors={kind: [error] * 20}) as broker,
        opened(broker) as writer,
    ):
        transact(writer)

    assert [True] == broker.ends()


def test_waiting_for_a_coordinator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transactional id may stay blocked for good."""
    monkeypatch.setattr(produce, "time", Pausing())
    with (
        FakeTransactions([], errors={INIT: [51] * 1000}) as broker,
        pytest.raises(BrokenOffError, match="taking over"),
        opened(broker),
    ):
        pass


@pytest.mark.parametrize("code", [6, 13])
def test_a_coordinator_that_has_something_else_against_it_is_not_waited_for(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some answers to a takeover pass."""
    monkeypatch.setattr(produce, "time", Pausing())
    with (
        FakeTransactions([], errors={INIT: [code] * 1000}) as broker,
        pytest.raises(BrokenOffError, match="taking over"),
        opened(broker),
    ):
        pass

    assert [INIT] == [kind for kind, _, _ in broker.asked if kind == INIT]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(45, BrokenOffError, id="a gap in the sequence"),
        pytest.param(48, BrokenOffError, id="no such transaction"),
        pytest.param(19, BrokenOffError, id="too few replicas"),
        pytest.param(7, BrokenOffError, id="timed out"),
        pytest.param(6, BrokenOffError, id="another leads"),
        pytest.param(10, RecordTooLargeError, id="too large"),
        pytest.param(87, KafkaError, id="invalid"),
        pytest.param(47, TakenOverError, id="fenced"),
    ],
)
def test_nothing_is_committed_after_a_doubtful_batch(code: int, kind: type[KafkaError]) -> None:
    """Whatever a broker has against one batch, and however many others it took."""
    with (
        FakeTransactions([], errors={PRODUCE: [0, code]}) as broker,
        opened(broker) as writer,
    ):
        writer.write_batches(BOTH)
        writer.write_batches(BOTH)
        with pytest.raises(kind):
            writer.flush()
        with pytest.raises(kind):
            writer.commit(Position(45))
        with pytest.raises(kind):
            writer.write_batches(BOTH)

    assert [False] == broker.ends()
    assert COMMIT not in broker.kinds


@pytest.mark.parametrize(
    ("release", "is_final"), [("2.3.1", True), ("2.4.1", False), ("4.1.1", False)]
)
def test_what_an_old_broker_calls_corrupt_is_not_sent_again(release: str, is_final: bool) -> None:
    """It says so of a record that it never takes; a later one only of what changed on its way."""
    with (
        FakeTransactions([], errors={PRODUCE: [0, 2]}, versions=offered(release)) as broker,
        opened(broker) as writer,
    ):
        writer.write_batches(BOTH)
        with pytest.raises(KafkaError) as caught:
            writer.flush()

    assert caught.value.what == "t-0: writing records from offset 42 of the backup on"
    assert {"offset": 42} == caught.value.place
    assert is_final == (type(caught.value) is KafkaError)
    if is_final:
        assert "before 2.4" in caught.value.why
        assert "takes no record without a key" in caught.value.do


def transact(writer: BatchProducer) -> None:
    """Write one batch, and commit it."""
    writer.write_batches(BOTH.slice(0, 1))
    writer.commit(Position(45))


@pytest.mark.parametrize("kind", [PRODUCE, ADD, OFFSETS, COMMIT, END])
def test_nothing_is_sent_again_where_an_answer_was_lost(kind: int) -> None:
    """Whether it was done is not known: another producer goes on from what is committed."""
    with (
        FakeTransactions([], errors={kind: [LOST]}) as broker,
        opened(broker) as writer,
    ):
        for _ in range(2):
            with pytest.raises(BrokenOffError):
                transact(writer)

    assert 1 == sum(kind == each for each, _, _ in broker.asked)
    assert [kind == END] * (kind != PRODUCE) == broker.ends()


@pytest.mark.parametrize(("kind", "code"), [(ADD, 90), (END, 90), (PRODUCE, 47), (COMMIT, 47)])
def test_another_restore_is_told_from_a_broker(kind: int, code: int) -> None:
    """Who is fenced says so, and asks for nothing more."""
    with (
        FakeTransactions([], errors={kind: [code] * 3}) as broker,
        opened(broker) as writer,
        pytest.raises(TakenOverError, match="another restore"),
    ):
        transact(writer)

    assert 1 == sum(INIT == each for each, _, _ in broker.asked)


def test_a_throttled_producer_waits() -> None:
    """A broker that asks for a pause gets it before the next batch."""
    with (
        FakeTransactions([], throttle_ms=150) as broker,
        opened(broker) as writer,
    ):
        writer.write_batches(BOTH.slice(0, 1))
        began = time.monotonic()  # before it asks, however long its answer takes
        writer.flush()
        writer.write_batches(BOTH.slice(1))
        assert time.monotonic() - began >= 0.15
