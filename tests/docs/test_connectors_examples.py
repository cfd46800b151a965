"""The connectors' configurations among the examples, run: over a cluster and a bucket in memory."""

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pyarrow.parquet as pq
import pytest

from kbackup.clock import SystemClock
from kbackup.connect.registry.framing import head_of
from kbackup.events import to_json
from kbackup.restore.run import RestoreRun
from kbackup.runs.context import Environment, Stop
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.registry import FakeRegistry
from tests.support.standby import Standby

EXAMPLES = Path(__file__).parents[2] / "examples"

MINE = {"type": "record", "name": "myrecord", "fields": [{"name": "f1", "type": "string"}]}
EVENT = {
    "type": "record",
    "name": "event",
    "fields": [{"name": name, "type": "string"} for name in ("region", "event_type")],
}


@pytest.fixture
def store() -> StoreSettings:
    return StoreSettings(f"memory://{uuid4()}")


def environment(kafka: Any, store: StoreSettings) -> Environment:
    return Environment(kafka, store, Standby().tasks, SystemClock())


def sink(name: str, kafka: FakeKafka, store: StoreSettings, **options: object) -> dict[str, Any]:
    """Run an example; return its summary."""
    settings = load("sink", EXAMPLES / name, bootstrap_servers="h:1", no_lock=True, **options)
    return to_json(SinkRun(settings.settings, lambda _: None, Stop(), environment(kafka, store))())


def kafka_with(topic: str, values: Sequence[bytes]) -> FakeKafka:
    """A cluster with one topic of one partition."""
    kafka = FakeKafka()
    [where] = kafka.create(topic, len(values))
    kafka.values = {(where, at): value for at, value in enumerate(values)}
    return kafka


def objects(store: StoreSettings) -> Iterator[tuple[str, bytes]]:
    """The backup's objects: those outside ``_kbackup/``."""
    opened = open_store(store)
    for found in opened.list(""):
        if not found.key.startswith("_kbackup/"):
            with opened.open(found.key) as body:
                yield found.key, body.read()


def avro(schema: Any, schema_id: int, value: Any) -> bytes:
    """A value as a producer with a Schema Registry sends it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return head_of(schema_id) + body.getvalue()


def test_the_quick_start_goes_to_avro_and_comes_back_as_a_copy(store: StoreSettings) -> None:
    """Nine records are three Avro objects, and the source connector's file brings them back."""
    with FakeRegistry() as registry:
        at = {"value_converter_schema_registry_url": registry.url}
        schema_id = registry.add("s3_topic-value", MINE)
        values = [avro(MINE, schema_id, {"f1": f"value{n}"}) for n in range(1, 10)]
        stored = sink("avro-sink.properties", kafka_with("s3_topic", values), store, **at)
        names = [key for key, _ in objects(store)]
        rows = [row for _, body in objects(store) for row in fastavro.reader(io.BytesIO(body))]

        standby = Standby()
        given = load(
            "restore", EXAMPLES / "copy-of-s3-topic.properties",
            bootstrap_servers="h:1", no_lock=True, **at,
        )  # fmt: skip
        around = Environment(standby.target, store, standby.tasks, standby.time)  # type: ignore[arg-type]
        restored = to_json(RestoreRun(given.settings, lambda _: None, Stop(), around)())

    assert (0, 9) == (stored["exit_code"], stored["records"]), stored
    folder = "topics/s3_topic/partition=0/s3_topic+0+"
    assert [f"{folder}{first:010}.avro" for first in (0, 3, 6)] == names
    assert [{"f1": f"value{n}"} for n in range(1, 10)] == rows
    assert 9 == restored["records"], restored
    copied = standby.target.values("copy_of_s3_topic")
    assert [value[5:] for value in values] == [value[5:] for value in copied if value is not None]


def test_raw_bytes_are_lines_of_gzip_in_the_hour_of_the_records(store: StoreSettings) -> None:
    """Values are stored as they are; the directory is the hour of the records' own time."""
    values = [b"\x00\x01", b"", b"\xff not text"]

    summary = sink("raw-bytes-sink.properties", kafka_with("s3_topic", values), store)

    [(key, body)] = objects(store)
    assert (0, 3) == (summary["exit_code"], summary["records"]), summary
    hour = "year=2023/month=11/day=14/hour=22"
    assert f"topics/s3_topic/{hour}/s3_topic+0+0000000000.bin.gz" == key
    assert b"".join(value + b"\n" for value in values) == gzip.decompress(body)


def test_parquet_is_stored_in_a_directory_for_each_pair_of_fields(store: StoreSettings) -> None:
    """Records go where their fields say, and the columns of the schema are those of the file."""
    events = [
        {"region": region, "event_type": kind} for region in ("eu", "us") for kind in ("buy", "see")
    ]
    with FakeRegistry() as registry:
        schema_id = registry.add("events-value", EVENT)
        values = [avro(EVENT, schema_id, event) for event in events]
        summary = sink(
            "parquet-by-field.json", kafka_with("events", values), store,
            value_converter_schema_registry_url=registry.url,
        )  # fmt: skip

    assert (0, 4) == (summary["exit_code"], summary["records"]), summary
    found = {key: pq.read_table(io.BytesIO(body)).to_pylist() for key, body in objects(store)}
    assert {
        f"lake/events/region={event['region']}/event_type={event['event_type']}"
        f"/events+0+{at:010}.snappy.parquet": [event]
        for at, event in enumerate(events)
    } == found


def test_json_by_hour_leaves_what_is_not_json_to_the_dead_letters(store: StoreSettings) -> None:
    """One bad record costs exit code 3 and is a dead letter; the records around it are stored."""
    kafka = kafka_with("events", [b'{"n": 1}', b"no json", b'{"n": 3}'])

    summary = sink("json-by-hour.properties", kafka, store)

    assert (3, 2, {"bad_records": 1}) == (
        summary["exit_code"], summary["records"], summary["skipped"],
    ), summary  # fmt: skip
    [(key, body)] = objects(store)
    hour = "year=2023/month=11/day=14/hour=22"
    assert f"hourly/events/{hour}/events+0+0000000000.json" == key
    assert [{"n": 1}, {"n": 3}] == [json.loads(line) for line in body.splitlines()]
    [(topic, letter)] = kafka.letters
    assert ("dlq-events", b"no json") == (topic, letter["value"])
    where = {header["key"]: header["value"] for header in letter["headers"]}
    assert (b"events", b"1") == (
        where["__connect.errors.topic"], where["__connect.errors.offset"],
    )  # fmt: skip
