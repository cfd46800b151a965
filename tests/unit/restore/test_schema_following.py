"""Schemas that come while a restore follows."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from kbackup.connect.registry.framing import head_of
from kbackup.stores import StoreSettings
from tests.support.registry import FakeRegistry
from tests.support.schema_copies import back_up
from tests.support.standby import Standby


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


@pytest.fixture
def store() -> StoreSettings:
    return StoreSettings(f"memory://{uuid4()}")
