"""Declare properties: what objects are called and hold, when they are cut, what is left out."""

from typing import Final

from kbackup.config.property import (
    ALL,
    CONVERTING,
    DRILL,
    FINDING,
    READING,
    RESTORE,
    RUNS,
    SETTLING,
    SINK,
    SPARK,
    WITHOUT_LAYOUT,
    PropertyGroup,
    boolean,
    check_folder,
    check_not_empty,
    check_template,
    duration,
    integer,
    milliseconds,
    optional_text,
    parsed,
    read_limit,
    read_places,
    switch,
    text,
    words,
)
from kbackup.plugins import built_in

RECORD_FORMAT: Final = "parquet"
"""The format of full records if ``format.class`` is not set."""

CONNECTORS_SIDES_FORMAT: Final = "avro"
"""The connectors' default format for keys and headers."""

CONNECTORS_EXTRACTOR: Final = "wallclock"
"""The timestamp extractor of the connectors' layout if ``timestamp.extractor`` is not set."""


class LayoutSettings(PropertyGroup, title="Layout", commands=ALL - WITHOUT_LAYOUT):
    """Names and contents of objects, with the connectors' property names."""

    topics_dir = text(
        "First part of every object key.  It may have several segments, and may be empty.",
        "topics",
        commands=ALL,
        aliases=("s3.prefix",),
    )
    directory_delim = text(
        "Separates the segments of an object key.",
        "/",
        commands=ALL,
        check=check_not_empty,
    )
    file_delim = text(
        "Separates topic, partition and offset in an object's name.",
        "+",
        commands=ALL - WITHOUT_LAYOUT | {"abort-uploads"},
        check=check_not_empty,
    )
    filename_offset_zero_pad_width = integer(
        "Minimum number of digits of the offset in an object's name.",
        10,
        ge=0,
        le=99,
    )
    object_name_template = optional_text(
        "Template of object names, for format.class=block_gzip: {topic}, {partition} and, last, "
        "{offset}, with {date}, {year}, {month}, {day}, {hour}, {minute} or {second} of the "
        "upload, in UTC.",
        type="template",
        check=check_template,
        example="{year}/{month}/{day}/{hour}/{topic}-{partition}-{offset}",
        is_literal=True,
    )
    view = words(
        "Full records, or values only, as the connectors write them.  Default: value where "
        "format.class is given, and holds values, else record.",
        ("record", "value"),
        "record",
        commands=SINK,
        short=("--content",),
        any_case=True,
    )
    format_class = optional_text(
        f"File format, such as parquet or json.  One of {built_in('formats')}, or the "
        "connectors' class name.",
        short=("-f", "--format"),
        example="json",
    )
    only_format = optional_text(
        "Read only the objects of this file format; the others are counted.",
        commands=READING,
        example="json",
    )
    store_kafka_keys = boolean(
        "Store keys in separate objects beside the values.",
        False,
        commands=RUNS,
    )
    store_kafka_headers = boolean(
        "Store headers in separate objects beside the values.",
        False,
        commands=RUNS,
    )
    keys_format_class = optional_text(
        "File format of the keys' objects.",
        commands=RUNS,
        example="json",
    )
    headers_format_class = optional_text(
        "File format of the headers' objects.",
        commands=RUNS,
        example="json",
    )
    tombstone_encoded_partition = text(
        "Directory of the objects that hold the keys of tombstones.",
        "tombstone",
        check=check_folder,
    )
    key_converter = optional_text(
        "How keys are converted, such as string or json.  To what their files hold: "
        f"{built_in('converters')}, or a class name.",
        commands=CONVERTING,
        example="string",
    )
    value_converter = optional_text(
        "How values are converted, such as avro or json.  To what their files hold: "
        f"{built_in('converters')}, or a class name.",
        commands=CONVERTING,
        example="json",
    )
    partitioner_class = text(
        f"How records are put into directories.  One of {built_in('partitioners')}, or the "
        "connectors' class name.",
        "default",
        commands=RUNS,
        short=("--partitioner",),
    )
    timestamp_extractor = text(
        "The time of a record that time-based directories and rotate.interval.ms use: "
        f"{built_in('extractors')}, or the connectors' name; default in the connectors' layout: "
        f"{CONNECTORS_EXTRACTOR}.",
        "record",
        commands=SINK,
        example="record",
    )
    timezone = optional_text(
        "Time zone of time-based directories and scheduled rotation: a name of the tz database, "
        "UTC, or an offset.",
        commands=SINK,
        example="Europe/Berlin",
    )
    s3_schema_partition_affix_type = words(
        "Put schema_name=NAME, the name of the value's schema, before or after each directory.",
        ("NONE", "PREFIX", "SUFFIX"),
        "NONE",
        commands=SINK,
    )


