"""Objects that have had their time: marked by one run, deleted by a later one."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from backup_samples import BYTES, RECORD, SIBLINGS, TIME, Backup, batch

from kbackup.catalog import listing
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import OBJECTS, TOPICS, TopicEntry, entries, table
from kbackup.cli.screens import expired, expiring
from kbackup.errors import LockedError, TopicsLockedError
from kbackup.events import Plain, to_json
from kbackup.formats import FormatOptions
from kbackup.inspect.topics import PartitionCoverage, coverage
from kbackup.naming.renaming import ALL
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span
from kbackup.runs import backup_state, history
from kbackup.runs.context import Stop
from kbackup.runs.history import Estimate
from kbackup.runs.inventory import Inventory, listed
from kbackup.runs.locks import RunLock
from kbackup.runs.report import Summary
from kbackup.sink.expire import ExpireOptions, ExpireRun, ExpiryPlanned
from kbackup.verify.run import Acceptance
from tests.support.configurations import load
from tests.support.hand_clock import HandClock
from tests.support.json_lines import LINES
from tests.support.ledgers import (
    CLOCK,
    ID,
    WHERE,
    backup_with_ledger,
    damage,
    enter,
    mending,
    verified,
)
from tests.support.mortal import Gone, Mortal
from tests.support.served_store import ServedStore

OLD = ExpireOptions(older_than=timedelta(), grace=timedelta())
"""All that is there, and at once."""

CUTS = range(10), range(10, 20), range(20, 30)


class Expired:
    """What a run has said, and its exit code."""

    def __init__(self, backup: Backup, asked: ExpireOptions, **options: Any) -> None:
        store = options.pop("store", backup.store)
        agree = options.pop("agree", None)
        stop = options.pop("stop", Stop())
        summary = Summary(options.pop("run", "e1"), "sink expire")
        settings = load(
            "expire", s3_bucket_name="b", **{"yes": True, "no_lock": True} | options
        ).settings
        # a run is behind what it expires: S3's times have seconds
        now = HandClock(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)
        run = ExpireRun(settings, asked, store, backup.layout, now, summary, stop, agree)
        self.events: list[Plain] = [*run()]
        self.summary = summary.finish()
        for event in self.events:
            LINES.validate(to_json(event))
        LINES.validate(to_json(self.summary))

    @property
    def code(self) -> int:
        return self.summary.exit_code

    @property
    def rows(self) -> list[ExpiryPlanned]:
        return [one for one in self.events if isinstance(one, ExpiryPlanned)]

    @property
    def codes(self) -> set[str]:
        return {one.code for one in self.summary.warnings}


def keys(backup: Backup) -> list[str]:
    """What is there of the topic."""
    return [one.key for one in backup.store.list("topics/")]


def read(backup: Backup) -> list[str]:
    """What a restore reads."""
    settings = load("restore", s3_bucket_name="b", bootstrap_servers="h:1").settings
    said = backup_state.read(backup.store, backup.layout, CLOCK)
    found = Inventory(settings, backup.store, listed(settings, backup.store, (), said), said)
    return [files.id for files in found.covered(WHERE).sets]


def judged(backup: Backup, *, deep: bool = False) -> tuple[int, list[str]]:
    """Exit code of a verify, and what it says beside that something was removed on purpose."""
    code, findings = verified(backup, deep=deep)
    texts = [str(one["text"]) for one in findings]
    return code, [text for text in texts if not text.startswith("removed on purpose: ")]


def drawn(backup: Backup) -> PartitionCoverage:
    """The map of the partition."""
    said = backup_state.read(backup.store, backup.layout, CLOCK)
    found = said.left(listing.list_backup(backup.store, backup.layout, FormatOptions()))
    return coverage(WHERE, found.sets[WHERE], said.ledger(WHERE), found.keys)


@pytest.mark.parametrize("views", [RECORD, BYTES], ids=["full records", "values"])
def test_a_run_marks_and_a_later_one_deletes(views: tuple[ViewSpec, ...]) -> None:
    """From the mark on nobody reads them nor misses them; the last set stays."""
    backup, stored = backup_with_ledger(*CUTS, views=views)

    marked = Expired(backup, OLD)

    assert (0, stored, stored[2:]) == (marked.code, keys(backup), read(backup))
    assert [(2, 0, 20, 0)] == [(o.marks, o.gone, o.up_to, o.deletes) for o in marked.rows]
    assert (0, []) == judged(backup)
    assert ["removed", "stored"] == [one.state.value for one in drawn(backup).offsets]

    deleted = Expired(backup, OLD)

    assert (0, stored[2:], stored[2:]) == (deleted.code, keys(backup), read(backup))
    assert (2, {"objects": 2}) == (
        deleted.rows[0].deletes, {"objects": deleted.summary.facts["deleted"]},
    )  # fmt: skip
    assert (0, []) == judged(backup, deep=True)
    assert ["removed", "stored"] == [one.state.value for one in drawn(backup).offsets]
    assert [] == Expired(backup, OLD).rows


def test_a_run_leaves_a_record_and_a_plan_an_estimate() -> None:
    """What it deleted, for metrics; and by how long that took, how long the next one will."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    size = sum(one.size for one in backup.store.list("topics/") if one.key in stored[:2])

    served: Any = ServedStore(backup.store)
    planned = Expired(backup, OLD, dry_run=True, store=served).summary.facts["estimate"]
    Expired(backup, OLD, run="2099-12-31T00:00:00Z-7f3a")

    now = datetime(2100, 1, 1, tzinfo=UTC)
    found = history.RecentRuns.listed(backup.store, backup.layout, now).last("sink expire", ALL)
    assert found is not None
    said = found.record.said
    assert (0, 2, size) == (said["exit_code"], said["deleted"], said["deleted_bytes"])
    assert (found.record.started, 0) == (found.success, said["timings"]["work_s"])
    assert Estimate(size, 2 + 1, None) == planned


