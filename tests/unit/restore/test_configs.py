"""The way back to the settings of the original."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import OBJECTS, TOPIC, TOPICS, TopicEntry, stored, table
from kbackup.cli.screens import headline
from kbackup.config import loading
from kbackup.errors import ConfigurationError, IncompleteBackupError, RefusedError
from kbackup.events import Event, to_json
from kbackup.naming import Layout, View
from kbackup.records import Facts, Span, TopicPartition
from kbackup.restore.configs import COPY_CONFIG, settle, settled_changes
from kbackup.restore.plan import config_of_copy
from kbackup.runs.report import Summary
from kbackup.stores import StoreSettings, open_store
from tests.support.hand_clock import HandClock
from tests.support.target import FakeTarget

ORIGINAL = {"retention.ms": "604800000", "cleanup.policy": "compact,delete", "segment.ms": "1000"}


def test_a_copy_with_the_originals_settings_still_keeps_every_record() -> None:
    """What deletes, or belongs to the original's cluster, waits; what the operator gives wins."""
    original = {**ORIGINAL, "min.insync.replicas": "2", "remote.storage.enable": "true"}

    found = config_of_copy(original, {"segment.ms": "5000"}, takes_all=True)

    assert {**COPY_CONFIG, "segment.ms": "5000"} == found
    assert "segment.ms" not in config_of_copy(original, {})


@pytest.mark.parametrize(
    ("current", "config", "removed"),
    [
        pytest.param(dict(ORIGINAL), {}, (), id="settled"),
        pytest.param(
            {**COPY_CONFIG, "segment.ms": "1000"},
            {"retention.ms": "604800000", "cleanup.policy": "compact,delete"},
            tuple(name for name in COPY_CONFIG if name.startswith("message.")),
            id="as a restore made it",
        ),
        pytest.param({**ORIGINAL, "max.message.bytes": "9"}, {}, (), id="set by somebody since"),
        pytest.param(
            {**ORIGINAL, "message.timestamp.type": "LogAppendTime"}, {}, (), id="not ours"
        ),
    ],
)
def test_only_what_differs_is_changed(
    current: dict[str, str], config: dict[str, str], removed: tuple[str, ...]
) -> None:
    """The original's settings are put, the restore's own taken off, all others left alone."""
    found = settled_changes(ORIGINAL, current)

    assert (config, removed) == (dict(found.config), found.removed)


def test_settings_of_another_cluster_are_named_and_left() -> None:
    """Tiered storage and throttles mean something in the original's cluster only."""
    found = settled_changes({"remote.storage.enable": "true"}, {})

    assert not found
    assert ("remote.storage.enable",) == found.left


def there(topic: str, config: Mapping[str, str], **cluster: str) -> FakeTarget:
    """A cluster with a topic and its settings."""
    topic_id = cluster.pop("topic_id", "id")
    return FakeTarget({topic: topic_id}, configs={topic: dict(config)}, **cluster)  # type: ignore[arg-type]


@dataclass
class Settling:
    """A backup that knows how ``orders`` was set, and a cluster with its copy."""

    cluster: FakeTarget = field(default_factory=lambda: there("copy_of_orders", COPY_CONFIG))
    url: str = field(default_factory=lambda: f"memory://{uuid4()}")
    summary: Summary = field(default_factory=lambda: Summary("r", "restore configs"))

    def __post_init__(self) -> None:
        row = TopicEntry(TOPIC, "orders", "there", "id", 1, ORIGINAL, run="r", time=1)
        store = open_store(StoreSettings(self.url))
        stream.topics_stream(store, Layout(), HandClock()).append(table([row], TOPICS))

    def run(self, agree: Any = None, **options: Any) -> list[Event]:
        """Settle."""
        given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "rename": "copy_of_$0", **options}
        settings = loading.load("configs", options=given, files=(), environ={}).settings
        store, cluster = open_store(StoreSettings(self.url)), self.cluster
        clock = HandClock()
        found = settle(settings, cluster, store, clock, self.summary, agree)
        return [to_json(one) for one in found]


