"""Where a restore goes on, from what was committed with its position."""

import json

import pytest

from kbackup.backup.catalog import BackupFile, FileSet
from kbackup.kafka import Position
from kbackup.naming import View
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.place import DONE, Place, beginning, done_by

WHERE = TopicPartition("orders", 3)
COUNTS = dict.fromkeys(DONE, 7)


def _set(start: int) -> FileSet:
    file = BackupFile(f"orders+3+{start}", View.RECORD, ".parquet", "parquet", 1, 0.0)
    return FileSet(WHERE, start, "partition=3", file)


SETS = (_set(100), _set(200), _set(300))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(Place(0, 0, 100), id="the beginning"),
        pytest.param(Place(1, 40, 240), id="inside an object"),
        pytest.param(Place(2, 0, 300), id="between two objects"),
        pytest.param(Place(3, 0, 400), id="the end"),
    ],
)
def test_a_place_is_found_again(place: Place) -> None:
    """
    What was committed leads back to the same place.
    """
    assert place == Place.of(place.position(SETS, run="now", done=COUNTS), SETS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="moved by another tool"),
        pytest.param('{"key": "gone", "rows": 5}', id="an object that is gone"),
        pytest.param('{"key": "orders+3+200"}', id="no rows"),
    ],
)
def test_a_place_that_cannot_be_found_is_known_by_its_offset(text: str) -> None:
    """
    From the beginning on, records below the offset are left out.
    """
    assert Place(0, 0, 250) == Place.of(Position(250, text), SETS)


def test_a_restore_begins_at_the_first_object() -> None:
    """
    The position that is committed before the first record names it.
    """
    place = beginning(RestoreUnit(WHERE, WHERE, SETS))

    assert (Place(0, 0, 100), "orders+3+100") == (
        place,
        json.loads(place.position(SETS).metadata)["key"],
    )


def test_a_run_finds_what_it_had_done() -> None:
    """
    A task that takes over within a run counts on from where the last one committed.
    """
    assert COUNTS == done_by("now", Place(1, 0, 200).position(SETS, run="now", done=COUNTS))


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(Place(1, 0, 200).position(SETS, run="before", done=COUNTS), id="another run"),
        pytest.param(Place(1, 0, 200).position(SETS), id="the beginning"),
        pytest.param(Position(200, ""), id="another tool"),
        pytest.param(Position(200, '{"key":"k","rows":0}'), id="an earlier version"),
    ],
)
def test_what_others_had_done_does_not_count(position: Position) -> None:
    """
    The counts of a run are its own.
    """
    assert {} == done_by("now", position)
