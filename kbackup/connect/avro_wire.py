"""Whether datums of one Avro schema are, byte for byte, datums of another."""

import json
from functools import lru_cache
from typing import Any, Final

AVRO: Final = "avro"
"""``Schema.encoding`` of datums with an Avro schema."""


@lru_cache(1000)
def is_same(one: str, other: str) -> bool:
    """Whether two Avro schemas in JSON encode values alike, whatever the values mean.

    Names, documentation, defaults and logical types do not matter; the order of fields, symbols and
    branches does.  An ``int`` is not a ``long`` here, because its reader may refuse longer values.
    """
    try:
        return bool(shape_of(one) == shape_of(other))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def shape_of(text: str) -> Any:
    """Return what of an Avro schema in JSON decides how values are encoded, names resolved.

    A plain type is its name.  The others are tuples: ``("union", *branches)``, ``("array", item)``,
    ``("record", *fields)``, ``("enum", *symbols)`` and ``("fixed", size)``; a map is an array.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: If it is not a schema.
    """
    return _Shape().of(json.loads(text), "")


class _Shape:
    """The shape of one schema's datums."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, found: Any, namespace: str) -> Any:
        if isinstance(found, list):
            return ("union", *(self.of(branch, namespace) for branch in found))
        if isinstance(found, str):
            inner = f"{namespace}.{found}" if namespace and "." not in found else found
            return self._named.get(inner) or self._named.get(found) or found
        kind = found["type"]
        if kind not in ("record", "enum", "fixed", "array", "map"):
            return self.of(kind, namespace)
        if kind == "array":
            return (kind, self.of(found["items"], namespace))
        if kind == "map":
            # an entry of a map is encoded like an entry of an array of key and value
            return ("array", ("record", "string", self.of(found["values"], namespace)))
        name: str = found["name"]
        space = found.get("namespace", namespace)
        full = name if "." in name or not space else f"{space}.{name}"
        inner = full.rpartition(".")[0]
        if kind == "record":
            shape: Any = (kind, *(self.of(each["type"], inner) for each in found["fields"]))
        else:
            shape = (kind, *found["symbols"]) if kind == "enum" else (kind, found["size"])
        self._named[full] = shape
        return shape