def test_what_was_marked_stays_for_its_time() -> None:
    """Restores that take no lock go on reading it."""
    backup, stored = backup_with_ledger(*CUTS)
    day = replace(OLD, grace=timedelta(hours=24))
    Expired(backup, day)

    again = Expired(backup, day)

    assert (0, stored, 2) == (again.code, keys(backup), again.rows[0].waits)
    due = again.rows[0].due
    assert due is not None
    assert timedelta(hours=23) < due - datetime.now(UTC) < timedelta(hours=25)
    assert "2 marked, until" in expiring(again.rows[0])


def test_a_mark_can_be_taken_back() -> None:
    """And be set again; what a rebuilt ledger says stays as it was."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    [*mending(backup).rebuild()]
    assert stored[2:] == read(backup)

    undone = Expired(backup, ExpireOptions(is_undo=True))

    assert (0, 2, stored) == (undone.code, undone.rows[0].undone, read(backup))
    assert "2 objects kept" == expired(undone.summary)
    [*mending(backup).rebuild()]
    assert stored == read(backup)
    Expired(backup, OLD)
    assert stored[2:] == read(backup)
    Expired(backup, OLD)
    [*mending(backup).rebuild()]
    assert (0, [], 3) == (*judged(backup), Expired(backup, ExpireOptions(is_undo=True)).code + 3)


def test_a_lost_object_is_missing_again_once_the_mark_is_taken_back() -> None:
    """A mark that was taken back excuses nothing."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    Expired(backup, ExpireOptions(is_undo=True))
    backup.store.delete(stored[0])

    assert 7 == judged(backup)[0]


