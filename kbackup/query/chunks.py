"""A topic's objects in chunks that can be read in parallel."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.window import Window
from kbackup.records import Facts, TopicPartition

CHUNK_BYTES: Final = 64 * 2**20
"""The approximate size of a chunk, if its objects allow it."""

FactsOf = Callable[[TopicPartition, BackupFile], Facts | None]
"""Returns what is known about the records in a listed object."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Objects of one partition, in offset order, that share no record with any other chunk."""

    where: TopicPartition
    sets: tuple[FileSet, ...]


def chunks(
    found: Mapping[TopicPartition, Sequence[FileSet]],
    window: Window,
    facts: FactsOf,
    size: int = CHUNK_BYTES,
) -> list[Chunk]:
    """Return what has to be read for *window*.

    A partition is divided only where earlier objects are known to end before the next one
    begins.  If nothing is known about them, as in a connector's bucket, they are one chunk.

    Args:
        found: The objects of each partition, by start offset.
        window: What is requested.
        facts: What is known about an object.
        size: The least bytes of a chunk before the next one begins.
    """
    return [
        chunk
        for where, sets in sorted(found.items())
        if window.has(where.partition)
        for chunk in _divided(where, _wanted(sets, window, facts), facts, size)
    ]


def _wanted(sets: Sequence[FileSet], window: Window, facts: FactsOf) -> Iterator[FileSet]:
    """Yield the sets that may hold what is requested, in order.

    If nothing is known about an object, it may reach up to the next one of its directory.
    """
    begins: dict[tuple[str, bool], int] = {}
    for files in sets:
        if files.start_offset <= window.offset.low:
            begins[files.encoded_partition, files.is_whole] = files.start_offset
    for files in sets:
        known = None if files.main is None else facts(files.where, files.main)
        begin = begins.get((files.encoded_partition, files.is_whole), 0)
        if known is None and files.start_offset < begin:
            continue
        if window.takes(files, known):
            yield files


def _divided(
    where: TopicPartition, sets: Iterator[FileSet], facts: FactsOf, size: int
) -> Iterator[Chunk]:
    held: list[FileSet] = []
    end: int | None = -1  # the last offset of what is held; None if unknown
    held_bytes = 0
    for files in sets:
        if held_bytes >= size and end is not None and end < files.start_offset:
            yield Chunk(where, tuple(held))
            held, end, held_bytes = [], -1, 0
        held.append(files)
        held_bytes += sum(file.size for file in files.files)
        known = None if files.main is None else facts(where, files.main)
        end = None if end is None or known is None else max(end, known.last_offset)
    if held:
        yield Chunk(where, tuple(held))
