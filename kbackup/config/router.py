"""`RegexRouter` and ``rename``: topics get their other names before anything is planned.

For a restore that is the name of the target, for a sink the name under which it stores the topic.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kbackup.config.doubts import Doubt, Value, error, warning
from kbackup.config.transforms import is_router, listed
from kbackup.errors import ConfigurationError
from kbackup.renaming import Rename


class Renaming(NamedTuple):
    """Steps in order, with errors and warnings about them."""

    steps: tuple[Rename, ...]
    doubts: list[Doubt]


def chain(given: Mapping[str, Value]) -> Renaming:
    """Return the renaming that *given* asks for.

    Args:
        given: All that was given; ``rename`` takes the place of ``transforms``.
    """
    rename, regex = given.get("rename"), given.get("rename.regex")
    if rename is not None:
        step = _step(rename, regex, "rename")
        for name in listed(given):
            kind = given.get(f"transforms.{name}.type")
            if kind is not None and is_router(kind):
                why = "rename takes its place"
                step.doubts.append(warning("replaced", f"transforms.{name}.type", kind, why))
        return step
    if regex is not None:
        why = "it selects topics, but rename, which gives the new name, is not set"
        return Renaming((), [error("rename", "rename.regex", regex, why, "add --rename")])
    parts = [_named(name, given) for name in listed(given)]
    return Renaming(
        tuple(step for part in parts for step in part.steps),
        [doubt for part in parts for doubt in part.doubts],
    )


def _named(name: str, given: Mapping[str, Value]) -> Renaming:
    kind = given.get(f"transforms.{name}.type")
    if kind is None:
        why = f"transforms names {name}, but its type is not set"
        return Renaming((), [error("transform", f"transforms.{name}.type", None, why, "add it")])
    if not is_router(kind):
        return Renaming((), [])  # no renaming: `restore_steps`
    if f"transforms.{name}.predicate" in given:
        why = "a topic has one name for all its records, so a predicate cannot choose it"
        named = f"transforms.{name}.predicate"
        return Renaming((), [error("transform", named, given[named], why, "remove it")])
    replacement = given.get(f"transforms.{name}.replacement")
    regex = given.get(f"transforms.{name}.regex")
    if replacement is None or regex is None:
        why = "RegexRouter needs regex and replacement"
        return Renaming((), [error("transform", f"transforms.{name}", None, why, "add both")])
    return _step(replacement, regex, f"transforms.{name}.replacement")


def _step(replacement: Value, regex: Value | None, name: str) -> Renaming:
    try:
        if regex is None:
            step = Rename(replacement=replacement.text)
        else:
            step = Rename(regex=regex.text, replacement=replacement.text)
    except ConfigurationError as problem:
        why = f"{problem.what}: {problem.why}"
        return Renaming((), [error("rename", name, replacement, why, problem.do)])
    return Renaming((step,), [])
