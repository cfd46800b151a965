"""A partition that is spread over several directories, and a run that dies at any request."""

from collections import Counter
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest
from backup_samples import JSON, RECORD, batch, sink_job

from kbackup.clock import SystemClock
from kbackup.errors import KbackupError, RefusedError
from kbackup.naming import Layout, View
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Facts, Rotation, Span, TopicPartition
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.evidence import gather
from kbackup.sink.start import decide
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from tests.support.fakes import CrashError, FakePositions, run_planned

WHERE: Final = TopicPartition("orders", 0)
LAYOUT: Final = Layout()
PARTITIONERS: Final = ["default", "modulo", "by-value"]


def log_of(offsets: range) -> pa.RecordBatch:
    """Records whose values begin with three different bytes."""
    values = pa.array([b'{"n":%d}' % at if at % 4 else b"%d" % at for at in offsets], pa.binary())
    rows = batch(offsets)
    return rows.set_column(4, rows.schema.field("value"), values)


def a_store() -> MemoryStore:
    """An empty store."""
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def run_once(
    log: pa.RecordBatch,
    positions: FakePositions,
    store: Store,
    partitioner: str,
    views: tuple[ViewSpec, ...] = RECORD,
    size: int = 5,
) -> PartitionReport[OfSink]:
    """One run, planned as the driver plans it: from what group and bucket say."""
    job = sink_job(
        views, run=str(uuid4()), partitioner=partitioner, rule=Rule(records=size),
        plugin_options={"modulo.directories": "3"},
    )  # fmt: skip
    return run_planned(job, WHERE, log, positions, store)


