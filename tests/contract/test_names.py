"""Names of plugins and of their options: known from the plugins alone."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.contract.product import ROOT, plugins

_KNOWN: Final = {
    # as an operator writes them, without a prefix
    "config/foreign_names.py": {"schemas.enable"},
    "testing/stores.py": {"kbackup.stores.memory"},  # a store for tests is what it is about
}
"""What is named elsewhere, and why it may be."""

_KNOWN_PLUGINS: Final = {
    # the defaults are kbackup's choice, not a plugin's
    "config/layout.py": {"avro", "parquet", "wallclock"},
    # Connect's converters of headers, which are no plugins here
    "config/foreign_names.py": {"StringConverter"},
    # topics get their other names before anything is planned
    "config/transforms.py": {"RegexRouter", "regex_router"},
    # an encoding of values, which converters and formats share
    "connect/avro_walk.py": {"avro"},
    # the extra that installs what it imports
    "connect/protobuf_reading.py": {"protobuf"},
    # how an answer is written, which is no file of a backup
    "cli/restore.py": {"csv", "parquet"},
    "inspect/query.py": {"parquet"},
}
"""The plugins that are named elsewhere, and why they may be."""

_WORDS: Final = {
    "boolean", "bytes", "cast", "default", "double", "field", "file", "filter", "flatten", "float",
    "integer", "json", "log", "long", "memory", "record", "s3", "short", "string", "time",
}  # fmt: skip
"""Names of plugins that are words of other things too, such as types."""

_HOMES: Final = (*plugins.EXTENSION_POINTS, *plugins.CHAINED, "connect/registry")
"""Where options are declared; those of several converters in `kbackup.connect.registry`."""


def names() -> set[str]:
    """Return the properties and aliases that built-in plugins declare, supported or not."""
    declared = [found.option for found in plugins.declared() if found.is_built_in]
    refused = {found.option.name for found in plugins.refused() if found.is_built_in}
    options = {name for option in declared for name in (option.name, *option.aliases)}
    return {name for name in options | refused if "." in name}


def plugin_names() -> tuple[set[str], set[str]]:
    """Return the registered names of built-in plugins, and the class names they answer to."""
    registered: set[str] = set()
    classes: set[str] = set()
    for extension_point in (*plugins.EXTENSION_POINTS, *plugins.CHAINED):
        for found in plugins.installed(extension_point):
            if plugins.module(extension_point, found.name) is not None:
                registered.add(found.name)
                if extension_point != "stores":
                    classes.update(plugins.load(extension_point, found.name).traits.class_names)
    return registered - _WORDS, {name for name in classes if re.search("[a-z][A-Z]", name)}


def modules() -> set[str]:
    """Return the modules of built-in plugins and of their options."""
    points = [
        (extension_point, plugin.name)
        for extension_point in plugins.EXTENSION_POINTS
        for plugin in plugins.installed(extension_point)
    ]
    found = {plugins.module(extension_point, name) for extension_point, name in points}
    extension_points = {
        *(f"kbackup.{s}" for s in plugins.EXTENSION_POINTS),
        "kbackup.partitioners.extractors",
    }
    return {name for name in found if name is not None} - extension_points


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module, its documentation left out."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a module imports from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@cache
def elsewhere() -> dict[str, ast.Module]:
    """Return the modules outside the extension points, by their path."""
    paths = {path.relative_to(ROOT): path for path in sorted(ROOT.rglob("*.py"))}
    return {
        str(place): ast.parse(path.read_text())
        for place, path in paths.items()
        if not any(place.is_relative_to(home) for home in _HOMES)
    }


def test_a_plugin_is_named_by_nobody_but_itself() -> None:
    """What kbackup knows of a plugin, it knows from the plugin: no other module spells it out."""
    either = "|".join(map(re.escape, sorted(names())))
    properties = re.compile(rf"(?<![\w.])(?:{either})(?!\w|[.]\w)")
    plugin_modules = modules()

    found = {
        place: set().union(*map(properties.findall, texts(tree)))
        | plugin_modules.intersection(imports(tree))
        for place, tree in elsewhere().items()
    }

    assert _KNOWN == {place: named for place, named in found.items() if named}
    assert {"parquet.codec", "s3.bucket.name", "path.format"} <= names()
    assert "kbackup.formats.parquet" in plugin_modules


def test_no_table_outside_the_plugins_has_their_names() -> None:
    """Whatever kbackup does with a plugin of its own, it does with anybody's, whatever its name."""
    registered, classes = plugin_names()
    of_class = re.compile(rf"\b(?:{'|'.join(sorted(classes))})\b")

    found = {}
    for place, tree in elsewhere().items():
        said = set(texts(tree))
        found[place] = (said & registered).union(*map(of_class.findall, said))

    assert _KNOWN_PLUGINS == {place: named for place, named in found.items() if named}
    assert {"avro", "block_gzip", "json_schema"} <= registered
    assert {"JsonConverter", "TimeBasedPartitioner"} <= classes
