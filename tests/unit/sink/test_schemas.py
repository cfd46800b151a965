"""The schemas that full records name: a sink stores each of them beside its objects."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import batch

from kbackup.catalog import schemas
from kbackup.catalog.schemas import SchemaIndex, SchemaUse
from kbackup.connect import registry as registries
from kbackup.connect.registry import AVRO, RegisteredSchema, RegistrySettings
from kbackup.connect.registry.framing import head_of
from kbackup.events import to_json
from kbackup.naming import Layout
from kbackup.pipeline.views import ReadOptions
from kbackup.records import SCHEMA, TopicPartition
from kbackup.runs import wiring
from kbackup.runs.report import Summary
from kbackup.runs.status import status
from kbackup.sink.schemas import SchemaKeeper, begin
from kbackup.stores import Store, StoreSettings, open_store
from kbackup.verify.run import Notes, verify
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import SilentLine
from tests.support.hand_clock import HandClock
from tests.support.registry import FakeRegistry
from tests.support.sinks import run_sink, sink_settings

LAYOUT = Layout()


def sink(kafka: FakeKafka, store: StoreSettings, **options: Any) -> dict[str, Any]:
    """Run a sink of full records to its end; return its summary."""
    return run_sink(kafka, store, topics="orders", **options)


def orders(*values: bytes) -> FakeKafka:
    """A cluster whose one topic has these values."""
    kafka = FakeKafka()
    [where] = kafka.create("orders", len(values))
    kafka.values = {(where, at): value for at, value in enumerate(values)}
    return kafka


def add(kafka: FakeKafka, *values: bytes) -> None:
    """Write more values."""
    [where] = kafka.logs
    end = kafka.logs[where].end_offset
    kafka.values |= {(where, end + at): value for at, value in enumerate(values)}
    kafka.append(where, len(values))


def index(store: StoreSettings) -> SchemaIndex:
    return SchemaIndex.read(open_store(store), LAYOUT)


def kept(store: StoreSettings) -> dict[int, tuple[str, dict[str, int]]]:
    """Text and subjects of each schema of the values, by id."""
    opened: Store = open_store(store)
    found = [schemas.load(opened, use, key) for use, [key] in index(store).keys.items()]
    return {each.use.id: (each.schema.text, dict(each.versions)) for each in found}


def test_each_schema_is_stored_once(registry: FakeRegistry, store: StoreSettings) -> None:
    """With subjects and versions; the next run asks for a few again: is it the same registry?"""
    registry.add("orders-value", '"int"')
    registry.add("orders-value", '"string"')
    kafka = orders(head_of(1) + b"\2", head_of(2) + b"\2a", head_of(1) + b"\4")

    done = sink(kafka, store, schema_registry_url=registry.url)

    expected = {1: ('"int"', {"orders-value": 1}), 2: ('"string"', {"orders-value": 2})}
    assert (0, expected) == (done["exit_code"], kept(store))
    registries.connect.cache_clear()
    registry.asked.clear()
    for other in range(3, 30):
        registry.add("orders-value", {"type": "fixed", "name": "F", "size": other})
        add(kafka, head_of(other) + b"x" * other)
    assert 0 == sink(kafka, store, schema_registry_url=registry.url)["exit_code"]
    registries.connect.cache_clear()
    registry.asked.clear()
    add(kafka, *(head_of(other) + b"y" * other for other in range(3, 30)))
    assert 0 == sink(kafka, store, schema_registry_url=registry.url)["exit_code"]
    assert [f"GET /schemas/ids/{at}" for at in (1, 15, 29)] == registry.asked


def test_a_schema_is_filed_under_the_name_that_its_topic_is_stored_under(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A restore finds it by the backup's topic, whatever transforms made of the name."""
    registry.add("orders-value", '"int"')
    registry.script = [403]
    kafka = orders(head_of(1) + b"\2")
    given = {
        "schema_registry_url": registry.url,
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": ".*",
        "transforms.r.replacement": "lake_$0",
    }

    assert 3 == sink(kafka, store, **given)["exit_code"]
    assert 0 == sink(kafka, store, **given)["exit_code"]

    assert [SchemaUse("lake_orders", "value", 1)] == [*index(store).keys]


