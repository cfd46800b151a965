"""The schemas of a backup, registered where full records are restored to."""

import json
from contextlib import ExitStack
from typing import Any

import pytest

from kbackup.catalog import schemas
from kbackup.catalog.schemas import KeptSchema, SchemaIndex, SchemaUse
from kbackup.connect.registry import (
    AVRO,
    IMPORT,
    Reference,
    RegisteredSchema,
    RegistrySettings,
    connect,
)
from kbackup.connect.registry.framing import head_of
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.restore.schemas import subjects
from kbackup.stores import StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.registry import FakeRegistry
from tests.support.schema_copies import NAME, PERSON, Copy, back_up
from tests.support.standby import Standby


def back_up_one(store: StoreSettings, *others: str) -> bytes:
    """Back up a record under a schema that has others before it in the registry; its value."""
    with FakeRegistry() as source:
        for other in others:
            source.add("other", other)
        value = head_of(source.add("orders-value", '"int"')) + b"\2"
        back_up(source, store, value)
    return value


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
    back_up_one(store)
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
    back_up_one(store)
    copy = Copy(store)

    done = copy.restore(registry.url, dry_run=True)

    [told] = [event for event in copy.told if event["type"] == "plan_schemas"]
    assert [("value", 1, None, ["copy_of_orders-value"])] == [
        (each["part"], each["id"], each["new_id"], each["subjects"]) for each in told["schemas"]
    ]
    assert (0, {}, registry.url) == (done["exit_code"], registry.subjects(), told["registry"])


def test_a_restore_without_a_registry_names_what_needs_one(store: StoreSettings) -> None:
    """Its records name schemas that the backup holds, and that consumers of the copy will miss."""
    back_up_one(store)
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


# ids that another registry has, or refuses


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
    back_up_one(store)
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


# the mode IMPORT of a registry: taken for a restore, and given back


def test_a_restore_goes_on_where_a_killed_one_has_left_the_mode(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """Ids are kept as by one run, and the subject that is still locked is named."""
    registry.has_modes = True
    with FakeRegistry() as source:
        for other in range(4):
            source.add("other", {"type": "fixed", "name": "F", "size": other + 1})
        ids = [source.add("orders-value", text) for text in ('"int"', '"string"')]
        values = [head_of(ids[0]) + b"\2", head_of(ids[1]) + b"\2a"]
        back_up(source, store, *values)
    subject = "copy_of_orders-value"
    connection = connect(RegistrySettings((registry.url,)))
    connection.set_mode(subject, IMPORT)
    connection.put(subject, RegisteredSchema(AVRO, '"int"'), ids[0], 1)  # then it is killed
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, values) == (done["exit_code"], copy.values()), done
    assert ({subject: ids}, IMPORT) == (registry.subjects(), connection.mode(subject))
    [warning] = done["warnings"]
    assert ("import_mode", True) == (
        warning["code"],
        f"DELETE /mode/{subject}" in warning["text"],
    )


def test_a_mode_that_cannot_be_reset_is_an_error(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """Exit code 5, and the message says which subject producers are locked out of."""
    registry.has_modes = True
    registry.denies = {"DELETE /mode/copy_of_orders-value"}
    back_up_one(store)
    copy = Copy(store)

    done = copy.restore(registry.url)

    [error] = done["errors"]
    assert (5, True) == (done["exit_code"], copy.is_untouched()), done
    assert "copy_of_orders-value may still be in mode IMPORT" in error["what"]
    assert "DELETE /mode/copy_of_orders-value" in error["do"]


def test_a_registry_that_takes_no_mode_away_gets_its_own_back(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """Ids are kept, and producers can register schemas under the subject again."""
    registry.has_modes, registry.deletes_modes = True, False
    value = back_up_one(store, '"long"')
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, [value]) == (done["exit_code"], copy.values()), done
    assert {"copy_of_orders-value": "READWRITE"} == registry.modes


def test_a_user_who_may_not_set_modes_gets_other_ids(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """The schemas are registered as in a registry without modes."""
    registry.has_modes = True
    registry.denies = {"PUT /mode/copy_of_orders-value"}
    back_up_one(store, '"long"')
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, [head_of(1) + b"\2"]) == (done["exit_code"], copy.values()), done


# schemas that come while a restore follows


def test_a_restore_that_follows_registers_what_comes(
    registry: FakeRegistry, store: StoreSettings
) -> None:
    """A schema that the sink meets later is registered before the first record that names it."""
    registry.add("taken", '"long"')
    with FakeRegistry() as source:
        one = head_of(source.add("orders-value", '"int"')) + b"\2"
        kafka = back_up(source, store, one)
        two = head_of(source.add("orders-value", '"string"')) + b"\2a"
        standby = Standby()

        def happens(look: int) -> bool | None:
            if look == 1:
                back_up(source, store, two, one, kafka=kafka)
            return look < 4

        done = standby.follow(happens, store=store, schema_registry_url=registry.url)

    copied = standby.target.values("copy_of_orders")
    assert [head_of(2) + b"\2", head_of(3) + b"\2a", head_of(2) + b"\2"] == copied, done
    assert [(1, 2), (2, 3)] == [(each["id"], each["new_id"]) for each in done["schemas"]]


def test_a_registry_that_is_away_holds_up_only_new_schemas(store: StoreSettings) -> None:
    """It is needed again when a record names a schema that is not registered yet."""
    standby, target = Standby(), FakeRegistry()
    with FakeRegistry() as source, ExitStack() as until:
        until.enter_context(target)
        one = head_of(source.add("orders-value", '"int"')) + b"\2"
        kafka = back_up(source, store, one)

        def happens(look: int) -> bool | None:
            if look == 1:
                until.close()
                back_up(source, store, one, kafka=kafka)
            return look < 3

        done = standby.follow(happens, store=store, schema_registry_url=target.url)

    assert [one, one] == standby.target.values("copy_of_orders"), done
    assert [] == done["errors"]
