"""A restore that follows, look by look, over a bucket and a cluster in memory."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from backup_samples import JSON, SIBLINGS

from kbackup.errors import NoKeyError, StoreError
from kbackup.events import to_json
from kbackup.records import Span, TopicPartition
from kbackup.runs import history
from kbackup.runs.context import Environment, Stop
from kbackup.runs.report import HeldUp, Summary
from kbackup.runs.status import RESTORE, ThisRestore, status
from kbackup.sink.run import SinkRun
from kbackup.stores import Store, StoreSettings, open_store
from kbackup.stores.memory import MemoryStore
from tests.support.configurations import load
from tests.support.ended import ended
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.in_threads import InThreads
from tests.support.standby import Standby, codes
from tests.support.target import MARKER, CrashError, values
from tests.unit.catalog.test_keys import private_key, readers, sinks

TERMINATED = 143
COPY_1 = "copy_of_orders", 1


def held(thing: Any) -> int:
    """How many things a run holds in its own collections, however deep."""
    left, seen, count = [thing], set[int](), 0
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
            count += len(one)
        elif isinstance(one, list | tuple | set | frozenset):
            left += one
            count += len(one)
        elif isinstance(one, Summary) or type(one).__module__.startswith("kbackup.restore."):
            names = getattr(one, "__dict__", None) or type(one).__slots__
            left += [getattr(one, name) for name in names]
    return count


def test_what_comes_is_restored_once_until_the_run_is_stopped(standby: Standby) -> None:
    """New objects, partitions and topics come to the target in order, each record once."""
    standby.sink("orders", 0, range(10), partitions=2)

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("orders", 0, range(10, 15), partitions=2)
        if look == 3:
            standby.sink("orders", 1, range(4), partitions=2)
            standby.sink("payments", 0, range(7))
        return look < 5

    summary = standby.follow(happens)

    assert values(range(15)) == standby.target.values("copy_of_orders")
    assert values(range(4)) == standby.target.values("copy_of_orders", 1)
    assert values(range(7)) == standby.target.values("copy_of_payments")
    assert (TERMINATED, "stopped", 26) == (
        summary["exit_code"], summary["result"], summary["records"],
    )  # fmt: skip
    assert [(15, 0), (4, 0), (7, 0)] == [(r["end"], r["lag"]) for r in summary["partitions"]]


def test_a_run_that_was_killed_goes_on_where_it_was(standby: Standby) -> None:
    """Whatever commit it dies at, the next run restores the rest, and nothing twice."""
    for crash_at in (1, 2):
        standby.target.crash_at = crash_at
        standby.sink("orders", 0, range(10 * crash_at - 10, 10 * crash_at))

        with pytest.raises(CrashError):
            standby.follow(lambda look: look < 3)
    standby.target.crash_at = 0
    standby.follow(lambda look: look < 2)

    assert values(range(20)) == standby.target.values("copy_of_orders")


def test_a_copy_grows_with_its_source(standby: Standby) -> None:
    """Partitions added to the original are added to the copy, with or without records, once."""
    standby.sink("orders", 0, range(3))
    standby.name("empty", 1)

    def happens(look: int) -> bool:
        if look == 1:
            standby.name("empty", 2)
            standby.sink("orders", 2, range(4), partitions=3)
        return look < 4

    summary = standby.follow(happens)
    standby.sink("orders", 3, range(5), partitions=4)
    once = standby.follow(lambda _: False, follow=False)

    assert (143, [], 0, []) == (
        summary["exit_code"], summary["errors"], once["exit_code"], once["errors"],
    )  # fmt: skip
    assert {"copy_of_orders": 4, "copy_of_empty": 2} == {
        name: topic.partitions for name, topic in standby.target.topics(standby.target.ids).items()
    }
    copied = [standby.target.values("copy_of_orders", at) for at in range(4)]
    assert [values(range(count)) for count in (3, 0, 4, 5)] == copied
    assert [
        "copy_of_empty grows from 1 to 2 partitions, as its source did",
        "copy_of_orders grows from 1 to 3 partitions, as its source did",
        "copy_of_orders grows from 3 to 4 partitions, as its source did",
    ] == standby.warned("partitions_added")


def test_a_copy_that_has_grown_is_noticed_when_it_is_created_again(standby: Standby) -> None:
    """A position in an added partition belongs to the topic's id, as any other does."""
    standby.sink("orders", 0, range(3))
    standby.follow(lambda look: look < 2)
    standby.sink("orders", 1, range(4), partitions=2)
    standby.follow(lambda look: look < 2)
    standby.target.ids["copy_of_orders"] = "another"
    for log in standby.target.logs.values():
        log.rows = []

    standby.follow(lambda look: look < 2)

    assert values(range(4)) == standby.target.values("copy_of_orders", 1)


