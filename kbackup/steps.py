"""A chain of transforms as plain data: what the configuration makes and a task is given."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbackup import plugins


@dataclass(frozen=True, slots=True)
class Condition:
    """Which records a transform is for; plain data.

    Attributes:
        alias: Its name in the file.
        plugin: The predicate.
        options: What was given for its options.
        negate: Whether it selects the records that do not match.
    """

    alias: str
    plugin: str
    options: Mapping[str, Any] = field(default_factory=dict)
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of a chain; plain data.

    Attributes:
        alias: Its name in the file.
        plugin: The transform.
        side: "key" or "value", or another side of its class; empty if it has only one.
        options: What was given for its options.
        condition: Which records it is for, None for all.
    """

    alias: str
    plugin: str
    side: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    condition: Condition | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The sides that must be converted for it: "key", "value"."""
        own = {self.side} & {"key", "value"}
        return frozenset((*own, *plugins.load("transforms", self.plugin).reads))

    @property
    def changes(self) -> frozenset[str]:
        """Those of the sides that it reads which it may change."""
        reads_only = getattr(plugins.load("transforms", self.plugin), "reads_only", False)
        return frozenset() if reads_only else self.reads

    @property
    def chooses_topics(self) -> bool:
        """Whether it may give the records of one topic different topics."""
        return bool(getattr(plugins.load("transforms", self.plugin), "chooses_topics", False))


def choose_topics(steps: Iterable[Step]) -> bool:
    """Return whether a chain may give the records of one topic different topics."""
    return any(step.chooses_topics for step in steps)
