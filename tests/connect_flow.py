"""Cases of kind ``sink``: their records through convert, route, cut and write, without a cluster.

Values are given as the case states them, under schemas that say their names and versions; what
formats make of them is another test's matter, so the formats here know their extension alone.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from case_files import generated
from flow_samples import offsets_by_directory
from record_samples import batch_of

from kbackup import partitioners
from kbackup.config import Settings, loading
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.partitioners import extractors
from kbackup.pipeline.convert import Conversion, convert, route
from kbackup.pipeline.rotate import Append, Cut, cut
from kbackup.pipeline.rows import Rows
from kbackup.pipeline.views import ViewSpec
from kbackup.pipeline.write import OpenFiles
from kbackup.records import Bad, Column, Span, TopicPartition
from kbackup.runs import wiring

EXTENSIONS: Final = {"avro": ".avro", "json": ".json", "bytes": ".bin", "parquet": ".parquet"}
CODECS: Final = {"snappy": ".snappy", "gzip": ".gz", "none": ""}


def schema_of(spec: Any, default: Any = None) -> ConnectSchema:
    """Return a schema of a case: a word for its type, or all that is known of it."""
    if not isinstance(spec, dict):
        spec = {"type": spec.removesuffix("?"), "optional": spec.endswith("?")}
    default = spec.get("default", default)
    return ConnectSchema(
        Type({"float32": "float", "float64": "double"}.get(spec["type"], spec["type"])),
        spec.get("optional", False),
        spec.get("name"),
        spec.get("version"),
        spec.get("doc"),
        tuple(spec.get("parameters", {}).items()),
        None if default is None else json.dumps(default),
        tuple(
            (name, schema_of(kind, entry.get("default")))
            for entry in spec.get("fields", [])
            for name, kind in entry.items()
            if name != "default"
        ),
    )


@dataclass
class CaseConverter:
    """Kafka's bytes are a JSON text of the schema's name and the value."""

    schemas: Mapping[str, Any]

    def decode(self, column: pa.Array) -> Sequence[Column]:
        """Return a column for each run of a schema; a value of another type is bad."""
        rows = [(None, None) if raw is None else json.loads(raw) for raw in column.to_pylist()]
        found, start = [], 0
        for at in range(1, len(rows) + 1):
            if at == len(rows) or rows[at][0] != rows[start][0]:
                found.append(self._column(rows[start][0], [value for _, value in rows[start:at]]))
                start = at
        return found or [Column(column)]

    def _column(self, name: str | None, values: list[Any]) -> Column:
        if name is None:
            texts = [None if value is None else json.dumps(value) for value in values]
            return Column(pa.array(texts, pa.string()).cast(pa.json_()))
        schema = schema_of(self.schemas[name])
        kind = schema.arrow()
        bad = []
        if pa.types.is_struct(kind):
            for row, value in enumerate(values):
                if not isinstance(value, dict):
                    bad.append(Bad(row, "Invalid type for STRUCT"))
                    values[row] = None
        return Column(pa.array(values, kind), schema.of_column(), tuple(bad))


class KeyConverter:
    """Keys as they are."""

    def decode(self, column: pa.Array) -> Sequence[Column]:
        """Return texts."""
        return [Column(column.cast(pa.string()))]


class CaseWriter:
    """Keeps nothing."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows."""

    def close(self, metadata: Mapping[str, str]) -> None:
        """End."""


@dataclass(frozen=True)
class CaseFormat:
    """A format that takes everything."""

    splits_at: ClassVar[str] = ""

    def refuses(self, *_more: Any) -> Sequence[Bad]:
        """Refuse nothing."""
        return ()

    def writer(self, *_more: Any) -> CaseWriter:
        """Begin a file."""
        return CaseWriter()


@dataclass(frozen=True)
class CaseSpec(ViewSpec):
    """A view whose extension is known."""

    text: str = ""

    def extension(self) -> str:
        """Return it."""
        return self.text


KEYS_TOO: Final = {
    "store.kafka.keys": "true",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "keys.format.class": "io.confluent.connect.s3.format.json.JsonFormat",
}


def settings(case: dict[str, Any], folder: Path) -> Settings:
    """Return what kbackup makes of the case's configuration, formats and converters aside."""
    given = {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in case["config"].items()
    }
    for name in ("keys.format.class", "headers.format.class", "parquet.codec",
                 "s3.compression.type", "format.bytearray.extension"):  # fmt: skip
        given.pop(name, None)
    if given.get("behavior.on.null.values") == "write":
        given |= KEYS_TOO
    else:
        given.pop("store.kafka.keys", None)
    for name in ("store.kafka.headers", "s3.object.tagging"):
        given.pop(name, None)
    partitioner = given.pop("partitioner.class", "Default")
    given |= {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "partitioner.class": f"io.confluent.connect.storage.partitioner.{partitioner}Partitioner",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "s3.bucket.name": "b",
        "topics": case.get("topic", "test-topic"),
    }
    path = folder / "case.json"
    path.write_text(json.dumps({name: str(value) for name, value in given.items()}))
    options = {"bootstrap_servers": "h:1"}
    return loading.load("sink", options=options, files=[path], environ={}).settings


