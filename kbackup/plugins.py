"""Entry points to classes: what is installed for each seam, and from which package.

Built-in formats, converters, partitioners and stores register in ``pyproject.toml`` exactly as a
third party's do in its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from kbackup.errors import ConfigurationError

SEAMS: Final = ("formats", "converters", "partitioners", "extractors", "stores")
"""The folders that have implementations to choose from; the group is ``kbackup.<seam>``."""


@dataclass(frozen=True, slots=True)
class Option:
    """One property of a plugin, declared in its class's ``options``.

    Attributes:
        name: As it stands in a file or in ``-X NAME=VALUE``, such as ``partition.field.name``.
        help: One sentence.
        default: Its text where nothing is given.
        check: Reads the text; its ``ValueError`` says what was expected.
    """

    name: str
    help: str
    default: str = ""
    check: Callable[[str], object] = str


@dataclass(frozen=True, slots=True)
class Plugin:
    """One implementation of a seam, as its package declares it."""

    seam: str
    name: str
    target: str
    package: str
    version: str


@cache
def installed(seam: str) -> tuple[Plugin, ...]:
    """Return what is installed for *seam*, sorted by name, without importing any of it.

    Asked once: which package an entry point is of costs a file each.
    """
    found = [
        Plugin(
            seam,
            point.name,
            point.value,
            point.dist.name if point.dist else "?",
            point.dist.version if point.dist else "?",
        )
        for point in _points(seam).values()
    ]
    return tuple(sorted(found, key=lambda plugin: plugin.name))


@cache
def load(seam: str, name: str) -> Any:
    """Return the class registered as *name* for *seam*.

    Raises:
        ConfigurationError: If there is none, or importing it fails.
    """
    point = _points(seam).get(name)
    if point is None:
        known = ", ".join(sorted(_points(seam))) or "none"
        raise ConfigurationError(
            f"no {seam.removesuffix('s')} named {name!r}",
            f"installed are: {known}",
            "install the package that brings it, or correct the name",
        )
    try:
        return point.load()
    except Exception as error:
        raise ConfigurationError(
            f"{seam.removesuffix('s')} {name!r} cannot be imported",
            f"{type(error).__name__}: {error}",
            f"reinstall {point.dist.name if point.dist else point.value}",
        ) from error


def by_class_name(seam: str, text: str) -> str:
    """Return the registered name for *text*: a short name, or one of the classes' ``class_names``.

    A Java class name of the connectors stands for the implementation that answers to it, with or
    without its package.

    Raises:
        ConfigurationError: If nothing installed answers to it.
    """
    if text in _points(seam):
        return text
    simple = text.rpartition(".")[2]
    for name in sorted(_points(seam)):
        if simple in getattr(load(seam, name), "class_names", ()):
            return name
    load(seam, text)  # raises, naming what is installed
    raise AssertionError(text)


@cache
def _points(seam: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"kbackup.{seam}")}
