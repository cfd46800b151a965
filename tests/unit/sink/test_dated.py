"""The block-gzip layout: files by date of upload, an index beside each, a pointer for all."""

import gzip
import io
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest
from backup_samples import OPTIONS, batch, sink_job

from kbackup.catalog import claims, listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.covered import Covered, covered
from kbackup.catalog.ledger.rows import NOTHING
from kbackup.catalog.merging import records
from kbackup.errors import KbackupError
from kbackup.formats import FormatOptions
from kbackup.formats.block_index import BlockIndex
from kbackup.kafka import Position
from kbackup.naming import DatedLayout, View
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.evidence import gather
from kbackup.sink.start import decide
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from tests.support.fakes import CrashError, FakePositions, FakeReader, run_planned
from tests.support.hand_clock import HandClock

WHERE: Final = TopicPartition("orders-7", 3)
LAYOUT: Final = DatedLayout("systest", file_delim="-", offset_width=12)
VIEWS: Final = (
    ViewSpec(View.VALUE, "block_gzip", FormatOptions({"compressed_block_size": 20}), "bytes"),
)


def at(day: int) -> HandClock:
    """A clock on a day of March 2026, an hour before midnight in UTC."""
    return HandClock(datetime(2026, 3, day, 23, tzinfo=UTC).timestamp() * 1000)


def a_store() -> MemoryStore:
    """An empty store."""
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def run_once(
    log: pa.RecordBatch,
    positions: FakePositions,
    store: Store,
    clock: HandClock,
    size: int = 5,
    views: tuple[ViewSpec, ...] = VIEWS,
) -> PartitionReport[OfSink]:
    """One run."""
    job = sink_job(
        views, run=str(uuid4()), layout=LAYOUT, clock=clock, partitioner="upload_date",
        rule=Rule(records=size),
    )  # fmt: skip
    return run_planned(job, WHERE, log, positions, store)


def content(store: Store) -> dict[str, bytes]:
    """What the bucket holds, the ledger left out."""
    found = {}
    for one in store.list("systest/"):
        with store.open(one.key) as body:
            found[one.key] = body.read()
    return found


def covering(store: Store) -> Covered:
    """What a restore reads, where there is no ledger."""
    found = listing.list_backup(store, LAYOUT, OPTIONS, topics=[WHERE.topic])
    assert not found.foreign
    reading = Reading(store, ReadOptions())
    return covered(reading, WHERE, found.sets.get(WHERE, ()), NOTHING)


def restored(store: Store) -> list[tuple[int, bytes | None]]:
    """Offsets and values, as a restore reads them."""
    batches = records(Reading(store, ReadOptions()), covering(store).sets)
    return [(row["offset"], row["value"]) for each in batches for row in each.to_pylist()]


def values(log: pa.RecordBatch) -> list[tuple[int, bytes | None]]:
    """Offsets and values of a log."""
    return [(row["offset"], row["value"]) for row in log.to_pylist()]


def test_a_run_writes_files_indexes_and_the_pointer() -> None:
    """Files and indexes are under the day of the upload, and the pointer names the newest."""
    store, log = a_store(), batch(range(12))

    report = run_once(log, FakePositions(), store, at(5))

    stems = [f"systest/2026-03-05/orders-7-00003-{first:012d}" for first in (0, 5, 10)]
    pointer = "systest/last_chunk_index.orders-7-00003.txt"
    found = content(store)
    assert sorted(found) == sorted(
        [pointer, *(f"{stem}{end}" for stem in stems for end in (".gz", ".index.json"))]
    )
    assert f"{stems[-1]}.index.json".encode() == found[pointer]
    for first, stem in zip((0, 5, 10), stems, strict=True):
        index = BlockIndex.from_bytes(found[f"{stem}.index.json"], first)
        assert len(found[f"{stem}.gz"]) == index.size
        assert len(index.blocks) > 1 or first == 10
    assert (12, 12, 3) == (report.done.records, report.committed, report.done.objects)
    assert values(log) == restored(store)


def test_each_object_is_under_the_day_it_was_uploaded_on() -> None:
    """A partition is one sequence of objects across days."""
    store, positions = a_store(), FakePositions()
    for day, end in ((1, 5), (2, 9), (30, 13)):
        run_once(batch(range(end)), positions, store, at(day))

    days = {key.split("/")[1] for key in content(store) if key.endswith(".gz")}
    assert {"2026-03-01", "2026-03-02", "2026-03-30"} == days
    assert values(batch(range(13))) == restored(store)


