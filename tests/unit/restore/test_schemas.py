"""The schemas of a backup, registered where full records are restored to."""

from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import schemas
from kbackup.catalog.schemas import KeptSchema, SchemaIndex, SchemaUse
from kbackup.connect.registry import AVRO, RegisteredSchema
from kbackup.connect.registry.framing import head_of
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.restore.schemas import subjects
from kbackup.stores import StoreSettings, open_store
from tests.support.registry import FakeRegistry
from tests.support.schema_copies import NAME, PERSON, Copy, back_up


@pytest.fixture
def store() -> StoreSettings:
    return StoreSettings(f"memory://{uuid4()}")


def test_schemas_keep_their_ids_in_an_empty_registry_with_modes(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """Every byte of the records comes back, and the subject's mode is as it was."""
    registry.has_modes = True
    with FakeRegistry() as source:
        for other in range(40):
            source.add(f"other-{other}", {"type": "fixed", "name": "F", "size": other + 1})
        ids = [source.add("orders-value", text) for text in ('"int"', '"string"')]
        values = [head_of(ids[0]) + b"\2", head_of(ids[1]) + b"\2a", head_of(ids[0]) + b"\4"]
        back_up(source, store, *values)
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, values) == (done["exit_code"], copy.values()), done
    assert ({"copy_of_orders-value": [41, 42]}, {}) == (registry.subjects(), registry.modes)
    assert [
        {
            "topic": "orders", "part": "value", "id": at, "new_id": at,
            "subjects": ["copy_of_orders-value"],
        }
        for at in (41, 42)
    ] == done["schemas"]  # fmt: skip


@pytest.mark.parametrize("has_modes", [True, False], ids=["taken ids", "no modes"])
def test_ids_are_rewritten_where_the_registry_gives_others(
    registry: FakeRegistry, store: StoreSettings, has_modes: bool
) -> None:
    """The five bytes before a value change and nothing else."""
    registry.has_modes = has_modes
    taken = [registry.add("taken", text) for text in ('"long"', '"float"', '"double"')]
    with FakeRegistry() as source:
        one = source.add("orders-value", '"int"')
        two = source.add("orders-value", '"string"')
        back_up(source, store, head_of(one) + b"\2", b"", b"\0", head_of(two) + b"\2a", b"json")
    copy = Copy(store)

    done = copy.restore(registry.url)

    new = [each["new_id"] for each in done["schemas"]]
    assert not {*taken} & {*new}
    assert ('"int"', '"string"') == tuple(map(registry.text, new))
    expected = [head_of(new[0]) + b"\2", b"", b"\0", head_of(new[1]) + b"\2a", b"json"]
    assert (0, expected) == (done["exit_code"], copy.values())


