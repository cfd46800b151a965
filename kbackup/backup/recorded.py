"""What run records say was stored of each partition, and how a listing compares."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbackup.backup.file_sets import FileSet
from kbackup.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one run recorded about one partition.

    Attributes:
        run: The run's id.
        first: Offset of the first record it stored; an object begins there.
        last: Offset of the last record it stored, inclusive; all its objects begin before.
        records: Records it stored.
        objects: Objects it stored, siblings counted.
    """

    run: str
    first: int
    last: int
    records: int
    objects: int

    def among(self, sets: Sequence[FileSet]) -> slice:
        """Return which of *sets*, by start offset, begin where this run's objects did."""
        return slice(
            bisect_left(sets, self.first, key=_start), bisect_right(sets, self.last, key=_start)
        )


def read(run_records: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[Recorded]]:
    """Return what sinks stored, by partition, in offset order.

    Args:
        run_records: Summaries of runs; what is of another command, or cannot be understood,
            counts as missing.
    """
    found: dict[TopicPartition, list[Recorded]] = {}
    for record in run_records:
        if str(record.get("command", "sink")).partition(" ")[0] != "sink":
            continue
        rows = record.get("partitions")
        for row in rows if isinstance(rows, list) else ():
            entry = _entry(str(record.get("run")), row)
            if entry is not None:
                where = TopicPartition(row["topic"], row["partition"])
                found.setdefault(where, []).append(entry)
    return {
        where: sorted(entries, key=lambda entry: (entry.first, entry.last))
        for where, entries in found.items()
    }


def _entry(run: str, row: Any) -> Recorded | None:
    if not isinstance(row, dict) or not isinstance(row.get("topic"), str):
        return None
    numbers = [row.get(name) for name in ("partition", "first", "last", "records", "objects")]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    _, first, last, records, objects = numbers
    return Recorded(run, first, last, records, objects) if records else None  # type: ignore[arg-type]


def last_offset(sets: Sequence[FileSet], entries: Sequence[Recorded]) -> int | None:
    """Return the offset of the last record, None if names and runs do not show it.

    It is known where the objects of the run that got farthest are all there, and nobody stored
    more after them.
    """
    if not sets or not entries:
        return None
    final = max(entries, key=lambda entry: entry.last)
    highest = max(files.start_offset for files in sets)
    is_all_there = _objects(sets[final.among(sets)]) >= final.objects
    return final.last if is_all_there and final.first <= highest <= final.last else None


def record_count(sets: Sequence[FileSet], entries: Sequence[Recorded]) -> int | None:
    """Return the number of records, None if names and runs do not show it.

    It is known where each object was stored by just one recorded run, and none is missing.
    """
    stored = sum(entry.objects for entry in entries)
    if any(_objects(sets[entry.among(sets)]) != entry.objects for entry in entries):
        return None
    return sum(entry.records for entry in entries) if stored == _objects(sets) else None


def _objects(sets: Iterable[FileSet]) -> int:
    return sum(len(files.files) for files in sets)


def _start(files: FileSet) -> int:
    return files.start_offset
