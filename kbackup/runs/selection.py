"""Which topics a run takes, and under which names a sink stores them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kbackup.errors import ConfigurationError
from kbackup.java.regex import translate
from kbackup.naming import INTERNAL_TOPICS
from kbackup.naming.renaming import Rename, rename
from kbackup.records import TopicPartition


def select(available: Collection[str], topics: Collection[str], pattern: str | None) -> list[str]:
    """Return the topics to work on, sorted.

    Args:
        available: The names there are.
        topics: Names asked for; they win over *pattern*, and need not be available.
        pattern: A Java regular expression that a whole name must match; None with no *topics*
            selects all.  Neither selects internal topics: those must be named.

    Raises:
        ConfigurationError: If *pattern* takes too long over a name, or over all of them.
    """
    if topics:
        return sorted(set(topics))
    names = sorted(name for name in available if not is_internal(name))
    if pattern is None:
        return names
    wanted = translate(pattern)
    try:
        return [name for name in names if wanted.matches(name)]
    except TimeoutError as error:
        raise ConfigurationError(
            f"topics.regex {pattern!r} takes longer than it may",
            f"it took {error}: nested repetitions multiply",
            "write a simpler expression, or name the topics",
        ) from error


def is_internal(topic: str) -> bool:
    """Whether *topic* belongs to Kafka or to a service beside it."""
    return topic.startswith("__") or topic in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Routes:
    """Under which names a sink stores its topics; plain data.

    Attributes:
        steps: The ``RegexRouter`` steps in order; none where topics keep their names.
    """

    steps: tuple[Rename, ...] = ()

    def topic(self, name: str) -> str:
        """Return the name under which the topic *name* is stored.

        Raises:
            ConfigurationError: As `Rename` raises it.
        """
        return rename(name, self.steps)

    def __call__(self, where: TopicPartition) -> TopicPartition:
        """Return the name under which a partition is stored; its number stays.

        Raises:
            ConfigurationError: As `Rename` raises it.
        """
        return TopicPartition(self.topic(where.topic), where.partition) if self.steps else where


UNROUTED: Final = Routes()
"""Topics keep their names."""
