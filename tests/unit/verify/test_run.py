"""A run of `verify`: what it asks for, what it says, how it ends."""

import json
from datetime import timedelta
from threading import Event
from typing import Any

from backup_samples import Backup

from kbackup.catalog.claims import Checked
from kbackup.errors import Issue
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.runs.locks import Holder
from kbackup.spark.channel import NotBegun
from kbackup.spark.java import EngineSettings, Java
from kbackup.verify.run import Notes, on_spark
from kbackup.verify.task import Sample
from tests.support.json_lines import LINES
from tests.support.verified import NOW, Verified, here


def test_a_store_that_fails_is_not_a_damaged_backup() -> None:
    """An object that cannot be fetched is neither ok nor corrupt: exit 6."""
    backup = Backup()
    backup.put("orders", 0, range(3))
    failure = Issue("store", "s3:GetObject", "503", exit_code=6)

    def read(units: Any) -> Any:
        return [Checked(unit.files.files[0].key, failure=failure) for unit in units]

    verified = Verified(backup, read=read)

    assert (6, ["not read"], []) == (verified.exit_code, verified.states, verified.findings)


def test_a_task_that_cannot_begin_is_an_error_of_the_run() -> None:
    """A task that cannot begin, as with another version of kbackup, is an error of the verify."""
    backup = Backup()
    backup.put("orders", 0, range(3))
    failure = Issue("spark", "other versions", exit_code=9)

    verified = Verified(backup, read=lambda _: [NotBegun(failure)])

    assert (9, ["not read"], []) == (verified.exit_code, verified.states, verified.findings)


def test_a_part_without_an_object_needs_no_java() -> None:
    """A small backup has such days; what reads objects is looked for where there are any."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(3))
    part = next(one for one in (Sample(1, 2), Sample(2, 2)) if not one.takes(key))

    def no_java() -> Java:
        raise AssertionError

    read = on_spark(backup.settings, ReadOptions(), EngineSettings(), no_java, Event())

    verified = Verified(backup, read=read, sample=part)

    assert (0, ["not read"]) == (verified.exit_code, verified.states)


def test_an_object_that_goes_while_it_is_verified_is_missing() -> None:
    """What was listed and is gone when it is read is named as missing."""
    backup = Backup()
    keys = backup.put("orders", 0, range(3), range(3, 6))
    read = here(backup, ReadOptions())

    def delete_and_read(units: Any) -> Any:
        backup.store.delete(keys[0])
        return read(units)

    verified = Verified(backup, read=delete_and_read)

    assert (7, [("missing_object", keys[0])]) == (verified.exit_code, verified.errors)


def test_a_stale_lock_is_told() -> None:
    """A lock without a heartbeat is worth a word, a fresh one is not."""
    backup = Backup()
    backup.run("orders", 0, range(2))
    old = Holder(NOW - timedelta(hours=1), {"run": "r1", "host": "h", "pid": 1})
    fresh = Holder(NOW - timedelta(seconds=9), {"run": "r2", "host": "h", "pid": 2})

    verified = Verified(backup, notes=Notes(locks=[old, fresh]))

    [event] = [event for event in verified.events if event.get("code") == "stale_lock"]
    assert ("warning", 0) == (event["type"], verified.exit_code)
    assert "run r1 on h" in event["text"]


def test_only_what_was_asked_for_is_verified() -> None:
    """Topics and partitions that were not asked for are neither read nor judged."""
    backup = Backup()
    for topic in ("orders", "paid"):
        for partition in range(3):
            keys = backup.run(topic, partition, range(2))
            backup.store.delete(keys[0])

    verified = Verified(backup, asked=TopicFilter(pattern="ord.*", partitions={1, 2}))

    assert [("orders", 1), ("orders", 2)] == [
        (row["topic"], row["partition"]) for row in verified.summary["partitions"]
    ]
    assert 2 == len(verified.errors)


def test_of_many_errors_the_summary_keeps_some() -> None:
    """A summary stays readable when a whole bucket is damaged; each error is a finding."""
    backup = Backup()
    for key in backup.put("orders", 0, *([at] for at in range(130))):
        backup.replace(key, b"")

    verified = Verified(backup)

    assert (130, 100, 7) == (
        len(verified.errors), len(verified.summary["errors"]), verified.exit_code,
    )  # fmt: skip


def test_events_keep_the_json_contract() -> None:
    """Every finding can be printed as a line of the contract."""
    backup = Backup()
    keys = backup.run("orders", 0, range(3), range(3, 6), [9])
    backup.run("gone", 0, range(3))
    backup.store.delete(keys[1])
    backup.store.delete("topics/gone/partition=0/gone+0+0000000000.record.zstd.parquet")
    backup.replace(keys[2], b"x", to="topics/orders/README")
    backup.replace(keys[2], b"x")

    verified = Verified(backup, deep=True)

    assert verified.events == json.loads(json.dumps(verified.events))
    for event in [*verified.events, verified.summary]:
        LINES.validate(event)
