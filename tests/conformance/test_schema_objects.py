"""Values with schemas: what the real S3 sink connector (10.5.15) made of them, made again.

Each folder of ``scenarios`` is one run of the connector.  Its records are sent as a producer
with ``JsonConverter`` would have sent them, each with its schema.
"""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scenario_files
from object_content import content

from tests.conformance.product import (
    COLUMNS,
    SCHEMA,
    Append,
    Conversion,
    DefaultPartitioner,
    FormatOptions,
    Layout,
    OpenFiles,
    RecordExtractor,
    Span,
    TopicPartition,
    convert,
    converters,
    cut,
    encoded,
    formats,
    loading,
    route,
    schema_of,
    wiring,
)

SCENARIOS = scenario_files.COPIES
NAMES = [
    "avro-all-types",
    "avro-codec-deflate",
    "avro-codec-snappy",
    "avro-enum-enhanced-true",
    "avro-no-connect-meta",
    "avro-quickstart",
    "avro-string-schema",
    "evolve-none",
    "json-all-types",
    "json-struct",
    "keys-headers-avro",
    "offset-gaps",
    "parquet-all-types",
    "parquet-snappy",
]
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def inputs(name: str) -> list[dict[str, Any]]:
    """The records that the connector was given."""
    return [vars(record) for record in scenario_files.Scenario.read(SCENARIOS / name).given]


def sent(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """What the Kafka client gives of *rows*."""
    found = [
        {
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "timestamp_type": 1,
            "key": sent(row["key"]),
            "value": sent(row["value"]),
            "headers": [
                {"key": each["key"], "value": str(each["value"]["payload"]).encode()}
                for each in row["headers"]
            ],
        }
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(found, SCHEMA)


@dataclass
class Made:
    """What our sink stores for a scenario."""

    objects: dict[str, bytes]
    next_offset: int


def made(name: str, size: int, folder: Path) -> Made:
    """Send a scenario through the flow, *size* records in a batch."""
    chosen = json.loads((SCENARIOS / name / "scenario.json").read_bytes())["config"]
    chosen |= {
        "topics": "t",
        "store.url": "http://127.0.0.1:1",
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "bootstrap.servers": "h:1",
    }
    path = folder / "connector.json"
    path.write_text(json.dumps(chosen))
    settings = loading.load("sink", options={}, files=[path], environ={}).settings
    views = [Conversion.of(spec) for spec in wiring.views(settings)]
    rows = inputs(name)
    where = TopicPartition(rows[0]["topic"], rows[0]["partition"])
    files = OpenFiles(where, views, wiring.layout(settings), 2**20)
    stream = [
        route(each, where, DefaultPartitioner(), RecordExtractor(), 0)
        for start in range(0, len(rows), size)
        for each in convert(batch(rows[start : start + size]), views)
    ]
    assert not [bad for each in stream for bad in each.bad]
    found, start = {}, rows[0]["offset"]
    for step in cut(stream, wiring.rule(settings)):
        if isinstance(step, Append):
            files.write(step.rows)
            continue
        for closed in files.close(Span(start, step.next_offset)):
            closed.body.seek(0)
            found[closed.key] = closed.body.read()
        start = step.next_offset
    files.drop()
    return Made(found, start)


def listed(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((SCENARIOS / name / "objects.json").read_bytes())
    return found


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("name", NAMES)
def test_the_connectors_objects_are_written(name: str, size: int, tmp_path: Path) -> None:
    """Same configuration, same records, in batches of any size: same keys, same content."""
    scenario = json.loads((SCENARIOS / name / "scenario.json").read_bytes())
    expected = {
        each["key"]: content(each["key"], (SCENARIOS / name / each["file"]).read_bytes())
        for each in listed(name)
    }

    found = made(name, size, tmp_path)

    assert expected == {key: content(key, data) for key, data in found.objects.items()}
    assert [found.next_offset] == [*scenario["committed_next_offset"].values()]


def column_types(data: bytes) -> dict[str, tuple[str, str]]:
    """Return the physical and the logical type of each column of a Parquet file."""
    schema = pq.ParquetFile(io.BytesIO(data)).schema
    columns = [schema.column(at) for at in range(len(schema.names))]
    return {each.path: (each.physical_type, str(each.logical_type)) for each in columns}


def test_columns_of_parquet_have_the_connectors_types(tmp_path: Path) -> None:
    """But for decimals, which Arrow writes in a fixed length."""
    [listing] = listed("parquet-all-types")
    theirs = column_types((SCENARIOS / "parquet-all-types" / listing["file"]).read_bytes())

    ours = column_types(made("parquet-all-types", 100, tmp_path).objects[listing["key"]])

    decimal = "Decimal(precision=64, scale=4)"
    assert ("BYTE_ARRAY", decimal) == theirs.pop("dec")
    assert ("FIXED_LEN_BYTE_ARRAY", decimal) == ours.pop("dec")
    assert theirs == ours


@pytest.mark.parametrize("size", [1, 3])
def test_how_records_came_leaves_no_trace(size: int, tmp_path: Path) -> None:
    """A retry gets the same records in other batches, and writes the same bytes."""
    whole = made("avro-quickstart", 100, tmp_path)

    assert whole.objects == made("avro-quickstart", size, tmp_path).objects


def objects() -> list[Any]:
    return [
        pytest.param(name, one, id=f"{name} {one['file'].partition('/')[2]}")
        for name in NAMES
        for one in listed(name)
    ]


@pytest.mark.parametrize(("name", "listing"), objects())
def test_the_connectors_objects_are_read(name: str, listing: dict[str, Any]) -> None:
    """What the connector was given comes back from its object, in JSON as producers sent it."""
    key = Layout().parse(listing["key"])
    form = formats.by_name(formats.by_extension(key.extension, FormatOptions()) or "")
    data = io.BytesIO((SCENARIOS / name / listing["file"]).read_bytes())
    rows = inputs(name)
    first = next(at for at, row in enumerate(rows) if row["offset"] == listing["start_offset"])
    taken = rows[first : first + listing["records"]]

    if listing["view"] == "headers":
        batches = form.read(data, key.view, key.extension, FormatOptions())
        found = [row for each in batches for row in each["headers"].to_pylist()]
        pairs = [
            [{"key": at["key"], "value": str(at["value"]["payload"])} for at in row["headers"]]
            for row in taken
        ]
        assert pairs == found
        return
    has_schema = key.extension.endswith((".avro", ".parquet"))
    converter = converters.by_name("json", {"schemas.enable": str(has_schema)})
    name_of = COLUMNS[key.view]
    texts = []
    for each in form.read(data, key.view, key.extension, FormatOptions()):
        schema = schema_of(each.schema.field(name_of))
        texts += encoded(converter, each[name_of], schema).to_pylist()
    given = [row["key" if listing["view"] == "keys" else "value"] for row in taken]
    if has_schema:
        again = converter.decode(pa.array(texts, pa.binary()))
        wanted = converter.decode(pa.array(map(sent, given), pa.binary()))
        if "no-connect-meta" not in name:
            assert wanted[0].schema == again[0].schema
        assert wanted[0].values.equals(again[0].values)
    else:
        assert [each["payload"] for each in given] == [json.loads(text) for text in texts]