def test_what_is_gone_cannot_be_taken_back() -> None:
    """The rest is, and the run says that it was not all."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    backup.store.delete(stored[0])

    undone = Expired(backup, ExpireOptions(is_undo=True))

    assert (3, {"objects_gone": 1}) == (undone.code, undone.summary.skipped)
    assert (stored[1:], (0, [])) == (read(backup), judged(backup))


@pytest.mark.parametrize(
    ("is_marked", "code", "says"),
    [
        (False, 0, "nothing to undo: nothing is marked as removed"),
        (True, 3, "nothing to undo: all that is marked is gone"),
    ],
)
def test_where_no_mark_can_be_taken_back_it_is_said(is_marked: bool, code: int, says: str) -> None:
    """That there is nothing to remove would say nothing of what was asked for."""
    backup, stored = backup_with_ledger(*CUTS)
    if is_marked:
        Expired(backup, OLD)
        for key in stored[:2]:
            backup.store.delete(key)

    undone = Expired(backup, ExpireOptions(is_undo=True))

    assert (code, says) == (undone.code, expired(undone.summary))
    assert ({"objects_gone": 2} if is_marked else {}) == undone.summary.skipped


@pytest.mark.parametrize("views", [RECORD, SIBLINGS], ids=["full records", "siblings"])
@pytest.mark.parametrize("at", range(14))
def test_killed_anywhere_nothing_looks_lost(views: tuple[ViewSpec, ...], at: int) -> None:
    """Neither to verify nor to a restore, and the next runs finish it."""
    backup = Backup()
    stored: list[str] = []
    topics = [TopicEntry("topic", "orders", "cluster-1", "id", 1, compacted=False)]
    stream.topics_stream(backup.store, backup.layout, CLOCK).append(table(topics, TOPICS))
    for cut in CUTS:
        of_cut = backup.put("orders", 0, cut, views=views, identity=ID)
        backup.entries.setdefault("orders", []).extend(map(backup.entry, of_cut))
        stored += of_cut
    rows = table(backup.entries["orders"], OBJECTS)
    stream.topic_stream(backup.store, backup.layout, "orders", CLOCK).append(rows)
    mortal = Mortal(backup.store, at, {"put", "delete"})
    with suppress(Gone):
        for _ in range(2):
            Expired(backup, OLD, store=mortal)

    assert (0, []) == judged(backup)
    assert set(read(backup)) <= {*keys(backup)}
    reindexed = [*mending(backup).rebuild()]
    assert reindexed
    assert (0, []) == judged(backup, deep=True)
    assert [0, 0] == [Expired(backup, OLD).code, Expired(backup, OLD).code]
    left = stored[-len(views) :]
    assert (sorted(left), (0, [])) == (keys(backup), judged(backup, deep=True))


def test_a_rule_of_the_bucket_that_was_faster_is_no_loss() -> None:
    """What is gone already counts as removed, as far as it would have been."""
    backup, stored = backup_with_ledger(*CUTS)
    backup.store.delete(stored[0])

    marked = Expired(backup, OLD)

    assert [(2, 1)] == [(one.marks, one.gone) for one in marked.rows]
    assert "1 of them deleted already" in expiring(marked.rows[0])
    assert (0, []) == judged(backup)


def test_what_is_not_old_enough_stays() -> None:
    """By its records, and by when it was stored; then by size, the oldest first."""
    backup, stored = backup_with_ledger(*CUTS)

    young = Expired(backup, ExpireOptions(older_than=timedelta(days=365)))

    assert (0, [], stored) == (young.code, young.rows, read(backup))
    size = sum(one.size for one in backup.store.list(stored[2]))
    by_size = Expired(backup, ExpireOptions(max_bytes=size + 1))
    assert ([2], stored[2:]) == ([one.marks for one in by_size.rows], read(backup))


def test_a_partition_that_is_not_there_is_named() -> None:
    """Else a mistyped number would keep everything for good, with exit 0."""
    backup, _ = backup_with_ledger(*CUTS)

    assert 7 == Expired(backup, OLD, partitions="7").code


def test_young_records_stay_however_long_ago_they_were_stored() -> None:
    """And whatever is behind them."""
    backup = Backup()
    backup, stored = backup_with_ledger(into=backup)
    cuts = [range(10), range(10, 20), range(20, 30)]
    times = [TIME, datetime(2200, 1, 1, tzinfo=UTC).timestamp() * 1000, TIME]
    for cut, time in zip(cuts, times, strict=True):
        rows = batch(cut, timestamp=int(time))
        stored += backup.put("orders", 0, rows, identity=ID)
        enter(backup, stored[-1], cut)

    marked = Expired(backup, OLD)

    assert [(1, 10)] == [(one.marks, one.up_to) for one in marked.rows]


def test_objects_that_overlap_go_together() -> None:
    """A prefix that ends inside another object would leave a hole."""
    backup, stored = backup_with_ledger(range(10), range(5, 15), range(15, 20), range(20, 30))
    first = ExpireOptions(max_bytes=sum(one.size for one in backup.store.list("topics/")) - 1)

    assert [(2, 15)] == [(one.marks, one.up_to) for one in Expired(backup, first).rows]
    assert stored[2:] == read(backup)


def test_objects_of_unknown_age_stay_and_are_named() -> None:
    """A connector's, or what the ledger does not know; and all that is behind."""
    backup, _ = backup_with_ledger(range(10, 20), range(20, 30))
    foreign = backup.put_in("partition=0", "orders", 0, range(10))

    found = Expired(backup, OLD)

    assert (3, [], {"not_removed"}) == (
        found.code,
        found.rows,
        found.codes,
    )
    assert foreign in str(found.summary.warnings)
    assert {"objects_not_removed": 1} == found.summary.skipped


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([{"compacted": True}], 4),
        ([{"compacted": True}, {"compacted": False}], 4),  # what it had is not whole
        ([{"compacted": False, "config": {"cleanup.policy": "compact,delete"}}], 4),
        ([{"compacted": False}], 0),
        ([{}], 4),  # no sink has looked
    ],
)
def test_compacted_topics_are_refused(rows: list[dict[str, Any]], code: int) -> None:
    """The last value of a key may be its oldest record; unless somebody says so."""
    backup, stored = backup_with_ledger(*CUTS)
    for row in rows:
        topics = [TopicEntry("topic", "orders", "cluster-1", "another id", 1, **row)]
        stream.topics_stream(backup.store, backup.layout, CLOCK).append(table(topics, TOPICS))

    found = Expired(backup, OLD)

    assert (code, stored if code else stored[2:]) == (found.code, read(backup))
    assert 0 == Expired(backup, replace(OLD, takes_compacted=True)).code