def test_a_restored_topic_gets_the_settings_of_its_original() -> None:
    """Each change is shown; a second run has nothing left to do."""
    settling = Settling()

    shown = settling.run(yes=True)
    again = settling.run(yes=True)

    assert ORIGINAL == settling.cluster.configs["copy_of_orders"]
    assert ("retention.ms", "-1", "604800000") in [
        (one["name"], one["before"], one["after"]) for one in shown
    ]
    assert [] == again


def test_leaving_out_every_topic_is_refused() -> None:
    """It would look as if all were done."""
    with pytest.raises(ConfigurationError, match="leaves out every topic"):
        Settling().run(topics_exclude="ord.*")


def test_a_dry_run_changes_nothing() -> None:
    """A dry run shows the same changes and makes none."""
    settling = Settling()

    shown = settling.run(dry_run=True)

    assert COPY_CONFIG == settling.cluster.configs["copy_of_orders"]
    assert shown == settling.run(yes=True)


@pytest.mark.parametrize(
    ("view", "days", "warned"),
    [(View.RECORD, 30, True), (View.RECORD, 3, False), (View.VALUE, 30, False)],
)
def test_what_the_originals_retention_will_delete_is_said(
    view: View, days: int, *, warned: bool
) -> None:
    """Records that keep their times are as old as they were; values are as old as their restore."""
    settling, clock = Settling(), HandClock()
    facts = Facts(0, 4, 5, clock.ms() - days * 86_400_000, clock.ms(), "")
    row = stored(TopicPartition("orders", 0), "key", view, facts, 9, Span(0, 5), "r", 1)
    store = open_store(StoreSettings(settling.url))
    stream.topic_stream(store, Layout(), "orders", clock).append(table([row], OBJECTS))

    settling.run(dry_run=True)

    said = [each["text"] for each in to_json(settling.summary.finish())["warnings"]]
    assert warned == any("will delete restored records" in text for text in said)


@pytest.mark.parametrize("agree", [None, lambda _: False])
def test_nothing_is_changed_that_nobody_agreed_to(agree: Any) -> None:
    """Retention deletes records: without a yes nothing is touched."""
    settling = Settling()

    with pytest.raises(RefusedError, match="left as they are"):
        settling.run(agree)

    assert COPY_CONFIG == settling.cluster.configs["copy_of_orders"]


def test_a_topic_that_was_not_restored_is_refused_by_name() -> None:
    """Named, it is an error; among all topics of the backup it is left out."""
    settling = Settling(FakeTarget())

    assert [] == settling.run(yes=True)
    with pytest.raises(RefusedError, match="no topic copy_of_orders"):
        settling.run(yes=True, topics="orders")


def test_a_topic_whose_settings_nobody_wrote_down_is_refused() -> None:
    """A topic whose settings were not recorded is refused, and nothing is guessed."""
    with pytest.raises(IncompleteBackupError, match="does not say how pay was set"):
        Settling(there("copy_of_pay", {})).run(topics="pay", yes=True)


def test_the_original_itself_is_left_alone() -> None:
    """In its own cluster, without a renaming, a topic is no copy."""
    settling = Settling(there("orders", {}, cluster_id="there"))

    assert [] == settling.run(yes=True, rename=None)


def test_what_was_restored_in_the_place_of_the_original_is_settled() -> None:
    """A topic that was deleted and restored under its own name is another topic: a copy."""
    settling = Settling(there("orders", COPY_CONFIG, cluster_id="there", topic_id="new"))

    settling.run(yes=True, rename=None)

    assert ORIGINAL == settling.cluster.configs["orders"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_run_that_has_something_to_settle_is_not_said_to_have_nothing_new(dry_run: bool) -> None:
    """Nothing is new only if every setting was as it should be."""
    settling = Settling()

    settling.run(yes=True, dry_run=dry_run)

    said = ": dry run, nothing was changed; 1 topic would be" if dry_run else " finished"
    assert f"restore configs{said}" == headline(settling.summary.finish())
    settling.run(yes=True)
    settling.run(yes=True)
    assert "restore configs finished, nothing new" == headline(settling.summary.finish())
