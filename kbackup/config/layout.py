"""Declarations: what objects are called, what is in them, when they are cut, what is left out."""

from typing import Annotated, ClassVar, Final, Literal

from kbackup.config.parsing import (
    Boolean,
    Directory,
    Duration,
    ExactWord,
    Integer,
    Limit,
    ObjectName,
    ObjectPlaces,
    OptionalText,
    Switch,
    Text,
    Word,
)
from kbackup.config.property import (
    ALL,
    CONVERTING,
    READING,
    RESTORE,
    RUNS,
    SETTLING,
    SINK,
    SPARK,
    STATUS,
    Group,
    declare,
)
from kbackup.plugins import built_in

RECORD_FORMAT: Final = "parquet"
"""The format of full records if ``format.class`` is not set."""

CONNECTORS_SIDES_FORMAT: Final = "avro"
"""The connectors' default format for keys and headers."""

CONNECTORS_EXTRACTOR: Final = "wallclock"
"""The timestamp extractor of the connectors' layout if ``timestamp.extractor`` is not set."""


class LayoutSettings(Group):
    """Names and contents of objects, with the connectors' property names."""

    title: ClassVar[str] = "Layout"
    commands: ClassVar[frozenset[str]] = ALL - STATUS

    topics_dir: Text = declare(
        "topics",
        "First part of every object key; may have several segments, may be empty.",
        commands=ALL,
        aliases=("s3.prefix",),
    )
    directory_delim: Text = declare(
        "/", "Separates the segments of an object key.", commands=ALL, min_length=1
    )
    file_delim: Text = declare(
        "+",
        "Separates topic, partition and offset in an object's name.",
        commands=ALL - STATUS | {"prune"},
        min_length=1,
    )
    filename_offset_zero_pad_width: Integer = declare(
        10, "Minimum number of digits of the offset in an object's name.", ge=0, le=99
    )
    object_name_template: ObjectName = declare(
        None,
        "Template of object names, for format.class=block_gzip: {topic}, {partition} and, last, "
        "{offset}, with {date}, {year}, {month}, {day}, {hour}, {minute} or {second} of the "
        "upload, in UTC.",
        example="{year}/{month}/{day}/{hour}/{topic}-{partition}-{offset}",
        is_literal=True,
    )
    view: Annotated[Literal["record", "value"], *Word] = declare(
        "record",
        "Full records, or values only, as the connectors write them; default: value where "
        "format.class is given, else record.",
        commands=SINK,
    )
    format_class: OptionalText = declare(
        None,
        f"File format: {built_in('formats')}, or the connectors' class name.",
        short=("-f", "--format"),
        example="json",
    )
    only_format: OptionalText = declare(
        None,
        "Read only the objects of this file format; the others are counted.",
        commands=READING,
        example="json",
    )
    store_kafka_keys: Boolean = declare(
        False, "Store keys in separate objects beside the values.", commands=RUNS
    )
    store_kafka_headers: Boolean = declare(
        False, "Store headers in separate objects beside the values.", commands=RUNS
    )
    keys_format_class: OptionalText = declare(
        None, "File format of the keys' objects.", commands=RUNS, example="json"
    )
    headers_format_class: OptionalText = declare(
        None, "File format of the headers' objects.", commands=RUNS, example="json"
    )
    tombstone_encoded_partition: Directory = declare(
        "tombstone", "Directory of the objects that hold the keys of tombstones."
    )
    key_converter: OptionalText = declare(
        None,
        f"Converts a key to what its file holds: {built_in('converters')}, or a class name.",
        commands=CONVERTING,
        example="string",
    )
    value_converter: OptionalText = declare(
        None,
        f"Converts a value to what its file holds: {built_in('converters')}, or a class name.",
        commands=CONVERTING,
        example="json",
    )
    partitioner_class: Text = declare(
        "default",
        f"How records are spread over directories: {built_in('partitioners')}, or the "
        "connectors' class name.",
        commands=RUNS,
        short=("--partitioner",),
    )
    timestamp_extractor: Text = declare(
        "record",
        "The time of a record that time-based directories and rotate.interval.ms use: "
        f"{built_in('extractors')}, or the connectors' name; default in the connectors' layout: "
        f"{CONNECTORS_EXTRACTOR}.",
        commands=SINK,
        example="record",
    )
    timezone: OptionalText = declare(
        None,
        "Time zone of time-based directories and scheduled rotation: a name of the tz database, "
        "UTC, or an offset.",
        commands=SINK,
        example="Europe/Berlin",
    )
    s3_schema_partition_affix_type: Annotated[Literal["NONE", "PREFIX", "SUFFIX"], *ExactWord] = (
        declare(
            "NONE",
            "Put schema_name=NAME, the name of the value's schema, before or after each directory.",
            commands=SINK,
        )
    )


