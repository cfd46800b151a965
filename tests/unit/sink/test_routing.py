"""A sink whose transforms give topics other names: read under one, stored under the other."""

from typing import Any

import pytest

from kbackup.catalog import listing
from kbackup.clock import SystemClock
from kbackup.formats import FormatOptions
from kbackup.naming import Layout
from kbackup.runs import backup_state
from kbackup.stores import Store, StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink as sink

ROUTER: dict[str, Any] = {
    "transforms": "copy",
    "transforms.copy.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.copy.regex": ".*",
    "transforms.copy.replacement": "copy_of_$0",
}


@pytest.fixture
def opened(store: StoreSettings) -> Store:
    return open_store(store)


def stored(store: Store) -> dict[str, int]:
    """The records of each stored topic, by what its objects say."""
    found = listing.list_backup(store, Layout(), FormatOptions())
    return {
        topic: sum(len(found.sets[where]) for where in found.partitions(topic))
        for topic in found.topics()
    }


def test_a_group_that_was_lost_goes_on_after_what_is_stored_under_the_new_name(
    store: StoreSettings, opened: Store
) -> None:
    """The ledger of the new name says how far the backup is."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", 10)
    sink(kafka, store, topics="orders", **ROUTER)
    kafka.positions_.clear()
    kafka.append(where, 5)
    again = sink(kafka, store, topics="orders", **ROUTER)

    assert (0, 5) == (again["exit_code"], again["records"])
    assert {"copy_of_orders": 2} == stored(opened)


def test_a_first_run_that_failed_before_the_ledger_leaves_nothing_to_miss(
    store: StoreSettings, opened: Store
) -> None:
    """Its run record speaks of the topic by its name in Kafka, under which nothing is stored."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    first = sink(kafka, store, topics="orders", **ROUTER)
    for entry in list(opened.list("")):
        if not entry.key.startswith("_kbackup/runs/"):
            opened.delete(entry.key)  # as if it had got no further
    kafka.positions_.clear()

    second = sink(kafka, store, topics="orders", **ROUTER)

    said = backup_state.read(opened, Layout(), SystemClock())
    assert {"orders": "copy_of_orders"} == first["stored_as"] == second["stored_as"]
    assert ["copy_of_orders"] == list(said.topics)
    assert {"copy_of_orders"} == {where.topic for where in said.partitions()}


@pytest.mark.parametrize(
    ("runs", "exit_code", "why", "there"),
    [
        (["orders,payments"], 2, "orders and payments would both be stored as all", {}),
        (
            ["orders", "payments"],
            4,
            "payments is not the topic that was backed up as all",
            {"all": 1},
        ),
    ],
)
def test_two_topics_are_not_stored_under_one_name(
    store: StoreSettings, opened: Store, runs: list[str], exit_code: int, why: str,
    there: dict[str, int],
) -> None:  # fmt: skip
    """Nothing is stored of one run's; the ledger knows whose backup it is, whichever wrote it."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    kafka.create("payments", 10)
    one_name = {**ROUTER, "transforms.copy.replacement": "all"}
    *_, refused = [sink(kafka, store, topics=topics, **one_name) for topics in runs]

    assert (exit_code, there) == (refused["exit_code"], stored(opened))
    assert why in str(refused["errors"])
    assert bool(there) == bool([*opened.list("topics/")])


def test_a_name_that_no_topic_can_have_is_refused(store: StoreSettings, opened: Store) -> None:
    """Routing to a name that no topic can have is refused, since it could not be restored."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    slash = {**ROUTER, "transforms.copy.replacement": "a/$0"}
    refused = sink(kafka, store, topics="orders", **slash)

    assert "'a/orders' is not a legal topic name" in str(refused["errors"])
    assert (4, []) == (refused["exit_code"], [entry.key for entry in opened.list("topics/")])


def test_a_restore_takes_a_copy_for_no_source(store: StoreSettings, opened: Store) -> None:
    """The topic that a sink reads is watched, and not the name under which it is stored."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    sink(kafka, store, topics="orders", **ROUTER)
    said = backup_state.read(opened, Layout(), SystemClock())
    cluster = kafka.cluster_id

    assert [True, False] == [said.watches(name, cluster) for name in ("orders", "copy_of_orders")]


def test_a_router_that_is_added_later_begins_a_backup_of_everything_the_log_has(
    store: StoreSettings, opened: Store
) -> None:
    """What is stored under the old name is another backup; the new one is whole by itself."""
    kafka = FakeKafka()
    kafka.create("orders", 10)
    before = sink(kafka, store, topics="orders")
    after = sink(kafka, store, topics="orders", **ROUTER)

    assert [(0, 10), (0, 10)] == [(each["exit_code"], each["records"]) for each in (before, after)]
    assert {"copy_of_orders": 1, "orders": 1} == stored(opened)