def test_an_object_that_has_grown_is_read_on(standby: Standby) -> None:
    """What replaces an object, and holds more, adds only what it has gained."""
    standby.sink("orders", 0, range(5))

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("orders", 0, range(12))
        return look < 3

    standby.follow(happens)

    assert values(range(12)) == standby.target.values("copy_of_orders")


def test_half_a_cut_waits_for_its_other_half(standby: Standby) -> None:
    """A rotation over several directories is restored once the ledger says that it is whole."""
    standby.sink("orders", 0, range(4))
    backup, keys = standby.backup, list[str]()

    def happens(look: int) -> bool:
        if look == 1:
            keys.append(backup.put_in("day=1", "orders", 0, range(4, 10, 2)))
        if look == 4:
            assert values(range(4)) == standby.target.values("copy_of_orders")
            keys.append(backup.put_in("day=2", "orders", 0, range(5, 10, 2)))
            standby.enter("orders", 0, keys, Span(4, 10))
        return look < 6

    summary = standby.follow(happens)

    assert (143, values(range(10))) == (
        summary["exit_code"], standby.target.values("copy_of_orders"),
    )  # fmt: skip


def test_values_wait_for_their_keys(standby: Standby) -> None:
    """Where no ledger says what is whole, an object is taken when two listings show it the same."""
    backup = standby.backup
    key, headers, value = backup.put("orders", 0, range(3), views=SIBLINGS)
    late = {name: backup.body(name) for name in (key, headers)}
    metadata = {name: backup.store.head(name).metadata for name in late}  # type: ignore[union-attr]
    for name in late:
        backup.store.delete(name)
    backup.store.delete(value)

    def happens(look: int) -> bool:
        if look == 1:
            backup.put("orders", 0, range(3), views=JSON)
        if look == 2:
            for name, body in late.items():
                backup.replace(name, body, metadata[name])
        return look < 5

    summary = standby.follow(happens)

    rows = standby.target.logs[TopicPartition("copy_of_orders", 0)].rows
    assert 143 == summary["exit_code"]
    assert [b"k0", b"k1", b"k2"] == [row["key"] for row in rows if row is not MARKER]


def test_what_was_there_before_is_restored_at_once(standby: Standby) -> None:
    """Objects that are older than the time between two listings are not waited for."""
    standby.backup.put("orders", 0, range(3))

    standby.follow(lambda _: False)

    assert values(range(3)) == standby.target.values("copy_of_orders")


def test_an_empty_bucket_is_waited_at(standby: Standby) -> None:
    """A standby may be started before the first backup: it says once what it waits for."""

    def happens(look: int) -> bool:
        if look == 3:
            standby.sink("orders", 0, range(3))
        return look < 6

    summary = standby.follow(happens, topics="orders")

    assert ["waiting for orders in s3://b/topics"] == standby.warned("no_topic")
    assert (143, []) == (summary["exit_code"], summary["warnings"])
    assert values(range(3)) == standby.target.values("copy_of_orders")


@dataclass(frozen=True)
class _Interrupted(StoreSettings):
    away: list[int] = field(default_factory=list)

    def open(self) -> Store:
        if self.away:
            raise StoreError("list", "503")
        return StoreSettings.open(self)


def test_the_first_run_of_an_encrypted_backup_is_waited_for(
    standby: Standby, tmp_path: Path
) -> None:
    """Its keys come with it; the standby opens them then, and restores.  A server may be away."""
    key, kafka = private_key(tmp_path / "identity.pem"), FakeKafka()
    kafka.create("orders", 12)
    place = _Interrupted(f"memory://{uuid4()}")

    def happens(look: int) -> bool:
        place.away[:] = [look] if look == 2 else []
        if look == 3:
            there = replace(place, wrapper=sinks(tmp_path, key))
            environment = Environment(kafka, there, InThreads(), HandClock())  # type: ignore[arg-type]
            given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "no_lock": True}
            settings = load("sink", topics=["orders"], **given).settings
            assert 0 == SinkRun(settings, lambda _: None, Stop(), environment)().exit_code
        return look < 6

    summary = standby.follow(
        happens, store=replace(place, wrapper=readers(key)), topics_regex="orders"
    )

    text = "waiting for the first backup in s3://b/topics, which makes its keys"
    assert [text] == standby.warned("no_topic")
    assert (143, 12) == (summary["exit_code"], summary["records"])


def test_a_standby_that_is_stopped_before_there_are_keys_ends_as_stopped(
    standby: Standby, tmp_path: Path
) -> None:
    """It has begun nothing, and stores nothing."""
    key, place = private_key(tmp_path / "identity.pem"), StoreSettings(f"memory://{uuid4()}")

    summary = standby.follow(
        lambda look: look < 2, store=replace(place, wrapper=readers(key)), topics_regex="orders"
    )

    assert (143, "stopped") == (summary["exit_code"], summary["result"])
    assert [] == list(open_store(place).list(""))


