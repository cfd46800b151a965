"""The mode IMPORT of a registry: taken for a restore, and given back."""

from uuid import uuid4

import pytest

from kbackup.connect.registry import AVRO, IMPORT, RegisteredSchema, RegistrySettings, connect
from kbackup.connect.registry.framing import head_of
from kbackup.stores import StoreSettings
from tests.support.registry import FakeRegistry
from tests.support.schema_copies import Copy, back_up


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
    with FakeRegistry() as source:
        back_up(source, store, head_of(source.add("orders-value", '"int"')) + b"\2")
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
    with FakeRegistry() as source:
        source.add("other", '"long"')
        value = head_of(source.add("orders-value", '"int"')) + b"\2"
        back_up(source, store, value)
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
    with FakeRegistry() as source:
        source.add("other", '"long"')
        back_up(source, store, head_of(source.add("orders-value", '"int"')) + b"\2")
    copy = Copy(store)

    done = copy.restore(registry.url)

    assert (0, [head_of(1) + b"\2"]) == (done["exit_code"], copy.values()), done


@pytest.fixture
def store() -> StoreSettings:
    return StoreSettings(f"memory://{uuid4()}")
