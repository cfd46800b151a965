"""Values under a real registry's schemas: Kafka, Avro files, and back under the target's ids."""

import io
import json
import urllib.request
from typing import Any
from uuid import uuid4

import case_files
import fastavro
import pyarrow as pa
import pytest

from tests.integration.product import (
    AVRO,
    DATE,
    DECIMAL,
    ConnectSchema,
    Environment,
    RegisteredSchema,
    RegistryError,
    RegistrySettings,
    RestoreRun,
    SinkRun,
    Stop,
    StoreSettings,
    Type,
    connect,
    converters,
    head_of,
    to_json,
)
from tests.support.apicurio import LocalRegistry
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.registry import FakeRegistry
from tests.support.standby import Standby

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

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
    """A good topic has the new ids; an unknown id stops its own topic; no registry is exit 5."""
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


COLUMNS = ConnectSchema(
    Type.STRUCT,
    name="x.Order",
    fields=(
        ("id", ConnectSchema(Type.INT64)),
        ("note", ConnectSchema(Type.STRING, optional=True)),
        ("small", ConnectSchema(Type.INT8, optional=True)),
        ("day", ConnectSchema(Type.INT32, True, DATE, 1)),
        ("price", ConnectSchema(Type.BYTES, True, DECIMAL, 1, parameters=(("scale", "2"),))),
        ("tags", ConnectSchema(Type.ARRAY, value=ConnectSchema(Type.STRING))),
    ),
)
ROWS = [
    {"id": 1, "note": None, "small": -1, "day": -1, "price": b"\x7d", "tags": ["a", ""]},
    {"id": 2, "note": "", "small": None, "day": None, "price": None, "tags": []},
    None,
]


@pytest.mark.parametrize("name", ["avro", "json_schema", "protobuf"])
def test_a_real_registry_takes_the_schemas_of_each_converter(
    apicurio: LocalRegistry, name: str
) -> None:
    """What a restore registers is a schema to the registry, and the next backup reads it there."""
    properties = {"schema.registry.url": apicurio.url}
    values = pa.array(ROWS, COLUMNS.arrow())

    converter = converters.by_name(name, properties, topic=name)
    written = converter.encode(values, COLUMNS.of_column()).values

    other = {**properties, "max.retries": "1"}  # a connection of its own, which knows no schema
    [found] = converters.by_name(name, other, topic=name).decode(written)
    assert ((), ROWS) == (found.bad, found.values.to_pylist())


def test_compatibility_is_the_registrys_own(apicurio: LocalRegistry) -> None:
    """A schema that the subject's mode forbids is refused by name, any other one is registered."""
    document = case_files.document("registry_compatibility")
    if not document:
        pytest.skip("the folder of cases has none of a registry")
    assert connect(RegistrySettings((apicurio.url,), retries=0)).schema(0) is None
    schemas = {str(number): text for number, text in document["schemas"].items()}
    differ = [
        case
        for number, case in enumerate(document["cases"])
        if case["compatible"] != is_taken(apicurio, f"case-{number}", case, schemas)
    ]

    assert [] == differ


def is_taken(
    apicurio: LocalRegistry, subject: str, case: dict[str, Any], schemas: dict[str, str]
) -> bool:
    """Return whether a subject with the versions of *case* takes the new one."""
    registry = connect(RegistrySettings((apicurio.url,), retries=0))
    for number in case["previous"]:
        registry.register(subject, RegisteredSchema(AVRO, schemas[str(number)]))
    body = json.dumps({"compatibility": case["mode"]}).encode()
    headers = {"Content-Type": "application/json"}
    url = f"{apicurio.url}/config/{subject}"
    request = urllib.request.Request(url, body, headers, method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        pass
    try:
        registry.register(subject, RegisteredSchema(AVRO, schemas[str(case["new"])]))
    except RegistryError as error:
        if "HTTP 409" not in error.why:
            raise
        return False
    return True


def test_full_records_go_into_another_registry(apicurio: LocalRegistry) -> None:
    """Schemas of another registry, with references, are registered where their ids are taken."""
    name = {"type": "record", "name": "x.Name", "fields": [{"name": "n", "type": "string"}]}
    person = {"type": "record", "name": "x.Person", "fields": [{"name": "n", "type": "x.Name"}]}
    with FakeRegistry() as source:
        source.add("names", name)
        refers: dict[str, Any] = {
            "references": [{"name": "x.Name", "subject": "names", "version": 1}]
        }
        ids = source.add("people-value", person, **refers), source.add("people-value", ORDER)
        values = [head_of(ids[at % 2]) + bytes([at]) for at in range(10)]
        kafka = FakeKafka()
        [where] = kafka.create("people", len(values))
        kafka.values = {(where, at): value for at, value in enumerate(values)}
        place, standby = StoreSettings(f"memory://{uuid4()}"), Standby()
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "no_lock": True}
        environment = Environment(kafka, place, standby.tasks, standby.time)  # type: ignore[arg-type]
        settings = load("sink", topics="people", schema_registry_url=source.url, **given).settings
        assert 0 == to_json(SinkRun(settings, lambda _: None, Stop(), environment)())["exit_code"]
    target = connect(RegistrySettings((apicurio.url,), retries=1))
    for at in range(max(ids)):  # their ids are taken
        target.register(f"taken-{at}", RegisteredSchema(AVRO, json.dumps(fixed(at + 1))))

    settings = load(
        "restore", rename="copy_of_$0", schema_registry_url=apicurio.url, **given
    ).settings
    environment = Environment(standby.target, place, standby.tasks, standby.time)  # type: ignore[arg-type]
    done = to_json(RestoreRun(settings, lambda _: None, Stop(), environment)())

    assert 0 == done["exit_code"], done
    new = {each["id"]: each["new_id"] for each in done["schemas"]}
    expected = [head_of(new[ids[at % 2]]) + bytes([at]) for at in range(10)]
    assert expected == standby.target.values("copy_of_people")
    schemas = [target.schema(new[at]) for at in ids]
    assert [person, ORDER] == [json.loads(found.text) for found in schemas if found is not None]
    assert target.version(new[ids[1]], "copy_of_people-value") == 2


def fixed(size: int) -> Any:
    """Return a schema that no other test registers."""
    return {"type": "fixed", "name": "Taken", "size": size}
