"""What stands for value sets that are done, in a position of bounded size."""

from collections.abc import Iterable

from kbackup.backup.file_sets import FileSet
from kbackup.reports import digest


def chain(before: str, sets: Iterable[FileSet]) -> str:
    """Return what stands for *sets*, as large as they are now, after those *before* stands for."""
    for files in sets:
        sizes = " ".join(f"{file.key} {file.size}" for file in files.files)
        before = digest(f"{before} {sizes}")
    return before
