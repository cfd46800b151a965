"""Values with schemas through the whole command: Kafka, files under a schema, and back."""

import io
import json

import fastavro
import pytest

from tests.integration.product import Store
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
SCHEMA = {
    "type": "struct",
    "name": "com.example.Order",
    "version": 2,
    "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "note", "type": "string", "optional": True},
        {"field": "at", "type": "int64", "optional": False, "version": 1,
         "name": "org.apache.kafka.connect.data.Timestamp"},
    ],
}  # fmt: skip


def order(at: int) -> dict[str, object]:
    return {"id": at, "note": None if at % 3 else "", "at": 1_700_000_000_000 + at}


def objects(store: Store, suffix: str) -> list[bytes]:
    """Return the objects whose key ends with *suffix*, by key."""
    found = []
    for entry in sorted(store.list(""), key=lambda entry: entry.key):
        if entry.key.endswith(suffix):
            with store.open(entry.key) as body:
                found.append(body.read())
    return found


def test_json_with_schemas_becomes_avro_and_comes_back(
    kbackup: Kbackup, cluster: TestCluster, topic: str, store: Store
) -> None:
    """An Avro file says what the records said, and a restore gives it back without schemas too."""
    cluster.create(topic)
    values = [json.dumps({"schema": SCHEMA, "payload": order(at)}).encode() for at in range(50)]
    cluster.write(topic, [Record(b"key-%d" % at, value) for at, value in enumerate(values)])

    kbackup.json(
        "sink", "-t", topic, "-f", "avro", "--flush-size", "20", "--value-converter", CONVERTER,
        "--store-kafka-keys", "-X", "avro.codec=deflate",
    )  # fmt: skip
    kbackup.json("restore", "--rename", "plain_$0")
    kbackup.json("restore", "--rename", "schemas_$0", "--value-converter", CONVERTER)

    files = [fastavro.reader(io.BytesIO(body)) for body in objects(store, ".avro")]
    names = {file.writer_schema["name"] for file in files if isinstance(file.writer_schema, dict)}
    plain, again = cluster.read(f"plain_{topic}"), cluster.read(f"schemas_{topic}")
    assert {"com.example.Order"} == names
    assert [(b"key-%d" % at, order(at)) for at in range(50)] == [
        (copy.key, json.loads(copy.value or b"")) for copy in plain
    ]
    assert list(map(json.loads, values)) == [json.loads(copy.value or b"") for copy in again]
