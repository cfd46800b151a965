"""Declarations: whether a run follows, how a restore writes, where it works, what is printed."""

from typing import Annotated, ClassVar, Final, Literal

from kbackup.config.parsing import (
    Boolean,
    ExactWord,
    Expressions,
    Integer,
    Moment,
    OptionalInteger,
    OptionalText,
    Pairs,
    Switch,
    Text,
    Untrimmed,
    Word,
)
from kbackup.config.property import (
    ALL,
    READING,
    RESTORE,
    RUNS,
    SETTLING,
    SPARK,
    TIMED,
    Group,
    declare,
)

GENERIC: Final = "GENERIC"
"""The mode that reads objects of any name."""


class FollowSettings(Group):
    """Whether a run ends, or continues with what is new."""

    title: ClassVar[str] = "Following"
    commands: ClassVar[frozenset[str]] = RUNS

    follow: Switch = declare(
        False,
        "Run until stopped; --once ends when what was there at the start is done.",
        off="--once",
    )
    s3_poll_interval_ms: Integer = declare(
        60_000,
        "With --follow: milliseconds between two listings of the bucket.",
        commands=RESTORE,
        ge=1,
        le=2**63 - 1,
    )


class Generic(Group):
    """Which objects a command reads that no sink has named, and as what."""

    title: ClassVar[str] = "Objects of any name"
    commands: ClassVar[frozenset[str]] = READING

    mode: Annotated[Literal["RESTORE_BACKUP", "GENERIC"], *ExactWord] = declare(
        "RESTORE_BACKUP",
        "Read objects that a sink has named, or objects of any name, which topic.regex.list "
        "assigns to topics.",
    )
    topic_regex_list: Expressions = declare(
        (),
        "With mode=GENERIC: TOPIC:PATTERN, separated by commas. An object belongs to the topic of "
        "the first pattern that its whole key matches; TOPIC may have $1 or ${name} for a group, "
        "and groups named partition and offset give these two.",
        example=r"clicks:logs/clicks/.*,$1:raw/([a-z]+)/.*",
        is_literal=True,
    )
    record_fields: Pairs = declare(
        {},
        "With mode=GENERIC: the fields of a row that holds a full record, of key, value, "
        "timestamp and headers, as PART=FIELD; a dot leads into a nested field.",
        example="key=key,value=value,timestamp=metadata.timestamp",
    )
    record_encoding: Annotated[Literal["text", "json", "base64"], *Word] = declare(
        "text",
        "With record.fields: how key, value and headers are written; text keeps strings as they "
        "are, json all as JSON.",
    )
    file_metadata_headers_enable: Boolean = declare(
        False,
        "With mode=GENERIC: add headers to each record: file.name, file.path, "
        "file.last.modified and file.length of its object.",
    )


