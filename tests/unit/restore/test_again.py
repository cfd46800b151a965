"""A restore that is run again: what it goes on from, what it begins anew, what it refuses."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import JSON, RECORD, SIBLINGS, Backup, batch

from kbackup.catalog.ledger.rows import ACCEPTED, Entry, of_object, stored
from kbackup.catalog.listing import object_count
from kbackup.errors import (
    BadRecordError,
    NewerVersionError,
    RefusedError,
    TargetNotEmptyError,
    counted,
)
from kbackup.kafka import Position
from kbackup.naming import View
from kbackup.pipeline.views import ViewSpec
from kbackup.records import SCHEMA, Facts, Span, TopicPartition
from kbackup.restore import transaction
from kbackup.restore.target import begin
from kbackup.runs.position import RestorePosition
from tests.support.target import COPY, CrashError, Restoring, position, values

WHERE = TopicPartition("orders", 0)

LAYOUTS = [
    pytest.param(RECORD, id="full records"),
    pytest.param(JSON, id="json"),
    pytest.param(SIBLINGS, id="siblings"),
]


# A backup that has grown


@pytest.mark.parametrize("views", LAYOUTS)
def test_what_the_last_object_gained_is_restored(
    again: Restoring, views: tuple[ViewSpec, ...]
) -> None:
    """An object that was restored, and holds more since, is read on from where it ended."""
    again.backup.put("orders", 0, range(10), views=views)
    again.restore(run="r1")
    again.backup.put("orders", 0, range(30), range(30, 35), views=views)

    again.restore(run="r2")

    assert values(range(35)) == again.cluster.values("copy_of_orders")
    assert ("done", []) == (again.plan().topics[0].action, again.plan().units())


def test_what_an_earlier_object_gained_is_restored(again: Restoring) -> None:
    """A set that overlaps the next one may reach beyond all that was restored."""
    again.backup.put("orders", 0, range(5), range(5, 10))
    again.restore(run="r1")
    again.backup.put("orders", 0, range(30))

    again.restore(run="r2")

    assert values(range(30)) == again.cluster.values("copy_of_orders")


def test_records_below_the_position_are_not_left_out_in_silence(again: Restoring) -> None:
    """A backup that was filled up below the position cannot be restored in order any more."""
    again.backup.put("orders", 0, range(50, 60))
    again.restore()
    again.backup.put("orders", 0, range(10))

    with pytest.raises(RefusedError, match="gained 10 records below offset 60"):
        again.restore()


def test_rows_that_were_added_before_the_position_are_not_left_out_in_silence(
    again: Restoring,
) -> None:
    """Rows without offsets are counted; what came in before them would shift the count."""
    again.backup.put("orders", 0, range(10), range(20, 30), views=JSON)
    again.restore()
    again.backup.put("orders", 0, range(10, 13), views=JSON)

    with pytest.raises(RefusedError, match="were added, changed or removed"):
        again.restore()


@pytest.mark.parametrize(
    ("size", "left_over"),
    [
        pytest.param(10, 0, id="restored whole"),
        pytest.param(15, 0, id="restored in part"),
        pytest.param(10, 3, id="beside a killed run's"),
    ],
)
def test_keys_that_come_to_values_which_were_restored_are_named(
    again: Restoring, size: int, left_over: int
) -> None:
    """What a restore has written of these values has none, and is not written again."""
    if left_over:
        *_, gone = again.backup.put("orders", 0, range(left_over), views=SIBLINGS)
        again.backup.store.delete(gone)
    (key,) = again.backup.put("orders", 0, range(10), views=JSON)
    again.restore()
    again.backup.put("orders", 0, range(size), views=SIBLINGS)

    with pytest.raises(RefusedError, match=f"were stored beside {re.escape(key)} "):
        again.restore()

    assert values(range(10)) == again.cluster.values("copy_of_orders")


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize("crash_at", [1, 2, 3])
def test_a_restore_that_died_goes_on(
    again: Restoring, views: tuple[ViewSpec, ...], crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every commit, each record comes once and in order, and progress counts what is left."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 4)
    again.backup.put("orders", 0, range(6), range(6, 12), range(12, 18), views=views)

    with pytest.raises(CrashError):
        again.restore(run="r1", crash_at=crash_at)
    (unit,) = again.plan().units()
    (report,) = again.restore(run="r2")

    assert values(range(18)) == again.cluster.values("copy_of_orders")
    assert report.done.objects == object_count(unit.sets)


def test_a_task_that_is_tried_again_counts_on(
    again: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the task had committed whose worker died is counted once."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 4)
    again.backup.put("orders", 0, range(4), range(4, 8), range(8, 12))
    plan = again.plan()
    (unit,) = begin(plan, again.cluster, None, exactly_once=True)[1]

    with pytest.raises(CrashError):
        again.work(unit, plan.group, crash_at=3)
    report = again.work(unit, plan.group)

    assert values(range(12)) == again.cluster.values("copy_of_orders")
    assert (12, 3, 3) == (report.done.records, report.done.objects, report.done.commits)


def test_a_commit_that_a_killed_run_left_is_completed_and_counts(
    again: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan saw the position before it; the task's writer ends the transaction."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 4)
    again.backup.put("orders", 0, range(4), range(4, 8), range(8, 12))
    with pytest.raises(CrashError):
        again.restore(run="killed", crash_at=3)
    plan = again.plan()
    (unit,) = begin(plan, again.cluster, None, exactly_once=True)[1]
    with pytest.raises(CrashError):
        again.work(unit, plan.group, run="killed", crash_at=2)

    report = again.work(unit, plan.group, run="next")

    assert values(range(12)) == again.cluster.values("copy_of_orders")
    assert 4 == report.done.records


@pytest.mark.parametrize("crash_at", [0, 2, 3])
def test_a_restore_goes_on_after_another_that_was_at_work_since_its_plan(
    again: Restoring, crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two restores at once without the lock write each record once, whoever of them writes it."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 4)
    again.backup.put("orders", 0, range(4), range(4, 8), range(8, 12))
    again.cluster.create_topic("copy_of_orders", 1, 1, {})
    plan = again.plan()
    with suppress(CrashError):
        again.restore(run="other", crash_at=crash_at)
    written = len(again.cluster.values("copy_of_orders"))
    end = len(again.cluster.logs[COPY].rows)

    (unit,) = begin(plan, again.cluster, None, exactly_once=True)[1]
    report = again.work(unit, plan.group, run="this")

    assert values(range(12)) == again.cluster.values("copy_of_orders")
    assert (12 - written, end) == (report.done.records, report.own.log_end)


def test_rows_that_two_objects_may_hold_are_refused(again: Restoring) -> None:
    """Without offsets none of the rows that two objects hold is dropped, or doubled, by guess."""
    keys = again.backup.put("orders", 0, range(10), range(5, 15), views=JSON)

    with pytest.raises(RefusedError) as refused:
        again.restore()

    assert f"orders-0: {', '.join(keys)}" == refused.value.what


# Whose position it is


@pytest.mark.parametrize("grown", [[0, 2, 4], [0, 2, 4, 6, 8]])
@pytest.mark.parametrize("late", [[1, 3], [1, 5], [1, 3, 5, 6], [1, 3, 5, 7]])
@pytest.mark.parametrize("is_entered", [True, False])
def test_the_other_half_of_a_cut_is_not_left_out_in_silence(
    grown: list[int], late: list[int], is_entered: bool
) -> None:
    """A restore that listed the bucket while a sink stored a cut has passed what came below it."""
    again = Restoring()
    backup = again.backup
    backup.put_in("hour=1", "orders", 0, [0, 2, 4])
    again.restore()
    keys = [backup.put_in("hour=1", "orders", 0, grown)]
    keys.append(backup.put_in("hour=2", "orders", 0, late))
    end = max(*grown, *late) + 1
    rows = [replace(backup.entry(key), cut_start=0, next_offset=end) for key in keys]
    again.entries = {"orders": rows if is_entered else []}
    backup.entries = {"orders": []}  # the topic is in the ledger

    (refusal,) = again.plan().refusals

    gained = sum(offset < 5 for offset in late)
    assert f"the backup has gained {counted(gained, 'record')} below offset 5" in str(refusal)


def test_another_source_is_refused_in_a_target_that_is_not_empty() -> None:
    """The position there is of the first source, so nothing of the second one is done."""
    again = Restoring()
    again.backup.put("one", 0, range(30))
    again.backup.put("two", 0, range(20))
    again.restore(rename="merged", topics="one")

    with pytest.raises(TargetNotEmptyError):
        again.restore(rename="merged", topics="two")
    again.restore(rename="merged", topics="two", if_exists="append", yes=True)

    assert values(range(30), range(20)) == again.cluster.values("merged")
    with pytest.raises(TargetNotEmptyError):
        again.restore(rename="merged", topics="one")


def test_a_sinks_position_is_not_a_restores(again: Restoring) -> None:
    """One group for both: a restore neither takes the sink's position for its own nor moves it."""
    again.backup.put("orders", 0, range(10))
    again.cluster.create_topic("copy_of_orders", 1, 1, {})
    sinks = Position(10, '{"key":"topics/orders/partition=0/orders+0+0000000000.json","last":9}')
    again.cluster.set_positions("shared", {COPY: sinks})

    with pytest.raises(RefusedError, match="that no restore committed"):
        again.restore(group="shared")

    assert sinks == again.cluster.groups["shared"][COPY]


