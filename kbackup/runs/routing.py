"""Under which names a sink stores its topics: their own, or what `RegexRouter` makes of them."""

from dataclasses import dataclass
from typing import Final

from kbackup.records import TopicPartition
from kbackup.renaming import Rename, rename


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