class Restore(Group):
    """To which topics a restore writes, and how."""

    title: ClassVar[str] = "Restore"
    commands: ClassVar[frozenset[str]] = RESTORE

    rename: Untrimmed = declare(
        None,
        "New name of each topic, with Java's $0, $1 ... for what rename.regex matched.",
        commands=SETTLING,
        example="copy_of_$0",
        is_literal=True,
    )
    rename_regex: Untrimmed = declare(
        None,
        "Pattern that a topic's whole name must match for the topic to be renamed; default: all "
        "are renamed.",
        commands=SETTLING,
        example="prod[.](.*)",
        is_literal=True,
    )
    if_exists: Annotated[Literal["fail", "append", "resume"], *Word] = declare(
        "fail", "What to do with a target that is not empty and has no position of this restore."
    )
    from_time: Moment = declare(
        None,
        "Only records with this timestamp or a later one: RFC 3339, a date, or milliseconds.",
        commands=TIMED,
        is_property=False,
        example="2026-11-21T02:00:00Z",
    )
    to_time: Moment = declare(
        None,
        "Only records with an earlier timestamp: the topic as it was at that time.",
        commands=TIMED,
        is_property=False,
        example="2026-11-21T14:30:00+01:00",
    )
    from_offset: OptionalInteger = declare(
        None, "Only records with this offset or a higher one.", is_property=False, ge=0
    )
    to_offset: OptionalInteger = declare(
        None, "Only records with a lower offset.", is_property=False, ge=0
    )
    offset_header: OptionalText = declare(
        None,
        "Add a header of this name to each record, with its original offset in decimal digits.",
        example="kbackup.offset",
    )
    exactly_once: Switch = declare(
        True,
        "Write in transactions that also commit the position, or without them, so that a killed "
        "run may repeat its last records.",
        off="--at-least-once",
    )
    create_topics: Switch = declare(
        True,
        "Create missing topics with the backup's number of partitions.",
        off="--no-create-topics",
    )
    partition_map: Annotated[Literal["same", "modulo", "key"], *Word] = declare(
        "same",
        "Partition that a record is written to: the one of the same number, the number modulo the "
        "target's partitions, or the one that Kafka's Java producer chooses for its key.",
    )
    target_partitions: OptionalInteger = declare(
        None,
        "Number of partitions of created topics; default: the backup's.",
        ge=1,
        le=1_000_000,
        example="12",
    )
    max_records_per_second: OptionalInteger = declare(
        None,
        "Write at most so many records a second, all partitions together.",
        ge=1,
        le=2**31 - 1,
        example="5000",
    )
    max_bytes_per_second: OptionalInteger = declare(
        None,
        "Write at most so many bytes a second, all partitions together.",
        ge=1,
        le=2**40,
        example="10000000",
    )
    replication_factor: OptionalInteger = declare(
        None,
        "Replication factor of created topics; default: the cluster's.",
        ge=1,
        le=32_767,
        example="3",
    )
    topic_config: Pairs = declare(
        {},
        "Configuration of created topics: NAME=VALUE.",
        is_repeated=True,
        example="retention.ms=-1",
    )
    topic_settings: Annotated[Literal["safe", "original"], *Word] = declare(
        "safe",
        "Settings of created topics: only those that keep every record, or also the original's "
        "as far as they delete nothing; kbackup restore settle sets the rest.",
    )
    allow_same_topic: Switch = declare(
        False, "Write to the topic the backup was made from.", is_property=False
    )
    skipped_file: OptionalText = declare(
        None,
        "Add a JSON line to this file for each record and object that is left out.",
        is_property=False,
        example="/var/log/kbackup/skipped.jsonl",
    )
    yes_split_on_newline: Switch = declare(
        False,
        "Accept that values of byte-array files are split at each separator.",
        is_property=False,
    )


class RunSettings(Group):
    """On which machines the work is done."""

    title: ClassVar[str] = "Spark"
    commands: ClassVar[frozenset[str]] = SPARK

    master: Text = declare(
        "local[*,4]", "Spark's master; the default uses all cores and tries a task four times."
    )
    spark_conf: Pairs = declare(
        {},
        "Configuration of Spark: NAME=VALUE.",
        is_repeated=True,
        example="spark.executor.memory=2g",
    )


class OutputSettings(Group):
    """What is printed, and where."""

    title: ClassVar[str] = "Output"
    commands: ClassVar[frozenset[str]] = ALL

    json_: Switch = declare(False, "Print one JSON object per line on stdout.", is_property=False)
    summary_file: OptionalText = declare(
        None,
        "Write the summary to this file, whole or not at all.",
        commands=ALL - {"config"},
        is_property=False,
        example="/var/lib/kbackup/orders.json",
    )
    quiet: Switch = declare(
        False, "Print errors and reasons only.", short=("-q",), is_property=False
    )
    verbose: Integer = declare(
        0,
        "Print more; give it twice for even more.",
        short=("-v",),
        is_property=False,
        is_count=True,
        ge=0,
    )
    debug: Switch = declare(False, "Print a traceback with an error.", is_property=False)
    no_progress: Switch = declare(
        False, "Print plain lines instead of the live display.", is_property=False
    )
    progress_seconds: Integer = declare(
        30, "Seconds between two plain progress lines.", is_property=False, ge=1
    )
    log_format: Annotated[Literal["text", "json"], *Word] = declare(
        "text", "Format of log lines on stderr and in the log file.", is_property=False
    )
    log_file: OptionalText = declare(
        None, "Also write log lines to this file.", is_property=False, example="kbackup.log"
    )
