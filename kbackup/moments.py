"""Points in time as text: RFC 3339, mostly UTC, such as ``2026-11-21T02:00:00Z``."""

from datetime import UTC, datetime


def text(moment: datetime) -> str:
    """Return an aware *moment* as text; fractions of a second are cut off."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def with_milliseconds(moment: datetime) -> str:
    """Return an aware *moment* as text with three digits of a second; the rest is cut off."""
    return in_its_zone(moment.astimezone(UTC))


def in_its_zone(moment: datetime) -> str:
    """Return an aware *moment* as `with_milliseconds` does, with its own distance from UTC."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
