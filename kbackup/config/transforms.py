"""``transforms.*`` of a connector's file, and ``--rename``, to renaming steps.

::

    transforms=AddPrefix
    transforms.AddPrefix.type=org.apache.kafka.connect.transforms.RegexRouter
    transforms.AddPrefix.regex=.*
    transforms.AddPrefix.replacement=copy_of_$0
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kbackup.config.doubts import Doubt, Value, error, warning
from kbackup.errors import ConfigurationError
from kbackup.renaming import Rename

ROUTER: Final = "RegexRouter"


class Renaming(NamedTuple):
    """Steps in their order, and what is to be said of them."""

    steps: tuple[Rename, ...]
    doubts: list[Doubt]


def is_transform(name: str) -> bool:
    """Whether *name* belongs to the transforms."""
    return name == "transforms" or name.startswith("transforms.")


def refuse(given: Mapping[str, Value]) -> Iterator[Doubt]:
    """Yield an error for each transform of a sink's connector: it changes what is written."""
    for name in _names(given):
        kind = given.get(f"transforms.{name}.type")
        if kind is not None and _is_router(kind):
            why = "the connector's task fails on a record whose topic was renamed"
            do = f"take {name} out of transforms; to restore under another name use --rename"
        else:
            why = "this version writes records as they are"
            do = f"take {name} out of transforms"
        yield error("transform", f"transforms.{name}.type", kind, why, do)


def chain(given: Mapping[str, Value]) -> Renaming:
    """Return the renaming that *given* asks for.

    Args:
        given: All that was given; ``rename`` takes the place of ``transforms``.
    """
    rename, regex = given.get("rename"), given.get("rename.regex")
    if rename is not None:
        step = _step(rename, regex, "rename")
        if "transforms" in given:
            why = "rename takes its place"
            step.doubts.append(warning("replaced", "transforms", given["transforms"], why))
        return step
    if regex is not None:
        why = "it selects topics, but rename, which gives the new name, is not set"
        return Renaming((), [error("rename", "rename.regex", regex, why, "add --rename")])
    parts = [_transform(name, given) for name in _names(given)]
    return Renaming(
        tuple(step for part in parts for step in part.steps),
        [doubt for part in parts for doubt in part.doubts],
    )


def _names(given: Mapping[str, Value]) -> list[str]:
    """Return the names of the transforms in their order."""
    listed = given.get("transforms")
    names = () if listed is None else listed.text.split(",")
    return [name.strip() for name in names if name.strip()]


def _is_router(kind: Value) -> bool:
    return kind.text.rpartition(".")[2] == ROUTER


def _transform(name: str, given: Mapping[str, Value]) -> Renaming:
    kind = given.get(f"transforms.{name}.type")
    if kind is None:
        why = f"transforms names {name}, and there is no type"
        return Renaming((), [error("transform", f"transforms.{name}.type", None, why, "add it")])
    if not _is_router(kind):
        why = "RegexRouter is the only transform that this version supports"
        do = f"take {name} out of transforms"
        return Renaming((), [error("transform", f"transforms.{name}.type", kind, why, do)])
    if f"transforms.{name}.predicate" in given:
        why = "this version does not support conditions on transforms"
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
