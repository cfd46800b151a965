"""How far a restore is: what is committed to its group, and read again by whoever goes on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kbackup.backup.catalog import FileSet
from kbackup.kafka import Position
from kbackup.restore.job import RestoreUnit

DONE: Final = (
    "records", "objects", "bytes_read", "commits", "duplicates", "zero_timestamps", "first",
    "last", "bad_records", "bad_objects",
)  # fmt: skip
"""What a report counts over all tasks that a run tried a partition with."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a restore is in a partition's file sets.

    Attributes:
        index: The set at hand.
        rows: Rows of it that are done with.
        offset: The offset behind the last record that was written.
    """

    index: int
    rows: int
    offset: int

    def position(
        self, sets: Sequence[FileSet], *, run: str = "", done: Mapping[str, Any] | None = None
    ) -> Position:
        """Return what to commit: the offset, and beside it the set and the rows.

        Args:
            sets: The partition's file sets.
            run: Id of the run that commits.
            done: What it has done in this partition, with this commit.
        """
        key = sets[min(self.index, len(sets) - 1)].files[0].key
        rows = self.rows if self.index < len(sets) else -1
        data = {"key": key, "rows": rows, "run": run, "done": done or {}}
        return Position(self.offset, json.dumps(data, separators=(",", ":")))

    @classmethod
    def of(cls, position: Position, sets: Sequence[FileSet]) -> "Place":
        """Return the place that was committed; the beginning where it cannot be found again.

        From the beginning whole records are left out by their offsets, so nothing is written
        twice.
        """
        try:
            data = json.loads(position.metadata)
            key, rows = data["key"], int(data["rows"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return cls(0, 0, position.offset)
        for index, files in enumerate(sets):
            if files.files[0].key == key:
                return cls(index + (rows < 0), max(rows, 0), position.offset)
        return cls(0, 0, position.offset)


def beginning(unit: RestoreUnit) -> Place:
    """Return the place in front of a unit's first record."""
    return Place(0, 0, unit.sets[0].start_offset)


def done_by(run: str, position: Position) -> dict[str, Any]:
    """Return what *run* had done when it committed *position*; nothing where another one did."""
    try:
        data = json.loads(position.metadata)
        is_own = data["run"] == run
        return {name: data["done"][name] for name in DONE} if is_own and data["done"] else {}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}
