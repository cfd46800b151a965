"""What crosses processes of a partition's report comes back as it was."""

import json
import pickle
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.errors import CorruptObjectError, StoreError
from kbackup.events import to_json
from kbackup.kafka import Position
from kbackup.naming import DIRECTORY_BYTES_MAX, KEY_BYTES_MAX, Layout, ObjectKey, View
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.runs.position import Cursor, Done, Lane, RestorePosition, RestoreSource, SinkPosition
from kbackup.runs.report import OfRestore, OfSink, PartitionReport
from kbackup.sink.job import FollowReport

ORDERS = TopicPartition("orders", 3)
IDENTITY = TopicIdentity("cluster", "topic")

counts = st.integers(0, 2**63 - 1)
done = st.builds(Done, *[counts] * 5, st.none() | counts, st.none() | counts, *[counts] * 7)
objects = st.builds(
    SinkPosition, st.none() | st.text("a/+", max_size=5), st.none() | counts, run=st.text("r1"),
    done=done,
)  # fmt: skip
spans = st.lists(st.builds(Span, counts, counts), max_size=2).map(tuple)
failures = st.sampled_from([None, StoreError("put", "503").issue()])
of_sink = st.builds(
    OfSink, st.none() | objects, spans, spans,
    st.none() | st.floats(0, 2e9),
)  # fmt: skip
lanes = st.builds(Lane, st.just(ORDERS), st.just(Span(0, 0)), st.none(), counts, counts)
of_restore = st.builds(
    OfRestore, st.just("copy"), st.just(0), st.none() | counts,
    st.lists(lanes, max_size=2).map(tuple),
    st.lists(st.just(CorruptObjectError("an object", key="k").issue()), max_size=2).map(tuple),
)  # fmt: skip


def pickled(report: Any) -> Any:
    """The report as Spark brings it from a worker."""
    return pickle.loads(pickle.dumps(report))


def told(report: PartitionReport[OfSink]) -> PartitionReport[OfSink]:
    """The report as a sink that follows sends it over its line."""
    return FollowReport.from_dict(json.loads(json.dumps(FollowReport(report).to_dict()))).report


@given(
    st.data(),
    st.sampled_from([(of_sink, pickled), (of_restore, pickled), (of_sink, told)]),
)
def test_a_report_crosses_processes_unchanged(data: st.DataObject, how: Any) -> None:
    """Spark's pickles and the line's JSON give back the same report."""
    owns, crossed = how
    report = data.draw(
        st.builds(
            PartitionReport, st.just(ORDERS), counts, st.none() | counts, st.none() | counts,
            owns, done, failures,
        )
    )  # fmt: skip

    assert report == crossed(report)


def test_the_fields_of_a_progress_event_stay() -> None:
    """JSON lines are a contract: none of these is renamed or removed."""
    done = Done(4, 2, 100, bytes_stored=50, last=4)

    event = to_json(PartitionReport(ORDERS, 0, 9, 5, OfSink(), done).progress("r1", 3))

    assert event == {
        "type": "progress", "run": "r1", "topic": "orders", "partition": 3, "committed": 5,
        "end": 9, "records": 4, "objects": 2, "bytes_stored": 50, "open": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "last",
    [
        SinkPosition("topics/a", 41),
        SinkPosition("topics/a", 41, IDENTITY, run="run", done=Done(records=42)),
        SinkPosition(),
    ],
)
def test_what_is_committed_with_an_offset_can_be_read_again(
    last: SinkPosition,
) -> None:
    """The object before an offset is found by what was committed with it."""
    assert last == SinkPosition.read(last.to_metadata())


COPY = TopicPartition("copy", 3)
LANE = Lane(COPY, Span(7, 19))
POSITION = RestorePosition(
    RestoreSource("b" * 16, ORDERS, IDENTITY, "w"), "copy-id",
    Cursor(9, 12, "v", 3, "c", sizes=(5, None, 7)), 8,
)  # fmt: skip


