"""Value objects whose records are in whole-record objects too: only the latter are restored.

A backup holds both when a connector and kbackup stored the same topic in one place, or when a
sink's layout was changed.  A value object is left out only where whole records are known to hold
its offsets: a duplicate record does less harm than a lost one.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from kbackup.backup.file_sets import FileSet

LastOf = Callable[[FileSet], int | None]
"""Returns the offset of a set's last record; None where it is not known."""


def without_shadowed(sets: Sequence[FileSet], last_of: LastOf) -> list[FileSet]:
    """Return *sets* without the value sets that whole records cover.

    Args:
        sets: Of one partition, by start offset.
        last_of: Asked only where it matters: it may have to ask the store.
    """
    whole = [files for files in sets if files.is_whole]
    if not whole or len(whole) == len(sets):
        return list(sets)
    before_next: dict[str, int] = {}
    kept = []
    for files in reversed(sets):
        at = bisect_right(whole, files.start_offset, key=_start) - 1
        if files.is_whole or at < 0 or not _covers(whole, at, files, before_next, last_of):
            kept.append(files)
        if not files.is_whole:
            before_next[files.encoded_partition] = files.start_offset - 1
    return kept[::-1]


def _covers(
    whole: Sequence[FileSet],
    at: int,
    files: FileSet,
    before_next: dict[str, int],
    last_of: LastOf,
) -> bool:
    """Whether the whole sets from number *at* on have all offsets of *files*, without a break."""
    reach = last_of(whole[at])
    if reach is None or reach < files.start_offset:
        return False
    end = before_next.get(files.encoded_partition)
    if end is None or end > reach:
        known = last_of(files)
        end = end if known is None else known
    if end is None:  # the connectors do not say; what is older than the whole records is in them
        return files.files[0].modified <= max(one.files[0].modified for one in whole[at:])
    for more in whole[at + 1 :]:
        if end <= reach or more.start_offset > reach + 1:
            break
        reach = max(reach, last_of(more) or reach)
    return end <= reach


def _start(files: FileSet) -> int:
    return files.start_offset