def objects(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The rows of each object."""
    found = {}
    form = RECORD[0].open_format()
    for one in store.list("topics/"):
        with store.open(one.key) as file:
            rows = form.read(file, View.RECORD, ".zstd.parquet", RECORD[0].options)
            found[one.key] = [row for each in rows for row in each.to_pylist()]
    return found


def offsets(store: Store) -> Counter[int]:
    """How often each offset is stored."""
    return Counter(row["offset"] for rows in objects(store).values() for row in rows)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_every_record_is_stored_once_in_its_directory(partitioner: str) -> None:
    """A cut has a file for each directory, and the position goes on behind all of them."""
    store, positions, log = a_store(), FakePositions(), log_of(range(23))

    report = run_once(log, positions, store, partitioner)

    assert dict.fromkeys(range(23), 1) == offsets(store)
    assert (23, 23, 22) == (report.done.records, report.committed, report.done.last)
    assert len(objects(store)) == report.done.objects
    assert 0 == report.done.first
    commit_metadata = SinkPosition.read(positions.positions[WHERE].metadata)
    assert commit_metadata is not None
    assert (
        objects(store)[commit_metadata.key or ""][-1]["offset"] == commit_metadata.last_offset == 22
    )


@pytest.mark.parametrize("is_lost", [False, True], ids=["position kept", "position lost"])
@pytest.mark.parametrize("word", ["503", "lost"])
@pytest.mark.parametrize(
    "partitioner", ["default", "modulo", pytest.param("by-value", marks=pytest.mark.nightly)]
)
def test_a_run_that_dies_at_any_request_leaves_no_hole_and_no_double(
    partitioner: str, word: str, is_lost: bool
) -> None:
    """The next run makes the objects of a run without faults; what was committed is there."""
    early, whole = log_of(range(13)), log_of(range(23))
    reference = a_store()
    positions = FakePositions()
    for log in (early, whole):
        run_once(log, positions, reference, partitioner)
    puts = len(objects(reference))

    for at in range(puts + 1):
        store, positions = a_store(), FakePositions()
        faulty = FaultyStore(" ".join(["ok"] * at + [word]), store, methods=frozenset({"put"}))
        for log in (early, whole):
            with suppress(KbackupError):
                run_once(log, positions, faulty, partitioner)
            position = positions.read(WHERE)
            safe = range(0 if position is None else position.offset)
            assert not set(safe) - offsets(store).keys()
            if is_lost:
                positions.positions.clear()
            run_once(log, positions, store, partitioner)

        assert objects(reference) == objects(store), at


@pytest.mark.parametrize("is_lost", [False, True], ids=["position kept", "position lost"])
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_run_that_dies_at_any_commit_leaves_no_hole_and_no_double(
    partitioner: str, is_lost: bool
) -> None:
    """Objects that were stored and not committed are written again as they are."""
    log = log_of(range(23))
    reference = a_store()
    run_once(log, FakePositions(), reference, partitioner)

    for at in range(1, 6):
        store, positions = a_store(), FakePositions({at})
        with suppress(CrashError):
            run_once(log, positions, store, partitioner)
        if is_lost:
            positions.positions.clear()
        run_once(log, positions, store, partitioner)

        assert objects(reference) == objects(store), at


def test_an_object_says_which_cut_it_is_of() -> None:
    """An object's metadata states where its cut begins and ends, and how many files it has."""
    store = a_store()
    run_once(log_of(range(8)), FakePositions(), store, "modulo")

    found = {}
    for one in store.list("topics/"):
        head = store.head(one.key)
        assert head is not None
        facts = Facts.from_metadata(head.metadata)
        assert facts is not None
        found[facts.first_offset] = Rotation.from_metadata(head.metadata)

    first, second = Rotation(Span(0, 5), 3), Rotation(Span(5, 8), 3)
    assert dict.fromkeys((0, 1, 2), first) | dict.fromkeys((5, 6, 7), second) == found


def test_objects_of_an_earlier_version_in_several_directories_say_no_end() -> None:
    """Without the cut's metadata, a missing neighbour cannot be noticed: the backup starts over."""
    store = a_store()
    run_once(log_of(range(8)), FakePositions(), store, "modulo")
    for one in [*store.list("topics/")]:
        head = store.head(one.key)
        assert head is not None
        old = {name: text for name, text in head.metadata.items() if not name.startswith("cut-")}
        with store.open(one.key) as body:
            store.put(one.key, body, sha256=old.pop("sha256"), metadata=old)

    seen = gather(store, LAYOUT, SystemClock(), {WHERE: Span(0, 8)}, {})[WHERE]

    assert (True, None) == (seen.has_objects, seen.stored_to)


def test_a_bad_record_is_named_by_its_offset() -> None:
    """All records before a bad one are stored, whatever else is in its batch or directory."""
    values = [b'{"n":%d}' % at for at in range(13)]
    rows = batch(range(100, 113))
    values[9] = b"{"
    values[11] = b""
    bad = rows.set_column(4, rows.schema.field("value"), pa.array(values, pa.binary()))
    store, positions = a_store(), FakePositions()

    with pytest.raises(KbackupError) as caught:
        run_once(bad, positions, store, "modulo", JSON, size=4)

    assert "orders-0 offset 109: a value is not JSON" == caught.value.what
    assert ("bad_record", 109) == (caught.value.code, caught.value.place["offset"])
    assert "row" not in caught.value.place
    assert 108 == positions.positions[WHERE].offset


def test_values_of_a_cut_that_expired_in_part_are_stored_again_once_its_objects_are_away() -> None:
    """One of three objects is stored, the rest expired: the advice stores what is left."""
    store, positions = a_store(), FakePositions()
    faulty = FaultyStore("ok 503", store, methods=frozenset({"put"}))
    with suppress(KbackupError):
        run_once(log_of(range(8)), positions, faulty, "modulo", JSON)
    left = [one.key for one in store.list("topics/")]

    def go_on() -> None:
        seen = gather(
            store, LAYOUT, SystemClock(), {WHERE: Span(2, 8)}, positions.positions, values=".json"
        )[WHERE]
        run_once(log_of(range(decide(WHERE, seen, reset="earliest").offset, 8)), positions,
                 store, "modulo", JSON)  # fmt: skip

    with pytest.raises(
        RefusedError, match="in the middle of a rotation of values, 0 to 4"
    ) as caught:
        go_on()
    assert "move the objects that begin at one of these offsets" in caught.value.do
    for key in left:
        store.delete(key)
    go_on()

    assert 1 == len(left)
    assert 8 == positions.positions[WHERE].offset
