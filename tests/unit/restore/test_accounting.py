"""What a restore has come to in a partition, over one or several visits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbackup.catalog.listing import BackupFile, FileSet
from kbackup.errors import BadRecordError, ConfigurationError, CorruptObjectError, Issue
from kbackup.events import Progress, to_json
from kbackup.naming import View
from kbackup.records import Span, TopicPartition
from kbackup.restore.accounting import RestoreProgress, SkipList
from kbackup.restore.job import RestoreUnit
from kbackup.runs.position import Cursor, Done, Lane, RestorePosition, RestoreSource
from kbackup.runs.report import OfRestore, PartitionReport, Summary

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def summary() -> Summary:
    return Summary("r", "restore")


def file(start: int) -> BackupFile:
    return BackupFile(f"orders+0+{start}.parquet", View.RECORD, ".parquet", "parquet", 35, 0.0)


def unit(*starts: int, target: str = "copy") -> RestoreUnit:
    sets = tuple(FileSet(ORDERS, start, "partition=0", file(start)) for start in starts)
    position = RestorePosition(RestoreSource("", ORDERS), "", Cursor(0, 0))
    return RestoreUnit(position, (Lane(TopicPartition(target, 0), Span(0, 0)),), sets)


def report(done: Done, *skipped: Issue, target: str = "copy") -> PartitionReport[OfRestore]:
    return PartitionReport(ORDERS, 0, None, 10, OfRestore(target, skipped=skipped), done)


def test_a_row_keeps_the_fields_of_the_contract(summary: Summary) -> None:
    """Scripts and past run records read them: none is renamed or removed."""
    account = RestoreProgress(summary)
    account.plan(unit(0, 10))
    planned = [to_json(row.shown()) for row in account.rows()]

    account.take(report(Done(9, 2, 70, first=0, last=9)))

    to_do = {
        "topic": "orders", "partition": 0, "target": "copy", "start": 0, "first": None,
        "last": None, "records": 0, "objects": 0, "planned_objects": 2, "bytes_read": 0,
        "end": None, "committed": None, "lag": None, "state": "to do",
    }  # fmt: skip
    done = {
        "first": 0, "last": 9, "records": 9, "objects": 2, "bytes_read": 70, "committed": 10,
        "state": "done", "duplicates": 0, "filtered": 0, "skipped": 0,
    }  # fmt: skip
    assert ([to_do], [to_do | done]) == (
        planned,
        [to_json(row.shown()) for row in account.rows()],
    )


def test_a_skip_list_may_be_a_stream() -> None:
    """What keeps no bytes, such as /dev/stderr or a pipe, cannot be made safe, and need not be."""
    with SkipList("/dev/null", "r1") as skip_list:
        skip_list.add(BadRecordError("offset 3", "too large", offset=3).issue())


def test_a_skip_list_has_all_that_was_left_out(tmp_path: Path, summary: Summary) -> None:
    """The summary may name a few."""
    path = tmp_path / "skipped.jsonl"
    for run in ("r1", "r2"):
        skip_list = SkipList(str(path), run)
        account = RestoreProgress(summary, 1, skip_list)
        account.plan(unit(0))
        errors = [BadRecordError(f"offset {at}", "too large", offset=at) for at in (3, 4)]
        skipped = tuple(error.issue() for error in errors)
        with skip_list:
            account.take(report(Done(bad_records=2), *skipped))

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [("r1", "orders", 0, 3), ("r1", "orders", 0, 4), ("r2", "orders", 0, 3)] == [
        (line["run"], line["topic"], line["partition"], line["offset"]) for line in lines[:3]
    ]
    assert ["too large"] * 4 == [line["why"] for line in lines]


def test_a_list_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    """A restore that leaves records out would otherwise have nowhere to name them."""
    with (
        pytest.raises(ConfigurationError, match="cannot be written"),
        SkipList(str(tmp_path / "none" / "list"), "r1"),
    ):
        pass


def test_a_visit_adds_to_what_earlier_visits_have_done(summary: Summary) -> None:
    """Progress counts the whole run, and the lag is what is left up to where the backup ends."""
    account = RestoreProgress(summary)
    account.plan(unit(0))
    account.take(report(Done(10, 1, 70)))
    account.plan(unit(10, 20))
    account.ends({ORDERS: (30, None)})

    said = account.progress(Progress("r", ORDERS, 20, 10, 1, 3, "copy", bytes_read=5))

    assert to_json(said) == {
        "type": "progress", "run": "r", "topic": "orders", "partition": 0, "target": "copy",
        "committed": 20, "end": 30, "records": 20, "objects": 2, "bytes_read": 75, "open": 3,
    }  # fmt: skip
    row = to_json(account.rows()[0].shown())
    assert (20, 3, 10, "to do") == tuple(
        row[name] for name in ("committed", "planned_objects", "lag", "state")
    )


def test_an_object_that_is_left_out_of_several_topics_counts_once(summary: Summary) -> None:
    """Each topic that a transform chooses has a task of its own, which reads the object."""
    account = RestoreProgress(summary)
    entry = CorruptObjectError("orders+0+0000000000.json", "altered").issue()
    failure = replace(entry, place={"key": "orders+0+0000000000.json"})
    for target in ("a", "b"):
        account.plan(unit(0, target=target))

    for target in ("a", "b"):
        account.take(report(Done(2, bad_objects=1), failure, target=target))

    found = to_json(summary.finish())
    assert ({"bad_objects": 1}, 1) == (found["skipped"], len(found["warnings"]))


@pytest.mark.parametrize(
    ("names_most", "named"), [pytest.param(None, 3, id="all"), pytest.param(2, 2, id="some")]
)
def test_what_is_left_out_is_counted_and_named(
    summary: Summary, names_most: int | None, named: int
) -> None:
    """A run that ends names all; one that follows for months names the first, and counts all."""
    account = RestoreProgress(summary, names_most)
    account.plan(unit(0))
    entries = [BadRecordError(f"offset {offset}", "bad").issue() for offset in range(3)]

    done = Done(9, bad_objects=1, bad_records=2, zero_timestamps=3)
    account.take(report(done, *entries))

    found = to_json(summary.finish())
    assert ([1, 2, 3], named) == ([*found["skipped"].values()], len(found["warnings"]))
