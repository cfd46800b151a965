"""Read ``transforms.*`` and ``predicates.*`` of a connector's file, and ``--rename``, as steps.

::

    transforms=AddPrefix
    transforms.AddPrefix.type=org.apache.kafka.connect.transforms.RegexRouter
    transforms.AddPrefix.regex=.*
    transforms.AddPrefix.replacement=copy_of_$0

For a restore that is the name of the target, for a sink the name under which it stores the topic.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kbackup import plugins
from kbackup.config.issues import ConfigIssue, Given, Value, error
from kbackup.errors import ConfigurationError
from kbackup.naming.renaming import Rename
from kbackup.options import read_boolean
from kbackup.plugins import Condition, Step

ROUTER: Final = "RegexRouter"
_ROUTER_PLUGIN: Final = "regex_router"

_OWN: Final = ("type", "predicate", "negate")
"""Properties of a transform that are not options of its class."""


T = TypeVar("T", Step, Rename)


class Steps(NamedTuple, Generic[T]):
    """Transforms, or renamings, in order, with errors and warnings about them."""

    steps: tuple[T, ...]
    issues: list[ConfigIssue]


def is_transform(name: str) -> bool:
    """Whether *name* belongs to the transforms."""
    return name in ("transforms", "predicates") or name.startswith(("transforms.", "predicates."))


def steps(given: Given, view: str, *, has_keys: bool) -> Steps[Step]:
    """Return the transforms of a sink, including its routing; none if it only routes.

    Its files hold *view*, "record" or "value"; if it *has_keys*, they are stored, so converted.
    """
    issues = [*_repeated(given), *_unlisted(given)]
    found = []
    for alias in listed(given):
        try:
            step = _opened(alias, given, issues)
            _check_reads(step, given, view)
            _check_topic(step, given)
        except _RefusedError as refusal:
            if not _routes(alias, given):  # else `router` says so
                issues.append(refusal.issue)
        else:
            if step.side == "key" and not has_keys:
                why = "keys are not stored, so it would have no effect"
                name = f"transforms.{alias}.type"
                issues.append(given.warning("no_effect", name, why))
            else:
                found.append(step)
    return Steps(_beyond_routing(found), issues)


def restore_steps(given: Given, converters: frozenset[str]) -> Steps[Step]:
    """Return the transforms of a restore, including the renaming; none if it only renames.

    ``rename`` takes the place of each ``RegexRouter``; *converters* are the sides that have one.
    """
    issues = [*_repeated(given), *_unlisted(given)]
    found = []
    for alias in listed(given):
        kind = given.get(f"transforms.{alias}.type")
        routes = _routes(alias, given)
        if "rename" in given if routes else kind is None and "rename" not in given:
            continue  # it has no effect; or the renaming is made of it, which says what it lacks
        try:
            step = _opened(alias, given, issues)
        except _RefusedError as refusal:
            if not routes:
                issues.append(refusal.issue)
            continue
        lacks = sorted(step.reads - converters)
        if lacks:
            why = f"it changes the {lacks[0]}, and no converter is set to read it"
            do = f"set {lacks[0]}.converter to the converter that fits what producers write"
            issues.append(given.error("transform", f"transforms.{alias}.type", why, do))
        found.append(step)
    return Steps(_beyond_routing(found), issues)


def _beyond_routing(found: Sequence[Step]) -> tuple[Step, ...]:
    """Return the chain that records go through: none where it only names their topic."""
    return () if all(step.plugin == _ROUTER_PLUGIN for step in found) else tuple(found)


class _RefusedError(Exception):
    def __init__(self, given: Given, name: str, why: str, do: str) -> None:
        super().__init__()
        self.issue = given.error("transform", name, why, do)


def _opened(alias: str, given: Given, issues: list[ConfigIssue]) -> Step:
    """Return the transform *alias*, after checking that it can be configured like this."""
    prefix = f"transforms.{alias}."
    plugin, side = _class(f"{prefix}type", given, "transforms", "transform")
    options = _options("transforms", plugin, prefix, given, issues, own=_OWN)
    condition = _condition(prefix, given, issues)
    try:
        plugins.load("transforms", plugin)().configure(options, side)
    except ConfigurationError as problem:
        raise _refusal(problem, prefix, given) from problem
    return Step(alias, plugin, side, options, condition)


def _condition(prefix: str, given: Given, issues: list[ConfigIssue]) -> Condition | None:
    named, negate = given.get(f"{prefix}predicate"), given.get(f"{prefix}negate")
    if named is None:
        if negate is not None:
            why = "there is no predicate to negate"
            issues.append(given.warning("no_effect", f"{prefix}negate", why))
        return None
    alias = named.text
    if alias not in _listed_in(given, "predicates"):
        why = f"predicates does not name {alias!r}"
        do = "add it to predicates, and set its type"
        raise _RefusedError(given, f"{prefix}predicate", why, do)
    own = f"predicates.{alias}."
    plugin, _ = _class(f"{own}type", given, "predicates", "predicate")
    options = _options("predicates", plugin, own, given, issues, own=("type",))
    try:
        is_negated = read_boolean(negate.value) if negate is not None else False
        plugins.load("predicates", plugin)().configure(options)
    except ValueError as problem:
        name, why = f"{prefix}negate", str(problem)
        raise _RefusedError(given, name, why, "correct it") from problem
    except ConfigurationError as problem:
        raise _refusal(problem, own, given) from problem
    return Condition(alias, plugin, options, is_negated)


def _class(name: str, given: Given, extension_point: str, word: str) -> tuple[str, str]:
    """Return the plugin for a Java class, and the side named after its ``$``."""
    kind = given.get(name)
    if kind is None:
        alias = name.split(".")[1]
        why = f"{extension_point} names {alias}, but its type is not set"
        raise _RefusedError(given, name, why, "add it")
    simple, _, side = kind.text.rpartition(".")[2].partition("$")
    for plugin, found in _usable(extension_point):
        sides = found.traits.sides
        if simple in found.traits.class_names and (side.lower() in sides if sides else not side):
            return plugin, side.lower()
        if simple in found.traits.class_names:
            classes = " or ".join(f"{simple}${each.title()}" for each in sides) or simple
            why, do = "there is no such class", f"write {classes}"
            raise _RefusedError(given, name, why, do)
    known = sorted(
        each for _, found in _usable(extension_point) for each in found.traits.class_names
    )
    why = f"no installed {word} has this name; installed are {', '.join(known)}"
    do = f"remove it from {extension_point}, or install the package that provides it"
    raise _RefusedError(given, name, why, do)


def _usable(extension_point: str) -> Iterator[tuple[str, Any]]:
    """Yield the plugins that can be imported: a broken one does not affect the others."""
    for plugin in plugins.installed(extension_point):
        try:
            yield plugin.name, plugins.load(extension_point, plugin.name)
        except ConfigurationError:
            continue


def _options(
    extension_point: str,
    plugin: str,
    prefix: str,
    given: Given,
    issues: list[ConfigIssue],
    *,
    own: Iterable[str],
) -> dict[str, Any]:
    """Return the values given for the options of a plugin, parsed."""
    declared = plugins.options(extension_point, plugin)
    by_name = {name: option for option in declared for name in (option.name, *option.aliases)}
    found = {}
    for full, value in given.items():
        name = full.removeprefix(prefix)
        if not full.startswith(prefix) or name in own:
            continue
        option = by_name.get(name)
        if option is None:
            why = f"{plugin} has no such option; it has no effect"
            do = f"its options are {', '.join(each.name for each in declared) or 'none'}"
            issues.append(given.warning("unknown_name", full, why, do))
            continue
        try:
            found[option.name] = option.read(value.value)
        except ValueError as problem:
            raise _RefusedError(given, full, str(problem), "correct it") from problem
    for option in declared:
        if option.is_required and found.get(option.name) in (None, "", ()):
            raise _RefusedError(given, f"{prefix}{option.name}", "it is needed", "add it")
    return found


def _refusal(problem: ConfigurationError, prefix: str, given: Given) -> _RefusedError:
    name = f"{prefix}{problem.place.get('property', 'type')}"
    why = f"{problem.what}: {problem.why}" if problem.why else problem.what
    return _RefusedError(given, name, why, problem.do)


def _check_reads(step: Step, given: Given, view: str) -> None:
    """Refuse a transform of what is not converted."""
    name = f"transforms.{step.alias}.type"
    if view == "record" and step.reads:
        parts = " and ".join(sorted(step.reads))
        why = f"it changes the {parts}, and full records keep their bytes as they are"
        do = "set format.class, which stores converted values, or remove it from transforms"
        raise _RefusedError(given, name, why, do)


def _check_topic(step: Step, given: Given) -> None:
    """Refuse a transform that chooses a topic for each record, which only a restore applies."""
    if step.chooses_topics:
        name = f"transforms.{step.alias}.type"
        why = (
            "it chooses a topic for each record, but a backup stores the offsets of a partition "
            "under one name, where a missing one is seen"
        )
        do = (
            "remove it from transforms here, and give it to the restore; to store records by time "
            "or by a field, use the time-based or the field partitioner"
        )
        raise _RefusedError(given, name, why, do)


def _listed_in(given: Given, name: str) -> list[str]:
    names = given.text(name).split(",")
    return [each.strip() for each in names if each.strip()]


def _repeated(given: Given) -> Iterator[ConfigIssue]:
    """Refuse a transform that is named twice, as the connector does: it would be applied twice."""
    for alias, count in Counter(listed(given)).items():
        if count > 1:
            why = f"it names {alias} {count} times"
            yield given.error("transform", "transforms", why, "name it once")


def _unlisted(given: Given) -> Iterator[ConfigIssue]:
    """Warn of each transform that is described and that the list does not name."""
    names = listed(given)
    for name in given:
        alias = name.removeprefix("transforms.").removesuffix(".type")
        if "." not in alias and name == f"transforms.{alias}.type" and alias not in names:
            why = f"transforms does not name {alias}, so it has no effect"
            yield given.warning("no_effect", name, why, "add it to transforms, or remove it")


def listed(given: Given) -> list[str]:
    """Return the names of the transforms in order."""
    return _listed_in(given, "transforms")


def _routes(alias: str, given: Given) -> bool:
    """Whether the transform *alias* is a `RegexRouter`."""
    return given.text(f"transforms.{alias}.type").rpartition(".")[2] == ROUTER


def renaming_of(given: Given) -> Steps[Rename]:
    """Return the renaming: ``rename`` and ``rename.prefix`` take the place of ``transforms``."""
    rename, regex = given.get("rename"), given.get("rename.regex")
    prefix = given.get("rename.prefix")
    if rename is not None and prefix is not None:
        why, do = "rename is set too, and each gives the new name", "leave out one of them"
        return Steps((), [given.error("rename", "rename.prefix", why, do)])
    if prefix is not None:
        rename = replace(prefix, value=f"{prefix.text}$0")
    if rename is not None:
        step = _step(rename, regex, "rename")
        for name in listed(given):
            if _routes(name, given):
                why = "rename takes its place"
                step.issues.append(given.warning("replaced", f"transforms.{name}.type", why))
        return step
    if regex is not None:
        why = "it selects topics, but rename, which gives the new name, is not set"
        return Steps((), [given.error("rename", "rename.regex", why, "add --rename")])
    parts = [_named(name, given) for name in listed(given)]
    return Steps(
        tuple(step for part in parts for step in part.steps),
        [issue for part in parts for issue in part.issues],
    )


def _named(name: str, given: Given) -> Steps[Rename]:
    if f"transforms.{name}.type" not in given:
        why = f"transforms names {name}, but its type is not set"
        return Steps((), [given.error("transform", f"transforms.{name}.type", why, "add it")])
    if not _routes(name, given):
        return Steps((), [])  # no renaming: `restore_steps`
    if f"transforms.{name}.predicate" in given:
        why = "a topic has one name for all its records, so a predicate cannot choose it"
        named = f"transforms.{name}.predicate"
        return Steps((), [given.error("transform", named, why, "remove it")])
    replacement = given.get(f"transforms.{name}.replacement")
    regex = given.get(f"transforms.{name}.regex")
    if replacement is None or regex is None:
        why = "RegexRouter needs regex and replacement"
        return Steps((), [error("transform", f"transforms.{name}", None, why, "add both")])
    return _step(replacement, regex, f"transforms.{name}.replacement")


def _step(replacement: Value, regex: Value | None, name: str) -> Steps[Rename]:
    try:
        if regex is None:
            step = Rename(replacement=replacement.text)
        else:
            step = Rename(regex=regex.text, replacement=replacement.text)
    except ConfigurationError as problem:
        why = f"{problem.what}: {problem.why}"
        return Steps((), [error("rename", name, replacement, why, problem.do)])
    return Steps((step,), [])
