"""Objects and siblings that are gone are missed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from backup_samples import BYTES, JSON, OPTIONS, RECORD, SIBLINGS, Backup

from kbackup.catalog.ledger.rows import (
    ACCEPTED,
    TOPIC,
    TopicEntry,
    TopicLedger,
    of_object,
    stored,
)
from kbackup.catalog.listing import list_backup
from kbackup.errors import IncompleteBackupError
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.records import Facts, Span, TopicPartition
from kbackup.runs.backup_state import BackupState, listed
from kbackup.verify.run import Notes
from tests.support.target import Restoring
from tests.support.verified import LAYOUTS, Verified, offsets

CUTS = range(4), range(4, 7)


class Together:
    """A store that lets requests for what objects say wait for each other, for a moment."""

    def __init__(self, store: Any, parties: int) -> None:
        self._store, self._barrier = store, Barrier(parties)
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def head(self, key: str) -> Any:
        """What an object says, once others are asked too."""
        with suppress(BrokenBarrierError):
            self._barrier.wait(0.5)
            self.most = self._barrier.parties
        return self._store.head(key)


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
@pytest.mark.parametrize("views", [LAYOUTS[0], LAYOUTS[1], LAYOUTS[3]])
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(0, [0, 3], id="first"),
        pytest.param(1, [4, 6], id="middle"),
        pytest.param(2, [7, 9], id="last"),
    ],
)
def test_an_object_that_a_run_stored_is_missed(
    at: int, expected: list[int], views: Any, deep: bool
) -> None:
    """An object removed at the start, in the middle or at the end is named, with its offsets."""
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7), range(7, 10), views=views)
    backup.store.delete(keys[at])

    verified = Verified(backup, deep=deep)

    assert (7, [("missing_object", keys[at])]) == (verified.exit_code, verified.errors)
    assert [expected] == offsets(verified)
    assert ["damaged"] == verified.states
    assert [] == verified.notes


@pytest.mark.parametrize(
    ("stored", "states"),
    [
        pytest.param(lambda b: b.run("orders", 0, range(4)), ["damaged"], id="all of a topic"),
        pytest.param(
            lambda b: b.run("orders", 1, range(4)) + b.run("orders", 0, range(4)),
            ["all there", "damaged"], id="all of a partition",
        ),
        pytest.param(
            lambda b: b.run("orders", 0, *CUTS) + b.run("orders", 0, *CUTS), ["damaged"],
            id="one that two runs have stored is told once",
        ),
        pytest.param(
            lambda b: b.run("orders", 0, *CUTS) + b.put("orders", 0, [6]), ["damaged"],
            id="as many as a run stored, others' among them",
        ),
    ],
)  # fmt: skip
def test_the_ledger_speaks_of_what_is_gone(
    stored: Callable[[Backup], list[str]], states: list[str]
) -> None:
    """Whatever else is there, or nothing: the first object, and its offsets."""
    backup = Backup()
    lost = stored(backup)[0]
    backup.store.delete(lost)

    verified = Verified(backup)

    assert (7, [("missing_object", lost)]) == (verified.exit_code, verified.errors)
    assert ([[0, 3]], states) == (offsets(verified), verified.states)


def test_missing_offsets_are_named_for_another_backup() -> None:
    """The last line says which offsets to back up again."""
    backup = Backup()
    keys = backup.run("orders", 1, range(4), range(4, 7)) + backup.run("paid", 0, range(3))
    backup.run("late", 0, range(1000, 1002))
    backup.store.delete(keys[1])
    backup.store.delete(keys[2])

    verified = Verified(backup)

    [text] = [event["text"] for event in verified.events if event["type"] == "warning"]
    assert text.endswith(": orders:1:4,paid:0:0")


def test_a_named_topic_that_nobody_knows_is_an_error() -> None:
    """A cron job that verifies a topic with a typing error must not report success."""
    backup = Backup()
    backup.put("orders", 0, [0])

    with pytest.raises(IncompleteBackupError):
        Verified(backup, asked=TopicFilter(["order"]))


# Siblings: F7


def enter_anew(backup: Backup) -> None:
    """Make the ledger of what is there: it does not name the siblings of values."""
    found = list_backup(backup.store, backup.layout, OPTIONS)
    backup.entries["orders"] = listed(backup.store, found, "orders")


@pytest.mark.parametrize("which", [pytest.param(0, id="keys"), pytest.param(1, id="headers")])
@pytest.mark.parametrize("cut", [pytest.param(1, id="one of many"), pytest.param(2, id="the last")])
@pytest.mark.parametrize("has_ledger", [False, True], ids=["no ledger", "ledger"])
def test_a_missing_sibling_is_missed(which: int, cut: int, *, has_ledger: bool) -> None:
    """Once: an object of values says which siblings it was stored with, and so may the ledger."""
    backup = Backup()
    store = backup.run if has_ledger else backup.put
    lost = store("orders", 0, range(2), range(2, 4), range(4, 6), views=SIBLINGS)[3 * cut + which]
    backup.store.delete(lost)

    verified = Verified(backup, deep=has_ledger)

    assert (7, [("missing_object", lost)]) == (verified.exit_code, verified.errors)


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside whole ones"])
@pytest.mark.parametrize("deep", [False, True], ids=["by names", "read"])
def test_a_sibling_that_went_before_the_ledger_was_made_anew_is_missed(
    deep: bool, others: bool
) -> None:
    """The values are in it, and the ledger names no sibling; they are asked what they had."""
    backup = Backup()
    keys = backup.put("orders", 0, range(2), views=JSON)
    keys += backup.put("orders", 0, range(2, 4), views=SIBLINGS)
    keys += backup.put("orders", 0, range(4, 6), views=SIBLINGS) if others else []
    lost = keys[1]
    backup.store.delete(lost)
    enter_anew(backup)

    verified = Verified(backup, deep=deep)

    missing = [("missing_object", lost if others else keys[3])]
    assert (7, missing) == (verified.exit_code, verified.errors)


@pytest.mark.parametrize("deep", [False, True], ids=["by names", "read"])
@pytest.mark.parametrize("which", [0, 1], ids=["keys", "headers"])
def test_a_sibling_of_a_ledger_made_anew_whose_removal_was_accepted_is_not_missed(
    deep: bool, which: int
) -> None:
    """The values go on to say that they had it; the ledger says what became of it."""
    backup = Backup()
    keys = backup.put("orders", 0, range(2), views=SIBLINGS)
    backup.put("orders", 0, range(2, 4), views=SIBLINGS)
    enter_anew(backup)
    backup.store.delete(keys[which])
    missing = [("missing_object", keys[which])]
    assert (7, missing) == (Verified(backup, deep=deep).exit_code, Verified(backup).errors)

    entry = next(one for one in backup.entries["orders"] if one.key == keys[which])
    backup.entries["orders"].append(of_object(ACCEPTED, entry, "r2", entry.time + 1))

    verified = Verified(backup, deep=deep)

    assert (0, []) == (verified.exit_code, verified.errors)


@pytest.mark.parametrize("views", [(JSON, SIBLINGS), (SIBLINGS, JSON)], ids=["on", "off"])
def test_siblings_that_were_switched_on_or_off_are_no_loss(views: Any) -> None:
    """Objects of before or after that have none are noted once."""
    backup = Backup()
    for start, layout in enumerate(views):
        backup.put("orders", 0, range(start * 10, start * 10 + 10), views=layout)

    for deep in (False, True):
        verified = Verified(backup, deep=deep)
        assert (0, []) == (verified.exit_code, verified.errors)


def test_many_objects_are_asked_at_once_which_siblings_they_had() -> None:
    """A ledger that was made anew does not say it, so each of them costs a request."""
    backup = Backup()
    cuts = [range(at, at + 1) for at in range(8)]
    backup.put("orders", 0, *cuts[:6], views=JSON)
    backup.put("orders", 0, *cuts[6:], views=SIBLINGS)
    enter_anew(backup)
    store = Together(backup.store, 6)

    verified = Verified(backup, store=store)

    assert (0, 6) == (verified.exit_code, store.most)


@pytest.mark.parametrize(
    ("cut", "expected"), [pytest.param(1, 7, id="between"), pytest.param(2, 0, id="at the end")]
)
def test_siblings_without_their_value_are_told(cut: int, expected: int) -> None:
    """Keys without values at the end are what an interrupted run leaves; before that, a loss."""
    backup = Backup()
    keys = backup.put("orders", 0, range(2), range(2, 4), range(4, 6), views=SIBLINGS)
    backup.store.delete(keys[3 * cut + 2])

    verified = Verified(backup, deep=True)

    assert expected == verified.exit_code
    assert ([("missing_object", keys[3 * cut + 2])] if expected else []) == verified.errors
    assert 1 == len(verified.findings)


@pytest.mark.parametrize(
    ("others", "is_loss"),
    [
        pytest.param([("partition=0", 2)], False, id="at the end"),
        pytest.param([("partition=0", 2), ("d=1", 5)], False, id="of a cut of two directories"),
        pytest.param([("partition=0", 2), ("d=1", 6)], True, id="before the next cut"),
        pytest.param([("partition=0", 2), ("partition=0", 6)], True, id="between"),
        pytest.param([], True, id="with nothing before them"),
    ],
)
def test_a_restore_takes_keys_without_values_as_verify_does(
    others: list[tuple[str, int]], is_loss: bool
) -> None:
    """They are no loss, and left out with a warning, where nothing shows that values followed."""
    again = Restoring()
    *keys, gone = again.backup.put("orders", 0, range(4, 6), views=SIBLINGS)
    again.backup.store.delete(gone)
    for directory, start in others:
        again.backup.put_in(directory, "orders", 0, [start], views=JSON)

    verified = Verified(again.backup)

    assert 7 * is_loss == verified.exit_code
    if is_loss:
        with pytest.raises(IncompleteBackupError, match="is missing"):
            again.restore()
        return
    plan = again.plan()
    again.restore()
    (text,) = [text for code, text in plan.topics[0].warnings if code == "values_not_there"]
    assert keys[0] in text or keys[1] in text
    assert [b'{"n":%d}' % start for _, start in others] == again.cluster.values("copy_of_orders")


def test_a_directory_of_keys_alone_is_no_loss() -> None:
    """Tombstones have no value, so a connector keeps their keys in a directory of their own."""
    backup = Backup()
    keys = backup.put("orders", 0, range(2), range(2, 4), views=SIBLINGS)
    moved = keys[0].replace("partition=0", "tombstone")
    backup.replace(keys[0], backup.body(keys[0]), to=moved)
    for key in keys[:3]:
        backup.store.delete(key)

    verified = Verified(backup, deep=True)

    assert (0, []) == (verified.exit_code, verified.errors)
    assert 4 == verified.summary["objects"]


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda lines: lines[:-1], id="a row short"),
        pytest.param(lambda lines: [*lines, lines[-1]], id="a row long"),
    ],
)
@pytest.mark.parametrize("which", [pytest.param(0, id="keys"), pytest.param(1, id="headers")])
def test_rows_are_never_paired_by_guess(
    which: int, mutate: Callable[[list[bytes]], list[bytes]]
) -> None:
    """A sibling that has not just one row for each value is damaged, and named."""
    backup = Backup()
    keys = backup.put("orders", 0, range(4), views=SIBLINGS)
    lines = backup.body(keys[which]).splitlines(keepends=True)
    backup.replace(keys[which], b"".join(mutate(lines)))

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", keys[which])]) == (verified.exit_code, verified.errors)


TOPIC_ALONE = BackupState({"orders": TopicEntry(TOPIC, "orders", partitions=1)})


@pytest.mark.parametrize("deep", [False, True], ids=["names", "deep"])
@pytest.mark.parametrize(
    ("views", "notes", "code"),
    [
        pytest.param(RECORD, Notes(), 0, id="a bucket that never had one"),
        pytest.param(JSON, Notes(has_id=True), 0, id="another tool's topic"),
        pytest.param(RECORD, Notes(has_id=True), 3, id="all of it is gone"),
        pytest.param(JSON, Notes(TOPIC_ALONE), 3, id="a topic's part is gone"),
    ],
)
def test_a_backup_whose_ledger_is_gone_is_not_vouched_for(
    views: tuple[ViewSpec, ...], notes: Notes, code: int, deep: bool
) -> None:
    """It is said in any case; the exit code is 3 where there must have been a ledger."""
    backup = Backup()
    backup.put("orders", 0, range(5), range(5, 9), views=views)

    found = Verified(backup, deep=deep, notes=notes)

    assert (code, ["no_ledger"]) == (
        found.exit_code,
        [each["code"] for each in found.summary["warnings"]],
    )
    assert found.summary["skipped"] == ({"objects_without_ledger": 2} if code else {})


def test_an_object_in_another_layout_is_not_called_gone() -> None:
    """It was not looked for: the advice is how to read it, and not to back it up again."""
    key = "topics/2026-01-01/orders-00000-000000000000.gz"
    facts = Facts(0, 4, 5, None, None, "")
    entry = stored(TopicPartition("orders", 0), key, View.VALUE, facts, 9, Span(0, 5), "r1", 0)
    backup = Backup()
    backup.run("orders", 0, range(5, 9))

    known = BackupState(ledgers={"orders": TopicLedger.of([entry])})
    verified = Verified(backup, notes=Notes(known))

    assert (7, [("missing_object", key)]) == (verified.exit_code, verified.errors)
    (error,) = verified.summary["errors"]
    assert "not of the layout" in error["why"]
    assert "format.class" in error["do"]


def test_an_object_whose_extension_is_not_given_is_not_called_gone() -> None:
    """Its format is not known without ``format.bytearray.extension``; with it, all is there."""
    named = FormatOptions({"format.bytearray.extension": ".dat"})
    backup = Backup()
    backup.run("orders", 0, range(5), views=BYTES)
    (key,) = backup.run("orders", 0, range(5, 9), views=(replace(BYTES[0], options=named),))

    verified = Verified(backup)
    known = Verified(backup, deep=True, reading=ReadOptions(named))

    assert (7, [("missing_object", key)]) == (verified.exit_code, verified.errors)
    (error,) = verified.summary["errors"]
    assert "not looked for: no format reads .dat" == error["why"]
    assert "the configuration that it was stored with" in error["do"]
    assert (0, 9) == (known.exit_code, known.summary["records"])


@pytest.mark.parametrize(
    ("place", "code"),
    [
        pytest.param(range(5, 9), 3, id="behind the first that was entered"),
        pytest.param(range(5), 0, id="from before kbackup's first"),
    ],
)
def test_what_nothing_speaks_of_is_not_vouched_for(place: range, code: int) -> None:
    """Among objects of kbackup, one without metadata that is not entered is somebody else's."""
    backup = Backup()
    [strange] = backup.put("orders", 0, place, views=BYTES)
    backup.run("orders", 0, *({range(5), range(5, 9)} - {place}), views=BYTES)
    backup.replace(strange, b'{"n":"a"}\n{"n":"b"}\n', metadata={})

    found = Verified(backup, deep=True)

    assert code == found.exit_code
    assert found.summary["skipped"] == ({"objects_not_entered": 1} if code else {})
    assert [strange for _ in range(code > 0)] == [each["key"] for each in found.summary["warnings"]]
