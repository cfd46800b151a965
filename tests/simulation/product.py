"""All that the simulation takes from kbackup: what moves there is followed here, and only here.

A defect is planted by replacing a function, which has a name of ours in `_PLACES`.  A place that
is gone raises: a plant never becomes one that changes nothing.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from kbackup import batches as all_batches
from kbackup.batches import APPEND_TIME, Batches, walk
from kbackup.batches.decoding import decoded
from kbackup.catalog import coverage, covered
from kbackup.catalog.coverage import Holding
from kbackup.catalog.coverage import Read as HoldingRead
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import OBJECTS, TOPICS, Entry, PartitionLedger
from kbackup.catalog.ledger.stream import Contents, Stream, encoded, parsed
from kbackup.catalog.listing import FileSet
from kbackup.config import Settings
from kbackup.config.loading import Command, load
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    IncompleteBackupError,
    KafkaError,
    KbackupError,
    LockedError,
    NewerVersionError,
    ObjectNotFoundError,
    StoreError,
    TopicChangedError,
)
from kbackup.events import Event, Plain, to_json
from kbackup.formats import FormatOptions
from kbackup.formats.log import LogFormat
from kbackup.formats.parquet_records import read_records
from kbackup.kafka import (
    NO_OTHERS,
    Group,
    GroupList,
    GroupOffset,
    KafkaSettings,
    LogStartMovedError,
    OffsetMovedError,
    Position,
    TakenOverError,
    Topic,
)
from kbackup.naming import Layout, View
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.write import ClosedFile
from kbackup.records import SCHEMA, Prefetch, Span, TimestampType, TopicPartition
from kbackup.restore import plan as restore_plan
from kbackup.restore import resume as resuming
from kbackup.restore import task as restore_task
from kbackup.restore.resume import Remaining, ResumeState
from kbackup.restore.run import RestoreRun
from kbackup.runs import locks, wiring
from kbackup.runs.backup_state import read as read_known
from kbackup.runs.context import BEAT_S, Environment, Periodic, Stop, linked
from kbackup.runs.locks import RunLock
from kbackup.runs.locks import holders as lock_holders
from kbackup.runs.position import RestorePosition, RestoreSource, SinkPosition
from kbackup.runs.report import HeldUp, Summary
from kbackup.runs.status import status
from kbackup.runs.wiring import layout as layout_of
from kbackup.runs.wiring import reading as reading_of
from kbackup.sink import accounting, evidence, keep, maintenance, start
from kbackup.sink import plan as sink_plan
from kbackup.sink import run as sink_run
from kbackup.sink.expire import ExpireOptions, ExpireRun
from kbackup.sink.maintenance import RepairRun
from kbackup.sink.plan import make_plan
from kbackup.sink.run import SinkRun
from kbackup.sink.start import Evidence, Start, decide
from kbackup.spark.channel import TaskChannel
from kbackup.spark.engine import deal
from kbackup.stores import ObjectHead, Store, StoredObject
from kbackup.stores.encrypted import MAGIC, EncryptedStore
from kbackup.verify.run import Acceptance, LedgerRepair, Notes, verify
from kbackup.verify.task import VerifyUnit, verify_task

_PLACES: dict[str, tuple[Any, str]] = {
    "remaining": (restore_plan, "remaining"),
    "conflicts": (RestoreSource, "conflicts"),
    "in log": (resuming, "_in_log"),
    "put": (keep, "_put"),
    "make plan": (sink_run, "make_plan"),
    "read ledger": (Stream, "read"),
    "answered holding": (covered, "_answered"),
    "stated": (coverage._Decisions, "_stated"),
    "other locks": (RunLock, "_others"),
    "following": (evidence, "_following"),
    "reached": (PartitionLedger, "reached"),
    "asked": (covered, "_asked"),
    "repaired topic": (maintenance._RepairPlanner, "_of"),
    "repaired identities": (maintenance._RepairPlanner, "_identities"),
    "refused topics": (accounting, "refused_topics"),
    "decide": (sink_plan, "decide"),
    "past held": (start, "_past_held"),
    "only format": (wiring, "only_format"),
    "confirm": (evidence, "confirm"),
    "held up": (HeldUp, "of"),
    "acceptance": (PartitionLedger, "_acceptance"),
    "newer version": (NewerVersionError, "of"),
    "settle": (locks, "SETTLE_S"),
    "ledger version": (stream, "VERSION"),
}
"""What is replaced: its owner, and its name there."""


def original(place: str) -> Any:
    """Return what is there."""
    return getattr(*_PLACES[place])


def replaced(place: str, by: Any) -> AbstractContextManager[Any]:
    """Put something else in its place for a while.

    Raises:
        AttributeError: If kbackup has no such place any more.
    """
    return patch.object(*_PLACES[place], by)


@contextmanager
def batches_as_stored() -> Iterator[None]:
    """Let each batch be large enough to be sent as it is, and each partition have a writer."""
    with (
        patch.object(all_batches, "LEAST_BYTES", (1, 1)),
        patch.object(restore_task, "SMALL_BYTES", -1),
    ):
        yield
