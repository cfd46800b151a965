"""Creates topics, many with each request."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as Asked

from kbackup.errors import ConfigurationError, KafkaError, KbackupError
from kbackup.kafka import NewTopic
from kbackup.plurals import counted

PARTITIONS_MOST: Final = 1_000
"""Partitions of the topics of a request: a controller writes all that one asks for at once, and
takes no more than 10,000 changes, the topics' settings among them."""

TOPICS_MOST: Final = 200

_ROOM_S: Final = 5.0
"""By how much an answer may be later than the client was told to wait."""


def create(
    admin: AdminClient,
    topics: Sequence[NewTopic],
    answer: Callable[[str, Callable[[], Any]], Any],
    timeout_s: float,
    *,
    only_validate: bool,
) -> dict[str, KbackupError | None]:
    """Create topics; return why not by name, None where all is well.

    Args:
        admin: The client.
        topics: Different ones.
        answer: Calls a function for what its first argument describes, and raises its failure as
            an error of ours.
        timeout_s: How long the cluster may take for a request.
        only_validate: Create nothing.
    """
    found: dict[str, KbackupError | None] = {}
    for share in _shares(topics):
        asked = [
            Asked(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                config=dict(topic.config),
            )
            for topic in share
        ]
        futures = admin.create_topics(
            asked, operation_timeout=timeout_s, validate_only=only_validate
        )
        for topic in share:
            found[topic.name] = _refusal(topic, futures[topic.name], answer, timeout_s)
    return found


def _refusal(
    topic: NewTopic, future: Any, answer: Callable[[str, Callable[[], Any]], Any], timeout_s: float
) -> KbackupError | None:
    what = f"creating topic {topic.name} with {counted(topic.partitions, 'partition')}"
    try:
        answer(what, lambda: future.result(timeout=timeout_s + _ROOM_S))
    except KafkaError as error:
        cause = error.__cause__
        if cause is None or not cause.args or not hasattr(cause.args[0], "code"):
            return error
        if cause.args[0].code() != Code.INVALID_CONFIG:
            return error
        do = "correct --topic-config, or the setting in the target cluster"
        return ConfigurationError(what, error.why, do, topic=topic.name)
    return None


def _shares(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """Yield the topics of each request; one with many partitions goes alone."""
    share: list[NewTopic] = []
    for topic in topics:
        partitions = sum(each.partitions for each in share) + topic.partitions
        if share and (len(share) == TOPICS_MOST or partitions > PARTITIONS_MOST):
            yield share
            share = []
        share.append(topic)
    if share:
        yield share
