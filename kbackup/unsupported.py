"""Properties that the connectors' plugins have and ours do not support: refused by name.

A plugin declares them among its options, so that a file that relies on one is refused (exit 2)
instead of being carried out differently::

    INDENT = Unsupported("json.indent.output", true, "it spreads JSON over lines, and ...")
    OPTIONS = (CODEC, INDENT)

Only values that would change what is written or read are refused; the others are accepted without
effect.  The functions below recognize such values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One property.

    Attributes:
        name: The property; a converter's stands without its prefix, as in
            `kbackup.options.Option`.
        applies: Whether a value, without surrounding blanks, asks for what the plugin cannot do.
        why: What the property would do, and what the plugin does instead.
        do: What to do about it.
        commands: Which side would use it: "sink", "restore" (with all commands that read a
            backup), or "both".
    """

    name: str
    applies: Callable[[str], bool] = field(repr=False)
    why: str
    do: str = "remove it"
    commands: Literal["sink", "restore", "both"] = "both"


def given(text: str) -> bool:
    """Any value but an empty one."""
    return bool(text)


def true(text: str) -> bool:
    """Any value but ``false`` and an empty one."""
    return text.lower() not in ("false", "")


def false(text: str) -> bool:
    """``false`` in any case."""
    return text.lower() == "false"


def other_than(*harmless: str) -> Callable[[str], bool]:
    """Any value but *harmless* ones."""
    return lambda text: text not in harmless
