"""`Settings`: every value a run needs, checked once, then frozen; and the list of properties."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NoReturn, Self

from kbackup import plugins
from kbackup.config.layout import LayoutSettings, RotationSettings, Safety, Tolerance
from kbackup.config.property import Property, PropertyGroup, names_store, of_plugins, properties
from kbackup.config.running import (
    EncryptionSettings,
    FollowSettings,
    Generic,
    Kafka,
    OutputSettings,
    PlaceSettings,
    Restore,
    RunSettings,
    SchemaRegistry,
)
from kbackup.naming import View, place_of
from kbackup.naming.renaming import Rename, TopicFilter
from kbackup.plugins import Step


class Settings(
    OutputSettings, RunSettings, Restore, Generic, Tolerance, Safety, FollowSettings,
    RotationSettings, SchemaRegistry, LayoutSettings, EncryptionSettings, PlaceSettings, Kafka,
):  # fmt: skip
    """The configuration of one command: plain data, which may cross a process.

    In addition to the declared properties, it has what follows from them:

    Attributes:
        plugin_options: What was given for the options of plugins, by property, each value of its
            option's type.
        renames: The renaming steps of a restore, or the routing of a sink, in order.
        transforms: The transforms of a sink or a restore, in order.
        key_converter_properties: Options of the key's converter: ``schemas.enable`` ...
        value_converter_properties: Options of the value's converter.
        unasked_converters: The views for which no converter was asked: that of a sink's file says
            what is written now.
        kafka_consumer: Properties of librdkafka's consumer, ``bootstrap.servers`` excepted.
        kafka_producer: The same of its producer.
        kafka_admin: The same of its admin client.

    ``format_class``, ``keys_format_class``, ``headers_format_class``, ``key_converter``,
    ``value_converter`` and ``partitioner_class`` hold names that `kbackup.plugins` knows.

    Args:
        given: Values by attribute, as text or of their types; what is not given has its default.

    Raises:
        ValueError: For a value that its property refuses.
        TypeError: For an attribute that there is not.
    """

    plugin_options: dict[str, Any]
    renames: tuple[Rename, ...]
    transforms: tuple[Step, ...]
    key_converter_properties: dict[str, Any]
    value_converter_properties: dict[str, Any]
    unasked_converters: tuple[View, ...]
    kafka_consumer: dict[str, str]
    kafka_producer: dict[str, str]
    kafka_admin: dict[str, str]

    def __init__(self, **given: Any) -> None:
        values = {name: kind() for name, kind in _DERIVED.items()}
        for found in OWN:
            name = found.attribute
            values[name] = found.read(given[name]) if name in given else found.default
        unknown = given.keys() - values.keys()
        if unknown:
            raise TypeError(f"no such settings: {', '.join(sorted(unknown))}")
        values |= {name: given[name] for name in _DERIVED if name in given}
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings are frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show what is not a default; nothing that may hold a secret."""
        shown = (
            f"{found.attribute}={value!r}"
            for found in OWN
            if not (found.is_secret or found.is_repeated)
            and (value := self.value_of(found)) != found.default
        )
        return f"Settings({', '.join(shown)})"

    def replace(self, **changes: Any) -> Self:
        """Return the same settings with other values in place of some."""
        return type(self)(**vars(self) | changes)

    @property
    def url(self) -> str:
        """Where the backup is, such as ``s3://BUCKET``; empty if not given."""
        if self.store_url is not None and names_store(self.store_url):
            return self.store_url
        given = ((found, self.plugin_options.get(found.name)) for found in PLACES)
        return next((found.url(value) for found, value in given if value is not None), "")

    @property
    def place(self) -> str:
        """Where the backup is, as people are told: two servers may have buckets of one name."""
        return place_of(self.url, self.topics_dir, self.endpoint_url)

    @property
    def asked(self) -> TopicFilter:
        """Which topics and partitions a command is about."""
        return TopicFilter(self.topics, self.topics_regex, self.partitions, self.topics_exclude)

    @property
    def endpoint_url(self) -> str | None:
        """The URL of the store's server, None for the default one or if the store has none."""
        return None if self.url == self.store_url else self.store_url

    def options_of(self, extension_point: str) -> dict[str, Any]:
        """Return what was given for the options of one extension point's plugins, by property."""
        return {
            name: value
            for name, value in self.plugin_options.items()
            if any(extension_point == each for each, _ in BY_NAME[name].plugins)
        }

    def value_of(self, found: Property) -> Any:
        """Return the value of a property, or its default if nothing was given."""
        if found.declared is None:
            return getattr(self, found.attribute)
        return self.plugin_options.get(found.name, found.default)


