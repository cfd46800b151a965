"""JSON and YAML files to flat properties, every value as the text in the file.

A nested mapping stands for dots in names, a list for commas.  Kafka Connect's envelope,
``{"name": ..., "config": {...}}``, is removed.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from kbackup.config.properties_text import Entry

DEPTH_MAX: Final = 20
"""How deep mappings may be nested."""
ENTRIES_MAX: Final = 10_000
"""Values in one YAML file, after its aliases are expanded."""
_JSON_NAME: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_ENVELOPE: Final = {"name", "config", "initial_state"}

Node = str | None | list["Node"] | dict[str, "Node"]
"""A document: null is None; numbers and booleans are text."""


def parse_json(text: str) -> Iterator[Entry]:
    """Yield the properties of a JSON object.

    Raises:
        ValueError: Not JSON, not an object, a repeated name, or too large.
    """
    try:
        document = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=str,
            parse_float=str,
            parse_constant=_no_constant,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    lines = _lines(text)
    for name, value in _flat(document):
        yield Entry(name, value, lines.get(name) or lines.get(name.rpartition(".")[2], 1))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is set twice")
        found[name] = str(value).lower() if isinstance(value, bool) else value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _lines(text: str) -> dict[str, int]:
    """Return the line where each name first appears; for a nested name, its last part."""
    lines: dict[str, int] = {}
    line, at = 1, 0
    for match in _JSON_NAME.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        if match[2] is not None:
            lines.setdefault(match[1], line)
    return lines


def parse_yaml(text: str) -> Iterator[Entry]:
    """Yield the properties of a YAML mapping, flat or nested.

    Only text is constructed, so tags have no effect.

    Raises:
        ValueError: Not YAML, not a mapping, a repeated name, or too large.
    """
    import yaml  # noqa: PLC0415 - 20 ms that only a YAML file need cost

    lines: dict[str, int] = {}
    count = 0

    def plain(node: yaml.Node, path: tuple[str, ...]) -> Node:
        nonlocal count
        count += 1
        if count > ENTRIES_MAX or len(path) > DEPTH_MAX:
            raise ValueError("too many values, or nested too deeply")
        lines.setdefault(".".join(path), node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return [plain(item, path) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            pairs = [(_yaml_name(key), value) for key, value in node.value]
            return _unique([(key, plain(value, (*path, key))) for key, value in pairs])
        return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)

    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.TagToken):
                raise ValueError(f"line {token.start_mark.line + 1}: tags are not supported")  # noqa: TRY004 - of the text
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = None if root is None else plain(root, ())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    for name, value in _flat({} if document is None else document):
        yield Entry(name, value, lines.get(name) or lines.get(f"config.{name}", 1))


def _yaml_name(key: Any) -> str:
    if not isinstance(key.value, str) or key.tag == "tag:yaml.org,2002:merge":
        raise ValueError(f"line {key.start_mark.line + 1}: expected a plain name")
    return key.value


def _flat(document: Any) -> Iterator[tuple[str, str]]:
    """Yield names and texts; a null value counts as absent.

    Raises:
        ValueError: If *document* is not a mapping, or two of its names are the same when flat.
    """
    if not isinstance(document, dict):
        raise ValueError("expected a mapping of names to values")  # noqa: TRY004 - of the text
    envelope = document if _ENVELOPE.issuperset(document) else {}
    if isinstance(envelope.get("config"), dict):
        document = {"name": envelope.get("name")} | envelope["config"]
    seen: set[str] = set()
    for name, value in _walk(document, ()):
        if name in seen:
            raise ValueError(f"{name!r} is set twice")
        seen.add(name)
        yield name, value


def _walk(document: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if len(path) > DEPTH_MAX:
        raise ValueError("nested too deeply")
    for key, value in document.items():
        here = (*path, key)
        if isinstance(value, dict):
            yield from _walk(value, here)
        elif isinstance(value, list):
            yield ".".join(here), ",".join(_item(item, here) for item in value)
        elif value is not None:
            yield ".".join(here), str(value)


def _item(item: Any, path: tuple[str, ...]) -> str:
    if not isinstance(item, str) or "," in item:
        raise ValueError(f"{'.'.join(path)}: expected a list of names without commas")
    return item
