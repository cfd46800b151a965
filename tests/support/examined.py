"""What the doctor examines in its tests, and how its checks are read."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kbackup.config import Settings
from kbackup.inspect import Check

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR_MS = 3_600_000


def settings(bucket: str | None = "lake", **more: Any) -> Settings:
    given = {} if bucket is None else {"s3.bucket.name": bucket}
    return Settings(plugin_options=given, **{"group": "nightly", **more})


def levels(checks: Iterable[Check]) -> dict[str, str]:
    return {check.name: check.level for check in checks}


def one(checks: Iterable[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)
