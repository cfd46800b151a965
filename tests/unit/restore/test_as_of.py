"""A restore of what had been stored before a time."""

from dataclasses import replace
from typing import Any

import pytest
from backup_samples import JSON, SIBLINGS

from kbackup.catalog import listing
from kbackup.catalog.ledger.rows import ACCEPTED, Entry, of_object
from kbackup.clock import shown_ms
from kbackup.errors import (
    ConfigurationError,
    IncompleteBackupError,
    KbackupError,
    RefusedError,
    TargetNotEmptyError,
)
from kbackup.runs import backup_state, wiring
from kbackup.runs.backup_state import as_of
from tests.support.configurations import WHOLE, load
from tests.support.target import CrashError, Restoring

NOON = 1000
"""In ms since the epoch: long before the store's clock."""


def stored(
    some: Restoring, *cuts: range, at: int, views: Any = None, topic: str = "orders"
) -> list[Entry]:
    """Store cuts, and enter them as first stored at a time."""
    keys = some.backup.put(topic, 0, *cuts, **({} if views is None else {"views": views}))
    rows = [replace(some.backup.entry(key), first_stored=at, held_since=at) for key in keys]
    some.backup.entries.setdefault(topic, []).extend(rows)
    return rows


@pytest.fixture
def some() -> Restoring:
    """A backup whose offsets 0-19 were stored before noon, and 20-29 after it."""
    restoring = Restoring()
    stored(restoring, range(10), range(10, 20), at=NOON - 1)
    stored(restoring, range(20, 30), at=NOON)
    return restoring


def offsets(some: Restoring) -> list[int]:
    """The offsets, in the backup, of what the target holds."""
    return [int(value[5:-1]) for value in some.cluster.values("copy_of_orders") if value]


@pytest.mark.parametrize("views", [None, JSON, SIBLINGS], ids=["full", "values", "siblings"])
def test_what_was_stored_later_is_left_out(views: Any) -> None:
    """Whatever the records' own timestamps; a rerun, after a growth too, finds nothing to do."""
    some = Restoring()
    stored(some, range(10), range(10, 20), at=NOON - 1, views=views)
    stored(some, range(20, 30), at=NOON, views=views)

    some.restore(as_of=NOON)

    assert list(range(20)) == offsets(some)
    stored(some, range(30, 40), at=NOON + 1, views=views)
    plan = some.plan(as_of=NOON)
    assert ([], ["done"]) == (plan.units(), [topic.action for topic in plan.topics])


def test_a_killed_restore_goes_on_to_the_same_end(some: Restoring) -> None:
    """What is stored meanwhile came later; nothing is written twice."""
    with pytest.raises(CrashError):
        some.restore(crash_at=1, as_of=NOON)
    stored(some, range(30, 40), at=NOON + 1)

    some.restore(run="r2", as_of=NOON)

    assert list(range(20)) == offsets(some)


def test_another_time_is_another_restore(some: Restoring) -> None:
    """What was left out is never taken for restored: the target is refused."""
    some.restore(as_of=NOON)

    others: list[dict[str, Any]] = [{}, {"as_of": NOON + 1}, {"to_time": NOON}]
    for other in others:
        with pytest.raises(TargetNotEmptyError):
            some.restore(run="r2", group=some.plan(as_of=NOON).group, **other)


def test_what_was_stored_again_keeps_its_first_time(some: Restoring) -> None:
    """A repair, or a copy of the bucket, makes nothing younger: the ledger's time counts."""
    row = some.backup.entries["orders"][0]
    assert row.key is not None
    some.backup.replace(row.key, some.backup.body(row.key))
    some.backup.entries["orders"][0] = replace(row, run="repair", time=NOON + 5)

    some.restore(as_of=NOON)

    assert list(range(20)) == offsets(some)


def test_an_object_that_is_gone_is_missed_if_it_was_there(some: Restoring) -> None:
    """Also where its offsets were stored once more later, under another name."""
    key = some.backup.entries["orders"][1].key
    assert key is not None
    some.store.delete(key)
    stored(some, range(5, 25), at=NOON + 1)

    (refusal,) = some.plan(as_of=NOON).refusals

    assert 7 == refusal.exit_code
    assert key in str(refusal)


def test_what_is_gone_and_came_later_is_not_missed(some: Restoring) -> None:
    """A loss among what came later keeps nobody from restoring the rest."""
    key = some.backup.entries["orders"][2].key
    assert key is not None
    some.store.delete(key)

    assert some.plan().refusals
    assert [] == some.plan(as_of=NOON).refusals


