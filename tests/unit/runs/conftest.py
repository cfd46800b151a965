from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbackup.runs.locks import RunLock
from tests.support.locking import LAYOUT, ClockedStore, Clocks


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def store(clocks: Clocks) -> ClockedStore:
    return ClockedStore(clocks)


@pytest.fixture
def lock(store: ClockedStore, clocks: Clocks, tmp_path: Path) -> Callable[..., RunLock]:
    """Return a maker of locks; *host* is a folder of lock files of its own."""

    def make(run: str = "r1", host: str = "here", **changed: Any) -> RunLock:
        named = {
            "store": store, "layout": LAYOUT, "purpose": "sink", "names": ["orders"],
            "identity": "s3://lake", "timeout_s": 0.0, "folder": tmp_path / host, "run": run,
            "now": lambda: clocks.host, "sleep": clocks.sleep, "monotonic": lambda: clocks.seconds,
            **changed,
        }  # fmt: skip
        return RunLock(**named)

    return make
