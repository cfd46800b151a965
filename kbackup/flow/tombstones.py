"""Tombstones in the connectors' layout: files of keys alone, in a directory of their own.

A value file and a tombstone file do not store offsets, so a restore delivers them one after the
other, by their first offsets.  To keep the records of each key in order, all files of values in a
cut begin before its tombstones do, and no value in it follows a tombstone of its own key.
"""

from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.flow.rows import Rows

NO_TOMBSTONES: Final = ""
"""The directory of a layout that writes none."""


class Nulls(StrEnum):
    """What becomes of a record whose value is null where files hold values: its words."""

    FAIL = "fail"
    IGNORE = "ignore"
    WRITE = "write"


def are_in(rows: Rows, directory: str) -> pa.BooleanArray:
    """Return which of *rows* go to *directory*."""
    assert rows.directories is not None  # noqa: S101  (only routed rows are filed)
    is_it = pc.equal(rows.directories.dictionary, directory)
    return is_it.take(rows.directories.indices)


def keys_of(rows: Rows) -> pa.Array:
    """Return the key of each row as its file will hold it, or as Kafka did where that is nested."""
    stored = rows.parts[0].batch.column(0)
    if isinstance(stored, pa.ExtensionArray):  # JSON is text, and Arrow compares only that
        stored = stored.storage
    return rows.batch["key"] if pa.types.is_nested(stored.type) else stored


def room(rows: Rows, directory: str, opened: frozenset[str], deleted: pa.ChunkedArray) -> int:
    """Return how many of *rows* join the open files before the order of some key would be lost.

    Keys of another type than those of the open files' tombstones may be equal to them once they are
    restored, so they join none.

    Args:
        rows: Routed; the first of their parts are the keys.
        directory: Where tombstones go.
        opened: The directories with an open file.
        deleted: The keys of the tombstones in the open files.
    """
    if len(deleted) and deleted.type != keys_of(rows).type:
        return 0
    is_dead = are_in(rows, directory)
    first_dead = 0 if directory in opened else pc.index(is_dead, True).as_py()
    if first_dead < 0:
        return len(rows)
    return min(
        _before_new_directory(rows, opened | {directory}, first_dead),
        _before_revival(keys_of(rows), is_dead, deleted),
    )


def _before_new_directory(rows: Rows, opened: frozenset[str], first_dead: int) -> int:
    """Return the rows before the first one whose values' file would begin after tombstones."""
    assert rows.directories is not None  # noqa: S101
    after = rows.directories.indices.slice(first_dead)
    before = {*rows.directories.indices.slice(0, first_dead).unique().to_pylist()}
    names = rows.directories.dictionary
    for index in after.unique().to_pylist():  # in the order in which they appear
        if index not in before and names[index].as_py() not in opened:
            return first_dead + int(pc.index(after, index).as_py())
    return len(rows)


def _before_revival(keys: pa.Array, is_dead: pa.BooleanArray, deleted: pa.ChunkedArray) -> int:
    """Return the rows before the first value whose key has a tombstone in the same files."""
    dead = keys.filter(is_dead)
    deleted = deleted.cast(keys.type)
    held = pa.chunked_array([*deleted.chunks, dead], keys.type)
    rows = pc.indices_nonzero(pc.is_in(keys, held))
    seen: set[object] = set()
    told = zip(
        rows.to_pylist(),
        keys.take(rows).to_pylist(),
        is_dead.take(rows).to_pylist(),
        pc.is_in(keys.take(rows), deleted).to_pylist(),
        strict=True,
    )
    for row, key, is_tombstone, was_deleted in told:
        if is_tombstone:
            seen.add(key)
        elif was_deleted or key in seen:
            return int(row)
    return len(keys)
