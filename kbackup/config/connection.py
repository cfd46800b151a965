"""Declarations: the cluster, the store and the Schema Registry, and how they are reached."""

from typing import Annotated, ClassVar, Literal

from kbackup.config.parsing import (
    ConsumerGroup,
    Duration,
    JavaPattern,
    OptionalText,
    Partitions,
    RegistryUrls,
    Servers,
    StoreUrl,
    Topics,
    Word,
)
from kbackup.config.property import ALL, CHOOSING, KAFKA, RUNS, SINK, Group, declare


class Kafka(Group):
    """Where the records are, and which of them."""

    title: ClassVar[str] = "Kafka"
    commands: ClassVar[frozenset[str]] = KAFKA

    bootstrap_servers: Servers = declare(
        None,
        "Brokers to start from: HOST:PORT, separated by commas.",
        short=("-k",),
        aliases=("kafka.bootstrap.servers",),
        example="broker:9092",
    )
    topics: Topics = declare(
        (),
        "Topics, separated by commas.  A sink needs topics or a pattern; other commands use all "
        "they find.",
        commands=CHOOSING | {"doctor", "config"},
        short=("-t",),
        example="orders,payments",
    )
    topics_regex: JavaPattern = declare(
        None,
        "A regular expression that a topic's whole name must match.",
        commands=CHOOSING | {"doctor", "config"},
        example="prod[.].*",
        is_literal=True,
    )
    partitions: Partitions = declare(
        None,
        "Only these partitions of each topic.",
        commands=CHOOSING - {"settle"},
        example="0,3-5",
    )
    auto_offset_reset: Annotated[Literal["earliest", "latest"], *Word] = declare(
        "earliest",
        "Where to start a partition that has no committed offset.",
        commands=SINK,
        aliases=("consumer.override.auto.offset.reset",),
    )
    group: ConsumerGroup = declare(
        None,
        "Consumer group that keeps the position; default: connect-NAME for a connector's file, "
        "else derived from the bucket and topics.dir.",
        commands=RUNS,
        aliases=("consumer.override.group.id",),
        example="nightly-backup",
    )
    name: OptionalText = declare(
        None,
        "The connector's name, which determines its consumer group.",
        commands=ALL,
        is_option=False,
        example="s3-sink",
    )
    kafka_timeout: Duration = declare(
        10.0, "How long to wait for an answer from the cluster.", example="10s"
    )
    kafka_client: Annotated[Literal["auto", "native", "python"], *Word] = declare(
        "auto",
        "How records pass between Kafka's client and kbackup: in columns through a C library "
        "(native), as Python objects (python, half as fast), or the faster one that is installed.",
    )
    security_protocol: OptionalText = declare(
        None,
        "Security protocol of the brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        aliases=("kafka.security.protocol",),
        example="SASL_SSL",
    )
    sasl_mechanism: OptionalText = declare(
        None,
        "SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.",
        aliases=("sasl.mechanisms", "kafka.sasl.mechanism", "kafka.sasl.mechanisms"),
        example="SCRAM-SHA-512",
    )
    sasl_username: OptionalText = declare(
        None, "User name for PLAIN and SCRAM.", is_option=False, aliases=("kafka.sasl.username",)
    )
    sasl_password: OptionalText = declare(
        None, "Password for PLAIN and SCRAM.", is_secret=True, aliases=("kafka.sasl.password",)
    )
    ssl_ca_location: OptionalText = declare(
        None,
        "PEM file or folder of the certificate authorities that signed the brokers' certificates.",
        aliases=("kafka.ssl.ca.location",),
        example="/etc/kafka/ca.pem",
    )


class Store(Group):
    """Where the backup is."""

    title: ClassVar[str] = "S3"
    commands: ClassVar[frozenset[str]] = ALL

    store_url: StoreUrl = declare(
        None,
        "URL of another S3 server; file:///FOLDER is a local folder in place of a bucket.",
        aliases=("s3.endpoint",),
        example="http://127.0.0.1:9000",
    )


class SchemaRegistry(Group):
    """The registry of a sink's source, or of a restore's target.

    Converters have properties of their own, which may name another registry for keys and values.
    """

    title: ClassVar[str] = "Schema Registry"
    commands: ClassVar[frozenset[str]] = RUNS | {"doctor"}

    schema_registry_url: RegistryUrls = declare(
        (),
        "Schema Registry, one or several URLs of it: a sink stores the schemas that records name, "
        "and a restore of full records registers them there.",
        example="https://registry:8081",
    )
    schema_registry_basic_auth_user_info: OptionalText = declare(
        None, "User and password of that registry, as user:password.", is_secret=True
    )
    schema_registry_ssl_ca_location: OptionalText = declare(
        None,
        "PEM file or folder of the authorities that signed that registry's certificate.",
        example="/etc/ssl/registry-ca.pem",
    )
    schema_registry_ssl_certificate_location: OptionalText = declare(
        None,
        "PEM file with this client's certificate, for a registry that asks for one.",
        example="/etc/ssl/client.pem",
    )
    schema_registry_ssl_key_location: OptionalText = declare(
        None,
        "PEM file with the private key, if it is not in the certificate's file.",
        example="/etc/ssl/client.key",
    )
    schema_registry_ssl_key_password: OptionalText = declare(
        None, "Password of that private key.", is_secret=True
    )
