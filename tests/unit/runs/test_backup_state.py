"""What is known of a backup whose ledger this principal may not read."""

from collections.abc import Iterator

import pytest
from backup_samples import Backup

from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import OBJECTS, SINK, TOPICS, Entry, TopicEntry, table
from kbackup.clock import SystemClock
from kbackup.errors import StoreError
from kbackup.events import to_json
from kbackup.inspect.topics import topics
from kbackup.naming import generic
from kbackup.naming.generic import GenericLayout
from kbackup.pipeline.views import ReadOptions
from kbackup.runs import backup_state
from kbackup.stores import StoredObject, StoreSettings
from kbackup.stores.memory import MemoryStore


class Guarded(MemoryStore):
    """A store that does not list what is beside the backup.

    Attributes:
        status: What it answers.
    """

    status = 403

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List objects of topics alone."""
        if prefix.startswith("_kbackup/"):
            do = "allow s3:ListBucket"
            raise StoreError(f"list {prefix}", "Access Denied", do, status=self.status)
        return super().list(prefix, after=after)


def guarded(status: int = 403) -> tuple[Backup, Guarded]:
    """A backup with a ledger, and what somebody sees of it who may not read the ledger."""
    backup = Backup(StoreSettings(f"memory://guarded-{status}"))
    rows = [TopicEntry("topic", "orders", "cluster-1", "id", 1)]
    stream.topics_stream(backup.store, backup.layout, SystemClock()).append(table(rows, TOPICS))
    backup.put("orders", 0, range(10))
    store = Guarded(backup.settings)
    store.status = status
    return backup, store


def test_whoever_may_not_read_the_ledger_sees_the_objects_and_is_told() -> None:
    """A restore that may not read the ledger runs without it, and says so."""
    backup, store = guarded()

    said = backup_state.read_if_allowed(store, backup.layout, SystemClock())
    told = topics(store, backup.layout, ReadOptions(), known=said)
    seen = [to_json(one) for one in told]

    warned = [event for event in seen if event["type"] == "warning"]
    assert [("ledger_damaged", "_kbackup/")] == [(one["code"], one["key"]) for one in warned]
    assert "missing objects go unnoticed" in warned[0]["text"]
    assert warned[0]["text"].endswith("; allow s3:ListBucket")
    assert [("orders", 1)] == [
        (one["topic"], one["objects"]) for one in seen if one["type"] == "partition"
    ]


@pytest.mark.parametrize("status", [500, 503])
def test_a_ledger_that_cannot_be_read_for_another_reason_is_waited_for(status: int) -> None:
    """What passes is not taken for a backup without evidence."""
    backup, store = guarded(status)

    with pytest.raises(StoreError):
        backup_state.read_if_allowed(store, backup.layout, SystemClock())


def test_whoever_mends_or_verifies_has_to_be_allowed_to_read_the_ledger() -> None:
    """Who verifies or repairs must be allowed to read the ledger, or a loss looks like none."""
    backup, store = guarded()

    with pytest.raises(StoreError, match="Access Denied"):
        backup_state.read(store, backup.layout, SystemClock())


def test_what_sinks_have_named_is_not_said_of_objects_of_any_name() -> None:
    """Topics of a generic layout are those of its expressions, whoever has written beside it."""
    backup, _ = guarded()
    ledger = stream.topic_stream(backup.store, backup.layout, "orders", SystemClock())
    ledger.append(table([Entry("object", 0, 0, 9, "logs/1.json")], OBJECTS))
    layout = GenericLayout(expressions=generic.read("clicks:.*"))

    said = backup_state.read(backup.store, layout, SystemClock())

    assert ({}, {}) == (said.topics, said.ledgers)


def test_what_a_sink_leaves_out_is_not_watched() -> None:
    """A restore may write to a topic that a sink of all others excludes."""
    row = TopicEntry(SINK, cluster_id="c", group="g", pattern=".*", excluded="copy_of_.*")
    said = backup_state.BackupState(sinks=[row])

    assert [True, False] == [said.watches(name, "c") for name in ("orders", "copy_of_orders")]
