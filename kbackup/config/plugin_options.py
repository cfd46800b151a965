"""The options of plugins: read like any property, and used where their plugin is chosen.

Who declares them, and how, `kbackup.plugins` says.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from kbackup import plugins
from kbackup.config.issues import ConfigIssue, Value, error, warning
from kbackup.config.parsing import names_store
from kbackup.config.property import PREFIXES, Property
from kbackup.config.settings import BY_NAME, PLACES, Settings
from kbackup.errors import ConfigurationError
from kbackup.options import check_needs

_CHOICES: Final = (
    ("formats", "format_class"),
    ("formats", "keys_format_class"),
    ("formats", "headers_format_class"),
    ("partitioners", "partitioner_class"),
    ("extractors", "timestamp_extractor"),
    ("converters", "key_converter"),
    ("converters", "value_converter"),
)
"""Seams, and the settings that name their plugins."""

_NAMED_BY: Final = {"stores": "store.url", "formats": "format.class"}


_NAMING: Final = frozenset(attribute.replace("_", ".") for _, attribute in _CHOICES)
"""The properties that name plugins."""


def usable(
    names: Iterable[str], given: Mapping[str, Value], bad: Container[str]
) -> dict[str, Value]:
    """Return what was given for *names*, without the *bad* ones; an empty name is not given."""
    return {
        name: given[name]
        for name in names
        if name not in bad and (name not in _NAMING or given[name].text)
    }


def check(names: Iterable[str], given: Mapping[str, Value]) -> Iterator[ConfigIssue]:
    """Yield an error for each value that its option refuses."""
    for name in names:
        found = BY_NAME.get(name)
        if found is not None and found.option is not None:
            try:
                found.option.read(given[name].value)
            except ValueError as problem:
                yield error("value", name, given[name], str(problem), "correct it")


def values(given: Mapping[str, Value]) -> dict[str, Any]:
    """Return the value of each option in *given*, of the option's type."""
    found = (
        (name, value, BY_NAME[name].option) for name, value in given.items() if name in BY_NAME
    )
    return {name: option.read(value.value) for name, value, option in found if option is not None}


def idle(names: Iterable[str], settings: Mapping[str, Any], *, reads: bool) -> Iterator[str]:
    """Yield the options among *names* none of whose plugins is chosen.

    Args:
        names: Properties.
        settings: What chooses plugins, by attribute of `Settings`.
        reads: Whether a backup is read: what no setting names follows from its objects then.
    """
    wanted = chosen(settings)
    for name in names:
        found = BY_NAME.get(name)
        if found is None or found.option is None:
            continue
        if not any(
            _is_chosen(found, seam, plugin, wanted, reads=reads) for seam, plugin in found.plugins
        ):
            yield name


def missing(
    settings: Mapping[str, Any], given: Mapping[str, Value], sides: frozenset[str]
) -> Iterator[ConfigIssue]:
    """Yield what the chosen plugins need and was not given, and options they cannot declare.

    An option that is ignored for want of another one is a warning.
    """
    for attribute, (seam, plugin) in chosen(settings).items():
        try:
            options = plugins.options(seam, plugin)
        except ConfigurationError as problem:
            yield error("plugin", "", None, f"{problem.what}: {problem.why}", problem.do)
            continue
        prefix = f"{attribute.replace('_', '.')}." if seam in PREFIXES else ""
        for option in options:
            found = BY_NAME[prefix + option.name]
            if found.option != option:
                why = f"{plugin} declares it differently from another plugin, or from kbackup"
                yield error("plugin", found.name, None, why, "uninstall one of the two")
            elif option.is_required and found.name not in given and found.commands & sides:
                why = f"it is not given, and {plugin} needs it"
                yield error("missing", found.name, None, why, f"set it: {option.help}")
        texts = {
            option.name: given[prefix + option.name].text or None
            for option in options
            if prefix + option.name in given
        }
        try:
            check_needs(options, texts)
        except ConfigurationError as problem:
            name = prefix + str(problem.place["property"])
            yield error("missing", name, None, problem.why, problem.do)
        for option in options:
            other = option.ignored_without
            if other and texts.get(option.name) is not None and texts.get(other) is None:
                name = prefix + option.name
                why = f"it is ignored, as by the connectors, because {prefix}{other} is not set"
                yield warning("no_effect", name, given[name], why, "set both, or neither")


def unusable(settings: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Yield what the chosen store and partitioner cannot be configured with."""
    yield from _unusable_by("stores", chosen(settings)["store_url"][1], options)
    _, name = chosen(settings)["partitioner_class"]
    if not plugins.options("partitioners", name):
        return
    shared = {
        "directory.delim": settings.get("directory_delim") or "/",
        "timezone": settings.get("timezone"),
    }
    try:
        plugins.load("partitioners", name)().configure({**options, **shared})
    except ConfigurationError as problem:
        named = str(problem.place.get("property", "partitioner.class"))
        yield error("unsupported", named, None, problem.why or problem.what, problem.do)


def unreadable(options: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Yield options with which a format reads nothing: objects say themselves what reads them."""
    for found in plugins.installed("formats"):
        declared = plugins.options("formats", found.name)
        if any(option.name in options for option in declared):
            yield from _unusable_by("formats", found.name, options)


def _unusable_by(seam: str, name: str, options: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    try:
        found = plugins.load(seam, name)
        if isinstance(found, plugins.ChecksOptions):
            found.check_options(options)
    except ConfigurationError as problem:
        named = str(problem.place.get("property", _NAMED_BY[seam]))
        yield error("combination", named, None, problem.why or problem.what, problem.do)


def chosen(settings: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return seam and plugin by the setting that names it, a default where nothing does."""
    found = {}
    for seam, attribute in _CHOICES:
        name = settings.get(attribute) or Settings.model_fields[attribute].default
        if name is not None:
            found[attribute] = (seam, name)
    url = settings.get("store_url") or ""
    scheme = url.partition("://")[0]
    is_there = any(scheme == each.name for each in plugins.installed("stores"))
    is_chosen = is_there and names_store(url)  # what nobody has is refused as store.url
    found["store_url"] = ("stores", scheme) if is_chosen else PLACES[0].plugins[0]
    return found


def _is_chosen(
    found: Property,
    seam: str,
    plugin: str,
    chosen: Mapping[str, tuple[str, str]],
    *,
    reads: bool,
) -> bool:
    if seam == "formats" and reads:
        return True
    if seam in PREFIXES:
        attribute = found.name.partition(".converter.")[0] + "_converter"
        return (seam, plugin) == chosen.get(attribute, (seam, plugin) if reads else None)
    return (seam, plugin) in chosen.values()
