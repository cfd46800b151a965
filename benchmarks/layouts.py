"""Records a second for each format, converter and partitioner, beside writing raw JSON lines.

Each row is what a sink's task does between Kafka and S3, on one core: convert, route, cut and
write.  The yardsticks, measured in the same run, are the loops that anybody would write first: each
value, which is JSON, and a newline, into one buffer; and fastavro, which decodes and encodes each
value that is Avro under a registry's schema.  It is run by itself::

    python -m benchmarks.layouts
"""

import io
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

import click
import fastavro
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from kbackup import partitioners
from kbackup.formats import FormatOptions
from kbackup.naming import Layout, View
from kbackup.partitioners import extractors
from kbackup.pipeline.convert import Conversion, convert, route
from kbackup.pipeline.rotate import Append, Cut, Rule, cut
from kbackup.pipeline.rows import Rows
from kbackup.pipeline.views import ViewSpec
from kbackup.pipeline.write import OpenFiles
from kbackup.records import SCHEMA, Span, TopicPartition

WHERE: Final = TopicPartition("bench", 0)
BATCH: Final = 10_000
TIME: Final = 1_700_000_000_000
RAW: Final = "raw JSON lines"
FASTAVRO: Final = "fastavro, decoding and encoding"
AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "region", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
CONNECT: Final = {
    "type": "struct",
    "name": "Order",
    "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "region", "type": "string", "optional": False},
        {"field": "amount", "type": "double", "optional": False},
        {"field": "note", "type": "string", "optional": True},
    ],
}
FRAME_BYTES: Final = 5
"""What stands before a value under a registry's schema: a zero and the schema's id."""

REGIONS: Final = ("eu", "us", "asia", "africa")
BY_DAY: Final = {"locale": "en", "timezone": "UTC", "directory.delim": "/"}


@dataclass(frozen=True, slots=True)
class Way:
    """One combination.

    Attributes:
        format: Name of the format's plugin.
        converter: Name of the value converter's plugin; empty for full records.
        load: Which of `loads` it takes.
        partitioner: Name of the partitioner's plugin.
        converting: Options of the converter.
        routing: Options of the partitioner.
    """

    format: str
    converter: str
    load: str
    partitioner: str = "default"
    converting: Mapping[str, str] = field(default_factory=dict)
    routing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the table calls it."""
        what = self.converter or "full records"
        with_schemas = " with schemas" if self.load == "schema" else ""
        return f"{self.format}, {what}{with_schemas}, {self.partitioner}"


def ways(registry: str) -> list[Way]:
    """Return the combinations: each format and converter, and each partitioner once."""
    plain, framed = {"schemas.enable": "false"}, {"schema.registry.url": registry}
    field_ = {"partition.field.name": ["region"], "directory.delim": "/"}
    found = [
        Way("parquet", "", "json"),
        Way("json", "json", "json", converting=plain),
        Way("json", "string", "json"),
        Way("json", "json", "schema", converting={"schemas.enable": "true"}),
        Way("json", "avro", "avro", converting=framed),
        Way("avro", "json", "schema", converting={"schemas.enable": "true"}),
        Way("avro", "avro", "avro", converting=framed),
        Way("parquet", "json", "schema", converting={"schemas.enable": "true"}),
        Way("parquet", "avro", "avro", converting=framed),
        Way("bytes", "bytes", "json"),
    ]
    for name, routing in (("field", field_), ("daily", BY_DAY), ("hourly", BY_DAY)):
        found.append(Way("json", "json", "json", name, plain, routing))
    found.append(Way("avro", "avro", "avro", "field", framed, field_))
    return found


def loads(records: int) -> dict[str, list[pa.RecordBatch]]:
    """Return the same records as JSON, as JSON with schemas, and as registry-framed Avro."""
    schema = fastavro.parse_schema(AVRO)
    orders = [
        {
            "id": at,
            "region": REGIONS[at % 4],
            "amount": at / 8,
            "note": None if at % 3 else "x" * 40,
        }
        for at in range(records)
    ]
    return {
        "json": _batches([json.dumps(one).encode() for one in orders]),
        "schema": _batches(
            [json.dumps({"schema": CONNECT, "payload": one}).encode() for one in orders]
        ),
        "avro": _batches([_framed(schema, one) for one in orders]),
    }


def _framed(schema: Any, order: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, order)
    return struct.pack(">bI", 0, 1) + body.getvalue()


def _batches(values: list[bytes]) -> list[pa.RecordBatch]:
    found = []
    for start in range(0, len(values), BATCH):
        some = values[start : start + BATCH]
        rows = {
            "offset": range(start, start + len(some)),
            "timestamp": [TIME + 1000 * at for at in range(start, start + len(some))],
            "timestamp_type": [1] * len(some),
            "key": [b"key"] * len(some),
            "value": some,
            "headers": [[]] * len(some),
        }
        columns = [pa.array(rows[one.name], one.type) for one in SCHEMA]
        found.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return found


def raw_lines(batches: list[pa.RecordBatch]) -> int:
    """Write each value and a newline; return the bytes that were written."""
    out = io.BytesIO()
    for batch in batches:
        for value in batch["value"].to_pylist():
            out.write(value)
            out.write(b"\n")
    return out.tell()


def through_fastavro(batches: list[pa.RecordBatch]) -> int:
    """Decode each framed value and encode it into one Avro file; return the bytes of the file."""
    schema, out = fastavro.parse_schema(AVRO), io.BytesIO()

    def orders() -> Iterator[Any]:
        for batch in batches:
            for value in batch["value"].to_pylist():
                yield fastavro.schemaless_reader(io.BytesIO(value[FRAME_BYTES:]), schema, None)

    fastavro.writer(out, schema, orders())
    return out.tell()


def written(way: Way, batches: list[pa.RecordBatch]) -> int:
    """Do what a sink's task does, short of reading and storing; return the bytes of the files."""
    view = View.VALUE if way.converter else View.RECORD
    spec = ViewSpec(view, way.format, FormatOptions(), way.converter or None, way.converting)
    views = [Conversion.of(spec, WHERE.topic)]
    partitioner = partitioners.by_name(way.partitioner, way.routing)
    extractor, rule = extractors.by_name("record", {}), Rule()

    def rows() -> Iterator[Rows]:
        for batch in batches:
            for converted in convert(batch, views, compatibility=rule.compatibility):
                yield route(converted, WHERE, partitioner, extractor, 0).before_bad()

    files, size, start = OpenFiles(WHERE, views, Layout(), 2**28), 0, 0
    end = sum(map(len, batches))
    for step in cut(rows(), rule, lambda: 0):
        match step:
            case Append(some, _):
                files.write(some)
            case Cut(next_offset):
                size += _closed(files, Span(start, next_offset))
                start = next_offset
    return size + (_closed(files, Span(start, end)) if files.records else 0)


