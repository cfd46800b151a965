"""Points in time as text: RFC 3339, UTC, such as ``2026-11-21T02:00:00Z``."""

from datetime import UTC, datetime


def text(moment: datetime) -> str:
    """Return an aware *moment* as text; fractions of a second are cut off."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def with_milliseconds(moment: datetime) -> str:
    """Return an aware *moment* as text with three digits of a second; the rest is cut off."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
