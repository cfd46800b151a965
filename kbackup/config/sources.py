"""Options, variables and files to one value for each property, with where it came from.

An option overrides a variable, a variable a file (the last file wins), and a file the default.
Names are as given, except for aliases: `known` knows what they mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kbackup.config import files, known, placeholders
from kbackup.config.doubts import Doubt, Origin, Value, error, is_secret, short, warning
from kbackup.config.settings import ALIASES, BY_NAME, by_attribute
from kbackup.errors import ConfigurationError
from kbackup.literals import read_names

PREFIX: Final = "KBACKUP_"
_PROVIDERS: Final = "config.providers"
READ_ELSEWHERE: Final = frozenset({"KBACKUP_CONFIG", "KBACKUP_CACHE_DIR", "KBACKUP_KAFKA"})
"""Our variables that are not settings: the command line and the local services read them."""

"""Read by ``cli/`` itself."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What was given.

    Attributes:
        values: For each name the value that counts.
        doubts: Errors and warnings found on the way.
    """

    values: dict[str, Value] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every file could be read."""
        return all(doubt.code != "file" for doubt in self.doubts)


def merge(
    options: Mapping[str, object],
    paths: Sequence[Path],
    environ: Mapping[str, str],
    extra: Sequence[str],
) -> Merged:
    """Return what was given, with placeholders resolved.

    Args:
        options: By attribute or property name; None and () are not given.
        paths: Configuration files; a later one overrides an earlier one.
        environ: All variables.
        extra: ``name=value``, as ``-X`` takes it; counts as an option.
    """
    merged = Merged()
    for path in paths:
        _add_file(merged, path)
    _add_variables(merged, environ)
    _add_extra(merged, extra)
    for name, value in options.items():
        if value is not None and value != ():
            declared = by_attribute().get(name) or BY_NAME.get(name)
            merged.values[declared.name if declared else name] = Value(value, Origin("option"))
    providers = _providers(merged)
    for name, given in list(merged.values.items()):
        if not _is_text(given.text):
            why, do = "it holds bytes that are not UTF-8", "write it in UTF-8"
            merged.doubts.append(Doubt("error", "value", name, str(given.origin), name, why, do))
        elif given.folder is not None and placeholders.has_reference(given.text, providers):
            _resolve(merged, name, given, environ, given.folder, providers)
        else:
            _check_left_over(merged, name, given)
    return merged


def _is_text(text: str) -> bool:
    """Whether *text* is Unicode: neither Kafka nor a store has names for anything else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _add_file(merged: Merged, path: Path) -> None:
    try:
        entries = files.read(path)
    except ConfigurationError as problem:
        merged.doubts.append(
            Doubt("error", "file", "", f"file {path}", problem.what, problem.why, problem.do)
        )
        return
    found: dict[str, Value] = {}
    spelled: dict[str, str] = {}
    holds_credentials = False
    for entry in entries:
        name = ALIASES.get(entry.name, entry.name)
        origin = Origin("file", f"{path}:{entry.line}")
        if name in found and spelled[name] == entry.name:
            why = f"it is set again here, and the last value counts; first: {found[name].origin}"
            merged.doubts.append(warning("repeated", name, Value(entry.text, origin), why))
        elif name in found and entry.name != name:
            continue  # the name overrides its alias
        spelled[name] = entry.name
        found[name] = Value(entry.text, origin, folder=path.parent)
        holds_credentials |= bool(
            entry.text.strip()
            and is_secret(name)
            and not placeholders.has_reference(entry.text)
            and placeholders.left_over(name, entry.text, is_secret=True) is None
        )
    merged.values.update(found)
    if holds_credentials and files.is_open_to_others(path):
        merged.doubts.append(
            Doubt(
                "warning",
                "readable_credentials",
                "",
                f"file {path}",
                f"configuration file {path}",
                "it holds credentials and any user can read it",
                f"chmod o-r {path}",
            )
        )


def _add_variables(merged: Merged, environ: Mapping[str, str]) -> None:
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in READ_ELSEWHERE:
            continue
        origin = Origin("env", variable)
        name = known.name_of_variable(variable)
        if name is None:
            why, do = known.nearest_variable(variable)
            merged.doubts.append(
                Doubt("warning", "unknown_name", variable, str(origin), variable, why, do)
            )
            continue
        merged.values[name] = Value(text, origin, folder=Path())


def _add_extra(merged: Merged, extra: Sequence[str]) -> None:
    for pair in extra:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            merged.doubts.append(
                Doubt("error", "option", "", "option", "-X", "expected -X any.property=value")
            )
            continue
        name = ALIASES.get(name, name)
        if is_secret(name):
            why = "any user on this machine can read the command line"
            do = "set it in a file or a variable"
            merged.doubts.append(error("secret", name, Value(text, Origin("option")), why, do))
            continue
        merged.values[name] = Value(text, Origin("option"))


def _providers(merged: Merged) -> Mapping[str, str]:
    """Take ``config.providers`` out of what was given; return what each alias reads."""
    given = {
        name: merged.values.pop(name)
        for name in list(merged.values)
        if name == _PROVIDERS or name.startswith(f"{_PROVIDERS}.")
    }
    found = dict(placeholders.BUILT_IN)
    aliases = read_names(given[_PROVIDERS].value) if _PROVIDERS in given else ()
    for alias in aliases:
        name = f"{_PROVIDERS}.{alias}.class"
        value = given.pop(name, None)
        if value is None:
            merged.doubts.append(error("missing", name, None, "it is not set", "name its class"))
            continue
        try:
            found[alias] = placeholders.kind(value.text)
        except ValueError as problem:
            do = "write such values as ${env:NAME} or ${file:PATH:key}"
            merged.doubts.append(error("unsupported", name, value, str(problem), do))
    given.pop(_PROVIDERS, None)
    if given:
        names = ", ".join(sorted(given))
        why = "accepted, but without effect here"
        merged.doubts.append(Doubt("warning", "no_effect", names, "", names, why))
    return found


def _resolve(
    merged: Merged,
    name: str,
    given: Value,
    environ: Mapping[str, str],
    folder: Path,
    providers: Mapping[str, str],
) -> None:
    try:
        text = placeholders.resolve(str(given.value), environ, folder, providers)
    except ConfigurationError as problem:
        why = f"{problem.what} cannot be resolved: {problem.why}"
        do = problem.do or "set it, or write the value itself"
        merged.doubts.append(error("placeholder", name, given, why, do))
    else:
        merged.values[name] = Value(text, given.origin)


def _check_left_over(merged: Merged, name: str, given: Value) -> None:
    found = placeholders.left_over(name, given.text, is_secret=is_secret(name))
    if found is not None:
        what = "it" if is_secret(name) else short(found)
        merged.doubts.append(
            error(
                "placeholder",
                name,
                given,
                f"{what} is a placeholder that was never filled in",
                "write the value itself"
                if given.folder is None
                else "write the value, ${env:NAME} or ${file:PATH:key}",
            )
        )
