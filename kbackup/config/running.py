"""Declare properties: cluster, store and registry; how a run works, and what it prints."""

import os
import re
from pathlib import PurePath
from typing import Final

from kbackup.config.property import (
    ALL,
    CHOOSING,
    DRILL,
    FINDING,
    KAFKA,
    KEYS,
    NAMING,
    READING,
    RESTORE,
    RUNS,
    SETTLING,
    SINK,
    SPARK,
    TIMED,
    PropertyGroup,
    boolean,
    check_group,
    check_servers,
    duration,
    integer,
    milliseconds,
    optional_integer,
    optional_text,
    parsed,
    path,
    pattern,
    read_expressions,
    read_listen,
    read_moment,
    read_pairs,
    read_partitions,
    read_registry_urls,
    read_store_url,
    read_topics,
    switch,
    text,
    verbatim,
    words,
)
from kbackup.options import DURATION_MOST_MS, Suspicion, read_names

ENCRYPTING: Final = SINK | {"doctor", "config"}
"""The commands that are about what a sink stores."""

MEASURED: Final = RUNS | {"status", "restore-status"}
"""The commands that have metrics."""

GENERIC: Final = "GENERIC"
"""The mode that reads objects of any name."""

NO_GROUPS: Final = "none"
"""The value of ``groups`` with which a sink captures none."""


class Kafka(PropertyGroup, title="Kafka", commands=KAFKA):
    """Where the records are, and which of them."""

    bootstrap_servers = optional_text(
        "Brokers: HOST:PORT, separated by commas.",
        type="HOST:PORT",
        check=check_servers,
        short=("-k",),
        aliases=("kafka.bootstrap.servers",),
        example="broker:9092",
    )
    topics = parsed(
        "Topics, separated by commas.  A sink needs topics or a pattern; other commands use all "
        "they find.",
        "list",
        (),
        read_topics,
        commands=CHOOSING | {"doctor", "config"},
        short=("-t",),
        example="orders,payments",
    )
    topics_regex = pattern(
        "Topics whose whole name matches.",
        commands=CHOOSING | {"doctor", "config"},
        example="prod[.].*",
    )
    topics_exclude = pattern(
        "Leave out topics whose whole name matches.  All others are taken, unless topics or "
        "topics.regex say which.",
        commands=CHOOSING | {"doctor", "config"},
        example="test[.].*",
    )
    partitions = parsed(
        "Only these partitions of each topic.",
        "partitions",
        None,
        read_partitions,
        commands=CHOOSING - {"configs", "access"},
        example="0,3-5",
    )
    auto_offset_reset = words(
        "Where to start a partition that has no committed offset.",
        ("earliest", "latest"),
        "earliest",
        commands=SINK,
        aliases=("consumer.override.auto.offset.reset",),
        any_case=True,
    )
    group = optional_text(
        "Consumer group that keeps the position.  Default: connect-NAME for a connector's file, "
        "else derived from the bucket and topics.dir.",
        commands=RUNS | NAMING,
        aliases=("consumer.override.group.id",),
        example="nightly-backup",
        check=check_group,
    )
    groups = pattern(
        "Consumer groups whose whole name matches.  Default: all that have offsets in the topics.  "
        "With none, a sink captures no groups, and a drill sets none.",
        commands=SINK | {"groups", "drill"},
        example="billing.*",
    )
    cluster_capture = boolean(
        "Capture ACLs, SCRAM users and broker settings too.  They are readable in the bucket; "
        "passwords are not captured.",
        False,
        commands=SINK,
    )
    name = optional_text(
        "The connector's name, which determines its consumer group.",
        commands=ALL,
        is_option=False,
        example="s3-sink",
    )
    kafka_timeout = duration(
        "How long to wait for an answer from the cluster.",
        10.0,
        ge=0.1,
        le=3600,
        example="10s",
    )
    kafka_client = words(
        "How records pass between Kafka's client and kbackup: in columns through a C library "
        "(native), as Python objects (python, half as fast), or the fastest way that works "
        "(auto): as whole batches, unless a client property is set that only librdkafka has.",
        ("auto", "native", "python"),
        "auto",
        any_case=True,
    )
    security_protocol = optional_text(
        "Security protocol of the brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        aliases=("kafka.security.protocol",),
        example="SASL_SSL",
    )
    sasl_mechanism = optional_text(
        "SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM.",
        aliases=("sasl.mechanisms", "kafka.sasl.mechanism", "kafka.sasl.mechanisms"),
        example="SCRAM-SHA-512",
    )
    sasl_username = optional_text(
        "User name for PLAIN and SCRAM.",
        is_option=False,
        aliases=("kafka.sasl.username",),
    )
    sasl_password = optional_text(
        "Password for PLAIN and SCRAM.",
        is_secret=True,
        aliases=("kafka.sasl.password",),
    )
    ssl_ca_location = path(
        "PEM file or folder of the certificate authorities that signed the brokers' certificates.",
        aliases=("kafka.ssl.ca.location",),
        example="/etc/kafka/ca.pem",
    )


