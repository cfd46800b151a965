"""Configuration files: ``.properties``, ``.json`` or ``.yaml``, by extension."""

import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from kbackup.config import documents, properties_text
from kbackup.config.properties_text import Entry
from kbackup.errors import ConfigurationError

FILE_BYTES_MAX: Final = 1_000_000
"""A larger file is refused: it cannot be a configuration."""
ENTRIES_MAX: Final = 10_000
"""A file with more entries is refused too."""

_READERS: Final[dict[str, Callable[[str], Iterator[Entry]]]] = {
    ".properties": properties_text.parse,
    ".json": documents.parse_json,
    ".yaml": documents.parse_yaml,
    ".yml": documents.parse_yaml,
}


def read(path: Path) -> list[Entry]:
    """Return the properties in *path*, in order.

    Raises:
        ConfigurationError: It cannot be read, is too large, or is not what its extension says.
    """
    reader = _READERS.get(path.suffix.lower())
    text = _text(path, latin=reader in (None, properties_text.parse))
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
            f"correct it: it is not a valid {path.suffix} file",
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


def _check(entries: list[Entry]) -> None:
    if len(entries) > ENTRIES_MAX:
        raise ValueError(f"it has more than {ENTRIES_MAX} entries")
    for entry in entries:
        if not entry.name.strip():
            raise ValueError(f"line {entry.line}: a value without a name")
        try:
            f"{entry.name}{entry.text}".encode()
        except UnicodeEncodeError:
            raise ValueError(f"line {entry.line}: half a surrogate pair") from None
