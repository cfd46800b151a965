"""Declarations: what happens to a record that does not fit the chosen layout."""

from typing import Annotated, ClassVar, Literal

from kbackup.config.parsing import Boolean, Integer, OptionalText, Word
from kbackup.config.property import SINK, Group, declare


class Tolerance(Group):
    """What happens to a bad record, in Kafka Connect's own words."""

    title: ClassVar[str] = "Errors"
    commands: ClassVar[frozenset[str]] = SINK

    errors_tolerance: Annotated[Literal["none", "all"], *Word] = declare(
        "none",
        "What to do with a record that does not fit the layout: none stops its partition before "
        "it; all leaves it out, counts it and reports it.",
    )
    errors_deadletterqueue_topic_name: OptionalText = declare(
        None,
        "With errors.tolerance=all: topic to write the records that were left out to, unchanged.",
        example="orders-dead-letters",
    )
    errors_deadletterqueue_topic_replication_factor: Integer = declare(
        3,
        "Replication factor of the dead letter topic if it has to be created, with one "
        "partition; -1 for the cluster's default.",
        ge=-1,
        le=32_767,
    )
    errors_deadletterqueue_context_headers_enable: Boolean = declare(
        False,
        "Add headers to each dead letter that say where it came from and what is wrong with it.",
    )
    errors_retry_timeout: Integer = declare(
        0,
        "How many milliseconds to go on retrying a conversion when the Schema Registry does not "
        "deliver its schema, after the registry client's own retries; -1 for ever.",
        ge=-1,
        le=2**63 - 1,
    )
    errors_retry_delay_max_ms: Integer = declare(
        60_000,
        "Longest wait between two such attempts in milliseconds; the first wait is 300 ms, and "
        "each further one is twice as long.",
        ge=1,
        le=2**63 - 1,
    )
    errors_log_enable: Boolean = declare(
        False,
        "Report each record that is left out, with its reason, rather than only the first one "
        "of a partition.",
    )
    errors_log_include_messages: Boolean = declare(
        False,
        "Include the record's timestamp in such a report; its key, value and headers are never "
        "included.",
    )
    report_null_values_to_dlq: Boolean = declare(
        True,
        "Write records that behavior.on.null.values=ignore leaves out to the dead letter topic "
        "too.",
    )