@pytest.mark.parametrize("views", LAYOUTS)
def test_a_position_that_was_moved_with_its_metadata_is_refused(
    again: Restoring, views: tuple[ViewSpec, ...]
) -> None:
    """What moves a group may keep the text beside its offset: nothing is lost, or doubled."""
    again.backup.put("orders", 0, range(10), range(10, 20), views=views)
    again.restore(group="mine")
    stood = again.cluster.groups["mine"][COPY]
    again.cluster.set_positions("mine", {COPY: replace(stood, offset=15)})

    with pytest.raises(RefusedError, match="that no restore committed"):
        again.restore(group="mine")


def test_another_backup_begins_in_a_target_that_is_empty(again: Restoring) -> None:
    """A recreated source is another one, though its name is the same."""
    again.backup.put("orders", 0, range(10))
    again.restore(group="mine")
    again.backup = Backup()
    again.backup.put("orders", 0, range(5))
    position = again.cluster.groups["mine"][COPY]
    read = RestorePosition.read(COPY, position)
    assert read is not None
    ours, lane = read
    other = replace(ours, source=replace(ours.source, backup="another"))
    again.cluster.set_positions("mine", {COPY: other.position(lane)})

    with pytest.raises(TargetNotEmptyError):
        again.restore(group="mine")


