"""Damaged files of where consumer groups stood."""

from pathlib import Path

import pytest
from backup_samples import Backup

from kbackup.catalog.groups import GROUPS, GroupEntry, group_stream
from kbackup.catalog.ledger.rows import table
from kbackup.clock import SystemClock
from kbackup.naming import Layout
from tests.support.invoked import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup with two captures, the newer of which is damaged."""
    (folder := tmp_path / "backup").mkdir()
    backup = Backup.in_folder(folder)
    backup.put("orders", 0, range(5))
    stream = group_stream(backup.store, Layout(), SystemClock())
    for taken in (1, 2):
        topic = GroupEntry("topic", taken, "orders", is_complete=True)
        at = GroupEntry("offset", taken, "orders", group="g", partition=0, offset=taken)
        stream.append(table([topic, at], GROUPS))
    (folder / next(iter(backup.store.list(stream.prefix))).key).write_bytes(b"no Parquet")
    return folder


def test_verify_names_a_capture_that_cannot_be_read(folder: Path) -> None:
    """A backup that has lost where its groups stood is not called healthy."""
    found = run(folder, "restore verify").lines[-1]

    assert 7 == found["exit_code"]
    assert ["corrupt"] == [each["code"] for each in found["errors"]]
    assert (folder / found["errors"][0]["key"]).read_bytes() == b"no Parquet"


def test_reindex_leaves_it_out(folder: Path) -> None:
    """From then on the backup is sound again, with the captures that can be read."""
    done = run(folder, "sink reindex")
    verified, listed = run(folder, "restore verify"), run(folder, "restore list --consumer-groups")

    assert "captures_left_out" in [each.get("code") for each in done.lines]
    assert (0, 0) == (verified.code, listed.code)
    assert [1] == [each["offset"] for each in listed.of("group")]
