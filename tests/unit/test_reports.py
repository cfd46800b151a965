"""What crosses processes of a partition's report comes back as it was."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.errors import StoreError
from kbackup.naming import DIRECTORY_BYTES_MAX, KEY_BYTES_MAX, Layout, ObjectKey, View
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.reports import Bookmark, Done, PartitionReport, Restored, RestoreReport

counts = st.integers(0, 2**63 - 1)
done = st.builds(Done, counts, counts, counts, counts, counts, counts, st.none() | counts)
bookmarks = st.builds(
    Bookmark, st.none() | st.text("a/+", max_size=5), st.none() | counts, done=done
)
reports = st.builds(
    PartitionReport, st.just(TopicPartition("orders", 3)), counts, counts, counts, done,
    st.none() | counts, st.none() | bookmarks,
    st.lists(st.builds(Span, counts, counts), max_size=2).map(tuple),
    st.lists(st.builds(Span, counts, counts), max_size=2).map(tuple),
    st.sampled_from([None, StoreError("put", "503").to_dict()]), st.none() | st.floats(0, 2e9),
)  # fmt: skip


@given(reports)
def test_a_report_crosses_processes_as_plain_data(report: PartitionReport) -> None:
    """
    Spark's pickles and the line's JSON give back the same report.
    """
    assert report == PartitionReport.from_dict(json.loads(json.dumps(report.to_dict())))


def test_the_fields_of_a_progress_event_stay() -> None:
    """
    JSON lines are a contract: none of these is renamed or removed.
    """
    report = PartitionReport(TopicPartition("orders", 3), 0, 9, 5, Done(4, 2, 100, 50))

    event = replace(report, last=4).progress("r1", 3).to_dict()

    assert event == {
        "type": "progress", "run": "r1", "topic": "orders", "partition": 3, "committed": 5,
        "end": 9, "records": 4, "objects": 2, "bytes_stored": 50, "open": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "last",
    [
        Bookmark("topics/a", 41),
        Bookmark("topics/a", 41, "run", Done(records=42)),
        Bookmark(None, None),
    ],
)
def test_what_is_committed_with_an_offset_can_be_read_again(last: Bookmark) -> None:
    """
    The object before an offset is found by what was committed with it.
    """
    assert last == Bookmark.from_metadata(last.to_metadata())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "consumer-1",
        '{"key": 1',
        '{"key": 5, "last": 1}',
        '{"key": "topics/a", "last": "b"}',
        '{"key": "\\ud800", "last": 3}',
        '{"key": null, "last": null, "done": 5}',
        "[" * 3000,
    ],
)
def test_what_others_commit_is_not_taken_for_ours(text: str) -> None:
    """
    Metadata of another tool confirms nothing.
    """
    assert Bookmark.from_metadata(text) is None


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(RestoreReport(TopicPartition("orders", 3), "copy"), id="begun"),
        pytest.param(
            RestoreReport(
                TopicPartition("orders", 3),
                "copy",
                Restored(9, 2, 70, 1, 3, 1, 0, 8, 1, 1),
                9,
                ({"code": "corrupt", "what": "an object"},),
                {"code": "kafka"},
            ),
            id="failed",
        ),
    ],
)
def test_a_restores_report_crosses_processes_as_plain_data(report: RestoreReport) -> None:
    """
    What a task says of a partition is what the driver reads.
    """
    said = json.loads(json.dumps(report.to_dict()))

    assert report == RestoreReport.from_dict(said)


def test_the_fields_of_a_restores_progress_stay() -> None:
    """
    Scripts read the events; progress is what is committed, and beside it what is not.
    """
    report = RestoreReport(TopicPartition("orders", 3), "copy", Restored(9, 2, 70), 9)

    assert {
        "type": "progress", "run": "r", "topic": "orders", "partition": 3, "target": "copy",
        "committed": 9, "records": 9, "objects": 2, "bytes_read": 70, "open": 4,
    } == report.progress("r", 4).to_dict()  # fmt: skip


@pytest.mark.parametrize("character", ["\x01", "\x7f", "ü", "€", "😀", '"'])
def test_a_position_has_room_in_an_offset_whatever_the_directory(character: str) -> None:
    """
    A broker takes 4,096 bytes beside an offset; the longest key of the longest directory, every
    count at its highest, stays below.
    """
    highest = 2**63 - 1
    directory = character * (DIRECTORY_BYTES_MAX // len(character.encode()))
    shape = ObjectKey("t", 2**31 - 1, highest, directory, ".snappy.parquet", View.HEADERS)
    room = KEY_BYTES_MAX - len(Layout().key(shape).encode())
    longest = Layout().key(replace(shape, topic="t" * (1 + room // 2)))  # it is there twice
    counts = Done(**dict.fromkeys((each.name for each in fields(Done)), highest))
    identity = TopicIdentity("c" * 22, "t" * 22)

    text = Bookmark(longest, highest, "2026-11-21T02:00:00Z-7f3a", counts, identity).to_metadata()

    assert KEY_BYTES_MAX - 2 < len(longest.encode()) <= KEY_BYTES_MAX
    assert len(text.encode()) < 4096
