"""Batches are stored as they came, and what is stored is replaced only by more of the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from backup_samples import sink_job

from kbackup.batches import APPEND_TIME, DELETE_HORIZON, Batches, walk
from kbackup.catalog.ledger.rows import entries
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock
from kbackup.errors import BadRecordError, TopicChangedError
from kbackup.formats import FormatOptions
from kbackup.formats.log import LogFormat
from kbackup.kafka import KafkaSettings
from kbackup.naming import Layout, View
from kbackup.pipeline.rotate import Cut, Rule, cut_batches
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.sink.job import SinkUnit
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.stores import Store, StoreSettings, open_store
from tests.support.encoded import LZ4, ZSTD, Sent, batch, sealed
from tests.support.fakes import CrashError, FakePositions, SilentLine

WHERE = TopicPartition("orders", 0)
LOG = ViewSpec(View.RECORD, "log", FormatOptions())


@dataclass
class Leader:
    """A reader of what a leader has: batches, so many an answer."""

    log: Sequence[bytes]
    most: int = 2

    def batches(self, _where: TopicPartition, span: Span) -> Iterator[Batches]:
        """The batches that begin in a span."""
        for at in range(0, len(self.log), self.most):
            found = walk(pa.py_buffer(b"".join(self.log[at : at + self.most]))).check()
            inside = [
                span.start_offset <= base < span.end_offset
                for base in found.headers["base_offset"].to_pylist()
            ]
            yield found.where(pa.array(inside))

    def close(self) -> None:
        """Nothing to leave."""


class Sink:
    """A sink of batches, and where it stores them."""

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule = Rule() if rule is None else rule
        self.settings = StoreSettings(f"memory://{uuid4()}")
        self.positions = FakePositions()

    @property
    def store(self) -> Store:
        """Where it stores."""
        return open_store(self.settings)

    def run(self, log: Sequence[bytes], end: int, most: int = 2) -> Any:
        """Back up all that is not committed; return the report."""
        job = sink_job((LOG,), store=self.settings, rule=self.rule)
        position = self.positions.read(WHERE)
        span = Span(0 if position is None else position.offset, end)
        reader: Any = Leader(log, most)
        clients = TaskClients(self.store, self.positions, reader)
        work = SinkPartitionTask(job, SinkUnit(WHERE, span), clients, SilentLine())
        work.run()
        return work.report

    def objects(self) -> dict[int, bytes]:
        """The bytes of the batches of each object, by its first offset."""
        found = {}
        for one in self.store.list("topics/"):
            with self.store.open(one.key) as body:
                pieces = [
                    bytes(piece)
                    for some in LogFormat().batches(body, FormatOptions())
                    for piece in some.pieces()
                ]
            found[int(one.key.split("+")[2].split(".")[0])] = b"".join(pieces)
        return found


def log(count: int = 6, size: int = 3) -> list[bytes]:
    """Batches of *size* records each, of several codecs, a second apart."""
    return [
        batch(
            at * size,
            [Sent(b"%d" % at, b"k%d" % n, timestamp=10_000 + 1_000 * at + n) for n in range(size)],
            (0, LZ4, ZSTD)[at % 3],
        )
        for at in range(count)
    ]


@pytest.mark.parametrize("most", [1, 2, 6])
@pytest.mark.parametrize(
    ("rule", "starts"),
    [
        pytest.param(Rule(), [0], id="none"),
        pytest.param(Rule(records=6), [0, 6, 12], id="records"),
        pytest.param(Rule(records=4), [0, 6, 12], id="records, within a batch"),
        pytest.param(Rule(records=0), [0, 3, 6, 9, 12, 15], id="each"),
        pytest.param(Rule(bytes=1), [0, 3, 6, 9, 12, 15], id="bytes"),
        pytest.param(Rule(span_ms=2_000), [0, 6, 12], id="time"),
        pytest.param(Rule(span_ms=2_000, records=9), [0, 6, 12], id="time before records"),
    ],
)
def test_files_end_between_batches_wherever_answers_do(
    rule: Rule, starts: list[int], most: int
) -> None:
    """Each object has whole batches, as they came; how answers divide them does not matter."""
    sent = log()
    sink = Sink(rule)

    report = sink.run(sent, 18, most)

    assert starts == list(sink.objects())
    assert b"".join(sent) == b"".join(sink.objects().values())
    assert (18, 18) == (report.done.records, report.committed)


@pytest.mark.parametrize("attributes", [APPEND_TIME, DELETE_HORIZON])
def test_a_time_that_is_no_record_s_ends_no_file(attributes: int) -> None:
    """Where the first time of a header is another one, the latest record's counts."""
    times = ((5, 10_000), (10_500, 10_600), (5, 11_000))
    sent = [
        batch(2 * at, [Sent(timestamp=each) for each in both], attributes=attributes)
        for at, both in enumerate(times)
    ]
    sink = Sink(Rule(span_ms=1_000))

    sink.run(sent, 6)

    assert [0, 4] == list(sink.objects())


