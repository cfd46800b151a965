"""Microseconds of CPU that each stage costs a record.

Every stage is measured by itself, in a process of its own, with what it needs ready in memory:
reading from Kafka; converting, routing and cutting; writing Parquet; storing files in a folder;
opening them there; reading Parquet; writing to Kafka in transactions.  CPU is that of all the
process's threads, the client's own included.
"""

import hashlib
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.records import PARTITIONS, loads
from benchmarks.services import Services
from kbackup import partitioners
from kbackup.formats import FormatOptions
from kbackup.formats.parquet import ParquetFormat
from kbackup.kafka import KafkaSettings, Position
from kbackup.naming import View
from kbackup.partitioners import extractors
from kbackup.pipeline.convert import Conversion, convert, route
from kbackup.pipeline.rotate import Rule, cut
from kbackup.pipeline.rows import Rows
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.stores import Store, StoreSettings

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """What one process measures.

    Attributes:
        servers: The broker's address.
        topic: Where the records are.
        target: Where they go to.
        records: In each partition.
    """

    servers: str
    topic: str
    target: str
    records: int


def measured(services: Services, scale: float) -> Iterator[Row]:
    """Yield a row for each load and stage."""
    for load in loads(scale):
        own = replace(load, name=f"{load.name}-stages")  # a topic of its own
        target = f"{own.topic}-copy"
        services.fill(own)
        services.create_topic(target)
        share = Share(services.servers, own.topic, target, load.records // PARTITIONS)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.stages", json.dumps(asdict(share))],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        for topic in (target, own.topic):
            services.delete_topic(topic)
        for stage, cost in json.loads(done.stdout).items():
            yield {"stage": stage, "load": load.name, "us": cost}


def costs(share: Share) -> dict[str, float]:
    """Return microseconds of CPU a record for each stage."""
    kafka = KafkaSettings(share.servers)
    form, options = ParquetFormat(), FormatOptions()
    wheres = [TopicPartition(share.topic, at) for at in range(PARTITIONS)]
    span = Span(0, share.records)
    total = share.records * PARTITIONS
    found: dict[str, float] = {}

    def clock(stage: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = work()
        found[stage] = round((time.process_time() - began) / total * 1e6, 3)
        return result

    def read() -> list[list[pa.RecordBatch]]:
        with closing(kafka.reader("bench-stages")) as reader:
            return [list(reader.read(where, span)) for where in wheres]

    def write_files(partitions: list[list[pa.RecordBatch]]) -> list[io.BytesIO]:
        files = []
        for batches in partitions:
            files.append(io.BytesIO())
            writer = form.writer(files[-1], View.RECORD, options)
            for batch in batches:
                writer.write(batch)
            writer.close({})
        return files

    def read_files(files: list[io.BytesIO]) -> None:
        extension = form.extension(options)
        for file in files:
            for _ in form.read(file, View.RECORD, extension, options):
                pass  # kept, they would be measured as memory that was never used before

    def write(partitions: list[list[pa.RecordBatch]]) -> None:
        for at, batches in enumerate(partitions):
            with closing(kafka.writer(TopicPartition(share.target, at), "bench-stages")) as writer:
                for batch in batches:
                    writer.write(batch)
                writer.commit(Position(share.records))

    with tempfile.TemporaryDirectory() as folder:
        store = StoreSettings(Path(folder).as_uri()).open()
        partitions = clock("read from Kafka", read)
        clock("convert, route, cut", lambda: _shape(wheres, partitions))
        files = clock("write Parquet", lambda: write_files(partitions))
        clock("store", lambda: _store(store, files))
        clock("open", lambda: _open(store))
        clock("read Parquet", lambda: read_files(files))
        clock("write to Kafka", lambda: write(partitions))
    sink = ("read from Kafka", "convert, route, cut", "write Parquet", "store")
    found["sink"] = round(sum(found[stage] for stage in sink), 3)
    restore = ("open", "read Parquet", "write to Kafka")
    found["restore"] = round(sum(found[stage] for stage in restore), 3)
    return found


def _shape(wheres: list[TopicPartition], partitions: list[list[pa.RecordBatch]]) -> None:
    """Do what a sink does between reading records and writing files."""
    views = [Conversion.of(ViewSpec(View.RECORD, "parquet", FormatOptions()))]
    partitioner = partitioners.by_name("default", {})
    extractor = extractors.by_name("record", {})
    rule = Rule()

    def rows(where: TopicPartition, batches: list[pa.RecordBatch]) -> Iterator[Rows]:
        for batch in batches:
            for converted in convert(batch, views, compatibility=rule.compatibility):
                yield route(converted, where, partitioner, extractor, 0).before_bad()

    for where, batches in zip(wheres, partitions, strict=True):
        for _ in cut(rows(where, batches), rule, lambda: 0):
            pass


def _store(store: Store, files: list[io.BytesIO]) -> None:
    for at, file in enumerate(files):
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        store.put(f"topics/{at}", file, sha256=digest, metadata={})


def _open(store: Store) -> None:
    for at in range(PARTITIONS):
        store.open(f"topics/{at}").close()


if __name__ == "__main__":
    print(json.dumps(costs(Share(**json.loads(sys.argv[1])))))
