"""Where consumer groups stood, as people see it."""

from dataclasses import replace
from typing import Any

import pytest
from backup_samples import Backup
from record_samples import batch_of

from kbackup.catalog import groups
from kbackup.catalog.groups import GROUPS, OFFSET, TOPIC, UNSETTLED, GroupEntry, group_stream
from kbackup.catalog.ledger.rows import table
from kbackup.events import Plain, Warned, to_json
from kbackup.inspect.topics import CapturedPosition, topics
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.pipeline.views import ReadOptions
from tests.support.hand_clock import HandClock
from tests.support.json_lines import LINES

NOW = 1_800_000_000_000


@pytest.fixture
def backup() -> Backup:
    """A topic of two partitions, captured an hour ago and now, and one that never was."""
    backup = Backup()
    for topic, partition in (("orders", 0), ("orders", 1), ("audit", 0)):
        backup.put(topic, partition, batch_of([{"offset": at, "value": b"v"} for at in range(3)]))
    for taken, offset in ((NOW - 3_600_000, 1), (NOW, 5)):
        head = GroupEntry(TOPIC, taken, "orders", is_complete=taken == NOW, run="r")
        row = replace(
            head, kind=OFFSET, is_complete=None, group="billing", protocol_type="consumer",
            state="STABLE", partition=0, offset=offset, metadata=b"\xff", high_watermark=7,
            beyond=2,
        )  # fmt: skip
        behind = replace(head, kind=UNSETTLED, is_complete=None, partition=0, why="transaction")
        other = replace(row, partition=1, metadata=b"text", beyond=None)
        group_stream(backup.store, backup.layout, HandClock(NOW)).append(
            table([head, behind, row, other], GROUPS)
        )
    return backup


def told(backup: Backup, asked: TopicFilter = ALL, until_ms: int | None = None) -> list[Plain]:
    """What `restore list --consumer-groups` says."""
    found = groups.read(backup.store, backup.layout, HandClock(NOW), until_ms)
    return list(topics(backup.store, backup.layout, ReadOptions(), captures=found, asked=asked))


def stood(found: list[Plain]) -> list[dict[str, Any]]:
    return [to_json(one) for one in found if isinstance(one, CapturedPosition)]


def test_each_group_is_told_with_what_is_known_of_it(backup: Backup) -> None:
    """A line has a group's offset, the bytes beside it, and what the backup lacks there."""
    found = stood(told(backup))

    for line in found:
        LINES.validate(line)
    assert [
        ("orders", 0, "billing", 5, {"$base64": "/w=="}, 7, 2, "transaction", True),
        ("orders", 1, "billing", 5, "text", 7, None, None, True),
    ] == [
        (
            one["topic"], one["partition"], one["group"], one["offset"], one["metadata"],
            one["high_watermark"], one["beyond"], one["unsettled"], one["is_complete"],
        )
        for one in found
    ]  # fmt: skip


def test_an_earlier_capture_is_told_as_of_its_time(backup: Backup) -> None:
    """As of a time groups stand where they stood then; that some may be missing is said."""
    found = told(backup, until_ms=NOW - 1)

    assert [1, 1] == [one["offset"] for one in stood(found)]
    assert ["groups_not_captured", "groups_incomplete"] == [
        one.code for one in found if isinstance(one, Warned)
    ]


def test_only_the_partitions_that_are_asked_for(backup: Backup) -> None:
    """Groups are told of the selected topics and partitions alone."""
    found = told(backup, TopicFilter(names=("orders",), partitions=frozenset({1})))

    assert [1] == [one["partition"] for one in stood(found)]
    assert [] == [one for one in found if isinstance(one, Warned)]


def test_a_topic_without_captures_is_named(backup: Backup) -> None:
    """That nothing is known of a topic's groups is not mistaken for a topic without groups."""
    found = [one for one in told(backup) if isinstance(one, Warned)]

    assert [("groups_not_captured", {"topic": "audit"})] == [(w.code, w.place) for w in found]
