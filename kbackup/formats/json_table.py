"""What lines of JSON are to the engines that read tables."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kbackup.table_parts import Column, not_a_table, struct

LINES: Final = 1000
"""Records of a file that are examined for their fields."""

_SERDE: Final = {
    "athena": "org.openx.data.jsonserde.JsonSerDe",
    "hive": "org.apache.hive.hcatalog.data.JsonSerDe",
}


def columns(lines: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of JSON objects, as far as *lines* show them.

    A field with values of several types, or that is always null, is text.

    Raises:
        ConfigurationError: If a line is not an object.
    """
    found: dict[str, Any] = {}
    for line in lines:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise not_a_table("a line of it is no JSON object")
        found = _joined(found, _seen(value))
    if not found:
        raise not_a_table("its records have no fields")
    return tuple(Column(name, _of_json(kind)) for name, kind in found.items())


def _seen(value: Any) -> Any:
    """Return what a value shows: a word, a dict of fields, or a list of what its items show."""
    match value:
        case int() if not isinstance(value, bool):
            return "bigint" if -(2**63) <= value < 2**63 else "double"
        case dict():
            return {name: _seen(one) for name, one in value.items()}
        case list():
            items: Any = None
            for one in value:
                items = _joined(items, _seen(one))
            return [items]
    return _WORDS.get(type(value))


_WORDS: Final[Mapping[type, str]] = {bool: "boolean", float: "double", str: "string"}


def _joined(left: Any, right: Any) -> Any:
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, dict) and isinstance(right, dict):
        names = {**left, **right}
        return {name: _joined(left.get(name), right.get(name)) for name in names}
    if isinstance(left, list) and isinstance(right, list):
        return [_joined(left[0], right[0])]
    numbers = {"bigint", "double"}
    are_numbers = isinstance(left, str) and isinstance(right, str) and {left, right} <= numbers
    return "double" if are_numbers else "string"


def _of_json(kind: Any) -> str:
    match kind:
        case dict() if kind:
            return struct((name, _of_json(one)) for name, one in kind.items())
        case list():
            return f"array<{_of_json(kind[0])}>"
        case str():
            return kind
    return "string"


def stored_as(engine: str, _away: Collection[str]) -> tuple[str, ...]:
    """Return the lines that name the engine's reader of JSON."""
    serde = _SERDE.get(engine)
    return () if serde is None else (f"ROW FORMAT SERDE '{serde}'", "STORED AS TEXTFILE")
