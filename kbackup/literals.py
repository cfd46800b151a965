"""What the text of an option means: true or false, numbers, durations, lists and URLs."""

import re
from typing import Final
from urllib.parse import urlsplit

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", re.ASCII)
_URL: Final = re.compile(r"https?://[^\s/?#]+[^\s?#]*")


def read_boolean(value: object) -> bool:
    """Return true or false.

    Source: Kafka's ``ConfigDef.parseType``: either word in any case, nothing else.

    Raises:
        ValueError: If it is neither.
    """
    known = {"true": True, "false": False}
    answer = value if isinstance(value, bool) else known.get(str(value).strip().lower())
    if answer is None:
        raise ValueError("expected true or false")
    return answer


def read_integer(value: object) -> int:
    """Return a whole number of at most 19 digits.

    Raises:
        ValueError: If it is not one.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if re.fullmatch(r"\s*[+-]?\d{1,19}\s*", str(value), re.ASCII) is None:
        raise ValueError("expected a whole number")
    return int(str(value))


def read_duration(text: str) -> float:
    """Return the seconds of ``500ms``, ``10s``, ``5m``, ``2h``, ``1d``; of a number, itself.

    Raises:
        ValueError: If it is none of these.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a duration such as 10s, 500ms or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def read_names(value: object) -> tuple[str, ...]:
    """Return the names of a list as Kafka's ``ConfigDef`` reads it; of several texts, all."""
    parts = [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(name for part in parts for name in map(str.strip, part.split(",")) if name)


def check_path(name: str) -> None:
    """Refuse the dotted name of a field that lacks a name between its dots.

    Raises:
        ValueError: If it does.
    """
    if not all(part.strip() for part in name.split(".")):
        raise ValueError(f"{name!r} has an empty name between its dots")


def names_host(url: str) -> bool:
    """Whether *url* begins with http:// or https:// and names a host, and nothing but a path."""
    if _URL.fullmatch(url) is None:
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as brackets around something that is not an address
        return False