@pytest.mark.parametrize("behind", ["a", "}", "5", "\x01", "\ufffd", " {}", '"'])
def test_what_a_client_reads_behind_the_text_changes_nothing(behind: str) -> None:
    """Bytes behind what was committed neither refuse our position nor confirm another's."""
    last = SinkPosition("topics/a", 41).position(42)
    position = POSITION.position(LANE)
    ours, moved = Position(42, last.metadata + behind), Position(421, last.metadata + behind)

    assert SinkPosition.beside(last) == SinkPosition.beside(ours) is not None
    assert SinkPosition.beside(moved) is None
    read = RestorePosition.read(COPY, Position(12, position.metadata + behind))
    assert read is not None
    assert POSITION == read[0]


def test_what_was_committed_with_another_offset_is_not_taken_for_ours() -> None:
    """Whoever moves an offset may keep the text beside it, which names the offset that it is of."""
    last = SinkPosition("topics/a", 41)
    moved = Position(50, last.position(42).metadata)
    position = Position(13, POSITION.position(LANE).metadata)
    values = POSITION.position(LANE)
    untold = values.metadata.replace('"at":12,', "")

    assert replace(last, at=42) == SinkPosition.beside(last.position(42))
    assert (None, None) == (SinkPosition.beside(moved), RestorePosition.read(COPY, position))
    assert RestorePosition.read(COPY, values) is not None
    assert RestorePosition.read(COPY, Position(12, untold)) is None


@pytest.mark.parametrize(
    ("said", "altered"),
    [
        ('"offset":9', '"offset":"x"'),
        ('"rows":3', '"rows":null'),
        ('"before":"c"', '"before":7'),
        ('"total":8', '"total":[]'),
    ],
)
def test_a_position_with_anything_in_it_is_not_taken_for_ours(said: str, altered: str) -> None:
    """Whoever may commit to the group may have written anything there."""
    text = POSITION.position(LANE).metadata
    assert said in text

    read = RestorePosition.read(COPY, Position(12, text.replace(said, altered)))

    assert read is None


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
        '{"v":2}',
        '{"v":2,"source":["orders"]}',
    ],
)
def test_what_others_commit_is_not_taken_for_ours(text: str) -> None:
    """Metadata of another tool confirms nothing, and that of the other direction neither."""
    assert SinkPosition.read(text) is None
    assert RestorePosition.read(COPY, Position(1, text)) is None


def test_the_fields_of_a_restores_progress_stay() -> None:
    """Scripts read the events; progress is what is committed, and beside it what is not."""
    report = PartitionReport(ORDERS, 0, None, 9, OfRestore("copy"), Done(9, 2, 70))

    assert {
        "type": "progress", "run": "r", "topic": "orders", "partition": 3, "target": "copy",
        "committed": 9, "records": 9, "objects": 2, "bytes_read": 70, "open": 4,
    } == to_json(report.progress("r", 4))  # fmt: skip


@pytest.mark.parametrize("character", ["\x01", "\x7f", "ü", "€", "😀", '"'])
def test_a_position_has_room_in_an_offset_whatever_the_directory(character: str) -> None:
    """The longest key, with every count at its highest, stays below the 4,096 bytes of a broker."""
    highest = 2**63 - 1
    directory = character * (DIRECTORY_BYTES_MAX // len(character.encode()))
    shape = ObjectKey("t", 2**31 - 1, highest - 1, directory, ".snappy.parquet", View.HEADERS)
    room = KEY_BYTES_MAX - len(Layout().key(shape).encode())
    longest = Layout().key(replace(shape, topic="t" * (1 + room // 2)))  # it is there twice
    of_restores = {
        "commits", "duplicates", "zero_timestamps", "bad_objects", "strange_schemas", "as_stored",
        "bytes_written",
    }  # fmt: skip
    names = {each.name for each in fields(Done)} - of_restores
    counts = Done(**dict.fromkeys(names, highest))
    identity = TopicIdentity("c" * 22, "t" * 22)
    run = "2026-11-21T02:00:00Z-7f3a"
    last = SinkPosition(longest, highest, identity, highest, highest, "b" * 32, run, counts)

    text = last.position(highest).metadata

    assert KEY_BYTES_MAX - 2 < len(longest.encode()) <= KEY_BYTES_MAX
    assert len(text.encode()) < 4096