def _closed(files: OpenFiles, span: Span) -> int:
    size = 0
    for file in files.close(span):
        size += file.body.size
        file.body.close()
    return size


class _Registry(BaseHTTPRequestHandler):
    """Answers each question about schemas with the one there is."""

    def do_GET(self) -> None:
        answer: Any = {"schema": json.dumps(AVRO), "subject": "bench-value", "version": 1, "id": 1}
        if self.path.partition("?")[0].endswith("/versions"):
            answer = [{"subject": "bench-value", "version": 1}]
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def registry() -> Iterator[str]:
    """Yield the URL of a registry that has one schema."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@click.command()
@click.option("--records", default=200_000, show_default=True, help="Records of each load.")
@click.option("--repeat", default=3, show_default=True, help="Measurements; the best one counts.")
def main(records: int, repeat: int) -> None:
    """Measure each combination; JSON lines go to stdout, the table to stderr."""
    ready = loads(records)
    table = Table(
        "format, converter, partitioner", "records/s", "MB/s", "of raw lines", "of fastavro"
    )
    best: dict[str, tuple[float, int, int]] = {}
    with registry() as url:
        work: list[tuple[str, str, Callable[[list[pa.RecordBatch]], int]]] = [
            (RAW, "json", raw_lines), (FASTAVRO, "avro", through_fastavro),
            *((one.name, one.load, partial(written, one)) for one in ways(url)),
        ]  # fmt: skip
        for _ in range(repeat):
            for name, load, do in work:
                batches = ready[load]
                began = time.process_time()
                stored = do(batches)
                seconds = time.process_time() - began
                read = sum(batch["value"].nbytes for batch in batches)
                best[name] = min(best.get(name, (seconds, read, stored)), (seconds, read, stored))
    raw, fastavro_ = best[RAW][0], best[FASTAVRO][0]
    for name, (seconds, read, stored) in best.items():
        row = {
            "type": "layout", "way": name, "records_per_s": round(records / seconds),
            "mb_per_s": round(read / seconds / 1e6, 1), "stored_bytes": stored,
            "of_raw_lines": round(raw / seconds, 3), "of_fastavro": round(fastavro_ / seconds, 1),
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        shown = (f"{row['records_per_s']:,}", f"{row['mb_per_s']}", f"{row['of_raw_lines']:.0%}",
                 f"{row['of_fastavro']}")  # fmt: skip
        table.add_row(name, *shown)
    Console(stderr=True, width=120).print(table)


if __name__ == "__main__":
    main()
