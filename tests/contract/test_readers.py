"""What every way from Kafka to columns promises; each test runs on all of them."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_samples import batch_of

from tests.contract.product import (
    CAUGHT_UP_S,
    HEADER,
    ROWS_BYTES,
    SCHEMA,
    AnyReader,
    BadRecordError,
    BatchReader,
    KafkaSettings,
    KbackupError,
    LogStartMovedError,
    Reader,
    Span,
    TopicChangedError,
    TopicPartition,
    Writer,
    choose,
)
from tests.support.cluster import Record, varied
from tests.support.mock_kafka import MockKafka
from tests.support.ways import usable

_COUNT = itertools.count()


@pytest.fixture
def where() -> TopicPartition:
    """A partition nobody else uses."""
    return TopicPartition(f"read-{next(_COUNT)}", 0)


def opened(mock: MockKafka, road: str) -> AnyReader:
    """A reader that goes this way: one of the client's, or by batches."""
    if road == "batches":
        return BatchReader(KafkaSettings(mock.bootstrap_servers))
    return Reader(KafkaSettings(mock.bootstrap_servers, client=usable(road)), "group")


@pytest.fixture(params=["native", "python", "batches"])
def reader(mock_kafka: MockKafka, request: pytest.FixtureRequest) -> Iterator[AnyReader]:
    """A reader."""
    made = opened(mock_kafka, request.param)
    yield made
    made.close()


def read(reader: AnyReader, where: TopicPartition, start: int, end: int) -> pa.RecordBatch:
    """A span's records, each batch checked for itself."""
    batches = list(reader.read(where, Span(start, end)))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA, check_metadata=True)
        assert len(batch)
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], SCHEMA)


def collect(reader: AnyReader, where: TopicPartition, span: Span, offsets: list[int]) -> None:
    """Read a span as far as it goes."""
    for batch in reader.read(where, span):
        offsets += batch["offset"].to_pylist()


def write_named(mock: MockKafka, where: TopicPartition, names: pa.Array) -> None:
    """Write records with one header each, whose name may be no text, as only C can."""
    struct = pa.StructArray.from_arrays([names, names.view(pa.binary())], fields=list(HEADER))
    starts = pa.array(range(len(names) + 1), pa.int32())
    headers = pa.ListArray.from_arrays(starts, struct, type=SCHEMA.field("headers").type)
    rows = batch_of([{}] * len(names))
    writer = Writer(
        KafkaSettings(mock.bootstrap_servers, client="native"), where, "group", exactly_once=False
    )
    writer.write(rows.set_column(5, SCHEMA.field("headers"), headers))
    writer.flush()
    writer.close()


AWKWARD = [
    *varied(200),
    Record(None, None),
    Record(b"", b""),
    Record(None, b"", (("", None), ("", b""), ("", b"\0"))),
    Record(b"\0", None, (("dup", b"1"), ("dup", None), ("dup", b""), ("dup", b"1"))),
    Record(b"k", b"v", (("schlüssel \U0001f511", b"\xff"),)),
    Record(b"k", b"v", (("cut\0off", b"1"),)),
    Record(b"before 1970", b"", (), -86_400_000),
    Record(b"no time", b"", (), -1),
    Record(b"one", b"", (), 1),
    Record(b"far", b"", (), 2**62),
    Record(b"k" * 70_000, b"v" * 70_000, (("h" * 70_000, b"w" * 70_000),)),
]


def test_columns_are_what_the_client_says(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """Null, empty, absent, repeated headers, NULs and times before 1970 are read unchanged."""
    mock_kafka.write(where.topic, AWKWARD)

    assert mock_kafka.batch(where.topic) == read(reader, where, 0, len(AWKWARD))


PARTS = st.none() | st.binary(max_size=40)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
RECORDS = st.builds(
    Record,
    PARTS,
    PARTS,
    st.lists(st.tuples(NAMES, PARTS), max_size=3).map(tuple),
    st.integers(-(2**62), 2**62).filter(bool),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORDS, min_size=1, max_size=60))
def test_any_records_are_read_as_they_were_written(
    reader: AnyReader, mock_kafka: MockKafka, records: list[Record]
) -> None:
    """Columns hold any bytes that a record may contain."""
    where = TopicPartition(f"any-{next(_COUNT)}", 0)
    mock_kafka.write(where.topic, records)

    rows = read(reader, where, 0, len(records)).to_pylist()

    assert records == [
        Record(
            row["key"], row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["timestamp"],
        )
        for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(0, 100, id="all"),
        pytest.param(0, 1, id="the first"),
        pytest.param(99, 100, id="the last"),
        pytest.param(41, 57, id="from the middle of a batch to the middle of one"),
        pytest.param(50, 50, id="none"),
    ],
)
def test_a_span_is_read_to_its_bounds(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition, start: int, end: int
) -> None:
    """A span is read from its start to before its end, wherever the broker's batches end."""
    mock_kafka.write(where.topic, varied(100))

    assert list(range(start, end)) == read(reader, where, start, end)["offset"].to_pylist()


