"""Values under a real registry's schemas: Kafka, Avro files, and back under the target's ids."""

import io
import json

import fastavro
import pytest

from kbackup.local import LocalRegistry
from kbackup.registry import AVRO, RegisteredSchema, RegistrySettings, connect
from kbackup.registry.framing import head_of
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup

pytestmark = pytest.mark.integration

CONVERTER = "io.confluent.connect.avro.AvroConverter"
ORDER = {
    "type": "record",
    "name": "x.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
PARSED = fastavro.parse_schema(ORDER)


def order(schema_id: int, at: int) -> bytes:
    """Return an order as a producer sends it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, PARSED, {"id": at, "note": None if at % 3 else "é"})
    return head_of(schema_id) + body.getvalue()


def test_avro_goes_through_a_real_registry_and_comes_back(
    kbackup: Kbackup, cluster: TestCluster, topic: str, apicurio: LocalRegistry
) -> None:
    """
    A good topic is stored and restored under the new subject's id; a record whose id nobody knows
    stops its own topic, by name; and a registry that is away stops a run with exit code 5.
    """
    cluster.create(topic)
    bad = cluster.create(f"{topic}-bad")
    registry = connect(RegistrySettings((apicurio.url,)))
    schema_id = registry.register(f"{topic}-value", RegisteredSchema(AVRO, json.dumps(ORDER)))
    cluster.write(topic, [Record(b"k", order(schema_id, at)) for at in range(500)])
    cluster.write(bad, [Record(b"k", order(schema_id, 0)), Record(b"k", order(99_999, 1))])
    layout = (
        "-f", "avro", "--value-converter", CONVERTER,
        "--value-converter-schema-registry-url", apicurio.url,
    )  # fmt: skip

    done = kbackup.json(
        "sink", "-t", f"{topic},{bad}", "--flush-size", "1000", *layout, expect=1
    ).summary

    [error] = done["errors"]
    assert (bad, 1) == (error["topic"], error["offset"])
    assert "schema 99999" in error["what"]
    assert (500, [(topic, 500)]) == (
        done["records"],
        [(each["topic"], each["committed"]) for each in done["partitions"] if each["committed"]],
    ), done

    kbackup.json("restore", "-t", topic, "--rename", "copy_$0", *layout)

    copied = cluster.read(f"copy_{topic}")
    new_id = int.from_bytes(copied[0].value[1:5], "big")  # type: ignore[index]
    assert [order(new_id, at) for at in range(500)] == [record.value for record in copied]
    assert registry.version(new_id, f"copy_{topic}-value") == 1

    cluster.write(topic, [Record(b"k", order(schema_id, 500))])
    away = (*layout[:-1], "http://127.0.0.1:1", "-X", "value.converter.max.retries=0")
    failed = kbackup.json("sink", "-t", topic, "--flush-size", "1000", *away, expect=5)

    [error] = failed.summary["errors"]
    assert ("registry", topic, 500) == (error["code"], error["topic"], error["offset"])