# what S3 alone has is declared with its store, in kbackup/stores/s3/options.py
class PlaceSettings(PropertyGroup, title="S3", commands=ALL):
    """Where the backup is."""

    store_url = parsed(
        "URL of another S3 server, or file:///FOLDER.  Likewise az://ACCOUNT/CONTAINER/PATH and "
        "gs://BUCKET/PATH.",
        "URL",
        None,
        read_store_url,
        aliases=("s3.endpoint",),
        example="http://127.0.0.1:9000",
    )


class EncryptionSettings(PropertyGroup, title="Encryption", commands=ALL - {"abort-uploads"}):
    """With what objects are encrypted before they are stored, and decrypted again."""

    encryption_recipients = parsed(
        "Who can decrypt what is stored: X25519 public keys, each the one line of its PEM file.  A "
        "sink with these encrypts.",
        "list",
        (),
        read_names,
        commands=ENCRYPTING,
        example="MCowBQYDK2VuAyEAKRoC8mMsPjO1oYZYI5Z2v1iiV2aJcH7aX0vVt4sFx0U=",
    )
    encryption_recipients_file = path(
        "File with more recipients, as PEM blocks.",
        commands=ENCRYPTING,
        example="/etc/kbackup/recipients.pem",
    )
    encryption_key_file = path(
        "File with the backup's own key, mode 0600.  Needed by a sink with X25519 keys, "
        "whose first run makes it; it decrypts no record.",
        example="/etc/kbackup/backup.key",
    )
    encryption_identity_file = path(
        "Private key to read the backup, mode 0600.  A PEM file.",
        example="/etc/kbackup/identity.pem",
    )
    encryption_phrase_file = path(
        "File with a passphrase, mode 0600.  A recipient that encrypts and decrypts.",
        example="/etc/kbackup/passphrase",
    )
    encryption_kms_key = optional_text(
        "ARN or alias of a symmetric AWS KMS key.  A recipient that encrypts with kms:Encrypt "
        "and decrypts with kms:Decrypt.",
        example="arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    )
    encryption_mixed = boolean(
        "The backup also holds objects that are not encrypted: from before, or stored by a sink "
        "without keys, which this allows.  Whoever can write to the bucket can then add forged "
        "objects.",
        False,
        commands=ALL - {"abort-uploads"} - KEYS,
    )


class SchemaRegistry(PropertyGroup, title="Schema Registry", commands=RUNS | {"doctor"}):
    """The registry of a sink's source, or of a restore's target.

    Converters have properties of their own, which may name another registry for keys and values.
    """

    schema_registry_url = parsed(
        "One or several URLs of the Schema Registry.  A sink stores the schemas that records name, "
        "and a restore of full records registers them there.",
        "list",
        (),
        read_registry_urls,
        example="https://registry:8081",
    )
    schema_registry_basic_auth_user_info = optional_text(
        "User and password of that registry, as user:password.",
        is_secret=True,
    )
    schema_registry_ssl_ca_location = path(
        "PEM file or folder of the authorities that signed that registry's certificate.",
        example="/etc/ssl/registry-ca.pem",
    )
    schema_registry_ssl_certificate_location = path(
        "PEM file with this client's certificate, for a registry that asks for one.",
        example="/etc/ssl/client.pem",
    )
    schema_registry_ssl_key_location = path(
        "PEM file with the private key, if it is not in the certificate's file.",
        example="/etc/ssl/client.key",
    )
    schema_registry_ssl_key_password = optional_text(
        "Password of that private key.",
        is_secret=True,
    )


class FollowSettings(PropertyGroup, title="Following", commands=RUNS):
    """Whether a run ends, or continues with what is new."""

    follow = switch(
        "Run until stopped.  --once ends when what was there at the start is done.",
        False,
        commands=RUNS | {"copy"},
        off="--once",
    )
    s3_poll_interval_ms = milliseconds(
        "With --follow: milliseconds between two listings of the bucket.",
        60_000,
        commands=RESTORE | {"copy"},
        ge=1,
        le=DURATION_MOST_MS,
    )
    follow_groups = pattern(
        "With --follow: set consumer groups whose whole name matches in the restored topics, as "
        "these reach the offsets that the sink captured.  A group with members, or one that "
        "somebody else has moved, is left alone.",
        commands=RESTORE,
        example=".*",
    )


class Generic(PropertyGroup, title="Objects of any name", commands=READING):
    """Which objects a command reads that no sink has named, and as what."""

    mode = words(
        "Read objects that a sink has named, or objects of any name, which topic.regex.list "
        "assigns to topics.",
        ("RESTORE_BACKUP", "GENERIC"),
        "RESTORE_BACKUP",
    )
    topic_regex_list = parsed(
        "With mode=GENERIC: TOPIC:PATTERN, separated by commas. An object belongs to the topic of "
        "the first pattern that its whole key matches; TOPIC may have $1 or ${name} for a group, "
        "and groups named partition and offset give these two.",
        "TOPIC:PATTERN",
        (),
        read_expressions,
        example=r"clicks:logs/clicks/.*,$1:raw/([a-z]+)/.*",
        is_literal=True,
    )
    record_fields = parsed(
        "With mode=GENERIC: the fields of a row that holds a full record, of key, value, "
        "timestamp and headers, as PART=FIELD; a dot leads into a nested field.",
        "NAME=VALUE",
        {},
        read_pairs,
        example="key=key,value=value,timestamp=metadata.timestamp",
    )
    record_encoding = words(
        "With record.fields: how key, value and headers are written; text keeps strings as they "
        "are, json all as JSON.",
        ("text", "json", "base64"),
        "text",
        any_case=True,
    )
    file_metadata_headers_enable = boolean(
        "With mode=GENERIC: add headers to each record: file.name, file.path, "
        "file.last.modified and file.length of its object.",
        False,
    )


_SHELLS: Final = re.compile(r".*(?<![A-Za-z])-?(?:ba|z|da)?sh", re.ASCII | re.DOTALL)


def _names_shell(rename: str) -> bool:
    """Whether a shell has put its own name into *rename*."""
    own = PurePath(os.environ.get("SHELL") or "sh").name
    return "$" not in rename and (rename.endswith(own) or _SHELLS.fullmatch(rename) is not None)


def _begins_names(prefix: str) -> None:
    """Refuse what no topic's name can begin with."""
    if re.fullmatch(r"[A-Za-z0-9._-]*", prefix, re.ASCII) is None:
        raise ValueError("expected letters, digits, '.', '_' and '-', such as copy_of_")


class Restore(PropertyGroup, title="Restore", commands=RESTORE):
    """To which topics a restore writes, and how."""

    rename = verbatim(
        "New name of each topic, such as 'copy_of_$0'.  $0, $1 and so on stand for what "
        "rename.regex matched, as in Java.",
        commands=SETTLING | NAMING,
        example="copy_of_$0",
        is_literal=True,
        suspicions=(
            Suspicion(
                _names_shell,
                "it has no $ and ends as $0 does in a shell, which replaces $0 in double quotes",
                "write it in single quotes: --rename 'copy_of_$0'",
            ),
        ),
    )
    rename_prefix = verbatim(
        "Put this in front of each topic's name.  For other names, see rename.",
        commands=SETTLING | NAMING,
        example="copy_of_",
        is_literal=True,
        check=_begins_names,
    )
    rename_regex = verbatim(
        "Pattern that a topic's whole name must match for the topic to be renamed; default: all "
        "are renamed.",
        commands=SETTLING | NAMING,
        example="prod[.](.*)",
        is_literal=True,
    )
    if_exists = words(
        "What to do if a target is not empty.  One where this restore has a position is continued "
        "in any case.",
        ("fail", "append", "resume"),
        "fail",
        any_case=True,
    )
    from_time = parsed(
        "Only records with this timestamp or a later one.  Write it as RFC 3339, a date, or "
        "milliseconds since 1970.",
        "moment",
        None,
        read_moment,
        commands=TIMED,
        is_property=False,
        example="2026-11-21T02:00:00Z",
    )
    to_time = parsed(
        "Only records with a timestamp before this.  A record's timestamp is, as a rule, its "
        "producer's, not when it arrived.",
        "moment",
        None,
        read_moment,
        commands=TIMED,
        is_property=False,
        example="2026-11-21T14:30:00+01:00",
    )
    as_of = parsed(
        "Topics as they had been backed up by this time.  Only what was first stored before it, "
        "whatever the records' timestamps.",
        "moment",
        None,
        read_moment,
        commands=NAMING | {"list", "access"},
        is_property=False,
        example="2026-11-21T14:30:00Z",
    )
    from_offset = optional_integer(
        "Only records with this offset or a higher one.",
        commands=NAMING,
        is_property=False,
        ge=0,
    )
    to_offset = optional_integer(
        "Only records with a lower offset.",
        commands=NAMING,
        is_property=False,
        ge=0,
    )
    offset_header = optional_text(
        "Add a header of this name to each record, with its original offset in decimal digits.",
        commands=FINDING,
        example="kbackup.offset",
    )
    exactly_once = switch(
        "Write in transactions that also commit the position.  Without them, a killed run may "
        "repeat its last records.",
        True,
        commands=FINDING,
        off="--at-least-once",
    )
    create_topics = switch(
        "Create missing topics.  They get the backup's number of partitions.",
        True,
        off="--no-create-topics",
    )
    partition_map = words(
        "Partition that a record is written to.  The one of the same number, the number modulo the "
        "target's partitions, or the one that Kafka's Java producer chooses for its key.",
        ("same", "modulo", "key"),
        "same",
        any_case=True,
        commands=NAMING,
    )
    target_partitions = optional_integer(
        "Number of partitions of created topics.  Default: the backup's.",
        ge=1,
        le=100_000,
        example="12",
    )
    max_records_per_second = optional_integer(
        "Write at most this many records per second.  The limit is for all partitions together.",
        commands=RESTORE | DRILL,
        ge=1,
        le=2**31 - 1,
        example="5000",
    )
    max_bytes_per_second = optional_integer(
        "Write at most this many bytes per second.  The limit is for all partitions together.",
        commands=RESTORE | DRILL,
        ge=1,
        le=2**40,
        example="10000000",
    )
    replication_factor = optional_integer(
        "Replication factor of created topics.  Default: the cluster's.",
        commands=RESTORE | DRILL,
        ge=1,
        le=32_767,
        example="3",
    )
    topic_config = parsed(
        "Configuration of created topics: NAME=VALUE.",
        "NAME=VALUE",
        {},
        read_pairs,
        is_repeated=True,
        example="retention.ms=-1",
    )
    topic_settings = words(
        "Settings of created topics: only those that keep every record, or also the original's "
        "as far as they delete nothing; kbackup restore configs sets the rest.",
        ("safe", "original"),
        "safe",
        any_case=True,
    )
    allow_same_topic = switch(
        "Write to the topic the backup was made from.",
        False,
        is_property=False,
    )
    skipped_file = path(
        "Add a JSON line to this file for each record and object that is left out.",
        is_property=False,
        example="/var/log/kbackup/skipped.jsonl",
    )
    yes_split_on_newline = switch(
        "Accept that values of byte-array files are split at each separator they contain.",
        False,
        is_property=False,
    )


class RunSettings(PropertyGroup, title="Spark", commands=SPARK):
    """On which machines the work is done."""

    master = text(
        "Spark's master URL.  The default uses all cores and tries a task four times.",
        "local[*,4]",
    )
    spark_conf = parsed(
        "Configuration of Spark: NAME=VALUE.",
        "NAME=VALUE",
        {},
        read_pairs,
        is_repeated=True,
        example="spark.executor.memory=2g",
    )


class OutputSettings(PropertyGroup, title="Output", commands=ALL, in_files=False):
    """What is printed, and where."""

    json = switch("Print one JSON object per line on stdout.", False)
    summary_file = path(
        "Write the summary to this file.  It is replaced as a whole.",
        commands=ALL - {"config"},
        example="/var/lib/kbackup/orders.json",
    )
    metrics_file = path(
        "Write metrics for Prometheus to this file.  The node exporter's textfile collector reads "
        "it.  A run writes it once a minute and at its end.",
        commands=MEASURED | DRILL,
        example="/var/lib/node_exporter/kbackup.prom",
    )
    metrics_listen = parsed(
        "Serve metrics for Prometheus over HTTP.  A run does so as long as it lasts, status until "
        "it is stopped.  Without HOST, only this machine can reach it: 127.0.0.1.",
        "[HOST:]PORT",
        None,
        read_listen,
        commands=MEASURED,
        example="9464",
    )
    quiet = switch("Print errors and reasons only.", False, short=("-q",))
    verbose = integer(
        "Print more; give it twice for even more.",
        0,
        short=("-v",),
        is_count=True,
        ge=0,
    )
    debug = switch("Print a traceback with an error.", False)
    no_progress = switch("Print plain lines, not a live display.", False)
    progress_seconds = duration(
        "Seconds between two plain progress lines.",
        30.0,
        ge=1,
    )
    log_format = words(
        "Format of log lines.  On stderr and in the log file.",
        ("text", "json"),
        "text",
        any_case=True,
    )
    log_file = path(
        "Also write log lines to this file.",
        example="kbackup.log",
    )