@pytest.mark.parametrize("folder", ["topics/", "objects/"])
def test_nothing_is_removed_by_a_damaged_ledger(folder: str) -> None:
    """It may have said that the topic is compacted, or that a mark was taken back."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    there = {one.key for one in backup.store.list("")}
    Expired(backup, ExpireOptions(is_undo=True))
    damage(backup, folder, spare=there if folder == "objects/" else ())

    assert [7, 7] == [Expired(backup, replace(OLD, takes_compacted=True)).code for _ in range(2)]
    assert stored == keys(backup)
    assert 0 == Expired(backup, ExpireOptions(is_undo=True)).code


def test_nothing_is_done_unless_somebody_agrees() -> None:
    """A dry run writes nothing, and a refusal neither."""
    backup, stored = backup_with_ledger(*CUTS)
    before = [*backup.store.list("_kbackup/")]

    asked: list[str] = []
    answers: list[tuple[int, int]] = []
    for options in ({"dry_run": True}, {}, {"agree": lambda text: asked.append(text) is not None}):
        found = Expired(backup, OLD, **{"yes": False} | options)
        answers.append((found.code, len(found.rows)))

    assert [(0, 1), (4, 1), (4, 1)] == answers
    assert ["mark 2 objects as removed, delete 0 objects?"] == asked
    assert (before, stored) == ([*backup.store.list("_kbackup/")], read(backup))


@pytest.mark.parametrize(
    ("purpose", "error"), [("sink", TopicsLockedError), ("restore", LockedError)]
)
def test_another_run_at_work_is_not_disturbed(
    purpose: str, error: type[Exception], tmp_path: Any
) -> None:
    """Exit code 8: the sink may write what goes, the restore may read it."""
    backup, stored = backup_with_ledger(*CUTS)
    lock = RunLock(
        backup.store, backup.layout, purpose, ["another"], identity="x", folder=tmp_path,
        timeout_s=0, run="r",
    )  # fmt: skip
    with lock as held:
        held.claim(["orders"])
        with pytest.raises(error):
            Expired(backup, OLD, no_lock=False, lock_dir=str(tmp_path))
    assert stored == read(backup)
    assert 0 == Expired(backup, OLD, no_lock=False, lock_dir=str(tmp_path)).code


def test_what_was_stored_again_is_not_what_was_marked() -> None:
    """A mark is about what was there: another run's object under the same key stays."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    row = next(
        one
        for one in entries(_stream(backup).read().rows)
        if one.kind == "object" and one.key == stored[1]
    )
    _stream(backup).append(table([replace(row, run="later")], OBJECTS))

    assert stored[1:] == read(backup)
    Expired(backup, OLD)
    assert stored[1:] == keys(backup)


