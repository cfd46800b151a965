"""The keys of objects that a run has not written yet: checked, and shown in its plan."""

from collections.abc import Callable, Sequence

from kbackup import partitioners
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, ObjectKeyError
from kbackup.naming import OFFSET_MAX, ObjectKey
from kbackup.partitioners import Partitioner
from kbackup.records import Span, TopicPartition
from kbackup.runs import wiring


def check(settings: Settings, wheres: Sequence[TopicPartition]) -> None:
    """Refuse a layout in which some partition's keys could not be stored, before anything is.

    Raises:
        ConfigurationError: Naming the key.
    """
    layout, partitioner = wiring.layout(settings), _partitioner(settings)
    for where in wheres:
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


def next_keys(settings: Settings) -> Callable[[TopicPartition, Span], str | None]:
    """Return what gives the key of the first object of a span, if it begins with a record.

    None where the records' own directory, time or schema decides.
    """
    layout, partitioner = wiring.layout(settings), _partitioner(settings)
    spec = wiring.views(settings)[-1]

    def key(where: TopicPartition, span: Span) -> str | None:
        directory = partitioners.only_directory(partitioner, where)
        is_affixed = settings.s3_schema_partition_affix_type != "NONE"
        if directory is None or is_affixed or layout.is_dated:
            return None
        parts = ObjectKey(
            where.topic, where.partition, span.start_offset, directory, spec.extension(), spec.view
        )
        return layout.key(parts)

    return key


def _partitioner(settings: Settings) -> Partitioner:
    return partitioners.by_name(settings.partitioner_class, wiring.partitioner_options(settings))
