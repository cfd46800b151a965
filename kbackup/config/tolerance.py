"""Declarations: what becomes of a record that cannot be stored in the layout that was chosen."""

from typing import Annotated, ClassVar, Literal

from kbackup.config.parsing import Boolean, Integer, OptionalText, Word
from kbackup.config.property import SINK, Group, declare


class Tolerance(Group):
    """What a bad record does, in Kafka Connect's own words."""

    title: ClassVar[str] = "Errors"
    commands: ClassVar[frozenset[str]] = SINK

    errors_tolerance: Annotated[Literal["none", "all"], *Word] = declare(
        "none",
        "What a record that does not fit the layout does: none stops its partition before it, all "
        "leaves it out, counts it and names it.",
    )
    errors_deadletterqueue_topic_name: OptionalText = declare(
        None,
        "With errors.tolerance=all: topic that takes the records that were left out, as they were.",
        example="orders-dead-letters",
    )
    errors_deadletterqueue_topic_replication_factor: Integer = declare(
        3,
        "Replication factor of the dead letter topic where it has to be created, with one "
        "partition; -1 for the cluster's.",
        ge=-1,
        le=32_767,
    )
    errors_deadletterqueue_context_headers_enable: Boolean = declare(
        False,
        "Whether a dead letter has headers that say where it came from and what is wrong with it.",
    )
    errors_retry_timeout: Integer = declare(
        0,
        "Milliseconds for which a conversion that a Schema Registry keeps from its schema is tried "
        "again, after the registry's own retries; -1 for ever.",
        ge=-1,
        le=2**63 - 1,
    )
    errors_retry_delay_max_ms: Integer = declare(
        60_000,
        "Most milliseconds between two such attempts; the first wait is 300 ms, each further one "
        "is twice as long.",
        ge=1,
        le=2**63 - 1,
    )
    errors_log_enable: Boolean = declare(
        False,
        "Whether each record that is left out is reported with its reason, rather than the first "
        "one of a partition.",
    )
    errors_log_include_messages: Boolean = declare(
        False,
        "Whether such a report has the record's timestamp too; never its key, value or headers.",
    )
    report_null_values_to_dlq: Boolean = declare(
        True,
        "Whether records that behavior.on.null.values=ignore leaves out become dead letters too.",
    )