@pytest.mark.parametrize(
    ("asked", "compacted"),
    [
        (replace(OLD, older_than=timedelta(days=36500)), False),
        (replace(OLD, older_than=None, max_bytes=10**9), False),
        (OLD, True),
    ],
    ids=["age", "size", "compacted"],
)
def test_a_mark_that_the_policy_would_not_set_deletes_nothing(
    asked: ExpireOptions, compacted: bool
) -> None:
    """Whoever may write to the bucket may write marks: it is named, and can be taken back."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    topics = [TopicEntry("topic", "orders", "cluster-1", "id", 1, compacted=compacted)]
    stream.topics_stream(backup.store, backup.layout, CLOCK).append(table(topics, TOPICS))

    found = Expired(backup, asked)

    assert (3, [], stored) == (found.code, found.rows, keys(backup))
    assert {"objects_not_removed": 2} == found.summary.skipped
    assert stored[0] in str(found.summary.warnings)
    assert 2 == Expired(backup, ExpireOptions(is_undo=True)).rows[0].undone


def test_an_object_that_has_changed_is_not_deleted() -> None:
    """Whoever has put something else there may want to know."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    backup.replace(stored[0], b"something else")

    found = Expired(backup, OLD)

    assert (3, [stored[0], stored[2]]) == (found.code, keys(backup))
    assert {"objects_not_removed": 1} == found.summary.skipped


def test_the_last_set_stays_whatever_was_lost_meanwhile() -> None:
    """Else nothing would say any more where the backup stood."""
    backup, stored = backup_with_ledger(*CUTS)
    Expired(backup, OLD)
    backup.store.delete(stored[2])

    found = Expired(backup, OLD)

    assert (3, stored[:2]) == (found.code, keys(backup))
    assert "not_removed" in found.codes


def test_what_was_removed_need_not_be_accepted() -> None:
    """Neither before it is deleted nor after."""
    backup, _ = backup_with_ledger(*CUTS)
    for _ in range(2):
        Expired(backup, OLD)
        acceptance = Acceptance([(WHERE, Span(0, 30))])
        told = [one.code for one in mending(backup).accept(acceptance)]
        assert ["accepted_missing"] == told
        texts = [one.text for one in mending(backup).accept(acceptance)]
        assert ["none of the named objects is missing"] == texts


def _stream(backup: Backup) -> stream.Stream:
    return stream.topic_stream(backup.store, backup.layout, "orders", CLOCK)
