"""The converters of keys and values, named or assumed, with what is given for their options."""

from collections.abc import Mapping
from typing import Any, Final

from kbackup import plugins
from kbackup.config.doubts import Doubt, Value, error, is_true, warning
from kbackup.config.named import NamedPlugins, form_of
from kbackup.config.settings import BY_NAME, shown_value
from kbackup.errors import ConfigurationError
from kbackup.naming import View

_PARTS: Final = {"key": View.KEY, "value": View.VALUE}


def resolve(named: NamedPlugins, given: Mapping[str, Value], *, writes: bool) -> None:
    """Record both converters; the key's applies if keys are stored.

    A backup that is read may have keys that the configuration does not mention.  Its converter is
    used if it can be found, and otherwise does not matter.
    """
    format_name: str | None = named.found.get("format_class")
    _converter(named, given, "value", format_name, writes=writes)
    keys_format = named.found.get("keys_format_class", None if writes else format_name)
    if is_true(given, "store.kafka.keys"):
        _converter(named, given, "key", keys_format, writes=writes)
        return
    trial = NamedPlugins(named.view)
    if not writes:
        _converter(trial, given, "key", keys_format, writes=False)
    key = trial.found.get("key_converter")
    lacks = key is not None and any(
        option.is_required and f"key.converter.{option.name}" not in given
        for option in plugins.options("converters", key)
    )
    if writes or lacks or any(doubt.level == "error" for doubt in trial.doubts):
        named.without_effect += [name for name in given if name.startswith("key.converter")]
    else:
        named.found |= trial.found


def _converter(
    named: NamedPlugins,
    given: Mapping[str, Value],
    part: str,
    format_name: str | None,
    *,
    writes: bool,
) -> None:
    """Record the converter of *part* and its sub-properties."""
    name = f"{part}.converter"
    value = given.get(name)
    named.take("converters", name, given)
    found = named.found.get(f"{part}_converter")
    form = form_of(format_name)
    if found is None and value is None and form is not None:
        assumed = {**form.assumed, **(getattr(form, "assumed_to_write", {}) if writes else {})}
        found = assumed.get(_PARTS[part])
        if found is not None:
            named.found[f"{part}_converter"] = found
            defaults = plugins.load("converters", found).defaults
            says = "".join(f" with {key}={shown_value(own)}" for key, own in defaults.items())
            why = f"not given, so the worker's converter was used; {found}{says} is assumed"
            do = f"set {name} to the worker's converter"
            named.doubts.append(warning("assumed", name, None, why, do))
    if found is not None and form is not None and not _go_together(found, form):
        fit = _that_go_with(form, _PARTS[part])
        why = f"this version writes {format_name} files of: {', '.join(fit)}"
        do = f"set {name}={fit[0]}" if fit else f"choose another {_format_of(name)}"
        named.doubts.append(error("combination", name, value, why, do))
    properties: dict[str, Any] = {}
    if found is not None:
        converter = plugins.load("converters", found)
        properties = _given_options(given, f"{name}.", found)
        if value is None or value.text == found:  # a Java class keeps Connect's own defaults
            properties = {**converter.defaults, **properties}
        opened = converter()
        try:
            opened.configure(properties)
            needs_schema = writes and getattr(form, "needs_schema", False)
            if needs_schema and getattr(opened, "is_schemaless", False):
                named.doubts.append(_schemaless(name, format_name, value))
        except ConfigurationError as problem:
            place = f"{name}.{problem.place.get('property', '')}".removesuffix(".")
            why = f"{problem.what}; {problem.why}" if problem.why else problem.what
            doubt = error("unsupported", place, given.get(place), why, problem.do)
            named.doubts.append(doubt)
    named.found[f"{part}_converter_properties"] = properties


def _go_together(converter: str, form: Any) -> bool:
    """Whether a format takes what a converter gives; by what both declare."""
    return not form.takes.isdisjoint(plugins.load("converters", converter).gives)


def _that_go_with(form: Any, view: View) -> list[str]:
    """Return the names of the installed converters that go with a format, the usual one first."""
    found = []
    for plugin in plugins.installed("converters"):
        try:
            if _go_together(plugin.name, form):
                found.append(plugin.name)
        except ConfigurationError:  # a broken one is nobody's choice
            continue
    return sorted(found, key=lambda name: (name != form.assumed.get(view), name))


def _given_options(given: Mapping[str, Value], prefix: str, converter: str) -> dict[str, Any]:
    """Return what was given for the options of *converter*, by their names without *prefix*."""
    mine = {
        name: BY_NAME[name].option
        for name in given
        if name.startswith(prefix)
        and name in BY_NAME
        and ("converters", converter) in BY_NAME[name].plugins
    }
    return {
        option.name: option.read(given[name].value)
        for name, option in mine.items()
        if option is not None
    }


def _format_of(converter: str) -> str:
    """Return the property of the format that goes with the property of a converter."""
    return "keys.format.class" if converter == "key.converter" else "format.class"


def _schemaless(name: str, format_name: str | None, value: Value | None) -> Doubt:
    why = f"{format_name} files need a schema, and JSON without schemas has none"
    form = _format_of(name)
    do = f"set {name}.schemas.enable=true if the records carry theirs, or {form}=json"
    return error("combination", name, value, why, do)
