"""The digests of what a sink stores: in the ledger, and beside each object."""

from pathlib import Path
from typing import Any, Final

import pytest
from backup_samples import Backup

from kbackup.clock import SystemClock
from kbackup.records import TopicPartition
from kbackup.runs import backup_state
from kbackup.verify.run import Notes
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink
from tests.support.verified import Verified

TAGGED: Final = """\
transforms=Tag
transforms.Tag.type=org.apache.kafka.connect.transforms.InsertHeader
transforms.Tag.header=by
transforms.Tag.value.literal=sink
"""


def stored(tmp_path: Path, text: str, **given: Any) -> Backup:
    """A backup of ``orders`` that a sink of this configuration has made."""
    path = tmp_path / "sink.properties"
    path.write_text(text)
    backup, kafka = Backup(), FakeKafka()
    kafka.create("orders", 25)
    summary = run_sink(kafka, backup.settings, path, topics="orders", flush_size=10, **given)
    assert 0 == summary["exit_code"]
    return backup


def rows(backup: Backup) -> dict[str, str | None]:
    """The digest of each object, by the ledger."""
    said = backup_state.read(backup.store, backup.layout, SystemClock())
    ledger = said.ledger(TopicPartition("orders", 0))
    return {key: row.digest for key, row in ledger.objects.items()}


@pytest.mark.parametrize("text", ["", TAGGED], ids=["as they came", "with another header"])
def test_the_ledger_has_what_each_object_says(tmp_path: Path, text: str) -> None:
    """And full records agree with it, also where a transform has changed their headers."""
    backup = stored(tmp_path, text)
    notes = Notes(backup_state.read(backup.store, backup.layout, SystemClock()))

    verified = Verified(backup, deep=True, notes=notes)

    keys = [entry.key for entry in backup.store.list("topics/")]
    heads = {key: backup.store.head(key) for key in keys}
    assert {key: head and head.metadata["digest"] for key, head in heads.items()} == rows(backup)
    assert (0, [], [0]) == (
        verified.exit_code, verified.findings,
        [row["not_compared"] for row in verified.summary["partitions"]],
    )  # fmt: skip


def test_values_have_the_digest_of_full_records(tmp_path: Path) -> None:
    """Whatever the layout, it is of what was read: two backups of one topic can be compared."""
    values = {"format_class": "json", "value_converter": "json"}
    found = [rows(stored(tmp_path, "", **given)) for given in ({}, values)]

    assert sorted(found[0].values()) == sorted(found[1].values())  # type: ignore[type-var]
    assert 3 == len({*found[0].values()} - {None})


def test_a_header_that_a_transform_adds_is_in_the_digest(tmp_path: Path) -> None:
    """It is of records as transforms leave their headers: what full records hold."""
    plain, tagged = rows(stored(tmp_path, "")), rows(stored(tmp_path, TAGGED))

    assert plain.keys() == tagged.keys()
    assert not {*plain.values()} & {*tagged.values()}
