"""All that the integration tests take from kbackup: what moves there is followed here alone."""

from kbackup import converters
from kbackup.batches import HEADER_BYTES, BatchError, Batches, walk
from kbackup.batches.decoding import EVERYTHING, decoded
from kbackup.catalog.groups import TopicCapture
from kbackup.catalog.groups import read as read_groups
from kbackup.clock import SystemClock
from kbackup.config import Settings, loading
from kbackup.connect.registry import AVRO, RegisteredSchema, RegistrySettings, connect
from kbackup.connect.registry.framing import head_of
from kbackup.connect.schema import DATE, DECIMAL, ConnectSchema, Type
from kbackup.errors import (
    ConfigurationError,
    KbackupError,
    LocalServiceError,
    RecordTooLargeError,
    RefusedError,
    RegistryError,
)
from kbackup.events import Event, to_json
from kbackup.formats import FormatOptions
from kbackup.formats.log import LogFormat
from kbackup.inspect.ddl import statements
from kbackup.inspect.query import answered, ask, check_reads, needed, number_of_rows
from kbackup.inspect.source import BackupSource
from kbackup.kafka import (
    Acl,
    GroupOffset,
    KafkaSettings,
    NewTopic,
    Position,
    ScramUser,
    TakenOverError,
    reader,
)
from kbackup.kafka import Reader as AnyReader
from kbackup.kafka import client as kafka_client
from kbackup.kafka import cluster as kafka_cluster
from kbackup.kafka.cluster import KafkaCluster as Cluster
from kbackup.kafka.fetch import BatchReader
from kbackup.kafka.reader import KafkaReader as Reader
from kbackup.kafka.writer import KafkaWriter as Writer
from kbackup.local import LocalKafka, LocalS3, find_java, start_kafka
from kbackup.local.downloads import fetch_kafka, ivy_jar
from kbackup.local.java import trust_store_options
from kbackup.local.servers import free_ports
from kbackup.naming import DatedLayout, Layout
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.restore import groups as restore_groups
from kbackup.restore import task as restore_task
from kbackup.restore.job import partitions_of
from kbackup.restore.run import RestoreRun
from kbackup.runs import context, wiring
from kbackup.runs.context import Environment, Stop
from kbackup.sink import follow as sink_follow
from kbackup.sink import run as sink_run
from kbackup.sink.run import SinkRun
from kbackup.spark.engine import session
from kbackup.spark.java import EngineSettings
from kbackup.stores import Store, StoreSettings

PATIENCE = (reader, "patience_s")
"""How long a reader waits: its owner, and its name there."""

WAITS = {
    # for a cluster that is away
    "PATIENCE_S": (kafka_client, kafka_cluster, sink_follow, restore_task),
    "NEWCOMERS_S": (sink_run,),  # between two looks for new topics
    "RECORD_S": (context,),  # between two run records
    "REPORT_S": (sink_follow,),  # between two reports of a task that follows
}
"""Waits of a command, and their owners."""
