"""Microseconds of CPU that each stage costs a record, for each way between Kafka and columns.

Every stage is measured by itself, in a process of its own for each way, with what it needs ready
in memory: reading from Kafka, writing Parquet, reading Parquet, writing to Kafka in transactions.
CPU is that of all the process's threads, the client's own included.
"""

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa

from benchmarks.records import PARTITIONS, loads
from benchmarks.services import Services
from kbackup.formats import FormatOptions
from kbackup.formats.parquet import ParquetFormat
from kbackup.kafka import KafkaSettings, Position
from kbackup.naming import View
from kbackup.records import Span, TopicPartition

WAYS: Final = ("native", "python")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """What one process measures.

    Attributes:
        way: How records pass.
        servers: The broker's address.
        topic: Where the records are.
        target: Where they go to.
        records: In each partition.
    """

    way: str
    servers: str
    topic: str
    target: str
    records: int


def measured(services: Services, scale: float) -> Iterator[Row]:
    """Yield a row for each load, way and stage."""
    for load in loads(scale):
        name = load.name
        load = replace(load, name=f"{name}-stages")  # noqa: PLW2901  (topics of its own)
        services.fill(load)
        for way in WAYS:
            target = f"{load.topic}-{way}"
            services.create_topic(target)
            share = Share(way, services.servers, load.topic, target, load.records // PARTITIONS)
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.stages", json.dumps(asdict(share))],
                check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            services.delete_topic(target)
            for stage, cost in json.loads(done.stdout).items():
                yield {
                    "stage": stage,
                    "load": load.name.removesuffix("-stages"),
                    "way": way,
                    "us": cost,
                }
        services.delete_topic(load.topic)


def costs(share: Share) -> dict[str, float]:
    """Return microseconds of CPU a record for each stage."""
    kafka = KafkaSettings(share.servers, client=share.way)
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

    def read_files(files: list[io.BytesIO]) -> list[list[pa.RecordBatch]]:
        extension = form.extension(options)
        return [list(form.read(file, View.RECORD, extension, options)) for file in files]

    def write(partitions: list[list[pa.RecordBatch]]) -> None:
        for at, batches in enumerate(partitions):
            with closing(kafka.writer(TopicPartition(share.target, at), "bench-stages")) as writer:
                for batch in batches:
                    writer.write(batch)
                writer.commit(Position(share.records))

    partitions = clock("read from Kafka", read)
    files = clock("write Parquet", lambda: write_files(partitions))
    clock("read Parquet", lambda: read_files(files))
    clock("write to Kafka", lambda: write(partitions))
    found["sink"] = round(found["read from Kafka"] + found["write Parquet"], 3)
    found["restore"] = round(found["read Parquet"] + found["write to Kafka"], 3)
    return found


if __name__ == "__main__":
    print(json.dumps(costs(Share(**json.loads(sys.argv[1])))))
