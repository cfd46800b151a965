"""Files that outlast a power cut."""

from pathlib import Path

import pytest

from kbackup import files


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """A file holds the new content with the mode asked for, and nothing is left beside it."""
    path = tmp_path / "new" / "program"
    files.replace_file(path, b"old")
    files.replace_file(path, b"#!/bin/sh", mode=0o755)

    assert (b"#!/bin/sh", 0o755) == (path.read_bytes(), path.stat().st_mode & 0o777)
    assert [path] == [*path.parent.iterdir()]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A write that fails leaves what was there, and no scrap beside it."""
    folder = tmp_path / "folder"
    (folder / "full").mkdir(parents=True)

    with pytest.raises(OSError, match="irectory"):
        files.replace_file(folder, b"not a file")

    assert ([folder], [folder / "full"]) == ([*tmp_path.iterdir()], [*folder.iterdir()])