@pytest.mark.parametrize("is_lost", [False, True], ids=["position kept", "position lost"])
@pytest.mark.parametrize("word", ["503", "lost"])
def test_a_run_that_dies_at_any_request_leaves_no_hole_and_no_double(
    word: str, is_lost: bool
) -> None:
    """Wherever it dies, the next day's run completes it under the keys that are there."""
    early, whole = batch(range(7)), batch(range(13))
    reference, positions = a_store(), FakePositions()
    for log in (early, whole):
        run_once(log, positions, reference, at(5))
    wanted = {key.rpartition("/")[2]: body for key, body in content(reference).items()}
    puts = sum(1 for _ in reference.list("")) + 4

    for number in range(puts):
        store, positions = a_store(), FakePositions()
        faulty = FaultyStore(" ".join(["ok"] * number + [word]), store, methods=frozenset({"put"}))
        for log in (early, whole):
            with suppress(KbackupError):
                run_once(log, positions, faulty, at(5))
            position = positions.read(WHERE)
            safe = 0 if position is None else position.offset
            assert values(log)[:safe] == restored(store)[:safe]
            if is_lost:
                positions.positions.clear()
            run_once(log, positions, store, at(6))

        found = content(store)
        assert wanted.keys() == {key.rpartition("/")[2] for key in found}, number
        assert len(wanted) == len(found), number
        assert values(whole) == restored(store), number
        for key, body in found.items():
            if not key.endswith(".txt"):
                assert wanted[key.rpartition("/")[2]] == body, (number, key)
        (pointer,) = [body for key, body in found.items() if key.endswith(".txt")]
        assert pointer.decode() in found, number


def test_a_rerun_past_midnight_keeps_the_key_that_is_there() -> None:
    """A crash between file and commit, then the clock moves to the next day, or far."""
    for day in (6, 25):
        store, positions, log = a_store(), FakePositions({2}), batch(range(10))
        with suppress(CrashError):
            run_once(log, positions, store, at(5))
        before = content(store)

        run_once(log, positions, store, at(day))

        assert before == content(store)


def of_the_original(log: pa.RecordBatch, size: int = 5) -> MemoryStore:
    """What the original leaves of a log: no facts, and no ledger."""
    store, originals = a_store(), a_store()
    run_once(log, FakePositions(), store, at(5), size)
    for key, body in content(store).items():
        originals.put(key, io.BytesIO(body), sha256="0" * 64, metadata={})
    return originals


@pytest.mark.parametrize("is_alone", [False, True], ids=["as it was", "without index and pointer"])
@pytest.mark.parametrize(
    "committed", [None, 7, 8, 14], ids=["no group", "right", "after a marker", "ahead"]
)
@pytest.mark.parametrize("offsets", [range(7), [0, 2, 3, 4, 5, 6], [0, 1, 2, 4, 6]])
def test_the_originals_group_is_believed_where_its_newest_object_adds_up(
    offsets: Sequence[int], committed: int | None, is_alone: bool
) -> None:
    """Where group and object do not add up, the object is written again under the same name."""
    store, positions = of_the_original(batch(offsets)), FakePositions()
    log = batch([*offsets, *range(8, 20)])
    for key in content(store):
        if is_alone and not key.endswith(".gz"):
            store.delete(key)
    if committed is not None:
        positions.positions[WHERE] = Position(committed)

    run_once(log, positions, store, at(6))

    assert log["value"].to_pylist() == [value for _, value in restored(store)]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        pytest.param("", [], id="empty"),
        pytest.param("nonsense", [], id="no key"),
        pytest.param("b-00000-000000000000.index.json", [], id="to no object"),
        pytest.param(
            "orders-7-00003-000000000000.index.json", ["pointer_astray"], id="to an older object"
        ),
    ],
)
def test_a_pointer_decides_nothing(text: str, codes: list[str]) -> None:
    """Group and objects do; a warning mentions one to another object than the newest."""
    store, log = a_store(), batch(range(13))
    run_once(batch(range(7)), FakePositions(), store, at(5))
    pointer = LAYOUT.pointer(WHERE.topic, WHERE.partition)
    body = f"systest/2026-03-05/{text}" if text.endswith("json") else text
    store.put(pointer, io.BytesIO(body.encode()), sha256="0" * 64, metadata={})
    logs = {WHERE: Span(0, FakeReader(log).end_offset)}

    found = decide(WHERE, gather(store, LAYOUT, at(6), logs, {})[WHERE], reset="earliest")

    assert 7 == found.offset
    assert codes == [code for code, _ in found.warnings if "pointer" in code]