def conversions(case: dict[str, Any], schemas: Mapping[str, Any]) -> list[Conversion]:
    """Return the views of the case, values last."""
    given = case["config"]

    def spec(view: View, kind: str) -> CaseSpec:
        codec = CODECS[given.get("parquet.codec", "snappy")] if kind == "parquet" else ""
        text = (
            EXTENSIONS[kind] if kind != "bytes" else given.get("format.bytearray.extension", ".bin")
        )
        zipped = given.get("s3.compression.type") == "gzip" and kind in ("json", "bytes")
        return CaseSpec(view, kind, FormatOptions(), text=codec + text + (".gz" if zipped else ""))

    def view(view: View, kind: str, converter: Any) -> Conversion:
        return Conversion(spec(view, kind), CaseFormat(), converter)  # type: ignore[arg-type]

    found = []
    if given.get("store.kafka.keys"):
        found.append(view(View.KEY, given.get("keys.format.class", "avro"), KeyConverter()))
    if given.get("store.kafka.headers"):
        found.append(view(View.HEADERS, given.get("headers.format.class", "avro"), None))
    found.append(view(View.VALUE, given["format.class"], CaseConverter(schemas)))
    return found


def value(record: dict[str, Any]) -> Any:
    """Return the value of a record; ``rec: n`` stands for a struct of numbers."""
    if record.get("rec") is None:
        return record.get("value")
    number = record["rec"]
    more = {name: record[name] for name in ("string", "timestamp") if name in record}
    ratio = 12.2 + (number - 16 if number != 12 else 0)
    struct = {"boolean": True, "int": number, "long": number, "float": ratio, "double": ratio}
    return struct | more


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return records of a case as Kafka would give them."""
    found = []
    for row in rows:
        held = value(row)
        text = None if held is None else json.dumps([row.get("schema"), held]).encode()
        pairs = row.get("headers") or []
        found.append(
            {
                "offset": row["offset"],
                "timestamp": -1 if row.get("ts", 0) is None else row.get("ts", 0),
                "key": None if row.get("key") is None else str(row["key"]).encode(),
                "value": text,
                "headers": [{"key": name, "value": str(each).encode()} for name, each in pairs],
            }
        )
    return batch_of(found)


@dataclass
class Outcome:
    """What came of one Kafka partition, step by step."""

    # step, key and offsets of each object
    objects: list[tuple[int, str, list[int]]] = field(default_factory=list)
    # step and next offset of each cut
    committed: list[tuple[int, int]] = field(default_factory=list)
    # step and offset of each bad record, which is left out
    reported: list[tuple[int, int]] = field(default_factory=list)
    raised: int | None = None  # step at which a bad record ended the partition; None if none did


@dataclass
class Player:
    """Plays the steps of a case for one Kafka partition."""

    case: dict[str, Any]
    schemas: Mapping[str, Any]
    settings: Settings
    where: TopicPartition
    step: int = 0
    now: int = 0
    outcome: Outcome = field(default_factory=Outcome)

    def play(self) -> Outcome:
        """Return what came of it; without a reporter a bad record ends it."""
        self.now = self.case.get("clock_start_ms", 1_500_000_000_000)
        views = conversions(self.case, self.schemas)
        rule = wiring.rule(self.settings)
        files = OpenFiles(
            self.where, views, wiring.layout(self.settings), 2**20, tombstones=rule.tombstones
        )
        appended: list[Rows] = []
        clock: Callable[[], int] = lambda: self.now  # noqa: E731
        for step in cut(self._rows(views), rule, clock):
            match step:
                case Append(rows):
                    files.write(rows)
                    appended.append(rows)
                case Cut(next_offset):
                    closed = files.close(Span(0, next_offset))
                    offsets = iter(offsets_by_directory(appended).values())
                    held: list[int] | None = None
                    for file in closed:
                        held = next(offsets) if held is None else held
                        self.outcome.objects.append((self.step, file.key, held))
                        file.body.close()
                        held = None if file.is_main else held
                    self.outcome.committed.append((self.step, next_offset))
                    appended = []
        files.drop()
        return self.outcome

    def _rows(self, views: Sequence[Conversion]) -> Iterator[Rows]:
        partitioner = partitioners.by_name(
            self.settings.partitioner_class, wiring.partitioner_options(self.settings)
        )
        extractor = extractors.by_name(
            self.settings.timestamp_extractor, self.settings.plugin_options
        )
        for number, step in enumerate(self.case["steps"]):
            self.step = number
            self.now += step.get("clock_advance_ms", 0)
            if "put" not in step:
                continue
            mine = [
                row
                for row in generated(step["put"])
                if row.get("partition", 12) == self.where.partition
            ]
            for converted in convert(
                batch(mine),
                views,
                nulls=wiring.nulls(self.settings),
                compatibility=wiring.rule(self.settings).compatibility,
            ):
                rows = route(
                    converted,
                    self.where,
                    partitioner,
                    extractor,
                    self.now,
                    affix=wiring.affix(self.settings),
                    tombstones=wiring.rule(self.settings).tombstones,
                )
                if not self.case.get("reporter"):
                    yield rows.before_bad()
                    if rows.bad:
                        self.outcome.raised = self.step
                        return
                    continue
                offsets = [*rows.left_out, *(bad.offset for bad in rows.bad)]
                self.outcome.reported += ((self.step, offset) for offset in offsets)
                yield rows
