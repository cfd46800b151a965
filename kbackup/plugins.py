"""Look up plugins by extension point, with their options, and describe chains of transforms.

A plugin is a class, registered under the group of its extension point::

    [project.entry-points."kbackup.formats"]
    netstring = "kbackup_netstring:NetstringFormat"

Built-in formats, converters, partitioners, timestamp extractors and stores register in
``pyproject.toml`` exactly as a third party's do in its own.  What it is, it declares
in one value, its ``traits``.

The ``options`` in them are a tuple of `kbackup.options.Option`, each the one declaration from which
the property, the variable, the command-line option, the documentation and the check follow.

- They stand in the plugin's own module, above its class.  Every command imports that module, so it
  imports nothing of `kbackup.config`, and a client that is slow to import only where it is used.
- A plugin whose module is slow to import, and every store, which has no traits, registers them in
  an entry point instead: ``"stores.sqlite"`` of the group ``kbackup.options``.
- A plugin is given the values of the options as its extension point has it, by the property's name,
  checked and of their types, and reads each with `Option.of`.
- Options count for the plugins that a configuration chooses; for others they are accepted, with a
  warning that they have no effect.
- Options of a converter are declared without prefix; ``schemas.enable`` becomes
  ``key.converter.schemas.enable`` and ``value.converter.schemas.enable``.
- Several plugins may declare the same option, as formats do that are compressed alike: both
  tuples hold the same `Option`.  Two different options of one name are an error of the plugins,
  reported to whoever chooses one of them.
- They may also hold `kbackup.options.Unsupported`: properties of the connectors' plugin
  that this one cannot carry out, which are refused by name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

from kbackup.errors import ConfigurationError
from kbackup.options import Option, Unsupported

D = TypeVar("D")

EXTENSION_POINTS: Final = ("formats", "converters", "partitioners", "extractors", "stores")
"""The folders that have implementations to choose from; the group is ``kbackup.<folder>``."""

CHAINED: Final = ("transforms", "predicates")
"""Extension points of which a configuration takes any number, each under a name of its own.

Their classes declare their options themselves: these follow that name in a file, and are no
properties of kbackup's.
"""


@runtime_checkable
class ChecksOptions(Protocol):
    """A plugin's class that can tell more of its options than each of them by itself."""

    @staticmethod
    def check_options(options: Mapping[str, Any], /) -> None:
        """Check values of its options, by property, together.

        Raises:
            ConfigurationError: If they cannot be used; its ``place["property"]`` names one.
        """
        ...


@runtime_checkable
class MayBeSchemaless(Protocol):
    """A converter of which its options decide whether its columns have a schema."""

    @property
    def is_schemaless(self) -> bool:
        """Whether its columns have none, as it is configured."""
        ...


@runtime_checkable
class HasOnlyDirectory(Protocol):
    """A partitioner that keeps all records of a partition in one directory."""

    def only_directory(self, where: Any) -> str:
        """Return the directory of all records of *where*, a `kbackup.records.TopicPartition`."""
        ...


@dataclass(frozen=True, slots=True)
class Plugin:
    """One implementation of an extension point, as its package declares it."""

    extension_point: str
    name: str
    target: str
    package: str
    version: str


@dataclass(frozen=True, slots=True)
class Declared(Generic[D]):
    """What plugins declare, and which.

    Attributes:
        extension_point: The extension point of its plugins.
        plugins: Their names, built-in ones first; several where they share it.
        option: The declaration.
        is_built_in: Whether kbackup's own package declares it.
    """

    extension_point: str
    plugins: tuple[str, ...]
    option: D
    is_built_in: bool


def declared() -> tuple[Declared[Option[Any]], ...]:
    """Return the options of all installed plugins, by extension point and plugin."""
    return tuple(each for each in _declared() if isinstance(each.option, Option))


def refused() -> tuple[Declared[Unsupported], ...]:
    """Return what all installed plugins declare as unsupported."""
    return tuple(each for each in _declared() if isinstance(each.option, Unsupported))


@cache
def _declared() -> tuple[Declared[Any], ...]:
    """Return all declarations, those that plugins share once."""
    # of a module that cannot be imported there are none: `options` tells who chooses its plugin
    found: dict[tuple[str, str | Unsupported], Declared[Any]] = {}
    for extension_point in EXTENSION_POINTS:
        for name in sorted(
            _points(extension_point),
            key=lambda name: (not _is_built_in(extension_point, name), name),
        ):
            try:
                mine = _declarations(extension_point, name)
            except ConfigurationError:
                continue
            for each in mine:
                at = (extension_point, each.name if isinstance(each, Option) else each)
                other = found.get(at)
                if other is None:
                    found[at] = Declared(
                        extension_point, (name,), each, _is_built_in(extension_point, name)
                    )
                elif other.option == each:  # an option that differs is reported to who chooses it
                    found[at] = replace(other, plugins=(*other.plugins, name))
    return tuple(found.values())


def options(extension_point: str, name: str) -> tuple[Option[Any], ...]:
    """Return the options that the plugin *name* of *extension point* declares.

    Raises:
        ConfigurationError: If the module that declares them cannot be imported.
    """
    return tuple(each for each in _declarations(extension_point, name) if isinstance(each, Option))


@cache
def _declarations(extension_point: str, name: str) -> tuple[Option[Any] | Unsupported, ...]:
    point = _points("options").get(f"{extension_point}.{name}")
    if point is None:
        return _in_traits(extension_point, name)
    try:
        return tuple(point.load())
    except Exception as error:
        raise _not_importable(
            f"options of the {extension_point.removesuffix('s')} {name!r}", point, error
        ) from error