class RotationSettings(Group):
    """When a file is closed and the next one begins."""

    title: ClassVar[str] = "Rotation"
    commands: ClassVar[frozenset[str]] = SINK

    flush_size: Integer = declare(
        1_000_000,
        "Number of records after which a file is closed; required in the connectors' layout, "
        "where 0 or less means 1. Files of full records also end at each multiple of 1,000,000 "
        "offsets, or of this if it is more.",
        ge=-(2**31),
        le=2**31 - 1,
    )
    rotate_bytes: Integer = declare(
        134_217_728,
        "Bytes of uncompressed records after which a file is closed; -1, the default in the "
        "connectors' layout, for no limit.",
        ge=-1,
        le=2**63 - 1,
    )
    rotate_interval_ms: Integer = declare(
        86_400_000,
        "Milliseconds of record time after which a file is closed; -1, the default in the "
        "connectors' layout, for no limit.",
        ge=-(2**63),
        le=2**63 - 1,
    )
    rotate_schedule_interval_ms: Integer = declare(
        -1,
        "Close files at multiples of this many milliseconds since midnight in timezone, which "
        "must be set; -1 for never.",
        ge=-(2**63),
        le=2**63 - 1,
    )
    rotate_file_on_partition_change: Boolean = declare(
        False,
        "Close files before a record that goes to another directory than the previous one; "
        "applies with rotate.interval.ms and time-based directories. Default in the connectors' "
        "layout: true.",
    )
    partitioner_max_open_files: Limit = declare(
        -1,
        "How many directories of a partition may have an open file at a time; one more closes "
        "all of them. -1 means 128.",
        ge=-1,
        le=2**31 - 1,
    )
    schema_compatibility: Annotated[Literal["NONE", "BACKWARD", "FORWARD", "FULL"], *ExactWord] = (
        declare(
            "NONE",
            "Which versions of a schema share a file: only equal ones, also older ones, or also "
            "newer ones.",
        )
    )
    rotate_idle_ms: Integer = declare(
        60_000,
        "With --follow: milliseconds a record may wait before its file is closed; default with "
        "rotate.schedule.interval.ms: until its next boundary.",
        ge=1,
        le=2**63 - 1,
    )
    flush_on_stop: Switch = declare(
        True,
        "When a --once run ends, store the last, short file, or leave its records to the next run.",
        off="--no-flush-on-stop",
    )


class Safety(Group):
    """What a bad record does, and what a run may not do."""

    title: ClassVar[str] = "Safety"
    commands: ClassVar[frozenset[str]] = RUNS

    behavior_on_null_values: Annotated[Literal["fail", "ignore", "write"], *Word] = declare(
        "fail",
        "How tombstones are handled in the connectors' layout: stop, leave them out, or store "
        "their keys in tombstone.encoded.partition, which needs store.kafka.keys; full records "
        "keep them.",
        commands=SINK,
    )
    behavior_on_error: Annotated[Literal["fail", "ignore", "log"], *Word] = declare(
        "fail", "How a restore handles a bad record or object.", commands=RESTORE
    )
    parse_error_topic_prefix: OptionalText = declare(
        None,
        "With behavior.on.error=ignore or log, write what a restore cannot read to the topic "
        "PREFIX-NAME, where NAME is the property name, or kbackup.",
        commands=RESTORE,
        example="error",
    )
    max_record_bytes: Integer = declare(
        268_435_456,
        "Refuse larger records when reading a backup.",
        commands=READING - {"thaw"},
        ge=1,
        le=2**31 - 1,
    )
    repair: ObjectPlaces = declare(
        (),
        "Only write these objects again, as restore verify names them; the group stays where it "
        "is.",
        commands=SINK,
        is_property=False,
        example="orders:3:4200,orders:5:0",
    )
    dry_run: Switch = declare(
        False,
        "Plan only: write nothing, commit nothing.",
        commands=RUNS | SETTLING | {"thaw", "prune"},
        is_property=False,
    )
    yes: Switch = declare(
        False,
        "Answer yes to every confirmation.",
        commands=SETTLING,
        is_property=False,
    )
    lock_timeout: Duration = declare(
        0.0, "How long to wait for another run of the same backup to end.", example="30s"
    )
    no_lock: Switch = declare(False, "Run without the lock.")
    lock_dir: OptionalText = declare(
        None,
        "Folder for local lock files; default: the user's cache folder.",
        is_option=False,
        example="/run/kbackup",
    )
    stop_timeout: Duration = declare(
        30.0,
        "After a signal: how long to spend finishing open files.",
        commands=SPARK,
        example="30s",
    )


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
