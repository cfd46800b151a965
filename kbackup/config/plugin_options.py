"""The properties that the chosen plugins declare for themselves.

A plugin's class has ``options``, a tuple of `kbackup.plugins.Option`.  Those of the plugins that a
configuration chooses are properties like any other: known by name, checked once, documented by
``kbackup plugins``, and handed to the plugin; those of the others are unknown names.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kbackup import plugins
from kbackup.config.doubts import Doubt, Value, error
from kbackup.config.parsing import names_store
from kbackup.errors import ConfigurationError
from kbackup.plugins import Option

_CHOICES: Final = (
    ("formats", "format.class"),
    ("formats", "keys.format.class"),
    ("formats", "headers.format.class"),
    ("partitioners", "partitioner.class"),
)


def declared(given: Mapping[str, Value]) -> dict[str, Option]:
    """Return the options of the plugins that *given* chooses, by name."""
    found: dict[str, Option] = {}
    for seam, text in _chosen(given):
        try:
            kind: Any = plugins.load(seam, plugins.by_class_name(seam, text))
        except ConfigurationError:
            continue  # refused by name elsewhere
        found |= {option.name: option for option in getattr(kind, "options", ())}
    return found


def check(options: Mapping[str, Option], given: Mapping[str, Value]) -> Iterator[Doubt]:
    """Yield an error for each value that its option refuses."""
    for name, option in options.items():
        if name in given:
            try:
                option.check(given[name].text)
            except ValueError as problem:
                yield error("value", name, given[name], str(problem), "correct it")


def values(options: Mapping[str, Option], given: Mapping[str, Value]) -> dict[str, str]:
    """Return each option's text, its default where it is not given."""
    return {
        name: given[name].text if name in given else option.default
        for name, option in options.items()
    }


def _chosen(given: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    for seam, name in _CHOICES:
        if name in given and given[name].text:
            yield seam, given[name].text
    url = given.get("store.url")
    if url is not None and names_store(url.text):
        yield "stores", url.text.partition("://")[0]