@pytest.mark.parametrize(
    "other", [{"rename": "copy_of_orders"}, {"group": "another"}], ids=["renaming", "group"]
)
def test_another_renaming_or_group_is_another_restore(
    again: Restoring, other: dict[str, Any]
) -> None:
    """Under another group or renaming, what is in the target stops the restore."""
    again.backup.put("orders", 0, range(10))
    again.restore()

    with pytest.raises(TargetNotEmptyError):
        again.restore(**other)


def test_a_position_that_kafka_has_dropped_is_missed(again: Restoring) -> None:
    """If Kafka has dropped the position, the target may already hold the records."""
    again.backup.put("orders", 0, range(10))
    again.restore()
    again.cluster.groups.clear()

    with pytest.raises(TargetNotEmptyError):
        again.restore()


def test_records_of_others_do_not_stop_a_restore_that_has_a_position(again: Restoring) -> None:
    """Records of others in the target do not stop a restore that has a position."""
    again.backup.put("orders", 0, range(10))
    again.restore()
    again.cluster.logs[COPY].rows.append({"value": b"a stranger's"})
    again.backup.put("orders", 0, range(10, 20))

    again.restore(run="r2")

    restored = again.cluster.values("copy_of_orders")
    assert [*values(range(10)), b"a stranger's", *values(range(10, 20))] == restored


def test_what_was_good_before_a_record_that_ends_the_restore_is_committed(
    again: Restoring,
) -> None:
    """The next run begins after it: without transactions, it would write these records again."""
    rows = batch(range(5, 10)).to_pylist()
    rows[2]["value"] = b"x" * 2**21
    again.backup.put("orders", 0, range(5), pa.RecordBatch.from_pylist(rows, SCHEMA))

    with pytest.raises(BadRecordError, match="offset 7"):
        again.restore()

    assert values(range(5)) == again.cluster.values("copy_of_orders")
    assert 5 == position(again).offset


def test_a_position_of_a_later_version_is_left_to_it(again: Restoring) -> None:
    """What a later version committed is not taken for anyone else's, nor read by guess."""
    again.backup.put("orders", 0, range(10))
    again.restore()
    (group,) = again.cluster.groups
    positions = again.cluster.groups[group]
    for at, found in positions.items():
        later = found.metadata.replace('"v":2', '"v":3')
        positions[at] = Position(found.offset, later)

    with pytest.raises(NewerVersionError, match="by a later version of kbackup"):
        again.restore()


# Objects that were removed on purpose


def entered(again: Restoring, keys: Sequence[str], cuts: Sequence[range]) -> list[Entry]:
    """What the ledger says of objects that are there."""
    found = []
    for key, cut in zip(keys, cuts, strict=True):
        head = again.store.head(key)
        facts = None if head is None else Facts.from_metadata(head.metadata)
        assert head is not None
        assert facts is not None
        view = View.RECORD if ".record." in key else View.VALUE
        span = Span(cut.start, cut.stop)
        found.append(stored(WHERE, key, view, facts, head.size, span, "s1", 0))
    return found