@pytest.mark.parametrize("most", [1, 2, 6])
def test_what_is_stored_again_ends_where_it_did(most: int) -> None:
    """A repair writes the object of a cut in one, whatever the rule says now."""
    rule = Rule(records=3, stored=(Span(3, 9),))

    steps = cut_batches(Leader(log(), most).batches(WHERE, Span(0, 18)), rule)

    assert [3, 9, 12, 15, 18] == [step.next_offset for step in steps if isinstance(step, Cut)]


def test_the_ledger_knows_what_headers_say() -> None:
    """Offsets, counts and times of the records themselves, and the digest of the batches."""
    sink = Sink()
    sink.run([*log(2), batch(6, [Sent(timestamp=-1)], last_delta=3)], 12)

    stream = topic_stream(sink.store, Layout(), "orders", SystemClock())
    (row,) = entries(stream.read().rows)

    assert (0, 6, 7) == (row.first, row.last, row.records)
    assert (10_000, 11_002) == (row.min_timestamp, row.max_timestamp)
    (one,) = sink.store.list("topics/")
    head = sink.store.head(one.key)
    assert head is not None
    assert "b1:" == head.metadata["digest"][:3]
    assert ("0", "12") == (head.metadata["cut-start"], head.metadata["cut-end"])


def test_a_run_that_died_before_it_committed_finds_its_own_objects() -> None:
    """The same batches go to the same keys, and nothing is there twice."""
    sink = Sink(Rule(records=6))
    sink.positions.fails_at = {2}
    with pytest.raises(CrashError):
        sink.run(log(), 18)
    before = {one.key: one.size for one in sink.store.list("topics/")}
    sink.positions.fails_at = frozenset()

    report = sink.run(log(), 18, 3)

    assert b"".join(log()) == b"".join(sink.objects().values())
    assert before.items() <= {one.key: one.size for one in sink.store.list("topics/")}.items()
    assert 18 == report.committed


@pytest.mark.parametrize("is_gone", [False, True], ids=["some of a batch", "all of a batch"])
def test_what_compaction_took_since_stays_stored(is_gone: bool) -> None:
    """What is left of a batch gives way to the one that is stored, and later ones follow."""
    first, second, third = log(3)
    sink = Sink()
    sink.run([first, second], 6)
    sink.positions.positions.clear()  # it died before it committed
    kept = [Sent(b"1", b"k%d" % n, timestamp=11_000 + n) for n in (0, 2)]
    thinned = [] if is_gone else [batch(3, kept, deltas=[0, 2])]

    sink.run([first, *thinned, third], 9)

    assert {0: first + second + third} == sink.objects()


def test_other_records_under_the_key_stop_the_run() -> None:
    """Batches of another topic of the same name replace nothing."""
    first, second = log(2)
    sink = Sink()
    sink.run([first, second], 6)
    sink.positions.positions.clear()
    other = batch(3, [Sent(b"other"), Sent(b"other"), Sent(b"other")])

    with pytest.raises(TopicChangedError, match="holds other records"):
        sink.run([first, other], 6)

    assert {0: first + second} == sink.objects()


def test_a_batch_that_does_not_hold_what_it_says_is_named() -> None:
    """A sound CRC of records that make no sense is a bad record, and nothing of it is stored."""
    sink = Sink()
    bad = sealed(3, b"\x05abc", 2, 1)

    with pytest.raises(BadRecordError, match="offset 3"):
        sink.run([log(1)[0], bad], 5)

    assert {} == sink.objects()


@pytest.mark.parametrize(
    ("consumer", "why"),
    [
        ({}, ""),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER"),
    ],
)
def test_what_gives_out_no_batches_is_said(consumer: dict[str, str], why: str) -> None:
    """What only librdkafka speaks cannot be used, and the property that asks for it is named."""
    found = KafkaSettings("-", consumer=consumer).without_batches()

    assert bool(why) == bool(found)
    assert why in found


def test_without_the_c_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are checked in C, or not read at all."""
    monkeypatch.setattr("kbackup.batches.native.library", lambda: None)

    assert "C library" in KafkaSettings("-").without_batches()
