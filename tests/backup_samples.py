"""Backups for the tests: objects as the sink stores them, written where a test wants them."""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from kbackup import partitioners
from kbackup.batches import Batches, walk
from kbackup.batches.decoding import Tally
from kbackup.catalog.ledger.rows import TOPIC, Entry, TopicEntry, TopicLedger, stored
from kbackup.clock import SystemClock
from kbackup.formats import FormatOptions
from kbackup.formats.block_gzip import BlockGzipFormat
from kbackup.formats.log import LogFormat
from kbackup.kafka import KafkaSettings
from kbackup.naming import INDEX_EXTENSION, Layout, ObjectKey, View
from kbackup.partitioners.extractors import RecordExtractor
from kbackup.pipeline.convert import Conversion, convert, route
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ViewSpec
from kbackup.pipeline.write import OpenFiles
from kbackup.records import SCHEMA, UNKNOWN, Facts, Span, TopicIdentity, TopicPartition
from kbackup.runs.backup_state import BackupState
from kbackup.sink.job import SinkJob
from kbackup.sink.keep import keep
from kbackup.stores import Store, StoreSettings, open_store

OPTIONS: Final = FormatOptions()
GZIP: Final = FormatOptions({"s3.compression.type": "gzip"})
TIME: Final = 1_700_000_000_000

RECORD: Final = (ViewSpec(View.RECORD, "parquet", OPTIONS),)
SNAPPY: Final = (ViewSpec(View.RECORD, "parquet", FormatOptions({"parquet.codec": "snappy"})),)
JSON: Final = (ViewSpec(View.VALUE, "json", OPTIONS, "json", {"schemas.enable": "false"}),)
JSON_GZIP: Final = (ViewSpec(View.VALUE, "json", GZIP, "json", {"schemas.enable": "false"}),)
BYTES: Final = (ViewSpec(View.VALUE, "bytes", OPTIONS, "bytes"),)
SIBLINGS: Final = (
    ViewSpec(View.KEY, "json", OPTIONS, "string"),
    ViewSpec(View.HEADERS, "json", OPTIONS),
    *JSON,
)


