"""How the subject of a schema is named: Confluent's three strategies.

Source: schema-registry, ``io.confluent.kafka.serializers.subject``.
"""

from collections.abc import Callable
from typing import Final


def _by_topic(topic: str, part: str, record: str | None) -> str:  # noqa: ARG001
    return f"{topic}-{part}"


def _by_record(topic: str, part: str, record: str | None) -> str:
    return record or _by_topic(topic, part, record)


def _by_both(topic: str, part: str, record: str | None) -> str:
    return f"{topic}-{record}" if record else _by_topic(topic, part, record)


SUBJECTS: Final[dict[str, Callable[[str, str, str | None], str]]] = {
    "TopicNameStrategy": _by_topic,
    "RecordNameStrategy": _by_record,
    "TopicRecordNameStrategy": _by_both,
}
"""By strategy: the subject for a topic, a part ("key" or "value") and a record's name."""


def subject(strategy: str, topic: str, part: str, record: str | None) -> str:
    """Return the subject; *strategy* may include its Java package."""
    return SUBJECTS[strategy.rpartition(".")[2]](topic, part, record)
