"""What stands for value sets that are done, in a position of bounded size."""

from collections.abc import Iterable

from kbackup.backup.file_sets import FileSet
from kbackup.reports import digest


def chain(before: str, sets: Iterable[FileSet]) -> str:
    """Return what stands for *sets*, as they are now, after those that *before* stands for.

    Objects that a sink has named count by their sizes: a sink may store the same records again.
    Others count by what the store says of their content, too.
    """
    for files in sets:
        sizes = " ".join(f"{file.key} {file.size} {file.etag}".rstrip() for file in files.files)
        before = digest(f"{before} {sizes}")
    return before