def batch(offsets: Sequence[int], **columns: Any) -> pa.RecordBatch:
    """Return records at *offsets*, each with a key, a header and a JSON value of its own."""
    rows = [
        {
            "offset": offset,
            "timestamp": TIME + offset,
            "timestamp_type": 1,
            "key": b"k%d" % offset,
            "value": b'{"n":%d}' % offset,
            "headers": [{"key": "trace", "value": b"t%d" % offset}],
        }
        | columns
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def sink_job(views: tuple[ViewSpec, ...] = RECORD, **more: Any) -> SinkJob:
    """Return the job of a sink that closes files at its end alone, if *more* says nothing else."""
    given: dict[str, Any] = {
        "run": "r1", "kafka": KafkaSettings("-"), "store": StoreSettings("-"), "layout": Layout(),
        "clock": SystemClock(), "partitioner": "default", "extractor": "record", "rule": Rule(),
        "group": "g",
    }  # fmt: skip
    return SinkJob(views=views, **given | more)


def written(
    rows: pa.RecordBatch, where: TopicPartition, job: SinkJob, identity: TopicIdentity = UNKNOWN
) -> OpenFiles:
    """Return open files with *rows* in them, as the sink fills them."""
    views = [Conversion.of(spec, where.topic) for spec in job.views]
    files = OpenFiles(where, views, job.layout, job.spool_bytes, identity)
    partitioner = partitioners.by_name(job.partitioner)
    for converted in convert(rows, views):
        files.write(route(converted, where, partitioner, RecordExtractor(), 0))
    return files


def put_batches(
    store: Store,
    topic: str,
    batches: Iterable[Batches],
    directory: str = "partition=0",
    altered: bytes | None = None,
) -> tuple[str, Facts]:
    """Store batches as one object, as if their bytes were *altered* ones; its key and facts."""
    file, tally = io.BytesIO(), Tally()
    writer = LogFormat().batch_writer(file)
    for each in batches:
        writer.write(each if altered is None else replace(each, data=pa.py_buffer(altered)))
        tally.add(each)
    facts = tally.facts()
    assert facts is not None
    writer.close({"topic": topic, "partition": "0", "records": str(facts.records)})
    facts = replace(facts, sha256=hashlib.sha256(file.getvalue()).hexdigest())
    key = f"topics/{topic}/{directory}/{topic}+0+{facts.first_offset:010}.record.log.zst"
    metadata = {**facts.to_metadata(), "partition": "0"}
    store.put(key, file, sha256=facts.sha256, metadata=metadata)
    return key, facts


@dataclass
class Backup:
    """A store with a backup in it, and what its writer would have entered into the ledger."""

    # of the store, one in memory if nothing else is said
    settings: StoreSettings = field(default_factory=lambda: StoreSettings(f"memory://{uuid4()}"))
    layout: Layout = field(default_factory=Layout)  # how objects are named
    # the rows of each topic that a `run` has stored
    entries: dict[str, list[Entry]] = field(default_factory=dict)

    @classmethod
    def in_folder(cls, folder: Path) -> "Backup":
        """Return one whose store compares checksums when it opens an object."""
        return cls(StoreSettings(f"file://{folder}"))

    @property
    def store(self) -> Store:
        """The store."""
        return open_store(self.settings)

    def put(
        self,
        topic: str,
        partition: int,
        *cuts: Sequence[int] | pa.RecordBatch,
        views: tuple[ViewSpec, ...] = RECORD,
        identity: TopicIdentity = UNKNOWN,
    ) -> list[str]:
        """Store one cut after the other, given by offsets or records; return the keys."""
        where = TopicPartition(topic, partition)
        job = sink_job(views, store=self.settings, layout=self.layout)
        keys = []
        for cut in cuts:
            rows = cut if isinstance(cut, pa.RecordBatch) else batch(cut)
            ends = rows["offset"][0].as_py(), rows["offset"][-1].as_py() + 1
            for closed in written(rows, where, job, identity).close(Span(*ends)):
                keep(self.store, closed, self.layout)
                closed.body.close()
                keys.append(closed.key)
        return keys

    def put_batches(
        self, topic: str, *parts: bytes, directory: str = "partition=0",
        altered: bytes | None = None,
    ) -> str:  # fmt: skip
        """Store batches as one object, as if their bytes were *altered* ones; return its key."""
        found = walk(pa.py_buffer(b"".join(parts))).check()
        return put_batches(self.store, topic, [found], directory, altered)[0]

    def put_in(
        self,
        directory: str,
        topic: str,
        partition: int,
        offsets: Sequence[int] | pa.RecordBatch,
        *,
        views: tuple[ViewSpec, ...] = RECORD,
    ) -> str:
        """Store one directory's part of a cut, which it does not tell; return the last key."""
        scratch = Backup(layout=self.layout)
        moved = ""
        for key in scratch.put(topic, partition, offsets, views=views):
            moved = key.replace(f"/partition={partition}/", f"/{directory}/")
            head = scratch.store.head(key)
            assert head is not None
            with scratch.store.open(key) as body:
                left_out = {"sha256", "cut-start", "cut-end", "cut-files"}
                metadata = {k: v for k, v in head.metadata.items() if k not in left_out}
                sha256 = head.metadata["sha256"]
                self.store.put(moved, body, sha256=sha256, metadata=metadata)
        return moved

    def put_blocks(
        self, date: str, topic: str, partition: int, lines: Sequence[bytes], block_bytes: int = 20
    ) -> str:
        """Store a block-gzip file from offset 0 on, and its index; return the key."""
        file = io.BytesIO()
        options = FormatOptions({"compressed_block_size": block_bytes})
        writer = BlockGzipFormat().writer(file, View.VALUE, options)
        writer.write(pa.record_batch([pa.array(lines, pa.binary())], ["value"]))
        writer.close({})
        parts = ObjectKey(topic, partition, 0, date, ".gz", View.VALUE)
        key = self.layout.key(parts)
        beside = self.layout.key(replace(parts, extension=INDEX_EXTENSION))
        for at, body in ((key, file.getvalue()), (beside, writer.index(0))):
            digest = hashlib.sha256(body).hexdigest()
            self.store.put(at, io.BytesIO(body), sha256=digest, metadata={})
        return key

    def run(
        self,
        topic: str,
        partition: int,
        *cuts: Sequence[int],
        views: tuple[ViewSpec, ...] = RECORD,
    ) -> list[str]:
        """Store cuts, and enter them."""
        keys = self.put(topic, partition, *cuts, views=views)
        self.entries.setdefault(topic, []).extend(map(self.entry, keys))
        return keys

    @property
    def known(self) -> BackupState:
        """What the ledger says: of the topics that a `run` has stored."""
        topics = {name: TopicEntry(TOPIC, name) for name in self.entries}
        ledgers = {name: TopicLedger.of(rows) for name, rows in self.entries.items()}
        return BackupState(topics, ledgers=ledgers)

    def entry(self, key: str) -> Entry:
        """Return the row that the ledger would have of an object, with a cut of its own."""
        head, parts = self.store.head(key), self.layout.parse(key)
        assert head is not None
        facts = Facts.from_metadata(head.metadata)
        assert facts is not None
        cut = Span(facts.first_offset, facts.last_offset + 1)
        where = TopicPartition(parts.topic, parts.partition)
        time_ms = int(head.modified.timestamp() * 1000)
        return stored(where, key, parts.view, facts, head.size, cut, "r", time_ms)

    def body(self, key: str) -> bytes:
        """Return the bytes of an object."""
        with self.store.open(key) as file:
            return file.read()

    def replace(
        self, key: str, data: bytes, metadata: Mapping[str, str] | None = None, *, to: str = ""
    ) -> None:
        """Put *data* in an object's place, with its metadata or other, under its key or *to*."""
        head = self.store.head(key)
        kept = dict(head.metadata) if metadata is None and head is not None else metadata or {}
        sha256 = hashlib.sha256(data).hexdigest()
        kept.pop("sha256", None)
        self.store.put(to or key, io.BytesIO(data), sha256=sha256, metadata=kept)

    def path(self, key: str) -> Path:
        """Return the file of an object in a folder."""
        return Path(self.settings.url.removeprefix("file://"), key)
