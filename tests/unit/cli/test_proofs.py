"""What ``restore verify`` leaves in the bucket: when a backup was last verified, how, and how that
went."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from kbackup.catalog.copying import run_records
from kbackup.clock import rfc3339
from kbackup.naming import Layout
from kbackup.runs import history
from kbackup.stores import StoreSettings, open_store
from tests.support.ended import ended
from tests.support.in_process import tasks_in_threads
from tests.support.invoked import invoke, run

VERIFY: Final = "restore verify --part 1/1"
NOTHING: Final = "restore verify --part 1/997"
"""A part without an object."""


@pytest.fixture(autouse=True)
def _without_spark() -> Iterator[None]:
    """Objects are read in threads."""
    with tasks_in_threads():
        yield


def age(folder: Path) -> None:
    """Make the only run record one of an hour ago."""
    (path,) = (folder / "_kbackup" / "runs").iterdir()
    record = json.loads(path.read_text())
    ago = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    record |= {"run": history.new_run_id(ago), "last_success": rfc3339(ago)}
    path.unlink()
    path.with_name(f"{record['run'].replace(':', '')}-restore-verify.json").write_text(
        json.dumps(record)
    )


def proofs(folder: Path, more: str = "") -> dict[str, tuple[int, bool]]:
    """What the status says of each mode: its exit code, and whether it ever passed."""
    found = run(folder, f"sink status {more}").lines[-1]["proofs"]
    return {one["mode"]: (one["exit_code"], one["passed"] is not None) for one in found}


def test_status_says_what_was_verified_last_and_how_that_went(folder: Path, tmp_path: Path) -> None:
    """Each mode by itself: in words, as JSON, as metrics; a failure does not hide what passed."""
    assert {} == proofs(folder)

    assert 0 == run(folder, VERIFY).code
    before = proofs(folder)
    age(folder)
    for each in (folder / "topics").rglob("audit*.parquet"):
        each.unlink()
    assert 7 == run(folder, f"{VERIFY} -t audit").code
    store, path = open_store(StoreSettings(f"file://{folder}")), tmp_path / "m.prom"
    sink = ended(run=history.new_run_id(datetime.now(UTC)), exit_code=0, names=["audit"])
    history.write_run(store, Layout(), sink)
    shown = invoke(
        "sink", "status", "-t", "audit", "--store-url", f"file://{folder}",
        "--metrics-file", str(path),
    )  # fmt: skip

    assert {"part": (0, True)} == before
    assert {"part": (7, True)} == proofs(folder, "-t audit")
    (line,) = (one for one in shown.stdout.splitlines() if one.startswith("verify ("))
    assert ("last passed 20" in line, "the last one failed (exit 7)" in line) == (True, True)
    found = {
        one.partition("{")[0]: float(one.rpartition(" ")[2])
        for one in path.read_text().splitlines()
        if one.startswith("kbackup_last_verify_") and 'mode="part"' in one
    }
    assert found.pop("kbackup_last_verify_exit_code") == 7
    assert ["passed_timestamp_seconds", "timestamp_seconds"] == sorted(
        name.removeprefix("kbackup_last_verify_") for name in found
    )
    assert 0 < found["kbackup_last_verify_passed_timestamp_seconds"]


def test_a_part_proves_no_more_than_itself(folder: Path) -> None:
    """Neither a topic stands for all, nor a look at the names for a look at the objects."""
    run(folder, f"{VERIFY} -t orders")

    assert {} == proofs(folder)
    assert {} == proofs(folder, "-t orders,audit")
    assert 0 == run(folder, "restore verify -t audit").code
    assert {} == proofs(folder, "-t audit")
    assert {"part": (0, True)} == proofs(folder, "-t orders")


def test_a_part_without_an_object_passes_nothing(folder: Path) -> None:
    """A small backup has such days: they end with 0, and are no pass, nor hide one."""
    assert 0 == run(folder, VERIFY).code
    age(folder)
    (before,) = run(folder, "sink status").lines[-1]["proofs"]

    found = run(folder, NOTHING)

    assert (0, []) == (found.code, found.lines[-1]["modes"])
    assert [before] == run(folder, "sink status").lines[-1]["proofs"]


def test_what_the_names_show_beside_an_empty_part_is_no_pass(folder: Path) -> None:
    """An object that is missing is missing from each part."""
    assert 0 == run(folder, "sink reindex").code
    next((folder / "topics").rglob("audit*.parquet")).unlink()

    found = run(folder, NOTHING)

    assert (7, ["part"]) == (found.code, found.lines[-1]["modes"])
    assert {"part": (7, False)} == proofs(folder)


def test_who_may_not_write_verifies_all_the_same(folder: Path) -> None:
    """A note says that nothing was left, and the exit code is that of what was found."""
    (folder / "_kbackup").mkdir(exist_ok=True)
    (folder / "_kbackup" / "runs").write_text("in the way")

    found = run(folder, VERIFY)

    assert (0, "no_run_record") == (found.code, found.of("warning")[-1]["code"])


def test_where_no_backup_is_nothing_is_left(tmp_path: Path) -> None:
    """A wrong address gets no record of a backup that is elsewhere."""
    assert 7 == run(tmp_path, VERIFY).code

    assert [] == [*tmp_path.iterdir()]


def test_a_proof_is_of_one_bucket(folder: Path) -> None:
    """A copy was not verified by verifying what it is a copy of."""
    run(folder, VERIFY)
    (record,) = (folder / "_kbackup" / "runs").iterdir()
    source = open_store(StoreSettings(f"file://{folder}"))
    target = open_store(StoreSettings("memory://proofs"))

    assert ["part"] == json.loads(record.read_text())["modes"]
    assert () == tuple(run_records(source, target, Layout()).keys)
