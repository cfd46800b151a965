"""Names and keys of objects that a run has not written yet: checked, and shown in its plan."""

from collections.abc import Callable, Collection, Sequence

from kbackup import partitioners
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    IllegalTopicNameError,
    KbackupError,
    ObjectKeyError,
)
from kbackup.naming import OFFSET_MAX, ObjectKey, check_topic
from kbackup.partitioners import Partitioner
from kbackup.records import Span, TopicPartition
from kbackup.runs import wiring
from kbackup.runs.routing import Routes


def check(settings: Settings, wheres: Sequence[TopicPartition]) -> None:
    """Refuse a layout in which some partition's keys could not be stored, before anything is.

    Raises:
        ConfigurationError: Naming the key.
    """
    layout, partitioner = wiring.layout(settings), _partitioner(settings)
    for where in map(wiring.routes(settings), wheres):
        encoded = partitioners.only_directory(partitioner, where) or "any"
        for spec in wiring.views(settings):
            parts = ObjectKey(
                where.topic, where.partition, OFFSET_MAX, encoded, spec.extension(), spec.view
            )
            try:
                layout.key(parts)
            except ObjectKeyError as error:
                raise ConfigurationError(
                    f"objects of {where} cannot be stored as {error.key[:200]}",
                    error.why,
                    "choose another topics.dir, directory.delim or file.delim",
                ) from error


def clashes(
    routes: Routes, topics: Collection[str], taken: Collection[str]
) -> dict[str, KbackupError]:
    """Return the topics that cannot be stored under the names they get, and why.

    Args:
        routes: Under which names topics are stored.
        topics: The topics.
        taken: Those that the run backs up already.

    Raises:
        ConfigurationError: As `Routes` raises it.
    """
    named: dict[str, list[str]] = {}
    for topic in sorted({*taken, *topics}):
        named.setdefault(routes.topic(topic), []).append(topic)
    found: dict[str, KbackupError] = {}
    for stored, sources in named.items():
        try:
            check_topic(stored, "correct regex and replacement of the transforms")
        except IllegalTopicNameError as error:
            found |= dict.fromkeys(sources, error)
        if len(sources) > 1:
            clash = ConfigurationError(
                f"{', '.join(sources[:-1])} and {sources[-1]} would both be stored as {stored}",
                "the transforms give them one name, so their objects would have the same keys",
                "keep a part of the name that tells them apart, as replacement=copy_of_$0 does",
                property="transforms",
            )
            found |= dict.fromkeys(sources, clash)
    return {topic: error for topic, error in found.items() if topic not in taken}


def next_keys(settings: Settings) -> Callable[[TopicPartition, Span], str | None]:
    """Return what gives the key of the first object of a span, if it begins with a record.

    None where the records' own directory, time or schema decides.
    """
    layout, partitioner = wiring.layout(settings), _partitioner(settings)
    spec, routes = wiring.views(settings)[-1], wiring.routes(settings)

    def key(where: TopicPartition, span: Span) -> str | None:
        directory = partitioners.only_directory(partitioner, where)
        is_affixed = settings.s3_schema_partition_affix_type != "NONE"
        if directory is None or is_affixed or layout.is_dated:
            return None
        topic = routes.topic(where.topic)
        parts = ObjectKey(
            topic, where.partition, span.start_offset, directory, spec.extension(), spec.view
        )
        return layout.key(parts)

    return key


def _partitioner(settings: Settings) -> Partitioner:
    return partitioners.by_name(settings.partitioner_class, wiring.partitioner_options(settings))
