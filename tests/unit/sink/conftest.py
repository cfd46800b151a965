"""What tests of sinks share: a bucket in memory, and seconds that are hundredths."""

from uuid import uuid4

import pytest

from kbackup.runs import context
from kbackup.runs.following import Backoff
from kbackup.sink import follow, run
from kbackup.stores import StoreSettings


@pytest.fixture
def store() -> StoreSettings:
    """A bucket in memory."""
    return StoreSettings(f"memory://{uuid4()}")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds that a day's work waits are hundredths here."""
    monkeypatch.setattr(follow, "POLL_S", 0.02)
    monkeypatch.setattr(follow, "REPORT_S", 0.05)
    monkeypatch.setattr(follow, "PAUSES", Backoff(0.05, 600.0))
    monkeypatch.setattr(run, "NEWCOMERS_S", 0.05)
    monkeypatch.setattr(context, "RECORD_S", 0.05)
