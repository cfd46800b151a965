"""All that the contract suites take from kbackup: what moves there is followed here alone."""

from pathlib import Path

import kbackup
from kbackup import converters, formats, partitioners, plugins
from kbackup.catalog.findings import Finding
from kbackup.catalog.listing import earlier
from kbackup.clock import SystemClock
from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.protobuf_writing import planned
from kbackup.converters import Converter
from kbackup.converters.json_text import JsonConverter
from kbackup.converters.registered import RequestedSchemas
from kbackup.errors import (
    BadRecordError,
    CorruptObjectError,
    KafkaError,
    KbackupError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
    TopicChangedError,
)
from kbackup.events import to_json
from kbackup.formats import Format, FormatOptions
from kbackup.inspect.examination import store_checks as checks
from kbackup.inspect.source import Found
from kbackup.inspect.source import QueryReader as BackupReader
from kbackup.kafka import (
    BrokenOffError,
    KafkaSettings,
    LogStartMovedError,
    Position,
    reader,
    writer,
)
from kbackup.kafka import Reader as AnyReader
from kbackup.kafka import cluster as clusters
from kbackup.kafka.cluster import KafkaCluster as Cluster
from kbackup.kafka.fetch import BatchReader
from kbackup.kafka.native import choose
from kbackup.kafka.reader import ROWS_BYTES
from kbackup.kafka.reader import KafkaReader as Reader
from kbackup.kafka.writer import OVERHEAD_BYTES
from kbackup.kafka.writer import KafkaWriter as Writer
from kbackup.local.servers import LocalS3
from kbackup.naming import Layout, View
from kbackup.naming.renaming import ALL
from kbackup.partitioners import Partitioner, extractors
from kbackup.partitioners.extractors import TimestampExtractor
from kbackup.pipeline.views import ReadOptions
from kbackup.records import HEADER, SCHEMA, Span, TopicPartition
from kbackup.restore.run import RestoreRun
from kbackup.runs import backup_state
from kbackup.runs.context import Environment, Stop
from kbackup.runs.report import Summary
from kbackup.sink.copy import CopyRun
from kbackup.sink.maintenance import RepairRun
from kbackup.sink.run import SinkRun
from kbackup.stores import (
    Archive,
    Bucket,
    Names,
    Ranges,
    Seals,
    Store,
    StoreSettings,
    Thaw,
    Uploads,
    metadata_of,
    open_store,
)
from kbackup.stores.encrypted import CHUNK_BYTES, EncryptedStore
from kbackup.stores.s3.bucket import read
from kbackup.testing import (
    PART_BYTES,
    ConverterContract,
    ExtractorContract,
    FormatContract,
    PartitionerContract,
    StoreContract,
    TransformContract,
    encoded,
    open_bytes,
    put_bytes,
)
from kbackup.testing.files import Files, columns
from kbackup.testing.values import VALUES
from kbackup.transforms import Transform
from kbackup.verify.against_source import verify_against_source
from kbackup.verify.run import Notes, verify
from kbackup.verify.task import verify_task

__all__ = [
    "ALL",
    "BATCHES",
    "CAUGHT_UP_S",
    "CHUNK_BYTES",
    "COMMIT_S",
    "HEADER",
    "OVERDUE_S",
    "OVERHEAD_BYTES",
    "PART_BYTES",
    "PATIENCE_S",
    "ROOT",
    "ROWS_BYTES",
    "SCHEMA",
    "VALUES",
    "AnyReader",
    "Archive",
    "BackupReader",
    "BadRecordError",
    "BatchReader",
    "BrokenOffError",
    "Bucket",
    "Cluster",
    "Converter",
    "ConverterContract",
    "CopyRun",
    "CorruptObjectError",
    "EncryptedStore",
    "Environment",
    "ExtractorContract",
    "Files",
    "Finding",
    "Format",
    "FormatContract",
    "FormatOptions",
    "Found",
    "JsonConverter",
    "KafkaError",
    "KafkaSettings",
    "KbackupError",
    "Layout",
    "LocalS3",
    "LogStartMovedError",
    "Names",
    "Notes",
    "ObjectKeyError",
    "ObjectNotFoundError",
    "Partitioner",
    "PartitionerContract",
    "Position",
    "Ranges",
    "ReadOptions",
    "Reader",
    "RepairRun",
    "RequestedSchemas",
    "RestoreRun",
    "Seals",
    "SinkRun",
    "Span",
    "Stop",
    "Store",
    "StoreContract",
    "StoreError",
    "StoreSettings",
    "Summary",
    "SystemClock",
    "Thaw",
    "TimestampExtractor",
    "TopicChangedError",
    "TopicPartition",
    "Transform",
    "TransformContract",
    "Uploads",
    "View",
    "Writer",
    "backup_state",
    "checks",
    "choose",
    "clusters",
    "columns",
    "connect",
    "converters",
    "earlier",
    "encoded",
    "extractors",
    "formats",
    "json_values",
    "metadata_of",
    "open_bytes",
    "open_store",
    "partitioners",
    "planned",
    "plugins",
    "put_bytes",
    "read",
    "to_json",
    "verify",
    "verify_against_source",
    "verify_task",
]

ROOT = Path(kbackup.__file__).parent

BATCHES = (writer, "BATCHES")
COMMIT_S = (writer, "_COMMIT_S")
OVERDUE_S = (writer, "_OVERDUE_S")
CAUGHT_UP_S = (reader, "CAUGHT_UP_S")
PATIENCE_S = (clusters, "PATIENCE_S")
"""What tests replace: its owner, and its name there."""
