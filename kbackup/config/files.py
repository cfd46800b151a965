r"""Read configuration files, ``.properties``, ``.json`` or ``.yaml``, as flat properties.

A nested mapping stands for dots in names, a list for commas.  Kafka Connect's envelope,
``{"name": ..., "config": {...}}``, is removed.

::

    # comment                      ! comment
    flush.size = 3                 one of = : or blanks separates name, value
    topics=orders,\
           payments                a backslash at the end continues with the next line
    format.bytearray.separator=\u0001

Source: ``java.util.Properties.load(Reader)``, documentation of Java 17.
"""

import json
import re
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from kbackup.errors import ConfigurationError


class FileProperty(NamedTuple):
    """A property as it is in a file; *line* counts from 1."""

    name: str
    text: str
    line: int


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u([0-9A-Fa-f]{4})|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> Iterator[FileProperty]:
    """Yield the entries of *text* in order, including repeated names.

    Raises:
        ValueError: For an escape that Java cannot read; the text names the line.
    """
    for line, logical in _logical_lines(text):
        name = _NAME.match(logical)
        at = name.end() if name is not None else 0
        separator = _SEPARATOR.match(logical, at)
        value = logical[separator.end() if separator is not None else at :]
        yield FileProperty(_unescape(logical[:at], line), _unescape(value, line), line)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with content, its continuations joined, and its number."""
    begun: list[str] = []
    first = 0
    for number, match in enumerate(_LINE.finditer(text), 1):
        part = match[0].rstrip("\r\n").lstrip(_BLANKS)
        if not begun and (not part or part[0] in "#!"):
            continue
        first = first if begun else number
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            begun.append(part[:-1])
            continue
        yield first, "".join((*begun, part))
        begun = []
    if any(begun):
        yield first, "".join(begun)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match[2] is not None:
            return chr(int(match[2], 16))
        if match[1] == "u":
            raise ValueError(f"line {line}: \\u needs four hexadecimal digits")
        return _CONTROLS.get(match[1], match[1])

    plain = _ESCAPE.sub(character, text)
    try:  # a character beyond U+FFFF is written as two escapes
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"line {line}: \\u escapes that are no character") from None


DEPTH_MAX: Final = 20
"""How deep mappings may be nested."""
ENTRIES_MAX: Final = 10_000
"""Values in one YAML file, after its aliases are expanded."""
_JSON_NAME: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_ENVELOPE: Final = {"name", "config", "initial_state", "tasks", "type"}
"""What Connect's REST API takes, and answers, around a connector's properties."""

Node = str | None | list["Node"] | dict[str, "Node"]
"""A document: null is None; numbers and booleans are text."""


def parse_json(text: str) -> Iterator[FileProperty]:
    """Yield a JSON object's properties; `ValueError`: none, a repeated name, or too large."""
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
        yield FileProperty(name, value, lines.get(name) or lines.get(name.rpartition(".")[2], 1))


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


def parse_yaml(text: str) -> Iterator[FileProperty]:
    """Yield the properties of a YAML mapping, flat or nested.

    Only text is constructed, so tags have no effect.

    Raises:
        ValueError: Not YAML, not a mapping, a repeated name, or too large.
    """
    import yaml  # noqa: PLC0415 - 20 ms that only a YAML file need cost

    starts = (
        yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken,
        yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken,
    )  # fmt: skip
    ends = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
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
        depth = 0
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            depth += isinstance(token, starts) - isinstance(token, ends)
            if depth > DEPTH_MAX + 1:  # a list within the last mapping
                raise ValueError("nested too deeply")
            if isinstance(token, yaml.TagToken):
                raise ValueError(f"line {token.start_mark.line + 1}: tags are not supported")  # noqa: TRY004 - of the text
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = None if root is None else plain(root, ())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    for name, value in _flat({} if document is None else document):
        yield FileProperty(name, value, lines.get(name) or lines.get(f"config.{name}", 1))


def _yaml_name(key: Any) -> str:
    if not isinstance(key.value, str) or key.tag == "tag:yaml.org,2002:merge":
        raise ValueError(f"line {key.start_mark.line + 1}: expected a plain name")
    return key.value


def _flat(document: Any) -> Iterator[tuple[str, str]]:
    """Yield names and texts; a null value counts as absent."""
    if not isinstance(document, dict):
        raise ValueError("expected a mapping of names to values")  # noqa: TRY004 - of the text
    envelope = document if _ENVELOPE.issuperset(document) else {}
    if "config" in envelope:
        if not isinstance(envelope["config"], dict):
            raise ValueError("config: expected a mapping of names to values")
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


FILE_BYTES_MAX: Final = 1_000_000
"""A larger file is refused: it cannot be a configuration."""

_READERS: Final[dict[str, Callable[[str], Iterator[FileProperty]]]] = {
    ".properties": parse_properties,
    ".json": parse_json,
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
}


def read(
    path: Path, *, otherwise: Callable[[str], Iterator[FileProperty]] | None = None
) -> list[FileProperty]:
    """Return the properties in *path*, in order.

    Args:
        otherwise: Reads one of another extension than these; None refuses it.

    Raises:
        ConfigurationError: It cannot be read, is too large, or is not what its extension says.
    """
    reader = _READERS.get(path.suffix.lower(), otherwise)
    text = _text(path, latin=reader in (None, parse_properties))
    if reader is None:
        raise ConfigurationError(
            f"configuration file {path}",
            f"its extension is none of {', '.join(_READERS)}",
            "give it the extension of its format",
        )
    try:
        entries = list(islice(reader(text), ENTRIES_MAX + 1))
        _check(entries)
    except ValueError as error:
        raise ConfigurationError(
            f"configuration file {path}",
            str(error),
            f"correct it: it is not a valid {path.suffix or '.properties'} file",
        ) from error
    return entries


def is_open_to_others(path: Path) -> bool:
    """Whether users other than its owner and group can read *path*."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _text(path: Path, *, latin: bool) -> str:
    """Return the text of *path*; with *latin*, a file that is not UTF-8 is read as ISO-8859-1."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise ConfigurationError(
            f"configuration file {path}",
            getattr(error, "strerror", None) or str(error),
            "check the path and who may read it",
        ) from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(
            f"configuration file {path}",
            f"it is larger than {FILE_BYTES_MAX} bytes",
            "is it the right file?",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if latin:
            return data.decode("iso-8859-1")
        raise ConfigurationError(
            f"configuration file {path}", f"not UTF-8: {error.reason} at byte {error.start}"
        ) from error


def _check(entries: list[FileProperty]) -> None:
    if len(entries) > ENTRIES_MAX:
        raise ValueError(f"it has more than {ENTRIES_MAX} entries")
    for entry in entries:
        if not entry.name.strip():
            raise ValueError(f"line {entry.line}: a value without a name")
        try:
            f"{entry.name}{entry.text}".encode()
        except UnicodeEncodeError:
            raise ValueError(f"line {entry.line}: half a surrogate pair") from None
