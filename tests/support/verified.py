"""What `verify` says of a backup, as tests ask for it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from backup_samples import (
    BYTES,
    JSON,
    JSON_GZIP,
    RECORD,
    SIBLINGS,
    Backup,
)

from kbackup.events import to_json
from kbackup.pipeline.views import ReadOptions
from kbackup.runs.report import Summary
from kbackup.spark.channel import TaskChannel
from kbackup.verify.run import Notes, Read, verify
from kbackup.verify.task import verify_task

NOW = datetime(2026, 11, 21, 2, tzinfo=UTC)

LAYOUTS = [
    pytest.param(RECORD, id="full records"),
    pytest.param(JSON, id="json"),
    pytest.param(JSON_GZIP, id="gzip"),
    pytest.param(BYTES, id="bytes"),
    pytest.param(SIBLINGS, id="siblings"),
]


class Verified:
    """What `verify` says of a backup.

    Attributes:
        events: All it tells.
        summary: The summary line.
    """

    def __init__(self, backup: Backup, *, deep: bool = False, **options: Any) -> None:
        summary = Summary("r", "restore verify")
        reading = options.pop("reading", ReadOptions())
        options = {"notes": Notes(backup.known), "now": NOW} | options
        if deep:
            options = {"read": here(backup, reading)} | options
        store: Any = options.pop("store", backup.store)
        found = verify(store, backup.layout, reading, summary, **options)
        self.events = [to_json(one) for one in found]
        self.summary = to_json(summary.finish())

    @property
    def exit_code(self) -> int:
        return int(self.summary["exit_code"])

    @property
    def errors(self) -> list[tuple[str, str | None]]:
        """Code and key of each error."""
        return [
            (event["code"], event["key"]) for event in self.findings if event["level"] == "error"
        ]

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Code and text of each note."""
        return [
            (event["code"], event["text"]) for event in self.findings if event["level"] == "note"
        ]

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == "finding"]

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self.events if event["type"] == "partition"]

    @property
    def texts(self) -> str:
        return "\n".join(str(event["text"]) for event in self.findings)


def here(backup: Backup, reading: ReadOptions) -> Read:
    """Return the task, run in this process in place of Spark."""
    return lambda units: [*verify_task(backup.settings, reading, units, TaskChannel(None))]


def metadata_of(backup: Backup, key: str) -> dict[str, str]:
    """Return what is stored beside an object."""
    head = backup.store.head(key)
    assert head is not None
    return dict(head.metadata)


def offsets(verified: Verified) -> list[list[int]]:
    """Return the offsets of each error."""
    return [event["offsets"] for event in verified.findings if event["level"] == "error"]
