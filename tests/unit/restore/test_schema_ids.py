"""Ids of schemas that another registry has, or refuses."""

import json
from uuid import uuid4

import pytest

from kbackup.catalog import schemas
from kbackup.catalog.schemas import KeptSchema, SchemaUse
from kbackup.connect.registry import AVRO, Reference, RegisteredSchema
from kbackup.connect.registry.framing import head_of
from kbackup.naming import Layout
from kbackup.stores import StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.registry import FakeRegistry
from tests.support.schema_copies import NAME, PERSON, Copy, back_up


def test_numbers_are_not_taken_for_ids_of_schemas(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A number of 8 bytes begins like a record under a schema of another topic."""
    registry.add("taken", '"long"')
    with FakeRegistry() as source:
        source.add("users-value", '"int"')
        source.add("users-key", '"string"')
        numbers = [number.to_bytes(8, "big") for number in (2**24 + 5, 2**25 + 5, 2**24 - 1)]
        back_up(source, store, *numbers)
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, numbers) == (done["exit_code"], copy.values()), done


@pytest.mark.parametrize(
    ("first", "then", "is_refused"),
    [
        pytest.param("empty", "taken", True, id="another registry"),
        pytest.param("empty", "kept", True, id="the one of the source, with its ids"),
        pytest.param("empty", "", True, id="no registry any more"),
        pytest.param("", "empty", True, id="no registry before"),
        pytest.param("", "kept", False, id="no registry before, but the same ids"),
        pytest.param("empty", "same", False, id="the same under another name"),
    ],
)
def test_a_restore_is_not_continued_with_other_ids(
    store: StoreSettings, first: str, then: str, is_refused: bool
) -> None:
    """Half of a topic under other ids would be unreadable: exit code 4, nothing is written."""
    with FakeRegistry() as source, FakeRegistry() as empty, FakeRegistry() as taken:
        source.add("other", '"bytes"')
        value = head_of(source.add("orders-value", '"int"')) + b"\2"
        kafka = back_up(source, store, value)
        for text in ('"long"', '"float"', '"double"'):
            taken.add("taken", text)
        same = f"{empty.url}/"
        urls = {"empty": empty.url, "taken": taken.url, "kept": source.url, "same": same, "": ""}
        copy = Copy(store)
        assert 0 == copy.restore(urls[first])["exit_code"]
        [before] = copy.values()
        back_up(source, store, value, kafka=kafka)

        done = copy.restore(urls[then])

    assert (4 if is_refused else 0) == done["exit_code"], done
    assert [before] * (1 if is_refused else 2) == copy.values()
    if is_refused:
        [error] = done["errors"]
        assert "schema 2 of the values" in error["what"]


@pytest.mark.parametrize("dry_run", [True, False], ids=["plan", "run"])
@pytest.mark.parametrize(
    ("trouble", "code", "do"),
    [
        pytest.param("away", 5, "run again", id="no answer"),
        pytest.param("read-only", 4, "READWRITE", id="read-only"),
        pytest.param("incompatible", 4, "--rename", id="incompatible"),
        pytest.param("two meanings", 4, "move away", id="two meanings of an id"),
    ],
)
def test_a_registry_that_will_refuse_is_found_before_the_first_record(
    registry: FakeRegistry, store: StoreSettings, trouble: str, code: int, do: str, dry_run: bool
) -> None:
    """Nothing is created or written, and the message says what to do."""
    with FakeRegistry() as source:
        back_up(source, store, head_of(source.add("orders-value", '"int"')) + b"\2")
    copy, url = Copy(store), registry.url
    if trouble == "away":
        registry.user = "somebody:else"
        do = "a user who may read schemas"
    elif trouble == "read-only":
        registry.has_modes, registry.modes = True, {"": "READONLY"}
    elif trouble == "incompatible":
        registry.add("copy_of_orders-value", '"long"')
        registry.refuses = {"copy_of_orders-value"}
    else:
        again = RegisteredSchema(AVRO, '"string"')
        kept = KeptSchema(SchemaUse("orders", "value", 1), again, {})
        schemas.put(open_store(store), Layout(), kept)
    before = registry.subjects()

    done = copy.restore(url, dry_run=dry_run)

    [error] = done["errors"]
    assert (code, True, before) == (done["exit_code"], copy.is_untouched(), registry.subjects())
    assert do in error["do"]


def test_one_meaning_of_an_id_is_no_reason_to_refuse(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A registry that was set up anew may have other versions of what a schema refers to."""
    use, name = SchemaUse("orders", "value", 1), RegisteredSchema(AVRO, json.dumps(NAME))
    kafka = FakeKafka()
    back_up(None, store, head_of(1) + b"\2a", kafka=kafka)
    for version in (1, 2):
        refers = (Reference("x.Name", "names", version, name),)
        schema = RegisteredSchema(AVRO, json.dumps(PERSON), refers)
        schemas.put(open_store(store), Layout(), KeptSchema(use, schema, {"orders-value": 1}))
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, [1]) == (done["exit_code"], [each["id"] for each in done["schemas"]]), done
    assert [head_of(2) + b"\2a"] == copy.values()


@pytest.fixture
def store() -> StoreSettings:
    return StoreSettings(f"memory://{uuid4()}")