def test_objects_of_one_cut_count_together(some: Restoring) -> None:
    """A cut that was stored across the moment was not complete: none of it was entered by then."""
    rows = stored(some, range(30, 35), range(35, 40), at=NOON - 1)
    late = [replace(one, cut_start=30, next_offset=40) for one in rows]
    late[1] = replace(late[1], first_stored=NOON, held_since=NOON)
    third = replace(some.backup.entries["orders"][2], first_stored=NOON - 1, held_since=NOON - 1)
    some.backup.entries["orders"][2:] = [third, *late]

    some.restore(as_of=NOON)

    assert list(range(30)) == offsets(some)


def test_an_object_that_has_grown_since_is_not_guessed_at(some: Restoring) -> None:
    """Of its records some were there: which ones, nobody knows."""
    rows = some.backup.entries["orders"]
    rows[1] = replace(rows[1], held_since=NOON)

    with pytest.raises(
        RefusedError, match="the ledger does not say when 1 object was first stored"
    ):
        some.plan(as_of=NOON)


def test_an_object_that_a_dead_run_has_grown_is_not_guessed_at(some: Restoring) -> None:
    """The row tells of the object that was stored, and another one is there now."""
    rows = some.backup.entries["orders"]
    rows[1] = replace(rows[1], bytes=(rows[1].bytes or 0) - 1)

    with pytest.raises(
        RefusedError, match="the ledger does not say when 1 object was first stored"
    ):
        some.plan(as_of=NOON)


@pytest.mark.parametrize(("size", "expected"), [(9, 1), (10, 5)])
def test_another_tools_object_that_has_grown_holds_its_rows_since_then(
    size: int, expected: int
) -> None:
    """Of an object whose records nobody counted, its size tells whether it is the same."""
    before = Entry("object", 0, 0, None, "k", "value", bytes=9, first_stored=1, held_since=1)
    now = replace(before, bytes=size, first_stored=5, held_since=5)

    assert (1, expected) == (
        (found := now.instead_of(before)).first_stored, found.held_since,
    )  # fmt: skip


@pytest.mark.parametrize(
    "topic", [pytest.param("orders", id="no ledger"), pytest.param("others", id="another's ledger")]
)
def test_what_the_ledger_does_not_know_is_refused(topic: str) -> None:
    """The store's own time of an object may be that of a copy."""
    some = Restoring()
    some.backup.put("orders", 0, range(10))
    some.backup.entries[topic] = []

    with pytest.raises(RefusedError) as caught:
        some.plan(as_of=NOON)

    assert (4, "orders") == (caught.value.exit_code, caught.value.place["topic"])
    assert "orders+0+0000000000" in caught.value.why


def test_what_the_store_has_had_since_was_there() -> None:
    """An object that nobody has stored again was there, whether a ledger says so or not."""
    some = Restoring()
    some.backup.put("orders", 0, range(10), views=JSON)

    some.restore(as_of="2999-01-01")

    assert list(range(10)) == offsets(some)


def test_what_no_run_has_entered_came_later(some: Restoring) -> None:
    """A sink at work has stored it, behind all that was entered."""
    some.backup.put("orders", 0, range(30, 40))

    some.restore(as_of=NOON)

    assert list(range(20)) == offsets(some)


def adopted(some: Restoring, *cuts: range) -> None:
    """Store cuts, and enter them as a sink does that finds them without a row."""
    keys = some.backup.put("orders", 0, *cuts)
    rows = [replace(some.backup.entry(key), first_stored=None, held_since=None) for key in keys]
    some.backup.entries.setdefault("orders", []).extend(rows)


def test_what_a_later_run_has_entered_for_a_dead_one_came_later(some: Restoring) -> None:
    """Its time is the store's, and a sink stores in the order of the offsets."""
    adopted(some, range(30, 40))
    stored(some, range(40, 50), at=NOON + 5)

    some.restore(as_of=NOON)

    assert list(range(20)) == offsets(some)


def test_a_copy_whose_ledger_was_lost_is_not_guessed_at() -> None:
    """Its objects have the times of the copy, whatever a sink enters behind them."""
    some = Restoring()
    adopted(some, range(10), range(10, 20))
    stored(some, range(20, 30), at=NOON + 5)

    with pytest.raises(RefusedError, match="had been stored by") as caught:
        some.plan(as_of=NOON)

    assert "2 objects" in caught.value.why


def test_a_copy_whose_ledger_is_older_than_its_objects_is_not_guessed_at(some: Restoring) -> None:
    """What the ledger does not know may have been there: the store's times are the copy's."""
    rows = some.backup.entries["orders"]
    rows[:] = [replace(one, time=NOON) for one in rows]
    some.backup.put("orders", 0, range(30, 40))

    with pytest.raises(RefusedError, match="had been stored by"):
        some.plan(as_of=NOON)


def test_what_came_later_is_not_missing_in_the_middle(some: Restoring) -> None:
    """A repaired object whose first time is lost belongs to what was there: refused."""
    rows = some.backup.entries["orders"]
    rows[2] = replace(rows[2], first_stored=NOON - 1, held_since=NOON - 1)
    rows[1] = replace(rows[1], first_stored=NOON + 5, held_since=NOON + 5)

    with pytest.raises(RefusedError) as caught:
        some.plan(as_of=NOON)

    assert str(rows[1].key) in caught.value.why