class RotationSettings(PropertyGroup, title="Rotation", commands=SINK):
    """When a file is closed and the next one begins."""

    flush_size = integer(
        "Records after which a file is closed.  Required in the connectors' layout, where 0 or "
        "less means 1.",
        1_000_000,
        ge=-(2**31),
        le=2**31 - 1,
    )
    rotate_bytes = integer(
        "Bytes after which a file is closed.  Of uncompressed records; -1, the default in the "
        "connectors' layout, for no limit.",
        134_217_728,
        ge=-1,
        le=2**63 - 1,
    )
    rotate_interval_ms = milliseconds(
        "Record time after which a file is closed.  In milliseconds; -1, the default in the "
        "connectors' layout, for no limit.",
        86_400_000,
        ge=-(2**63),
        le=2**63 - 1,
    )
    rotate_schedule_interval_ms = milliseconds(
        "Close files at multiples of this many milliseconds since midnight in timezone, which "
        "must be set; -1 for never.",
        -1,
        ge=-(2**63),
        le=2**63 - 1,
    )
    rotate_file_on_partition_change = boolean(
        "Close files before a record that goes to another directory than the previous one; "
        "applies with rotate.interval.ms and time-based directories. Default in the connectors' "
        "layout: true.",
        False,
    )
    partitioner_max_open_files = parsed(
        "How many directories of a partition may have an open file at a time; one more closes "
        "all of them. -1 means 128.",
        "integer",
        -1,
        read_limit,
    )
    schema_compatibility = words(
        "Which versions of a schema share a file: only equal ones, also older ones, or also "
        "newer ones.",
        ("NONE", "BACKWARD", "FORWARD", "FULL"),
        "NONE",
    )
    rotate_idle_ms = milliseconds(
        "With --follow: how long a record may wait.  Then its file is closed; in milliseconds. "
        "Default with rotate.schedule.interval.ms: until its next boundary.",
        60_000,
        ge=1,
        le=2**63 - 1,
    )
    flush_on_stop = switch(
        "When a --once run ends, store the last, short file, or leave its records to the next run.",
        True,
        off="--no-flush-on-stop",
    )


class Safety(PropertyGroup, title="Safety", commands=RUNS):
    """What a bad record does, and what a run may not do."""

    behavior_on_null_values = words(
        "How tombstones are handled in the connectors' layout: stop, leave them out, or store "
        "their keys in tombstone.encoded.partition, which needs store.kafka.keys; full records "
        "keep them.",
        ("fail", "ignore", "write"),
        "fail",
        commands=SINK,
        any_case=True,
    )
    behavior_on_error = words(
        "What to do with a bad record.  The same for an object that cannot be read.",
        ("fail", "ignore", "log"),
        "fail",
        commands=FINDING,
        any_case=True,
    )
    parse_error_topic_prefix = optional_text(
        "With behavior.on.error=ignore or log, write what a restore cannot read to the topic "
        "PREFIX-NAME, where NAME is the property name, or kbackup.",
        commands=RESTORE,
        example="error",
    )
    max_record_bytes = integer(
        "Refuse larger records when reading a backup.",
        268_435_456,
        commands=READING - {"thaw", "copy", "expire"},
        ge=1,
        le=2**31 - 1,
    )
    repair = parsed(
        "Only write these objects again, as kbackup sink repair does.",
        "TOPIC:PARTITION:OFFSET",
        (),
        read_places,
        commands=SINK,
        is_option=False,
        is_property=False,
        example="orders:3:4200,orders:5:0",
    )
    dry_run = switch(
        "Plan only: write nothing, commit nothing.",
        False,
        commands=RUNS | SETTLING | DRILL | {"thaw", "abort-uploads", "copy", "expire"},
        is_property=False,
    )
    yes = switch(
        "Answer yes to every confirmation.",
        False,
        commands=SETTLING | {"expire"},
        is_property=False,
    )
    lock_timeout = duration(
        "Wait this long for a run of the same backup.",
        0.0,
        commands=RUNS | DRILL | {"expire"},
        example="30s",
    )
    no_lock = switch("Run without the lock.", False, commands=RUNS | {"expire"})
    lock_dir = optional_text(
        "Folder for local lock files; default: the user's cache folder.",
        commands=RUNS | DRILL | {"expire"},
        is_option=False,
        example="/run/kbackup",
    )
    stop_timeout = duration(
        "After a signal: how long to spend finishing open files.",
        30.0,
        commands=SPARK,
        example="30s",
    )


class Tolerance(PropertyGroup, title="Errors", commands=SINK):
    """What happens to a bad record, in Kafka Connect's own words."""

    errors_tolerance = words(
        "What to do with a bad record.  One that does not fit the layout: none stops its partition "
        "before it; all leaves it out, counts it and reports it.",
        ("none", "all"),
        "none",
        any_case=True,
    )
    errors_deadletterqueue_topic_name = optional_text(
        "With errors.tolerance=all: topic to write the records that were left out to, unchanged.",
        example="orders-dead-letters",
    )
    errors_deadletterqueue_topic_replication_factor = integer(
        "Replication factor of the dead letter topic if it has to be created, with one "
        "partition; -1 for the cluster's default.",
        3,
        ge=-1,
        le=32_767,
    )
    errors_deadletterqueue_context_headers_enable = boolean(
        "Add headers to each dead letter that say where it came from and what is wrong with it.",
        False,
    )
    errors_retry_timeout = milliseconds(
        "How many milliseconds to go on retrying a conversion when the Schema Registry does not "
        "deliver its schema, after the registry client's own retries; -1 for ever.",
        0,
        ge=-1,
        le=2**63 - 1,
    )
    errors_retry_delay_max_ms = milliseconds(
        "Longest wait between two such attempts in milliseconds; the first wait is 300 ms, and "
        "each further one is twice as long.",
        60_000,
        ge=1,
        le=2**63 - 1,
    )
    errors_log_enable = boolean(
        "Report each record that is left out, with its reason, rather than only the first one "
        "of a partition.",
        False,
    )
    errors_log_include_messages = boolean(
        "Include the record's timestamp in such a report; its key, value and headers are never "
        "included.",
        False,
    )
    report_null_values_to_dlq = boolean(
        "Write records that behavior.on.null.values=ignore leaves out to the dead letter topic "
        "too.",
        True,
    )
