"""What a connector's file left to its worker, and what is taken for it."""

from typing import Final

ASSUMED_CONVERTERS: Final = {
    ("json", "value"): "json",
    ("json", "key"): "string",
    ("bytes", "value"): "bytes",
    ("bytes", "key"): "bytes",
}
"""Format and part to the converter where a file relied on its worker's."""


def assumed_converter(format_name: str | None, part: str) -> str | None:
    """Return the converter for *part*, "key" or "value", where none is given; None: unknown."""
    return None if format_name is None else ASSUMED_CONVERTERS.get((format_name, part))
