"""What a restore leaves behind."""

from typing import Any
from uuid import uuid4

from kbackup import config
from kbackup.restore.run import RestoreRun
from kbackup.runs.stopping import Stop
from kbackup.runs.world import World
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore


def test_a_store_that_may_only_be_read_does_not_fail_a_restore() -> None:
    """
    Records that are all there are a restore; a run record that could not be left is a warning.
    """
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "no_lock": True}
    settings = config.load("restore", options=given, files=(), environ={}).settings
    nowhere: Any = None
    told: list[dict[str, Any]] = []
    run = RestoreRun(settings, told.append, Stop(), World(nowhere, nowhere, nowhere))
    read_only = FaultyStore("403", MemoryStore(StoreSettings(f"memory://{uuid4()}")))

    run._leave_record(read_only)

    assert ["no_run_record"] == [event["code"] for event in told]
    assert (0, told) == (run._summary.finish()["exit_code"], run._summary.finish()["warnings"])
