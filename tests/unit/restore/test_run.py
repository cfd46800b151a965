"""What a restore leaves behind."""

from typing import Any
from uuid import uuid4

from kbackup import config
from kbackup.backup.catalog import Catalog
from kbackup.clock import SystemClock
from kbackup.records import TopicPartition
from kbackup.reports import Restored, RestoreReport
from kbackup.restore.run import RestoreRun
from kbackup.runs.stopping import Stop
from kbackup.runs.world import World
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore


def a_run(told: list[dict[str, Any]]) -> RestoreRun:
    """A restore that has not begun, and tells what it tells."""
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "no_lock": True}
    settings = config.load("restore", options=given, files=(), environ={}).settings
    nowhere: Any = None
    return RestoreRun(
        settings, told.append, Stop(), World(nowhere, nowhere, nowhere, SystemClock())
    )


def test_a_store_that_may_only_be_read_does_not_fail_a_restore() -> None:
    """
    Records that are all there are a restore; a run record that could not be left is a warning.
    """
    told: list[dict[str, Any]] = []
    run = a_run(told)
    read_only = FaultyStore("403", MemoryStore(StoreSettings(f"memory://{uuid4()}")))

    run._leave_record(read_only)

    assert ["no_run_record"] == [event["code"] for event in told]
    assert (0, told) == (run._summary.finish()["exit_code"], run._summary.finish()["warnings"])


def test_what_is_left_out_or_altered_is_exit_3() -> None:
    """
    Foreign objects are named and counted; so are objects and records that were left out, and
    timestamps that could not be kept.
    """
    told: list[dict[str, Any]] = []
    run = a_run(told)
    where = TopicPartition("orders", 0)

    run._say_foreign(Catalog(foreign=[("topics/orders/README", "not a key")], foreign_count=1))
    run._merge(RestoreReport(where, "copy", Restored(9, bad_objects=1, bad_records=2,
                                                   zero_timestamps=3)))  # fmt: skip

    assert [("foreign_object", "topics/orders/README")] == [(e["code"], e["key"]) for e in told]
    found = run._summary.finish()
    assert (3, [1, 1, 2, 3]) == (found["exit_code"], list(found["skipped"].values()))
