"""What lies under a key is replaced only by more of the same."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backup_samples import JSON, RECORD, Backup, batch

from kbackup.errors import RefusedError, StoreError, TopicChangedError
from kbackup.kafka import OffsetMovedError, Position
from kbackup.naming import Layout
from kbackup.records import Facts, Span, TopicPartition
from kbackup.sink.job import SinkUnit
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.fakes import CrashError, FakePositions, FakeReader, SilentLine, run_task


def records(store: Store, key: str) -> int:
    """How many records the object under *key* says it has."""
    head = store.head(key)
    facts = None if head is None else Facts.from_metadata(head.metadata)
    return -1 if facts is None else facts.records


@pytest.mark.parametrize(("first", "second"), [(10, 20), (20, 10), (10, 10)])
def test_more_is_kept_whoever_comes_first(first: int, second: int) -> None:
    """A longer object is kept, whichever run comes first."""
    backup = Backup()

    (key,) = backup.put("orders", 0, range(first))
    backup.put("orders", 0, range(second))

    assert max(first, second) == records(backup.store, key)


@pytest.mark.parametrize("has_metadata", [True, False], ids=["ours", "of another tool"])
@pytest.mark.parametrize("count", [5, 10, 20])
def test_other_records_under_the_key_stop_the_run(count: int, has_metadata: bool) -> None:
    """If the object under the key holds other records the run stops, and the object stays."""
    backup = Backup()
    (key,) = backup.put("orders", 0, batch(range(10), value=b"another topic's"))
    before = backup.body(key)
    if not has_metadata:
        backup.replace(key, before, {})

    with pytest.raises(TopicChangedError, match="other records"):
        backup.put("orders", 0, range(count))

    assert before == backup.body(key)


def test_an_object_of_values_does_not_grow_into_the_next_one() -> None:
    """A run that slept does not replace a short object by one with what others stored since."""
    backup = Backup()
    first, _ = backup.put("orders", 0, range(10), range(10, 20), views=JSON)
    before = backup.body(first)

    with pytest.raises(RefusedError, match="would get records that are in"):
        backup.put("orders", 0, range(20), views=JSON)

    assert before == backup.body(first)
    assert backup.put("orders", 0, range(10, 30), views=JSON)  # nothing follows that one


def test_values_are_not_stored_where_the_group_has_moved_on() -> None:
    """A run that slept asks for the position before it stores values, and stores none."""
    backup, positions = Backup(), FakePositions()
    where = TopicPartition("orders", 0)
    positions.positions[where] = Position(40)  # another run's
    unit = SinkUnit(where, Span(20, 50))

    with pytest.raises(OffsetMovedError, match="overtaken"):
        run_task(backup, unit, FakeReader(batch(range(50))), positions, SilentLine(), JSON)

    assert [] == [*backup.store.list("topics/")]


def test_a_key_that_the_store_cannot_have_stops_the_partition(tmp_path: Path) -> None:
    """No record is left out where a folder cannot have the name: it is the store that fails."""
    backup = Backup(StoreSettings(f"file://{tmp_path}"), Layout(topics_dir="d" * 256))

    with pytest.raises(StoreError, match="255 bytes a file name may have") as caught:
        backup.put("orders", 0, range(10))

    assert 6 == caught.value.exit_code


def test_values_that_differ_may_be_compactions_doing() -> None:
    """If values differ, compaction is named as a cause: rows without offsets do not show it."""
    backup = Backup()
    backup.put("orders", 0, range(5), views=JSON)

    with pytest.raises(TopicChangedError) as caught:
        backup.put("orders", 0, [0, 2, 3, 4], views=JSON)

    assert "compaction has removed records" in caught.value.why


@pytest.mark.parametrize(
    ("offsets", "has_metadata"),
    [
        pytest.param(range(20), True, id="ours"),
        pytest.param(range(20), False, id="of another tool"),
        pytest.param(range(0, 40, 2), False, id="of another tool, with gaps"),
    ],
)
@pytest.mark.parametrize("count", [5, 10, 20])
def test_a_cut_does_not_end_within_an_object_of_values(
    count: int, offsets: range, has_metadata: bool
) -> None:
    """A smaller flush.size would store the object's rest again in the next: it is refused."""
    backup = Backup()
    (key,) = backup.put("orders", 0, offsets[:10], views=JSON)
    before = backup.body(key)
    if not has_metadata:
        backup.replace(key, before, {})

    with nullcontext() if count >= 10 else pytest.raises(RefusedError, match="holds more records"):
        backup.put("orders", 0, offsets[:count], views=JSON)

    assert max(10, count) == backup.body(key).count(b"\n")
    assert backup.body(key).startswith(before)