def test_objects_whose_keys_are_gone_are_not_waited_at(standby: Standby, tmp_path: Path) -> None:
    """Or that never had any: keys do not come to what is there."""
    key = private_key(tmp_path / "identity.pem")
    standby.sink("orders", 0, range(3))
    there = replace(standby.backup.settings, wrapper=readers(key))

    with pytest.raises(NoKeyError, match="the backup under topics has no keys"):
        standby.follow(lambda look: look < 2, store=there)


def test_status_says_up_to_when_the_standby_is_complete(standby: Standby) -> None:
    """Status gives the time of the last look that left nothing to restore."""
    standby.sink("orders", 0, range(3))
    where = TopicPartition("copy_of_orders", 0)

    def happens(look: int) -> bool:
        if look == 2:
            standby.target.faults[where] = StoreError("get", "503")
            standby.sink("orders", 0, range(3, 6))
        return look < 7

    standby.follow(happens, group="standby")
    now = standby.time.now()
    store, layout = standby.backup.store, standby.backup.layout
    mine = ThisRestore(["standby"], "standby")
    found = to_json(status(store, layout, max_age_s=240, now=now, of=RESTORE, restore=mine))

    assert (7, ["outdated"]) == (found["exit_code"], codes(found))
    assert (360.0, 3) == (found["age_s"], found["partitions"][0]["lag"])


def test_a_look_at_what_has_not_changed_is_a_listing_and_little_more(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is new nothing is planned: the requests do not grow with partitions."""
    requests: list[str] = []
    for name in ("list", "open", "head", "put"):
        was = getattr(MemoryStore, name)

        def counted(*given: Any, was: Any = was, name: str = name, **named: Any) -> Any:
            requests.append(name)
            return was(*given, **named)

        monkeypatch.setattr(MemoryStore, name, counted)
    for at in range(8):
        standby.sink("orders", at, range(3), partitions=8)
    asked: list[int] = []

    def happens(look: int) -> bool:
        asked.append(len(requests))
        return look < 5

    standby.follow(happens)

    looks = {after - before for before, after in pairwise(asked)}
    assert 1 == len(standby.tasks.units)
    assert max(looks) <= 12


def test_hundreds_of_looks_take_no_more_memory(standby: Standby) -> None:
    """A run that follows for months holds what a run of an hour does, whatever comes and fails."""
    bad, sizes = TopicPartition("copy_of_orders", 0), []
    standby.target.faults[bad] = StoreError("get", "503 before the first look")

    def happens(look: int) -> bool:
        standby.target.faults[bad] = StoreError("get", f"503 at look {look}")
        if look % 50 == 0:
            standby.told.clear()
            standby.tasks.units.clear()
            standby.sink("orders", 1, range(look, look + 2), partitions=2)
        if look in (60, 460):
            sizes.append(held(standby.run))
        return look < 460

    for at in (0, 1):
        standby.sink("orders", at, range(3), partitions=2)
    summary = standby.follow(happens)

    assert sizes[1] < sizes[0] + 10  # what rests just now differs by a few: not by a look's share
    assert (6, 1, 3 + 18) == (
        summary["exit_code"], len(summary["errors"]), summary["partitions"][1]["records"],
    )  # fmt: skip


def test_what_a_transaction_keeps_from_the_backup_is_said_while_it_does(standby: Standby) -> None:
    """Once, however often the restore looks, and it is left out once that has lasted."""
    where, store = TopicPartition("orders", 0), standby.backup.store
    standby.sink("orders", 0, range(10))
    seen = HeldUp.of(Span(0, 10), 60, 1000.0)
    assert seen is not None

    def follow(seen_at: float) -> tuple[int, dict[str, int], int]:
        facts = ended(run="s1", names=["orders"], last_success=None)
        each = replace(seen, seen=seen_at)
        history.write_success(store, standby.backup.layout, facts, {where: each})
        before = len(standby.told)
        summary = standby.follow(lambda look: look < 4)
        told = [one["code"] for one in standby.told[before:] if one["type"] == "warning"]
        left = [one["code"] for one in summary["warnings"]]
        return told.count("held_up"), summary["skipped"], left.count("held_up")

    short, long = follow(1000.0), follow(2000.0)
    standby.sink("orders", 0, range(10, 20))
    over = follow(2000.0)[1:]

    assert [(1, {}, 1), (1, {"held_up_offsets": 50}, 1)] == [short, long]
    assert ({}, 0) == over


@pytest.mark.parametrize(
    ("kind", "skipped"),
    [("LogAppendTime", {"topics_with_other_timestamps": 1}), ("CreateTime", {})],
)
def test_a_target_that_replaces_timestamps_is_counted_once(
    standby: Standby, kind: str, skipped: dict[str, int]
) -> None:
    """However often the restore writes to it."""
    standby.sink("orders", 0, range(10))

    def happens(look: int) -> bool:
        if look == 2:
            standby.sink("orders", 0, range(10, 20))
        return look < 5

    summary = standby.follow(happens, topic_config=[f"message.timestamp.type={kind}"])

    assert (skipped, 20) == (summary["skipped"], summary["records"])