GROUPS: Final = tuple(
    kind
    for kind in reversed(Settings.__mro__)
    if issubclass(kind, PropertyGroup) and "title" in vars(kind)
)
"""The groups of settings, in the order of the reference."""

_DERIVED: Final[Mapping[str, type[dict[str, Any]] | type[tuple[Any, ...]]]] = {
    name: dict if str(kind).startswith("dict") else tuple
    for name, kind in Settings.__annotations__.items()
}


def _properties() -> Iterator[Property]:
    """Yield kbackup's own properties and those of plugins, heading by heading."""
    # the first declaration of a name counts: a plugin redefines no other's property
    own = {group.title: list(properties(group)) for group in GROUPS}
    names = {found.name for group in own.values() for found in group}
    added: dict[str, list[Property]] = {}
    for declared in plugins.declared():
        for found in of_plugins(declared):
            if found.name not in names:
                names.add(found.name)
                added.setdefault(found.group, []).append(found)
    for title, group in own.items():
        yield from sorted([*group, *added.pop(title, ())], key=lambda found: not found.is_place)
    for rest in added.values():
        yield from rest


PROPERTIES: Final[tuple[Property, ...]] = tuple(_properties())
"""All declarations, in the order of the documentation."""

OWN: Final = tuple(found for found in PROPERTIES if found.declared is None)
"""Those of `Settings` itself."""

PLACES: Final = tuple(found for found in PROPERTIES if found.is_place)
"""The properties that locate the backup, without ``store.url``; built-in ones first."""

BY_NAME: Final[dict[str, Property]] = {found.name: found for found in PROPERTIES}
ALIASES: Final[dict[str, str]] = {
    alias: found.name for found in PROPERTIES for alias in found.aliases
}
"""Aliases, to the name of the property."""


@cache
def by_attribute() -> dict[str, Property]:
    """Return the properties by the attribute of `Settings` that holds each."""
    return {found.attribute: found for found in PROPERTIES}


def shown_value(value: Any) -> str:
    """Return *value* of a setting as it would be written in a file."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}s"
        case dict():
            return ",".join(f"{name}={text}" for name, text in value.items())
        case tuple():
            return ",".join(map(str, value))
    return str(value)


CHOICES: Final = (
    ("formats", "format_class"),
    ("formats", "keys_format_class"),
    ("formats", "headers_format_class"),
    ("partitioners", "partitioner_class"),
    ("extractors", "timestamp_extractor"),
    ("converters", "key_converter"),
    ("converters", "value_converter"),
)
"""Extension points, and the settings that name their plugins."""

NAMED_BY: Final = {
    "formats": "format.class",
    "partitioners": "partitioner.class",
    "extractors": "timestamp.extractor",
    "stores": "store.url",
}
"""The property that names an extension point's plugin; a converter's is the prefix of its own."""


def chosen(settings: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return extension point and plugin by the setting that names it, or the default."""
    found = {}
    for extension_point, attribute in CHOICES:
        name = settings.get(attribute) or getattr(Settings, attribute).default
        if name is not None:
            found[attribute] = (extension_point, name)
    url = settings.get("store_url") or ""
    scheme = url.partition("://")[0]
    is_there = any(scheme == each.name for each in plugins.installed("stores"))
    is_chosen = is_there and names_store(url)  # what nobody has is refused as store.url
    found["store_url"] = ("stores", scheme) if is_chosen else PLACES[0].plugins[0]
    return found