def test_what_a_schema_refers_to_is_registered_first(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """With the versions that it has there."""
    registry.add("names", '"bytes"')
    with FakeRegistry() as source:
        source.add("names", NAME)
        refers: dict[str, Any] = {
            "references": [{"name": "x.Name", "subject": "names", "version": 1}]
        }
        back_up(source, store, head_of(source.add("orders-value", PERSON, **refers)) + b"\2a")

    done = Copy(store).restore(registry.url)

    [each] = done["schemas"]
    assert (3, [1, 2]) == (each["new_id"], registry.subjects()["names"])
    assert [{"name": "x.Name", "subject": "names", "version": 2}] == registry.references(3)


def test_what_many_schemas_refer_to_is_stored_and_registered_once(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """However many ways lead to a schema, it costs a question, a copy and a registration."""
    depth = 30
    with FakeRegistry() as source:
        source.add("s0", {"type": "fixed", "name": "x.S0", "size": 1})
        for at in range(1, depth + 1):
            fields = [{"name": name, "type": f"x.S{at - 1}"} for name in ("left", "right")]
            text = {"type": "record", "name": f"x.S{at}", "fields": fields}
            twice = [
                {"name": f"{side}{at}", "subject": f"s{at - 1}", "version": 1} for side in "lr"
            ]
            source.add("orders-value" if at == depth else f"s{at}", text, references=twice)
        value = head_of(depth + 1) + b"x"
        back_up(source, store, value)
        asked = len(source.asked)
    opened = open_store(store)
    [key] = SchemaIndex.read(opened, Layout()).keys[SchemaUse("orders", "value", depth + 1)]
    head = opened.head(key)
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, [value]) == (done["exit_code"], copy.values()), done
    assert depth + 2 == asked
    assert head is not None
    assert head.size < 20_000
    assert depth + 1 == len(registry.subjects())
    assert 2 * depth == len(
        schemas.load(opened, SchemaUse("orders", "value", 31), key).schema.imports
    )


def test_a_repeated_restore_registers_nothing_twice(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """After a kill between registering and the first record, the ids are those of the first run."""
    with FakeRegistry() as source:
        back_up(source, store, head_of(source.add("orders-value", '"int"')) + b"\2")
    registry.add("taken", '"long"')
    copy = Copy(store)
    copy.restore(registry.url)
    before = registry.subjects()
    again = Copy(store).restore(registry.url)

    assert (0, before) == (again["exit_code"], registry.subjects())


def test_a_record_of_a_schema_that_the_backup_lacks_is_counted(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """It keeps its id, the plan announces it, and the restore exits with 3."""
    with FakeRegistry() as source:
        good = head_of(source.add("orders-value", '"int"')) + b"\2"
        back_up(source, store, good, head_of(9) + b"\2", head_of(9) + b"\4")
    copy = Copy(store)
    plan = copy.restore(registry.url, dry_run=True)
    warned = [each["code"] for each in plan["warnings"]]
    done = copy.restore(registry.url)

    assert (["lacking_schema"], 0) == (warned, plan["exit_code"])
    assert (3, {"records_of_unregistered_schemas": 2}) == (done["exit_code"], done["skipped"])
    assert [good, head_of(9) + b"\2", head_of(9) + b"\4"] == copy.values()


def test_a_plan_names_the_schemas_and_registers_none(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A plan names the schemas, registers none, and exits as the run would."""
    with FakeRegistry() as source:
        back_up(source, store, head_of(source.add("orders-value", '"int"')) + b"\2")
    copy = Copy(store)

    done = copy.restore(registry.url, dry_run=True)

    [told] = [event for event in copy.told if event["type"] == "plan_schemas"]
    assert [("value", 1, None, ["copy_of_orders-value"])] == [
        (each["part"], each["id"], each["new_id"], each["subjects"]) for each in told["schemas"]
    ]
    assert (0, {}, registry.url) == (done["exit_code"], registry.subjects(), told["registry"])


def test_a_restore_without_a_registry_names_what_needs_one(store: StoreSettings) -> None:
    """Its records name schemas that the backup holds, and that consumers of the copy will miss."""
    with FakeRegistry() as source:
        back_up(source, store, head_of(source.add("orders-value", '"int"')) + b"\2")
    left, registered = Copy(store), Copy(store)

    with FakeRegistry() as target:
        done = [left.restore(""), registered.restore(target.url)]

    assert [0, 0] == [each["exit_code"] for each in done]
    assert [["orders"], None] == [each.get("unregistered") for each in done]


def test_a_backup_without_schemas_is_restored_as_it_is(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A warning says so: its consumers need the source's registry."""
    value = head_of(7) + b"\2"
    back_up(None, store, value)
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, [value]) == (done["exit_code"], copy.values())
    assert ["no_schemas"] == [each["code"] for each in done["warnings"]]
    assert TopicPartition("copy_of_orders", 0) in copy.standby.target.logs


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param({"orders-value": 3}, {"copy-value": 3}, id="after the topic"),
        pytest.param({"x.Order": 2}, {"x.Order": 2}, id="after the record"),
        pytest.param({"orders-x.Order": 2}, {"copy-x.Order": 2}, id="after both"),
        pytest.param(
            {"orders-value": 1, "other-value": 9, "x.Order": 2},
            {"copy-value": 1, "x.Order": 2},
            id="shared with another topic",
        ),
        pytest.param({"other-value": 9}, {"copy-value": 9}, id="another topic's alone"),
        pytest.param({}, {"copy-value": 1}, id="deleted from its subjects"),
    ],
)
def test_subjects_are_renamed_with_their_topic(
    versions: dict[str, int], expected: dict[str, int]
) -> None:
    """Producers to the copy find their schemas; other topics' subjects are left alone."""
    use = SchemaUse("orders", "value", 1)

    assert expected == subjects(KeptSchema(use, RegisteredSchema(AVRO, '"int"'), versions), "copy")
