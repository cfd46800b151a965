"""JSON without a schema, which Kafka's transforms see as Java maps, lists, text and numbers."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

from kbackup import jackson
from kbackup.columns import Bad

_LONG_INTEGER: Final = re.compile(r"\d{19}")


def parsed(values: pa.Array) -> list[Any]:
    """Return the parsed value of each text, None for null; integers of any size are kept."""
    texts = values.storage if isinstance(values, pa.ExtensionArray) else values
    return [None if text is None else _parsed(text) for text in texts.to_pylist()]


def written(values: Sequence[Any]) -> pa.Array:
    """Return JSON texts as Jackson writes them, null for None."""
    return pa.ExtensionArray.from_storage(pa.json_(), jackson.write(values))


def changed(values: pa.Array, change: Callable[[Any], Any]) -> tuple[pa.Array, list[Bad]]:
    """Return the JSON that *change* makes of each value that is not null.

    Returns:
        A row for each, and the rows for which *change* raised a ``ValueError``.
    """
    found: list[Any] = []
    bad = []
    for row, value in enumerate(parsed(values)):
        try:
            found.append(None if value is None else change(value))
        except ValueError as error:
            bad.append(Bad(row, str(error)))
            found.append(None)
    return written(found), bad


def kind(value: Any) -> str:
    """Return the name of *value*'s JSON type."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _parsed(text: str) -> Any:
    if _LONG_INTEGER.search(text) is None:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # half of a surrogate pair
    return json.loads(text)