def test_what_was_stored_again_under_other_names_is_left_out(some: Restoring) -> None:
    """Between what was there, and of no offset that was not."""
    stored(some, range(5, 25), at=NOON + 1)

    some.restore(as_of=NOON)

    assert list(range(20)) == offsets(some)


@pytest.mark.parametrize(("has_times", "expected"), [(False, (None, None)), (True, (5000, 6000))])
def test_only_an_operator_takes_the_stores_times_for_those_of_the_backup(
    has_times: bool, expected: Any
) -> None:
    """They may be a copy's.  S3 cuts off what is less than a second."""
    some = Restoring()
    some.backup.put("orders", 0, range(10))
    found = listing.list_backup(
        some.store, some.backup.layout, wiring.format_options(some.settings())
    )
    ((where, (files,)),) = found.sets.items()
    assert files.main is not None
    dated = replace(files, main=replace(files.main, modified=5.0))

    (row,) = backup_state.listed(
        some.store, replace(found, sets={where: [dated]}), "orders", has_times=has_times
    )

    assert expected == (row.first_stored, row.held_since)


def test_a_damaged_ledger_leaves_no_doubt_out(some: Restoring) -> None:
    """What is not entered may have been, in a file of the ledger that cannot be read."""
    some.backup.put("orders", 0, range(30, 40))
    settings = some.settings(as_of=NOON)
    damaged = replace(some.backup.known, damage=[RefusedError("x", "y").issue()])
    found = listing.list_backup(some.store, some.backup.layout, wiring.format_options(settings))

    with pytest.raises(RefusedError, match="had been stored by"):
        as_of(found, damaged, NOON)


@pytest.mark.parametrize(("options", "expected"), [
    ({"as_of": NOON}, ["removed_since"]),
    ({"as_of": NOON, "from_offset": 10}, []),
    ({}, []),
])  # fmt: skip
def test_what_was_removed_on_purpose_since_is_said(
    some: Restoring, options: dict[str, Any], expected: list[str]
) -> None:
    """It was there at that time, so the restore cannot be whole; what came later is not missed."""
    rows = some.backup.entries["orders"]
    gone = [rows[0], rows[2]]
    for row in gone:
        some.store.delete(row.key or "")
    some.backup.entries["orders"] = [
        *rows,
        *(of_object(ACCEPTED, row, "v1", NOON + 9) for row in gone),
    ]

    warnings = some.plan(**options).topics[0].warnings

    assert expected == [code for code, _ in warnings]
    assert all(str(rows[0].key) in text for _, text in warnings)


@pytest.mark.parametrize(("options", "first"), [
    ({"as_of": 1}, NOON - 1),
    ({"as_of": NOON, "topics": "late"}, NOON),
    ({"as_of": NOON, "topics": "late,orders"}, NOON),
])  # fmt: skip
def test_topics_of_a_later_time_are_no_part_of_the_backup(
    some: Restoring, options: dict[str, Any], first: int
) -> None:
    """By name, or all that there is, they are refused as unknown ones are; since when is said."""
    stored(some, range(10), at=NOON, topic="late")

    with pytest.raises(IncompleteBackupError, match="had been backed up by") as refused:
        some.plan(**options)

    assert f"the first object was stored at {shown_ms(first)}" == refused.value.why
    assert "--as-of" not in refused.value.do  # it would be refused again


def test_a_topic_of_a_later_time_is_left_out(some: Restoring) -> None:
    """It would be created empty, as if it had been there; what was removed since had been there."""
    stored(some, range(10), at=NOON, topic="late")
    (gone,) = stored(some, range(10), at=NOON - 1, topic="removed")
    some.store.delete(gone.key or "")
    some.backup.entries["removed"] = [gone, of_object(ACCEPTED, gone, "v1", NOON + 9)]

    plan = some.plan(as_of=NOON)

    assert ["orders", "removed"] == [topic.copy.source for topic in plan.topics]
    assert ["late"] == plan.left_out.not_yet


@pytest.mark.parametrize("option", [{"follow": True}, {"follow": "true"}])
def test_following_is_refused(option: dict[str, Any]) -> None:
    """What is stored later is not from before."""
    with pytest.raises(ConfigurationError, match=r"as\.of"):
        load("restore", **WHOLE, as_of="2026-11-21", **option)


def test_a_time_to_come_is_refused(some: Restoring) -> None:
    """A rerun would not end where this one did."""
    settings = some.settings(as_of=NOON)

    with pytest.raises(KbackupError, match="is in the future"):
        wiring.check_as_of(settings, NOON - 1)
    wiring.check_as_of(settings, NOON)