def test_a_topic_of_a_similar_name_is_another_one() -> None:
    """All topics share the folders of days: their objects are told apart by their names."""
    store = a_store()
    run_once(batch(range(7)), FakePositions(), store, at(5))
    keys = [key for key in content(store) if not key.endswith(".txt")]
    for key in keys:
        with store.open(key) as body:
            other = key.replace("orders-7-", "orders-")
            store.put(other, body, sha256="0" * 64, metadata={})

    found = listing.list_backup(store, LAYOUT, OPTIONS, topics=["orders-7"])
    both = listing.list_backup(store, LAYOUT, OPTIONS, topics=["orders", "orders-7"])

    assert [WHERE] == list(found.sets)
    assert {"orders", "orders-7"} == set(both.topics())
    assert all(files.index is not None for files in found.sets[WHERE])
    assert all(a.start_offset < b.start_offset for a, b in pairwise(both.sets[WHERE]))


def put_on(store: Store, day: int, log: pa.RecordBatch, *, in_one_block: bool = False) -> str:
    """Store an object as the original does, without its index; return its key."""
    first = log["offset"][0].as_py()
    key = f"systest/2026-03-{day:02d}/orders-7-00003-{first:012d}.gz"
    lines = [value + b"\n" for value in log["value"].to_pylist()]
    blocks = [b"".join(lines)] if in_one_block else lines
    body = b"".join(gzip.compress(block, mtime=0) for block in blocks)
    store.put(key, io.BytesIO(body), sha256="0" * 64, metadata={})
    return key


@pytest.mark.parametrize("in_one_block", [True, False], ids=["smaller", "larger"])
@pytest.mark.parametrize("days", [(5, 6, 7), (7, 6, 5)], ids=["it came later", "it came before"])
def test_records_that_the_original_stored_twice_are_restored_once(
    days: tuple[int, int, int], in_one_block: bool
) -> None:
    """Of objects that begin at one offset the one with all records is restored, others named."""
    store, log = a_store(), batch(range(12))
    shorter = [put_on(store, day, log.slice(0, 4 + day % 2)) for day in days[:2]]
    put_on(store, days[2], log.slice(0, 9), in_one_block=in_one_block)
    put_on(store, 8, log.slice(9))

    assert values(log) == restored(store)
    (warning,) = covering(store).warnings()
    assert all(key in warning[1] for key in shorter)


def test_the_original_and_kbackup_in_another_codec_are_compared_too() -> None:
    """Ledger and metadata may be lost and the codec changed: then no name is the same."""
    store, log = a_store(), batch(range(12))
    put_on(store, 5, log.slice(0, 5))
    longer, other = a_store(), FormatOptions({"compressed_block_codec": "zstd"})
    views = (ViewSpec(View.VALUE, "block_gzip", other, "bytes"),)
    run_once(log, FakePositions(), longer, at(5), size=9, views=views)
    for key, body in content(longer).items():
        store.put(key, io.BytesIO(body), sha256="0" * 64, metadata={})

    assert values(log) == restored(store)


@pytest.mark.parametrize(
    ("day", "start", "count", "value"),
    [
        pytest.param(6, 0, 9, b"another", id="other records"),
        pytest.param(6, 5, 4, None, id="the longer one reaches into the next"),
        pytest.param(5, 0, 0, None, id="one that cannot be read"),
    ],
)
def test_what_no_comparison_shows_to_be_the_same_is_refused(
    day: int, start: int, count: int, value: bytes | None
) -> None:
    """Neither bytes nor times decide which of two objects has the records."""
    store, log = a_store(), batch(range(9))
    first = put_on(store, 5, log.slice(0, 5))
    put_on(store, 7, log)
    if count:
        rows = range(start, start + count)
        put_on(store, day, batch(rows) if value is None else batch(rows, value=value))
    else:
        store.put(first, io.BytesIO(b"nonsense"), sha256="0" * 64, metadata={})

    found = covering(store)

    assert found.refusals()
    assert any(one.is_error for one in found.findings())


def test_an_object_without_its_index_is_a_warning_of_verify() -> None:
    """Nothing is lost, and a warning says that only the whole object can be read."""
    store = a_store()
    run_once(batch(range(12)), FakePositions(), store, at(5))

    def findings() -> list[tuple[bool, str | None]]:
        sets = listing.list_backup(store, LAYOUT, OPTIONS).sets[WHERE]
        found = claims.lacking_siblings(sets, LAYOUT, lambda _: frozenset())
        return [(one.is_error, one.text) for one in found]

    assert [] == findings()
    for first in (0, 5):
        store.delete(f"systest/2026-03-05/orders-7-00003-{first:012d}.index.json")

    key = "systest/2026-03-05/orders-7-00003-000000000000.gz"
    text = f"{key}, and 1 more: no index, so it is restored but can only be read whole"
    assert [(False, text)] == findings()
