"""``${env:NAME}`` and ``${file:PATH:key}`` in what the operator wrote, and what only looks so.

Resolved are values of configuration files and of our variables, never anything read from S3 or
Kafka; what comes out is taken as it is.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbackup.config import files
from kbackup.config.settings import BY_NAME
from kbackup.errors import ConfigurationError

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^{}]*)\}")
_BARE: Final = re.compile(r"(?<![\w$\\])\$[A-Za-z_]\w*|<[A-Za-z][\w .-]*>|\{\{[^{}]*\}\}", re.ASCII)
_BRACED: Final = re.compile(r"\$\{[^{}]*\}")
_VARIABLE: Final = re.compile(
    r"\$[A-Z][A-Z0-9_]+|\$\{\w+\}|<[A-Z][A-Z0-9_ -]*>|\{\{.*\}\}", re.ASCII
)
_LITERAL: Final = re.compile(
    r"(filename\.regex|topic\.regex\.list|_comment"
    r"|transforms\..+\.(regex|replacement|pattern|format))"
)
"""Properties that are not ours in which dollar signs and brackets have a meaning of their own."""


def resolve(text: str, environ: Mapping[str, str], folder: Path) -> str:
    """Return *text* with its references replaced.

    Args:
        text: The value as written.
        environ: The variables.
        folder: What a relative path in ``${file:...}`` is relative to.

    Raises:
        ConfigurationError: There is no such variable, file or key.
    """

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "env":
            found = environ.get(match[2])
            if found is None:
                raise ConfigurationError(match[0], f"the variable {match[2]} is not set")
            return found
        return _from_file(match[0], match[2], folder)

    return _REFERENCE.sub(replaced, text)


def _from_file(reference: str, place: str, folder: Path) -> str:
    name, colon, key = place.rpartition(":")
    if not colon or not name or not key:
        raise ConfigurationError(reference, "expected ${file:PATH:key}")
    found = {entry.name: entry.text for entry in files.read(folder / name)}.get(key)
    if found is None:
        raise ConfigurationError(reference, f"{folder / name} has no {key}")
    return found


def has_reference(text: str) -> bool:
    """Whether *text* holds something that `resolve` replaces."""
    return _REFERENCE.search(text) is not None


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
