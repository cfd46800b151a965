"""Combines an Avro schema with those that it refers to in a registry."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_PLAIN: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "enum",
     "fixed", "array", "map", "error", "union"),
)  # fmt: skip
_NAMED: Final = ("record", "enum", "fixed")


def united(text: str, imports: Sequence[str]) -> str:
    """Return the Avro schema *text* with each type of *imports* expanded where it is first used.

    Raises:
        ValueError: If one of them is not JSON.
    """
    if not imports:
        return text
    known: dict[str, Any] = {}
    for each in imports:
        _note(json.loads(each), "", known)
    return json.dumps(_Writing(known).schema(json.loads(text), ""), separators=(",", ":"))


@dataclass(slots=True)
class _Writing:
    """One schema being expanded."""

    known: Mapping[str, Any]
    written: set[str] = field(default_factory=set)

    def schema(self, found: Any, namespace: str) -> Any:
        if isinstance(found, list):
            return [self.schema(branch, namespace) for branch in found]
        if isinstance(found, str):
            return self._name(found, namespace)
        if not isinstance(found, dict):
            return found
        inner = namespace
        if found.get("type") in _NAMED:
            full = _full(found, namespace)
            self.written.add(full)
            inner = full.rpartition(".")[0]
        made = dict(found)
        for name in ("type", "items", "values"):
            if name in found:
                made[name] = self.schema(found[name], inner)
        if isinstance(found.get("fields"), list):
            made["fields"] = [
                {**each, "type": self.schema(each.get("type"), inner)} for each in found["fields"]
            ]
        return made

    def _name(self, name: str, namespace: str) -> Any:
        if name in _PLAIN:
            return name
        inner = f"{namespace}.{name}" if namespace and "." not in name else name
        for full in (inner, name):
            if full in self.written:
                return full
            if full in self.known:
                definition = dict(self.known[full])
                space, _, definition["name"] = full.rpartition(".")
                definition["namespace"] = space
                return self.schema(definition, space)
        return name


def _note(found: Any, namespace: str, known: dict[str, Any]) -> None:
    """Add the named types in *found*."""
    if isinstance(found, list):
        for branch in found:
            _note(branch, namespace, known)
    if not isinstance(found, dict):
        return
    if found.get("type") in _NAMED:
        full = _full(found, namespace)
        known.setdefault(full, found)
        namespace = full.rpartition(".")[0]
    for name in ("type", "items", "values"):
        _note(found.get(name), namespace, known)
    for each in found.get("fields") or ():
        _note(each.get("type"), namespace, known)


def _full(found: Mapping[str, Any], namespace: str) -> str:
    name: str = found["name"]
    space = found.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"
