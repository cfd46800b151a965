"""Names of plugins and of their options: known from the plugins alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kbackup
from kbackup import plugins

_ROOT: Final = Path(kbackup.__file__).parent

_KNOWN: Final = {
    # a table's partition columns are the folders that built-in partitioners make of these
    "ddl/directories.py": {"partition.field.name", "path.format"},
    # as an operator writes them, without a prefix
    "config/known.py": {"schemas.enable"},
    "testing/faults.py": {"kbackup.stores.memory"},  # a store for tests is what it is about
}
"""What is named elsewhere, and why it may be."""

_HOMES: Final = (*plugins.SEAMS, *plugins.CHAINED, "registry")
"""Where options are declared; those of several converters in `kbackup.registry`."""


def names() -> set[str]:
    """Return the properties and aliases that built-in plugins declare, supported or not."""
    declared = [found.option for found in plugins.declared() if found.is_built_in]
    refused = {found.property.name for found in plugins.refused() if found.is_built_in}
    options = {name for option in declared for name in (option.name, *option.aliases)}
    return {name for name in options | refused if "." in name}


def modules() -> set[str]:
    """Return the modules of built-in plugins and of their options."""
    points = [(seam, plugin.name) for seam in plugins.SEAMS for plugin in plugins.installed(seam)]
    found = {plugins.module(seam, name) for seam, name in points}
    return {name for name in found if name is not None} - {f"kbackup.{s}" for s in plugins.SEAMS}


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


def test_a_plugin_is_named_by_nobody_but_itself() -> None:
    """
    No module outside the seams imports a plugin or spells out one of its options: what kbackup
    knows of a plugin, it knows from the plugin.
    """
    properties = {
        name: re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w]|[.]\w)") for name in names()
    }
    plugin_modules = modules()

    found: dict[str, set[str]] = {}
    for path in sorted(_ROOT.rglob("*.py")):
        place = path.relative_to(_ROOT)
        if place.parts[0] in _HOMES:
            continue
        tree = ast.parse(path.read_text())
        said = {name for text in texts(tree) for name, it in properties.items() if it.search(text)}
        found[str(place)] = said | plugin_modules.intersection(imports(tree))

    assert _KNOWN == {place: named for place, named in found.items() if named}
    assert {"parquet.codec", "s3.bucket.name", "path.format"} <= names()
    assert "kbackup.formats.parquet" in plugin_modules
