"""Asking for archived objects."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from backup_samples import Backup

from kbackup.cli.screens import thawing
from kbackup.errors import ConfigurationError, IncompleteBackupError
from kbackup.events import to_json
from kbackup.formats import FormatOptions
from kbackup.inspect.topics import Thawed, thaw
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.runs.history import Estimate
from kbackup.runs.report import Summary
from kbackup.stores import Store, StoreSettings, Thaw
from kbackup.stores.memory import MemoryStore
from kbackup.testing import put_bytes
from tests.support.frozen_store import UNTIL, FrozenStore
from tests.support.json_lines import LINES


@pytest.fixture
def store() -> FrozenStore:
    """Three objects of one topic and one of another; all but the last are archived."""
    frozen, backup = FrozenStore(), Backup()
    keys = backup.put("orders", 0, range(3), range(3, 6)) + backup.put("orders", 1, range(3))
    keys += backup.put("payments", 0, range(3))
    for key in keys:
        with backup.store.open(key) as body:
            frozen.put(key, body, sha256="", metadata={})
    frozen.classes = dict.fromkeys(keys[:2], "DEEP_ARCHIVE") | {keys[2]: "GLACIER"}
    return frozen


def ask(store: Store, **options: Any) -> list[dict[str, Any]]:
    """What the command tells."""
    options.setdefault("days", 7)
    options.setdefault("tier", "Standard")
    options.setdefault("summary", Summary("r", "restore thaw"))
    events = [to_json(one) for one in thaw(store, Layout(), FormatOptions(), **options)]
    for event in events:
        LINES.validate(event)
    return events


def test_what_nobody_has_asked_for_is_asked_for(store: FrozenStore) -> None:
    """Only objects that nobody has requested yet are requested: each request costs money."""
    first, second, third = sorted(store.classes)
    store.thaws = {second: Thaw("thawing"), third: Thaw("ready", UNTIL)}

    orders, payments = ask(store, days=3, tier="Bulk")

    assert [(first, 3, "Bulk")] == store.asked
    assert (1, 1, 1, "2026-12-01T00:00:00Z") == (
        orders["asked"], orders["thawing"], orders["ready"], orders["until"],
    )  # fmt: skip
    assert ("payments", 0, 0) == (payments["topic"], payments["asked"], payments["bytes"])


def test_giving_it_again_asks_for_nothing(store: FrozenStore) -> None:
    """Running the command again requests nothing and shows progress."""
    ask(store, asked=TopicFilter(["orders"]))
    del store.asked[:]

    [orders] = ask(store, asked=TopicFilter(["orders"]))

    assert ([], 0, 3) == (store.asked, orders["asked"], orders["thawing"])


def test_a_dry_run_only_counts(store: FrozenStore) -> None:
    """And says what a thaw would take: a look at each object that is archived, and a request."""
    store.thaws = {min(store.classes): Thaw("thawing")}
    summary = Summary("r", "restore thaw")

    [orders] = ask(
        store,
        asked=TopicFilter(["orders"], partitions={0}),
        is_dry=True,
        tier="Bulk",
        summary=summary,
    )

    assert ([], 1) == (store.asked, orders["asked"])
    assert orders["bytes"] > 0
    assert Estimate(orders["bytes"], 2 + 1, None) == summary.facts["estimate"]
    assert "within two days" == summary.facts["readable"]


def test_where_all_was_asked_for_nothing_is_estimated(store: FrozenStore) -> None:
    """Nor is it said when that can be read which somebody else has asked for."""
    store.thaws = dict.fromkeys(store.classes, Thaw("thawing"))
    summary = Summary("r", "restore thaw")

    ask(store, is_dry=True, summary=summary)

    assert not {"estimate", "readable"} & summary.facts.keys()


def test_what_the_backup_says_of_itself_is_asked_for_too(store: FrozenStore) -> None:
    """The ledger is thawed with the topics, since lifecycle rules archive it too."""
    key = f"{Layout().records_prefix()}ledger/x/part.parquet"
    put_bytes(store, key, b"rows")
    store.classes[key] = "GLACIER"

    ledger, _ = ask(store, asked=TopicFilter(["orders"]))

    assert (None, 1) == (ledger["topic"], ledger["asked"])
    assert (key, 7, "Standard") in store.asked


def test_a_topic_that_is_not_there_is_an_error(store: FrozenStore) -> None:
    """A topic that is not in the backup is an error at once."""
    with pytest.raises(IncompleteBackupError, match="order"):
        ask(store, asked=TopicFilter(["order"]))


def test_a_store_without_an_archive_says_so() -> None:
    """A store without an archive says so."""
    with pytest.raises(ConfigurationError, match="this store cannot thaw objects"):
        ask(MemoryStore(StoreSettings(f"memory://{uuid4()}")))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "orders: nothing is archived"),
        ({"asked": 1, "bytes": 2048}, "orders: 1 object asked for (2.0 KiB)"),
        (
            {"thawing": 2, "ready": 3, "until": datetime(2026, 12, 1, tzinfo=UTC)},
            "orders: 2 being retrieved, 3 can be read until 2026-12-01T00:00:00Z",
        ),
        ({"topic": None, "ready": 1}, "the backup's ledger: 1 can be read"),
    ],
)
def test_the_screen_says_how_far_they_have_come(more: dict[str, Any], text: str) -> None:
    """The screen shows the progress of each topic in one line."""
    event = Thawed("orders", 0, 0, 0, 0, None)

    assert text == thawing(replace(event, **more))
