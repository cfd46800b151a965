"""``${env:NAME}`` and ``${file:PATH:key}`` in the operator's values, and what only looks like them.

Kafka's own providers of such values work under any alias that ``config.providers`` gives them.

Source: ``org.apache.kafka.common.config.ConfigTransformer`` and the providers beside it.

Only values of configuration files and of our variables are resolved, never anything read from S3
or Kafka; the result is not resolved again.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbackup.config import files
from kbackup.config.settings import BY_NAME
from kbackup.errors import ConfigurationError

_REFERENCE: Final = re.compile(r"\$\{([\w.-]+):([^{}]*)\}")
_BARE: Final = re.compile(r"(?<![\w$\\])\$[A-Za-z_]\w*|<[A-Za-z][\w .-]*>|\{\{[^{}]*\}\}", re.ASCII)
_BRACED: Final = re.compile(r"\$\{[^{}]*\}")
_VARIABLE: Final = re.compile(
    r"\$[A-Z][A-Z0-9_]+|\$\{\w+\}|<[A-Z][A-Z0-9_ -]*>|\{\{.*\}\}", re.ASCII
)
_LITERAL: Final = re.compile(
    r"(filename\.regex|topic\.regex\.list|_comment"
    r"|transforms\..+\.(regex|replacement|pattern|format))"
)
"""Properties of others in which dollar signs and brackets have their own meaning."""


_CLASSES: Final = {
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "directory",
    "EnvVarConfigProvider": "env",
}
"""Kafka's providers, and what each reads."""

BUILT_IN: Final[Mapping[str, str]] = {"env": "env", "file": "file"}
"""Aliases that need no ``config.providers``, and what each reads."""


def kind(class_name: str) -> str:
    """Return what a provider's class reads: ``file``, ``directory`` or ``env``.

    Raises:
        ValueError: If it is not one of Kafka's.
    """
    package, _, name = class_name.rpartition(".")
    if name not in _CLASSES or package not in ("", "org.apache.kafka.common.config.provider"):
        raise ValueError("a Java class cannot be loaded; Kafka's own providers are known")
    return _CLASSES[name]


def resolve(
    text: str,
    environ: Mapping[str, str],
    folder: Path,
    providers: Mapping[str, str] = BUILT_IN,
) -> str:
    """Return *text* with its references replaced.

    Args:
        text: The value as written.
        environ: The variables.
        folder: What a relative path in ``${file:...}`` is relative to.
        providers: What each alias reads; a reference with another alias stays as it is.

    Raises:
        ConfigurationError: There is no such variable, file or key.
    """

    def replaced(match_: re.Match[str]) -> str:
        match providers.get(match_[1]):
            case "env":
                name = match_[2].removeprefix(":")
                found = environ.get(name)
                if found is None:
                    raise ConfigurationError(match_[0], f"the variable {name} is not set")
                return found
            case "directory":
                return _from_directory(match_[0], match_[2], folder)
            case "file":
                return _from_file(match_[0], match_[2], folder)
        return match_[0]

    return _REFERENCE.sub(replaced, text)


def _from_file(reference: str, place: str, folder: Path) -> str:
    name, colon, key = place.rpartition(":")
    if not colon or not name or not key:
        raise ConfigurationError(reference, "expected ${file:PATH:key}")
    found = {entry.name: entry.text for entry in files.read(folder / name)}.get(key)
    if found is None:
        raise ConfigurationError(reference, f"{folder / name} has no {key}")
    return found


def _from_directory(reference: str, place: str, folder: Path) -> str:
    name, colon, key = place.rpartition(":")
    if not colon or not name or not key or "/" in key:
        raise ConfigurationError(reference, "expected ${directory:PATH:FILE}")
    path = folder / name / key
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(reference, f"{path} cannot be read: {error}") from error


def has_reference(text: str, providers: Mapping[str, str] = BUILT_IN) -> bool:
    """Whether *text* holds something that `resolve` replaces."""
    return any(match[1] in providers for match in _REFERENCE.finditer(text))


def left_over(name: str, text: str, *, is_secret: bool) -> str | None:
    """Return what in *text* looks like a placeholder that nobody filled in, None if nothing.

    A secret may hold any character, so only one that is a placeholder as a whole counts.
    """
    declared = BY_NAME.get(name)
    if _LITERAL.fullmatch(name) if declared is None else declared.is_literal:
        return None
    if is_secret:
        match = _VARIABLE.fullmatch(text.strip())
    else:
        match = _BRACED.search(text) or _BARE.search(text)
    return None if match is None else match[0]