def test_one_reader_reads_many_spans(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """Spans can be read one after the other, even of one partition, or after one was abandoned."""
    other = TopicPartition(where.topic, 1)
    mock_kafka.write(where.topic, varied(3000))
    mock_kafka.write(other.topic, varied(50), partition=1)

    for _ in range(3):
        early = reader.read(where, Span(0, 3000))
        next(early)
        early.close()
        assert list(range(50)) == read(reader, other, 0, 50)["offset"].to_pylist()
        assert list(range(2990, 3000)) == read(reader, where, 2990, 3000)["offset"].to_pylist()


def test_one_partition_is_read_again_and_again(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """Work that the client has queued for one assignment never leaks into the next."""
    mock_kafka.write(where.topic, varied(1000))

    for at in range(100):
        early = reader.read(where, Span(at, 1000))
        assert at == next(early)["offset"][0].as_py()
        early.close()


class _Signalled(Exception):  # noqa: N818
    """What the test's signal handler raises."""


def _raise(*_: object) -> None:
    raise _Signalled


def test_a_signal_in_the_middle_ends_a_read_and_no_more(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """A signal's handler that raises ends its read, and the next read returns every record."""
    mock_kafka.write(where.topic, varied(2000))
    before = signal.signal(signal.SIGUSR1, _raise)
    try:
        for at in range(10):
            with pytest.raises(_Signalled):
                read_until_signalled(reader, where, after_s=0.013 * at)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert list(range(2000)) == read(reader, where, 0, 2000)["offset"].to_pylist()


def read_until_signalled(reader: AnyReader, where: TopicPartition, after_s: float) -> None:
    """Read a partition again and again."""
    threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    while True:
        for _ in reader.read(where, Span(0, 2000)):
            pass


def test_batches_are_bounded(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """Memory is bounded by one batch and one record, whatever their sizes."""
    sizes = [10, 900_000, 2_000_000, 900_000, 600_000, 0, *[10] * 20_000]
    mock_kafka.write(where.topic, [Record(b"", b"x" * size) for size in sizes])

    batches = list(reader.read(where, Span(0, len(sizes))))

    assert sizes == [len(value) for batch in batches for value in batch["value"].to_pylist()]
    assert max(batch.nbytes for batch in batches) < ROWS_BYTES + 2_000_000
    assert len(batches) > 2


def test_a_record_with_a_hundred_thousand_headers(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """A record with a hundred thousand headers is slow, and nothing worse."""
    headers = tuple((f"header-{at % 1000}", b"%d" % at) for at in range(100_000))
    records = [Record(b"", b""), Record(b"", b"", headers), Record(b"", b"")]
    mock_kafka.write(where.topic, records)

    found = read(reader, where, 0, 3)["headers"].to_pylist()

    assert [0, 100_000, 0] == list(map(len, found))
    assert headers == tuple((header["key"], header["value"]) for header in found[1])


def test_a_name_that_is_no_text_is_an_error_of_its_record(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """A header name that is not text is an error at its offset, after the records before it."""
    names = pa.array([b"name", b"name", b"name", b"\xff\xfe", b"name"]).view(pa.string())
    write_named(mock_kafka, where, names)
    offsets: list[int] = []

    with pytest.raises(BadRecordError, match="offset 3") as caught:
        collect(reader, where, Span(0, 5), offsets)

    assert [0, 1, 2] == offsets
    assert (where.topic, 0, 3) == tuple(
        caught.value.place[name] for name in ("topic", "partition", "offset")
    )


def test_a_log_that_ends_early_is_waited_for(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """A new leader may not know at once where its log ends: what comes then is read."""
    mock_kafka.write(where.topic, varied(10))
    offsets: list[int] = []
    later = threading.Timer(1.0, mock_kafka.write, (where.topic, varied(10)))
    later.start()

    collect(reader, where, Span(0, 20), offsets)

    later.join()
    assert list(range(20)) == offsets


def test_a_log_that_ends_early_was_changed(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log ends early, what it still holds is read before the error is raised."""
    monkeypatch.setattr(*CAUGHT_UP_S, 0.5)
    mock_kafka.write(where.topic, varied(10))
    offsets: list[int] = []

    with pytest.raises(TopicChangedError, match="ends at offset 10, before the end offset 20"):
        collect(reader, where, Span(0, 20), offsets)

    assert list(range(10)) == offsets


def test_an_offset_that_is_gone_is_said(
    reader: AnyReader, mock_kafka: MockKafka, where: TopicPartition
) -> None:
    """An offset that no longer exists is an error and does not crash the process."""
    mock_kafka.write(where.topic, varied(10))

    with pytest.raises(LogStartMovedError):
        read(reader, where, 1_000_000, 1_000_010)


def read_on(reader: AnyReader, where: TopicPartition, failures: list[str]) -> None:
    """Read again and again, until that fails."""
    try:
        while True:
            list(reader.read(where, Span(0, 5000)))
    except KbackupError as error:
        failures.append(str(error))


@pytest.mark.parametrize("road", ["native", "batches"])
@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.3])
def test_a_reader_may_be_closed_while_another_thread_reads(
    mock_kafka: MockKafka, where: TopicPartition, road: str, pause_s: float
) -> None:
    """The other thread gets an error soon, and closing waits for it, as the client's does not."""
    mock_kafka.write(where.topic, varied(5000))
    reader = opened(mock_kafka, road)
    failures: list[str] = []
    thread = threading.Thread(target=read_on, args=(reader, where, failures))
    thread.start()
    time.sleep(pause_s)

    reader.close()
    thread.join(60)

    assert not thread.is_alive()
    assert [True] == ["closed" in text for text in failures]


def test_the_setting_decides_which_way_serves(way: str) -> None:
    """A client asked for by name is used or refused; otherwise the best available is chosen."""
    assert way == choose(way).name
    assert not choose("python").why
    assert choose("auto").is_native or choose("auto").why