def test_what_another_run_puts_while_this_one_compares_is_compared_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten records are there, this run has twenty; as it reads the ten another puts thirty."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(10))
    read = MemoryStore.open
    others = [batch(range(30))]

    def open_late(store: MemoryStore, name: str) -> object:
        found = read(store, name)
        if others:
            backup.put("orders", 0, others.pop())
        return found

    monkeypatch.setattr(MemoryStore, "open", open_late)

    backup.put("orders", 0, range(20))

    assert 30 == records(backup.store, key)


@pytest.mark.parametrize("others", [[30], [30, 40], [15], [20]])
def test_a_slow_replacement_does_not_land_on_more(
    monkeypatch: pytest.MonkeyPatch, others: list[int]
) -> None:
    """Ten records are there, this run's put of twenty is on its way; another puts its own."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(10))
    put = MemoryStore.put
    waiting = [batch(range(records)) for records in others]

    def put_late(store: MemoryStore, name: str, *args: Any, **named: Any) -> bool:
        if named["if_match"] is not None and waiting:
            backup.put("orders", 0, waiting.pop(0))
        return put(store, name, *args, **named)

    monkeypatch.setattr(MemoryStore, "put", put_late)

    backup.put("orders", 0, range(20))

    assert max(20, *others) == records(backup.store, key)
    assert not waiting


def test_what_is_deleted_while_it_is_compared_is_put_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that a person removes meanwhile does not take this run's records with it."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(10))
    read = MemoryStore.open

    def open_and_delete(store: MemoryStore, name: str) -> object:
        found = read(store, name)
        store.delete(name)
        return found

    monkeypatch.setattr(MemoryStore, "open", open_and_delete)

    backup.put("orders", 0, range(20))

    assert 20 == records(backup.store, key)


@pytest.mark.parametrize(
    ("second", "stored"),
    [
        pytest.param([0, 2, 5, 7, 9], [0, 1, 2, 3, 4, 5, 7, 9], id="reaches further"),
        pytest.param([0, 2], [0, 1, 2, 3, 4], id="ends in the middle"),
        pytest.param([0, 4], [0, 1, 2, 3, 4], id="ends where the other ends"),
    ],
)
def test_what_compaction_took_between_two_runs_is_kept(
    second: list[int], stored: list[int]
) -> None:
    """Records that compaction took since a dead run stored them stay, whatever a rerun finds."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(5))

    backup.put("orders", 0, second)

    with backup.store.open(key) as body:
        assert stored == pq.read_table(body)["offset"].to_pylist()
    assert len(stored) == records(backup.store, key)


def test_a_count_has_what_the_task_has_read_that_committed() -> None:
    """A retry counts what it finds in the topic; what compaction has taken stays in the object."""
    backup, unit = Backup(), SinkUnit(TopicPartition("orders", 0), Span(0, 5))
    with pytest.raises(CrashError):
        run_task(
            backup, unit, FakeReader(batch(range(5))), FakePositions({1}), SilentLine(), RECORD
        )

    report = run_task(
        backup, unit, FakeReader(batch([0, 2, 4])), FakePositions(), SilentLine(), RECORD
    )

    (entry,) = backup.store.list("topics/")
    assert (5, 3, 5) == (report.committed, report.done.records, records(backup.store, entry.key))


def test_another_record_at_an_offset_is_another_topic() -> None:
    """Holes are compaction's work; two different records at one offset stop the run."""
    backup = Backup()
    backup.put("orders", 0, range(5))
    other = batch([0, 2, 5])
    value = pa.array([b"0", b"another", b"5"], pa.binary())

    with pytest.raises(TopicChangedError, match="belongs to another topic"):
        backup.put("orders", 0, other.set_column(4, other.schema.field("value"), value))


def test_a_copy_of_another_partition_s_object_is_not_added_to() -> None:
    """An object of another partition in our object's place stops the run."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(5))
    (other,) = backup.put("orders", 1, [7, 8])
    head = backup.store.head(other)
    assert head is not None
    metadata = {name: text for name, text in head.metadata.items() if name != "sha256"}
    with backup.store.open(other) as body:
        backup.store.put(key, body, sha256=head.metadata["sha256"], metadata=metadata)

    with pytest.raises(TopicChangedError, match="written under another name"):
        backup.put("orders", 0, range(5))
