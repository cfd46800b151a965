"""What lies in a backup, from names and ledger."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backup_samples import BYTES, JSON_GZIP, RECORD, SIBLINGS, SNAPPY, TIME, Backup

from kbackup.catalog.ledger.rows import ACCEPTED, TopicLedger, of_object
from kbackup.clock import rfc3339
from kbackup.errors import IncompleteBackupError
from kbackup.events import to_json
from kbackup.inspect.topics import StoredPartition, topics
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.runs.backup_state import BackupState
from kbackup.testing import FaultyStore
from tests.support.json_lines import LINES


def rows(backup: Backup, **options: Any) -> list[dict[str, Any]]:
    """Return the partitions that `topics` tells of, with the backup's own ledger."""
    options = {"known": backup.known} | options
    found = topics(backup.store, backup.layout, ReadOptions(), **options)
    return [to_json(one) for one in found if isinstance(one, StoredPartition)]


def test_a_partition_is_told_from_names_and_ledger() -> None:
    """Where the ledger is, extent and count are known without opening an object."""
    backup = Backup()
    keys = backup.run("orders", 3, range(5), range(5, 9))
    backup.run("orders", 3, range(9, 12))
    stored = sum(entry.size for entry in backup.store.list("topics/orders/"))

    [row] = rows(backup)

    stored_at = row.pop("last_stored")
    assert "T" in stored_at
    assert stored_at.endswith("Z")
    assert {
        "type": "partition", "topic": "orders", "partition": 3, "format": "parquet/zstd",
        "objects": 3, "first": 0, "last": 11, "records": 12, "bytes": stored,
        "oldest": rfc3339(datetime.fromtimestamp(TIME / 1000, UTC)),
        "newest": rfc3339(datetime.fromtimestamp((TIME + 11) / 1000, UTC)),
    } == row  # fmt: skip
    assert 2 == len(keys)


def test_as_of_a_time_partitions_that_came_later_are_not_shown() -> None:
    """One whose objects had been stored by then, and are gone since, is."""
    backup = Backup()
    entries = [
        replace(
            backup.entry(backup.put("orders", at, range(5))[0]), first_stored=time, held_since=time
        )
        for at, time in ((0, 10), (1, 2000))
    ]
    known = BackupState(ledgers={"orders": TopicLedger.of(entries)})
    backup.store.delete(entries[0].key or "")

    found = rows(backup, known=known, as_of_ms=1000)

    assert [(0, 0)] == [(row["partition"], row["objects"]) for row in found]


@pytest.mark.parametrize(("as_of_ms", "expected"), [
    (1000, [("removed_since", 0), ("partition", 0)]), (None, [("partition", 0)]),
])  # fmt: skip
def test_as_of_a_time_what_was_removed_on_purpose_since_is_named(
    as_of_ms: int | None, expected: list[tuple[str, int]]
) -> None:
    """It was there then, so what is shown is not all; what came later is not missed."""
    backup = Backup()
    keys = backup.put("orders", 0, range(5), range(5, 9), range(9, 12))
    entries = [
        replace(backup.entry(key), first_stored=at, held_since=at)
        for key, at in zip(keys, (10, 10, 2000), strict=True)
    ]
    gone = entries[1:]
    rows_ = [*entries, *(of_object(ACCEPTED, row, "v1", 3000) for row in gone)]
    for row in gone:
        backup.store.delete(row.key or "")
    known = BackupState(ledgers={"orders": TopicLedger.of(rows_)})

    options: Any = {"known": known, "as_of_ms": as_of_ms}
    found = [to_json(one) for one in topics(backup.store, backup.layout, ReadOptions(), **options)]

    assert expected == [(row.get("code", row["type"]), row["partition"]) for row in found]
    assert all(keys[1] in row["text"] and keys[2] not in row["text"] for row in found[:-1])


def test_a_named_topic_costs_its_own_listing() -> None:
    """Of a large bucket only the folders of the named topics are listed."""
    backup = Backup()
    backup.put("orders", 0, range(5))
    backup.put("payments", 0, range(5))
    store = FaultyStore("", backup.store)

    found = [*topics(store, backup.layout, ReadOptions(), asked=TopicFilter(["orders"]))]

    assert [("list", "topics/orders/", "ok")] == store.calls
    assert ["orders"] == [to_json(row)["topic"] for row in found]


def test_a_format_narrows_what_is_told() -> None:
    """Only objects of the format that was asked for are listed; the others are counted."""
    backup = Backup()
    backup.run("orders", 0, range(5))
    backup.run("orders", 0, range(5, 9), views=JSON_GZIP)

    found = topics(
        backup.store,
        backup.layout,
        ReadOptions(),
        known=backup.known,
        only_format="json",
    )
    warning, row = (to_json(one) for one in found)

    assert ("other_format", "1 object of another") == (warning["code"], warning["text"][:19])
    assert ("json/gzip", 1, 5) == (row["format"], row["objects"], row["first"])


def test_without_a_ledger_the_end_is_unknown() -> None:
    """A name holds the first offset only, so what a connector wrote ends nobody knows where."""
    backup = Backup()
    backup.put("legacy", 0, range(5), range(5, 9))

    [row] = rows(backup)

    assert (0, None, None) == (row["first"], row["last"], row["records"])


def test_offsets_are_compared_as_numbers() -> None:
    """Offsets are ordered as numbers, not as text."""
    backup = Backup()
    backup.run("orders", 0, [9_999_999_998], [10_000_000_000])
    backup.run("orders", 0, [10_000_000_001])

    [row] = rows(backup)

    assert (9_999_999_998, 10_000_000_001) == (row["first"], row["last"])


