"""How a fake cluster that creates one topic creates several."""

from collections.abc import Callable, Sequence

from kbackup.errors import KbackupError
from kbackup.kafka import NewTopic


def each_created(
    create: Callable[..., str], topics: Sequence[NewTopic], *, only_validate: bool
) -> dict[str, str | KbackupError]:
    """Create topics by *create*; one that it refuses does not keep the others."""
    found: dict[str, str | KbackupError] = {}
    for topic in topics:
        try:
            found[topic.name] = create(
                topic.name, topic.partitions, topic.replication_factor, topic.config,
                only_validate=only_validate,
            )  # fmt: skip
        except KbackupError as error:
            found[topic.name] = error
    return found
