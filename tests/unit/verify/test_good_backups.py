"""No false alarm: a good backup is called good, and what is noted is no error."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import JSON, RECORD, Backup
from hypothesis import given, settings
from hypothesis import strategies as st
from record_samples import record_batches

from kbackup.catalog.ledger.rows import PartitionLedger, TopicLedger
from kbackup.naming import DatedLayout
from kbackup.records import Span
from kbackup.runs.backup_state import BackupState
from kbackup.testing import FaultyStore
from kbackup.verify.run import Notes
from tests.support.verified import LAYOUTS, Verified


@pytest.mark.parametrize("deep", [False, True], ids=["names", "deep"])
def test_a_format_narrows_what_is_verified(deep: bool) -> None:
    """With a format only its objects are judged, and the others are counted: exit code 3."""
    backup = Backup()
    [damaged] = backup.run("orders", 0, range(5))
    backup.run("orders", 0, range(5, 9), views=JSON)
    backup.run("payments", 0, range(5))
    backup.replace(damaged, b"no Parquet")

    narrow = Verified(backup, deep=deep, only_format="json")

    assert (3, [("orders", 1), ("payments", 0)]) == (
        narrow.exit_code,
        [(row["topic"], row["listed"]) for row in narrow.summary["partitions"]],
    )
    assert ["other_format"] == [found["code"] for found in narrow.summary["warnings"]]
    assert not deep or Verified(backup, deep=True).exit_code == 7


def test_a_missing_object_of_the_format_is_missed() -> None:
    """A run that stored objects of the format that was asked for is still believed."""
    backup = Backup()
    _, lost = backup.run("orders", 0, range(5), range(5, 9), views=JSON)
    backup.store.delete(lost)

    assert 7 == Verified(backup, only_format="json").exit_code


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
@pytest.mark.parametrize("views", LAYOUTS)
def test_a_good_backup_is_good(views: Any, deep: bool) -> None:
    """What the sink wrote is found in order, and counted."""
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7), views=views)

    verified = Verified(backup, deep=deep)

    assert (0, [], ["ok" if deep else "all there"]) == (
        verified.exit_code, verified.findings, verified.states,
    )  # fmt: skip
    [row] = verified.summary["partitions"]
    assert (len(keys), 0, 6, 7) == tuple(
        row[name] for name in ("objects", "first", "last", "records")
    )
    read = sum(entry.size for entry in backup.store.list("topics/")) if deep else 0
    assert read == row["bytes_read"]


@settings(deadline=None, max_examples=50)
@given(st.lists(record_batches(max_size=6), max_size=4))
def test_no_records_make_a_good_backup_look_bad(cuts: Sequence[pa.RecordBatch]) -> None:
    """Whatever was backed up, holes in its offsets too, is not called damaged."""
    backup = Backup()
    ends = 0
    for cut in cuts:
        if len(cut) and cut["offset"][0].as_py() >= ends:
            backup.put("orders", 0, cut)
            ends = cut["offset"][-1].as_py() + 1

    expected = 0 if ends else 7  # nothing at all is no good backup
    assert (expected, []) == ((verified := Verified(backup, deep=True)).exit_code, verified.errors)


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
@pytest.mark.parametrize("views", [RECORD, JSON], ids=["full records", "json"])
def test_several_directories_hold_no_overlap_and_no_hole(views: Any, deep: bool) -> None:
    """Objects of one cut have interleaving offsets, which is no damage."""
    backup = Backup()
    for at in range(0, 40, 20):
        backup.put_in("odd=0", "orders", 0, range(at, at + 20, 2), views=views)
        backup.put_in("odd=1", "orders", 0, range(at + 1, at + 20, 2), views=views)

    verified = Verified(backup, deep=deep)

    assert (0, []) == (verified.exit_code, verified.findings)


def test_names_alone_vouch_for_nothing() -> None:
    """Without a ledger a backup is not called complete."""
    backup = Backup()
    backup.put("orders", 0, range(4))

    assert (0, ["not checkable"]) == ((seen := Verified(backup)).exit_code, seen.states)


def test_names_cost_one_listing() -> None:
    """Where ledger and names agree, no object is opened or asked about."""
    backup = Backup()
    backup.run("orders", 0, range(4), range(4, 7))
    store = FaultyStore("", backup.store)

    Verified(backup, store=store)

    assert [("list", "topics/", "ok")] == store.calls


def test_nothing_to_read_starts_nothing() -> None:
    """An empty bucket starts no Spark and is an error."""

    def read(units: Any) -> Any:
        raise AssertionError

    assert (7, []) == ((seen := Verified(Backup(), read=read)).exit_code, seen.events)


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
def test_a_first_offset_above_zero_is_noted(deep: bool) -> None:
    """Retention deletes the first records of any topic; this is a note, not an error."""
    backup = Backup()
    backup.run("orders", 2, range(1000, 1004))

    verified = Verified(backup, deep=deep)

    assert (0, [("gap", "first offset 1000")]) == (verified.exit_code, verified.notes)


@pytest.mark.parametrize("has_ledger", [False, True], ids=["names", "ledger"])
@pytest.mark.parametrize(
    ("cuts", "text"),
    [
        pytest.param([[0, 2], [5, 6], [8]], "2 holes at 3-4, 7", id="some"),
        pytest.param(
            [[at, at + 1] for at in range(0, 30, 3)], "9 holes at 2, 5, 8, 11, 14 and 4 more",
            id="everywhere: one line for them",
        ),
        pytest.param(
            [[9_999_999_998, 9_999_999_999], [10_000_000_000]], "first offset 9999999998",
            id="none where offsets get an eleventh digit",
        ),
    ],
)  # fmt: skip
def test_holes_are_noted(cuts: list[list[int]], text: str, *, has_ledger: bool) -> None:
    """Holes, as compaction leaves them, are told, and are no error."""
    backup = Backup()
    (backup.run if has_ledger else backup.put)("orders", 0, *cuts)

    verified = Verified(backup, deep=True)

    assert (0, [("gap", text)]) == (verified.exit_code, verified.notes)
    assert ["ok"] == verified.states


def test_a_known_gap_is_explained() -> None:
    """Offsets that expired before they were backed up are reported as expired, not as a gap."""
    backup = Backup()
    backup.run("orders", 0, [0, 1])
    backup.run("orders", 0, [5, 6])
    ledger = TopicLedger({0: PartitionLedger(gaps=[Span(2, 5)])})

    notes = Notes(BackupState(ledgers={"orders": ledger}))
    verified = Verified(backup, deep=True, notes=notes)

    [(code, text)] = verified.notes
    assert ("gap", 0) == (code, verified.exit_code)
    assert "offsets 2 to 4 had expired" in text


def test_an_object_of_which_its_index_alone_says_something_is_compared_with_it() -> None:
    """A block-gzip object without metadata, as its own sink leaves it."""
    backup = Backup(layout=DatedLayout("systest", file_delim="-", offset_width=12))
    backup.put_blocks("2026-01-01", "orders", 0, [b"1", b"2"])

    verified = Verified(backup, deep=True)

    assert (0, []) == (verified.exit_code, verified.errors)
    assert 2 == verified.summary["partitions"][0]["records"]