def three_objects(again: Restoring, views: tuple[ViewSpec, ...]) -> list[Entry]:
    """Store thirty records in three objects, enter them, and return their rows."""
    cuts = [range(10), range(10, 20), range(20, 30)]
    keys = again.backup.put("orders", 0, *cuts, views=views)
    rows = entered(again, keys, cuts)
    again.entries = {"orders": rows}
    return rows


def remove(again: Restoring, rows: Sequence[Entry]) -> None:
    """Remove objects, and have an operator accept that."""
    for row in rows:
        again.store.delete(row.key or "")
    told = [*again.entries["orders"], *(of_object(ACCEPTED, row, "v1", 1) for row in rows)]
    again.entries = {"orders": told}


@pytest.mark.parametrize("views", LAYOUTS[:2])
@pytest.mark.parametrize("removed", [1, 2, 3])
def test_a_restore_goes_on_after_objects_that_were_removed_on_purpose(
    again: Restoring, views: tuple[ViewSpec, ...], removed: int
) -> None:
    """Objects expire once they are restored: the next restore continues with what is new."""
    rows = three_objects(again, views)
    again.restore(run="r1")
    remove(again, rows[:removed])
    idle = again.plan()
    new = again.backup.put("orders", 0, range(30, 35), views=views)
    again.entries = {"orders": [*again.entries["orders"], *entered(again, new, [range(30, 35)])]}

    again.restore(run="r2")

    assert ([], []) == (list(idle.refusals), idle.units())
    assert values(range(35)) == again.cluster.values("copy_of_orders")


@pytest.mark.parametrize(("removed", "is_told"), [(1, False), (2, True)])
def test_what_was_removed_before_a_restore_came_to_it_is_named(
    again: Restoring, removed: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy has a gap then, which is said once."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 5)
    rows = three_objects(again, RECORD)
    with pytest.raises(CrashError):
        again.restore(crash_at=3)
    remove(again, rows[:removed])

    found = [text for each in again.plan().topics for _, text in each.warnings]
    again.restore()

    assert is_told == bool(found)
    assert not found or "lacks 1 object that had been there" in found[0]
    assert [] == [code for each in again.plan().topics for code, _ in each.warnings]


@pytest.mark.parametrize("views", LAYOUTS[:2])
def test_a_restore_goes_on_where_objects_were_removed_before_it_began(
    again: Restoring, views: tuple[ViewSpec, ...]
) -> None:
    """It has none of their records, and remembers that."""
    rows = three_objects(again, views)
    remove(again, rows[:1])
    again.restore(run="r1")
    remove(again, rows[1:2])
    idle = again.plan()
    new = again.backup.put("orders", 0, range(30, 35), views=views)
    again.entries = {"orders": [*again.entries["orders"], *entered(again, new, [range(30, 35)])]}

    again.restore(run="r2")

    assert ([], []) == (list(idle.refusals), idle.units())
    assert values(range(10, 35)) == again.cluster.values("copy_of_orders")


@pytest.mark.parametrize("views", LAYOUTS[:2])
def test_an_object_that_comes_back_is_not_hidden_by_one_that_was_removed(
    again: Restoring, views: tuple[ViewSpec, ...]
) -> None:
    """As many records as before are there, and they are others."""
    rows = three_objects(again, views)
    remove(again, rows[:1])
    again.restore()
    again.backup.put("orders", 0, range(10), views=views)
    again.entries = {"orders": rows}
    remove(again, rows[1:2])

    with pytest.raises(RefusedError, match=r"gained 10 records|were added, changed or removed"):
        again.restore()


@pytest.mark.parametrize("views", [RECORD, JSON], ids=["full records", "json"])
def test_rows_that_were_restored_and_removed_do_not_come_back_under_another_name(
    again: Restoring, views: tuple[ViewSpec, ...]
) -> None:
    """Rows of values carry no offsets: what another object has of them would come twice."""
    cuts = [range(10), range(10, 20)]
    keys = again.backup.put("orders", 0, *cuts, views=JSON)
    rows = entered(again, keys, cuts)
    again.entries = {"orders": rows}
    again.restore()
    (key,) = again.backup.put("orders", 0, cuts[1], views=views)
    if views is JSON:
        again.backup.replace(key, again.backup.body(key), to=key.replace("partition=0", "then=0"))
    remove(again, rows[1:])

    with pytest.raises(RefusedError, match=r"holds offsets of .* was removed since"):
        again.restore()

    assert values(range(20)) == again.cluster.values("copy_of_orders")