def test_a_schema_comes_with_all_that_it_refers_to(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A restore needs no other registry than the target's."""
    registry.add("names", '"string"')
    refers: Any = {"references": [{"name": "x.Name", "subject": "names", "version": 1}]}
    registry.add("orders-value", {"type": "array", "items": "x.Name"}, **refers)

    sink(orders(head_of(2) + b"\0"), store, schema_registry_url=registry.url)

    [(use, [key])] = index(store).keys.items()
    found = schemas.load(open_store(store), use, key).schema
    [reference] = found.references
    assert (SchemaUse("orders", "value", 2), "x.Name", "names", 1) == (
        use, reference.name, reference.subject, reference.version,
    )  # fmt: skip
    assert RegisteredSchema(AVRO, '"string"') == reference.schema


def test_records_are_backed_up_while_the_registry_is_away(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """The run exits 3 and names the schema, and so do the next ones, until one can fetch it."""
    registry.add("orders-value", '"int"')
    kafka = orders(head_of(1) + b"\2")

    def run() -> tuple[int, dict[str, int], int]:
        done = sink(kafka, store, schema_registry_url=registry.url)
        return done["exit_code"], done["skipped"], len(kept(store))

    registry.script = [403]
    first = run()
    registry.script = [403]
    second = run()

    assert [(3, {"missing_schemas": 1}, 0)] * 2 == [first, second]
    [where] = kafka.logs
    assert 1 == kafka.positions_[where].offset
    assert (0, {}, 1) == run()


def test_a_registry_that_fails_is_left_alone_for_a_while(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """However many schemas a task meets, they cost one question a minute, not one each."""
    registry.script = [403]

    done = sink(
        orders(*(head_of(at) for at in range(1, 9))), store, schema_registry_url=registry.url
    )

    assert (1, {"missing_schemas": 8}) == (len(registry.asked), done["skipped"])


def test_bytes_that_only_look_like_it_are_no_reason_to_worry(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """Values that begin with a zero and are no schema's: twenty are asked for, and exit 0."""
    done = sink(
        orders(*(head_of(at) + b"x" for at in range(1, 60))), store,
        schema_registry_url=registry.url,
    )  # fmt: skip

    assert (0, 20) == (done["exit_code"], len(registry.asked))
    assert (20, [], {}) == (len(index(store).unknown), index(store).missing, kept(store))


def test_a_schema_that_the_registry_did_not_have_is_asked_for_until_it_does(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """Each run asks and names it, so do ``verify`` and ``status``, and none fails for it."""
    kafka = orders(head_of(1) + b"\2")

    def run() -> tuple[int, list[str], int]:
        done = sink(kafka, store, schema_registry_url=registry.url)
        return done["exit_code"], codes(done), len(kept(store))

    def codes(done: Mapping[str, Any]) -> list[str]:
        return sorted(each["code"] for each in done["warnings"] if "schema" in each["code"])

    first, second = run(), run()
    checked = Summary("r", "restore verify")
    opened, now = open_store(store), datetime.now(UTC)
    list(verify(opened, LAYOUT, ReadOptions(), checked, now=now, notes=Notes(schemas=index(store))))

    assert (0, ["unknown_schemas"], 0) == second
    assert (0, 0) == (first[0], first[2])
    assert ["unknown_schemas"] == codes(to_json(checked.finish()))
    assert ["unknown_schemas"] == codes(to_json(status(opened, LAYOUT, max_age_s=None, now=now)))
    registry.add("orders-value", '"int"')
    registries.connect.cache_clear()
    assert (0, [], 1) == run()


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        pytest.param((2**24 + 5).to_bytes(8, "big"), False, id="a number"),
        pytest.param((2**24 + 5).to_bytes(8, "big") * 2, False, id="a number in a window"),
        pytest.param(head_of(1) + b"\x04ab", True, id="a record as long as a number"),
    ],
)
def test_schemas_named_after_records_count_if_they_fit(
    registry: FakeRegistry, store: StoreSettings, value: bytes, is_kept: bool
) -> None:
    """Any topic may have records of such a schema, so what follows the id tells numbers apart."""
    fields = [{"name": "n", "type": "string"}]
    registry.add("x.Order", {"type": "record", "name": "x.Order", "fields": fields})

    done = sink(orders(value), store, schema_registry_url=registry.url)

    assert (0, is_kept) == (done["exit_code"], 1 in kept(store))


def test_numbers_that_a_registry_which_was_away_could_not_tell_are_asked_for_again(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """The next run knows that they may be numbers."""
    registry.add("users-value", '"int"')
    kafka = orders((2**24).to_bytes(8, "big"))
    registry.script = [403]

    first = sink(kafka, store, schema_registry_url=registry.url)
    again = sink(kafka, store, schema_registry_url=registry.url)

    assert [3, 0] == [first["exit_code"], again["exit_code"]]
    assert ({}, 1) == (kept(store), len(index(store).unknown))


@pytest.mark.parametrize("follows", [False, True], ids=["the next run", "a run that follows"])
def test_a_registry_that_was_set_up_anew_is_noticed(store: StoreSettings, follows: bool) -> None:
    """An id with a second meaning keeps both, and one with the same meaning is stored once."""
    time = HandClock()
    with FakeRegistry() as registry:
        registry.add("orders-value", '"int"')
        registry.add("orders-value", '"string"')
        values = head_of(1) + b"\2", head_of(2) + b"\2a"
        kafka = orders(*values)
        sink(kafka, store, schema_registry_url=registry.url)
        opened: Store = open_store(store)
        source = begin(registry_of(registry), opened, LAYOUT)
        line = SilentLine()
        keeper = SchemaKeeper(source, opened, LAYOUT, time, "r", line)
        registry.empty()
        registry.add("other", '"long"')
        registry.add("orders-value", '"string"')
        if follows:
            time.pass_s(3600)
            rows = batch(range(2)).to_pylist()
            for row, value in zip(rows, values, strict=True):
                row["value"] = value
            keeper.meet(TopicPartition("orders", 0), pa.RecordBatch.from_pylist(rows, SCHEMA))
        else:
            add(kafka, *values)
            sink(kafka, store, schema_registry_url=registry.url)

    assert {1: 2, 2: 1} == {use.id: len(keys) for use, keys in index(store).keys.items()}


def registry_of(registry: FakeRegistry) -> dict[str, RegistrySettings]:
    """Where schemas of values are."""
    return {"value": RegistrySettings((registry.url,), retries=0)}


def sources(*given: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    """The registry of each part of what a sink with these properties stores."""
    settings = sink_settings(topics="o", **dict(given))
    return {part: each.urls for part, each in wiring.source_registries(settings).items()}


def test_converters_name_their_own_registry() -> None:
    """Of values they are the converter's, of keys where these are stored; or of one registry."""
    url, other = "http://a:1", "http://b:1"
    values = [
        ("format_class", "avro"),
        ("flush_size", "3"),
        ("value_converter_schema_registry_url", other),
    ]
    keys = [("store_kafka_keys", "true"), ("key_converter", "bytes")]

    assert {} == sources()
    assert {"key": (url,), "value": (url,)} == sources(("schema_registry_url", url))
    assert {"value": (other,)} == sources(*values)
    assert {"value": (other,)} == sources(*values, ("schema_registry_url", url))
    assert {"key": (url,), "value": (other,)} == sources(
        *values, *keys, ("schema_registry_url", url)
    )


def test_the_registry_of_records_is_not_waited_for_long() -> None:
    """A backup of full records does not wait long for a registry that does not answer."""
    settings = sink_settings(topics="o", schema_registry_url="http://a:1, http://b:1")
    expected = RegistrySettings(("http://a:1", "http://b:1"), connect_s=5.0, read_s=10.0, retries=2)

    assert expected == wiring.schema_registry(settings)