def _in_traits(extension_point: str, name: str) -> tuple[Option[Any] | Unsupported, ...]:
    """Return the options in the traits of a plugin; none if it cannot be imported, or has none."""
    if extension_point == "stores" or name not in _points(extension_point):
        return ()
    try:
        found: tuple[Option[Any] | Unsupported, ...] = load(extension_point, name).traits.options
    except ConfigurationError:
        return ()  # whoever chooses it learns why
    return found


def built_in(extension_point: str) -> str:
    """Return the names of kbackup's own plugins for *extension point*, as help lists them."""
    return ", ".join(
        sorted(name for name in _points(extension_point) if _is_built_in(extension_point, name))
    )


def module(extension_point: str, name: str) -> str | None:
    """Return the module of a plugin of kbackup's own; None for others, and where there is none."""
    point = _points(extension_point).get(name)
    return point.module if point is not None and _is_built_in(extension_point, name) else None


def _is_built_in(extension_point: str, name: str) -> bool:
    return _points(extension_point)[name].value.startswith("kbackup.")


@cache
def installed(extension_point: str) -> tuple[Plugin, ...]:
    """Return what is installed for *extension point*, sorted by name, without importing any of it.

    Asked once: which package an entry point is of costs a file each.
    """
    found = [
        Plugin(
            extension_point,
            point.name,
            point.value,
            point.dist.name if point.dist else "?",
            point.dist.version if point.dist else "?",
        )
        for point in _points(extension_point).values()
    ]
    return tuple(sorted(found, key=lambda plugin: plugin.name))


@cache
def load(extension_point: str, name: str) -> Any:
    """Return the class registered as *name* for *extension point*.

    Raises:
        ConfigurationError: If there is none, importing it fails, or it is of another version.
    """
    point = _points(extension_point).get(name)
    if point is None:
        known = ", ".join(sorted(_points(extension_point))) or "none"
        raise ConfigurationError(
            f"no {extension_point.removesuffix('s')} named {name!r}",
            f"installed are: {known}",
            "install the package that provides it, or correct the name",
        )
    what = f"{extension_point.removesuffix('s')} {name!r}"
    try:
        found = point.load()
    except Exception as error:
        raise _not_importable(what, point, error) from error
    if extension_point != "stores" and not hasattr(found, "traits"):
        raise ConfigurationError(
            f"{what} has no traits",
            "its package was made for another version of kbackup, or is not finished",
            f"install another version of {point.dist.name if point.dist else point.value}",
        )
    return found


def _not_importable(what: str, point: EntryPoint, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{what} cannot be imported",
        f"{type(error).__name__}: {error}",
        f"reinstall {point.dist.name if point.dist else point.value}",
    )


def java_class(extension_point: str, name: str, side: str = "") -> str:
    """Return the Java class that the plugin *name* stands for; its own if it stands for none.

    Args:
        extension_point: The extension point.
        name: The registered name.
        side: Which of the classes in that class, as for transforms of keys or values.
    """
    found = load(extension_point, name)
    if not found.traits.java_package:
        return f"{found.__module__}.{found.__qualname__}"
    return f"{found.traits.java_package}.{found.traits.class_names[0]}" + (
        f"${side.capitalize()}" if side else ""
    )


def by_class_name(extension_point: str, text: str) -> str:
    """Return the registered name for *text*: a short name, or a ``class_names`` of its traits.

    A Java class name of the connectors stands for the implementation that answers to it, with or
    without its package.

    Raises:
        ConfigurationError: If nothing installed answers to it, or what does cannot be used.
    """
    if text in _points(extension_point):
        if not _is_built_in(extension_point, text):
            load(extension_point, text)
        return text
    simple = re.split(r"[.$]", text)[-1]
    for name in sorted(_points(extension_point)):
        if simple in load(extension_point, name).traits.class_names:
            return name
    load(extension_point, text)  # raises, naming what is installed
    raise AssertionError(text)


@cache
def _points(extension_point: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _installed().select(group=f"kbackup.{extension_point}")}


@cache
def _installed() -> EntryPoints:
    """Return the entry points of all installed packages, whose files are read once."""
    return cast("EntryPoints", entry_points())  # 3.11 has another type for all of them


@dataclass(frozen=True, slots=True)
class Condition:
    """Which records a transform is for; plain data.

    Attributes:
        alias: Its name in the file.
        plugin: The predicate.
        options: What was given for its options.
        negate: Whether it selects the records that do not match.
    """

    alias: str
    plugin: str
    options: Mapping[str, Any] = field(default_factory=dict)
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of a chain; plain data.

    Attributes:
        alias: Its name in the file.
        plugin: The transform.
        side: "key" or "value", or another side of its class; empty if it has only one.
        options: What was given for its options.
        condition: Which records it is for, None for all.
    """

    alias: str
    plugin: str
    side: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    condition: Condition | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The sides that must be converted for it: "key", "value"."""
        own = {self.side} & {"key", "value"}
        return frozenset((*own, *load("transforms", self.plugin).traits.reads))

    @property
    def changes(self) -> frozenset[str]:
        """Those of the sides that it reads which it may change."""
        return frozenset() if load("transforms", self.plugin).traits.reads_only else self.reads

    @property
    def chooses_topics(self) -> bool:
        """Whether it may give the records of one topic different topics."""
        return bool(load("transforms", self.plugin).traits.chooses_topics)


def choose_topics(steps: Iterable[Step]) -> bool:
    """Return whether a chain may give the records of one topic different topics."""
    return any(step.chooses_topics for step in steps)
