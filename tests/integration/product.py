"""All that the integration tests take from kbackup: what moves there is followed here alone."""

from kbackup import config, converters
from kbackup.catalog.groups import TopicCapture
from kbackup.catalog.groups import read as read_groups
from kbackup.cli import main, root
from kbackup.cli.running import find_jvm
from kbackup.clock import SystemClock
from kbackup.config import Settings
from kbackup.connect.registry import AVRO, RegisteredSchema, RegistrySettings, connect
from kbackup.connect.registry.framing import head_of
from kbackup.connect.schema import DATE, DECIMAL, ConnectSchema, Type
from kbackup.errors import (
    AuditError,
    ConfigurationError,
    KbackupError,
    LocalServiceError,
    RecordTooLargeError,
    RefusedError,
    RegistryError,
)
from kbackup.events import Event, to_json
from kbackup.inspect.ddl import statements
from kbackup.inspect.query import check_reads
from kbackup.inspect.source import BackupSource
from kbackup.kafka import KafkaSettings, NewTopic, Position, TakenOverError, reader
from kbackup.kafka.cluster import KafkaCluster as Cluster
from kbackup.kafka.reader import KafkaReader as Reader
from kbackup.kafka.writer import KafkaWriter as Writer
from kbackup.local import LocalKafka, LocalRegistry, LocalS3, find_java, start_kafka
from kbackup.local.downloads import ivy_jar
from kbackup.local.java import trust_store_options
from kbackup.local.sample import compare_topics
from kbackup.local.servers import free_ports
from kbackup.naming import DatedLayout, Layout
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.restore.job import partitions_of
from kbackup.restore.run import RestoreRun
from kbackup.runs import context, wiring
from kbackup.runs.context import Environment, Stop
from kbackup.sink.run import SinkRun
from kbackup.spark import engine
from kbackup.spark.channel import Hub, Line
from kbackup.spark.engine import deal, session
from kbackup.spark.java import EngineSettings
from kbackup.stores import Store, StoreSettings

__all__ = [
    "AVRO",
    "DATE",
    "DECIMAL",
    "ENGINE",
    "ON_SPARK",
    "PATIENCE",
    "SCHEMA",
    "AuditError",
    "BackupSource",
    "Cluster",
    "ConfigurationError",
    "ConnectSchema",
    "DatedLayout",
    "EngineSettings",
    "Environment",
    "Event",
    "Hub",
    "KafkaSettings",
    "KbackupError",
    "Layout",
    "Line",
    "LocalKafka",
    "LocalRegistry",
    "LocalS3",
    "LocalServiceError",
    "NewTopic",
    "Position",
    "Reader",
    "RecordTooLargeError",
    "RefusedError",
    "RegisteredSchema",
    "RegistryError",
    "RegistrySettings",
    "RestoreRun",
    "Settings",
    "SinkRun",
    "Span",
    "Stop",
    "Store",
    "StoreSettings",
    "SystemClock",
    "TakenOverError",
    "TopicCapture",
    "TopicPartition",
    "Type",
    "Writer",
    "check_reads",
    "compare_topics",
    "config",
    "connect",
    "converters",
    "deal",
    "find_java",
    "find_jvm",
    "free_ports",
    "head_of",
    "ivy_jar",
    "main",
    "partitions_of",
    "read_groups",
    "root",
    "session",
    "start_kafka",
    "statements",
    "to_json",
    "trust_store_options",
    "wiring",
]

PATIENCE = (reader, "patience_s")
"""How long a reader waits: its owner, and its name there."""

ON_SPARK = (context, "OnSpark")
ENGINE = (engine, "run")
"""What runs tasks: its owner, and its name there."""