def test_partitions_come_in_order() -> None:
    """Partition 10 is listed after partition 9, and topics are in order of name."""
    backup = Backup()
    for topic, partition in (("b", 10), ("b", 9), ("a", 1)):
        backup.put(topic, partition, [0])

    found = [(row["topic"], row["partition"]) for row in rows(backup)]

    assert [("a", 1), ("b", 9), ("b", 10)] == found


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        pytest.param("nothing", (8, 9), id="all there"),
        pytest.param("first", (8, 6), id="first object gone"),
        pytest.param("last", (5, 6), id="last object gone"),
        pytest.param("more", (None, None), id="an object behind the last that the ledger lacks"),
    ],
)
def test_a_count_is_known_only_of_what_is_there(
    damage: str, expected: tuple[int | None, int | None]
) -> None:
    """The ledger tells them of objects that are there and that it knows, and of no others."""
    backup = Backup()
    keys = backup.run("orders", 0, range(3), range(3, 6)) + backup.run("orders", 0, range(6, 9))
    match damage:
        case "first":
            backup.store.delete(keys[0])
        case "last":
            backup.store.delete(keys[-1])
        case "more":
            backup.put("orders", 0, range(9, 12))

    [row] = rows(backup)

    assert expected == (row["last"], row["records"])


def test_deep_learns_the_end_from_the_last_object() -> None:
    """With --deep the facts stored with the last object say where the partition ends."""
    backup = Backup()
    backup.put("orders", 0, range(5), range(5, 9))

    [row] = rows(backup, deep=True)

    assert (8, None) == (row["last"], row["records"])


def test_deep_looks_at_the_last_object_of_each_directory() -> None:
    """The object that begins last is not always the one that ends last."""
    backup = Backup()
    backup.put_in("a=1", "orders", 0, [0, 50])
    backup.put_in("a=2", "orders", 0, [3, 7])

    [row] = rows(backup, deep=True)

    assert 50 == row["last"]


def test_deep_reads_an_object_without_facts(tmp_path: Path) -> None:
    """An object of the connector has no facts, so its records are counted."""
    backup = Backup.in_folder(tmp_path)
    [path] = [tmp_path / "topics/orders/partition=0/orders+0+0000000100.json"]
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"a":1}\n{"a":2}\n')

    [row] = rows(backup, deep=True)

    assert (100, 101, 2) == (row["first"], row["last"], row["records"])


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        pytest.param([RECORD], ("parquet/zstd", 1), id="full records"),
        pytest.param([JSON_GZIP], ("json/gzip", 1), id="gzip"),
        pytest.param([BYTES], ("bytes", 1), id="not compressed"),
        pytest.param([SIBLINGS], ("json", 3), id="with siblings"),
        pytest.param([RECORD, SNAPPY], ("parquet/snappy, parquet/zstd", 2), id="two codecs"),
    ],
)
def test_a_format_is_named_with_its_compression(views: Any, expected: tuple[str, int]) -> None:
    """Format and codec are read off the extension; siblings are objects too."""
    backup = Backup()
    for at, each in enumerate(views):
        backup.put("orders", 0, [at], views=each)

    [row] = rows(backup)

    assert expected == (row["format"], row["objects"])


def test_foreign_objects_are_named() -> None:
    """What is not named as ours is listed with the reason, and no row counts it."""
    backup = Backup()
    [key] = backup.put("orders", 0, [0])
    backup.replace(key, b"hello", {}, to="topics/orders/partition=0/README.json")

    events = [to_json(one) for one in topics(backup.store, backup.layout, ReadOptions())]

    assert [("warning", "topics/orders/partition=0/README.json"), ("partition", None)] == [
        (event["type"], event.get("key")) for event in events
    ]
    assert 1 == events[1]["objects"]


def test_a_topic_that_is_not_there_is_an_error() -> None:
    """If a named topic is not in the backup, the error says so, and lists the topics there are."""
    backup = Backup()
    backup.put("orders", 0, [0])

    with pytest.raises(IncompleteBackupError) as caught:
        rows(backup, asked=TopicFilter(["order"]))

    assert "order" == caught.value.place["topic"]


def test_a_pattern_selects_whole_names() -> None:
    """A pattern must match all of a topic's name, as in topics.regex."""
    backup = Backup()
    for topic in ("orders", "orders-eu", "payments"):
        backup.put(topic, 0, [0])

    assert ["orders-eu"] == [
        row["topic"] for row in rows(backup, asked=TopicFilter(pattern="orders-.*"))
    ]


def test_partitions_can_be_chosen() -> None:
    """With --partitions only those rows are shown."""
    backup = Backup()
    for partition in range(4):
        backup.put("orders", partition, [0])

    assert [0, 3] == [
        row["partition"] for row in rows(backup, asked=TopicFilter(partitions={0, 3, 9}))
    ]


def test_rows_keep_the_json_contract() -> None:
    """What is known and what is not can be printed as lines of the contract."""
    backup = Backup()
    [key] = backup.run("orders", 0, range(3))
    backup.put("legacy", 0, range(3), views=SIBLINGS)
    backup.replace(key, b"hello", {}, to="topics/orders/README")

    events = [*topics(backup.store, backup.layout, ReadOptions(), known=backup.known)]

    assert 3 == len(events)
    for event in events:
        LINES.validate(to_json(event))


def test_partitions_that_are_not_there_are_an_error() -> None:
    """A mistyped number does not look like a backup without objects."""
    backup = Backup()
    backup.put("orders", 0, [0])

    with pytest.raises(IncompleteBackupError, match="no partition that was asked for"):
        rows(backup, asked=TopicFilter(["orders"], partitions={9}))
