"""A second copy of a backup: equal, whole at any moment, and never over anything else."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import pytest
from backup_samples import RECORD, SIBLINGS, SNAPPY, Backup

from kbackup.catalog import identity
from kbackup.catalog.ledger.rows import ACCEPTED, OBJECTS, of_object, table
from kbackup.catalog.ledger.stream import topic_stream, topics_stream
from kbackup.clock import SystemClock
from kbackup.errors import StoreError
from kbackup.events import Warned, to_json
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.records import TopicPartition
from kbackup.runs import backup_state, history
from kbackup.runs.context import Stop
from kbackup.runs.report import Summary
from kbackup.sink.expire import ExpireOptions, ExpireRun
from kbackup.stores import (
    ObjectHead,
    Store,
    StoredObject,
    StoreSettings,
    open_store,
    put_bytes,
    put_json,
)
from tests.support.configurations import load
from tests.support.copying import copy_run, verified
from tests.support.ended import ended
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.invoked import invoke
from tests.support.json_lines import LINES
from tests.support.mortal import Gone, Mortal
from tests.support.served_store import ServedStore
from tests.support.sinks import run_sink

LAYOUT = Layout()
OBJECT = "topics/orders/partition=0/orders+0+0000000000.record.zstd.parquet"


class Source:
    """A cluster of two topics, and the backup that sinks make of it."""

    def __init__(self) -> None:
        self.kafka, self.clock = FakeKafka(), HandClock()
        self.settings = StoreSettings(f"memory://{uuid4()}")
        self.kafka.create("orders", 20, 5)
        self.kafka.create("audit", 5)
        self.sink()

    @property
    def store(self) -> Store:
        return open_store(self.settings)

    def sink(self, *topics: str) -> None:
        """Run a sink to its end."""
        names = ",".join(topics or ("orders", "audit"))
        summary = run_sink(self.kafka, self.settings, clock=self.clock, topics=names, flush_size=7)
        assert 0 == summary["exit_code"], summary

    def grow(self) -> None:
        """Records and a run more."""
        for where in [*self.kafka.logs]:
            self.kafka.append(where, 9)
        self.sink()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def target() -> Store:
    return open_store(StoreSettings(f"memory://{uuid4()}"))


def copied(source: Store, target: Store, expect: int = 0, **more: Any) -> dict[str, Any]:
    """Copy once; return the summary, with what was told."""
    summary = Summary(more.pop("run", "r"), "sink copy")
    told = [to_json(event) for event in copy_run(source, target, summary, **more)()]
    for event in told:
        LINES.validate(event)
    said = to_json(summary.finish())
    assert expect == said["exit_code"], said
    return {**said, "told": [event for event in told if event["type"] == "copied"]}


def contents(store: Store, prefix: str = "") -> dict[str, tuple[bytes, Mapping[str, str]]]:
    """All that a store holds, but its locks, marks of success, own ledger and what it says of
    how it was copied.
    """
    found = {}
    for one in store.list(prefix):
        if not one.key.startswith(
            ("_kbackup/ledger/", "_kbackup/locks/", "_kbackup/success/", "_kbackup/drills/")
        ) and not one.key.endswith(("-sink-copy.json", "-sink-expire.json")):
            head = store.head(one.key)
            assert head is not None
            with store.open(one.key) as body:
                found[one.key] = body.read(), head.metadata
    return found


def ledger(store: Store, *topics: str) -> list[Any]:
    """What the ledger says, without that nothing was passed when a copy began."""
    clock = SystemClock()
    streams = [topic_stream(store, LAYOUT, topic, clock) for topic in topics]
    rows = [row for one in streams for row in one.read().rows.to_pylist() if row["last"] != -1]
    return sorted(map(repr, [*rows, *topics_stream(store, LAYOUT, clock).read().rows.to_pylist()]))


def test_a_copy_is_the_same_backup(source: Source, target: Store) -> None:
    """Objects, metadata, evidence, id and ledger; never locks, nor marks of success."""
    said = copied(source.store, target)

    assert contents(source.store) == contents(target)
    assert ledger(source.store, "orders", "audit") == ledger(target, "orders", "audit")
    assert identity.read(source.store, LAYOUT, "").id == identity.read(target, LAYOUT, "").id != ""
    assert [] == [*target.list("_kbackup/success/"), *target.list("_kbackup/locks/")]
    assert [("audit", 1, 0), ("orders", 4, 0)] == [
        (row["topic"], row["sent"], row["left"]) for row in said["told"]
    ]
    assert 0 == verified(target, LAYOUT).exit_code()


def test_what_is_there_is_not_sent_again(source: Source, target: Store) -> None:
    """A second run sends nothing and opens no object; what is new comes with the next one."""
    copied(source.store, target)
    watched = Mortal(source.store)
    again = copied(watched, target)
    source.grow()
    more = copied(source.store, target)

    assert (0, 5) == (again["sent"], again["found"])
    assert (6, 11) == (more["sent"], more["found"])
    assert contents(source.store) == contents(target)
    assert ledger(source.store, "orders", "audit") == ledger(target, "orders", "audit")


def last_copy(store: Store, asked: TopicFilter = ALL) -> tuple[Mapping[str, Any], datetime | None]:
    """What a store says of how it was copied into, and when that went well."""
    found = history.RecentRuns.listed(store, LAYOUT, SystemClock().now()).last("sink copy", asked)
    return ({}, None) if found is None else (found.record.said, found.success)


def test_a_copy_says_how_it_was_made(source: Source, target: Store) -> None:
    """There, where it is watched: what it sent, up to when it has all, and what failed."""
    ago = [datetime.now(UTC) - timedelta(hours=hours) for hours in (3, 2, 1)]
    first, some, failed = map(history.new_run_id, ago)
    names, before = ["orders"], datetime.now(UTC).replace(microsecond=0)

    copied(source.store, target, asked=TopicFilter(names), run=first)
    copied(source.store, target, asked=TopicFilter(names, partitions=(1,)), run=some)

    said, success = last_copy(target, TopicFilter(names))
    assert (first, 0, 4) == (said["run"], said["exit_code"], said["sent"])
    assert said["timings"]["work_s"] >= 0
    assert success is not None
    assert before <= success
    assert some == last_copy(target, TopicFilter(names, partitions=(1,)))[0]["run"]
    assert {} == last_copy(target, TopicFilter(["audit"]))[0] == last_copy(source.store)[0]

    source.store.delete(OBJECT)
    copied(source.store, target, 7, run=failed)

    said, still = last_copy(target)
    assert (failed, 7, success) == (said["run"], said["exit_code"], still)
    assert said["last_success"] is None


def test_the_records_of_copies_stay_where_they_are(source: Source, target: Store) -> None:
    """They say nothing of a copy of the copy; nor does a bucket's expiry of another one."""
    third = open_store(StoreSettings(f"memory://{uuid4()}"))
    history.write_run(source.store, LAYOUT, ended(command="sink expire"))
    runs = ["2026-11-21T02:00:00Z-aaaa", "2026-11-21T03:00:00Z-bbbb"]
    copied(source.store, target, run=runs[0])
    copied(target, third, run=runs[1])

    every = [[*history.runs(store, LAYOUT)] for store in (target, third)]
    ran = [[one.run for one in records if one.command != "sink"] for records in every]
    assert [[run] for run in runs] == ran


def test_a_plan_says_what_a_copy_takes(source: Source, target: Store) -> None:
    """Bytes and requests, of parts too, and the time by what earlier copies took."""
    ended_s = {"seconds": 3.0, "timings": {"work_s": 2.0}, "sent": 9, "sent_bytes": 1000}
    size = sum(one.size for one in source.store.list("topics/"))

    served: list[Any] = [ServedStore(one) for one in (source.store, target)]
    first = copied(*served, is_dry=True)
    history.write_run(target, LAYOUT, ended(command="sink copy", **ended_s))
    then = copied(source.store, target, is_dry=True)

    assert {"bytes": size, "requests": 5 + size, "seconds": None} == first["estimate"]
    took = round(1.0 + size * 0.002, 1)
    assert {"bytes": size, "requests": None, "seconds": took} == then["estimate"]


def test_only_what_is_asked_for_is_copied(source: Source, target: Store) -> None:
    """Topics as of other commands; the ledger speaks of what is there alone."""
    copied(source.store, target, asked=TopicFilter(["audit"]))

    assert ["audit"] == sorted({key.split("/")[1] for key in contents(target, "topics/")})
    assert {"audit"} == backup_state.read(target, LAYOUT, SystemClock()).names
    assert 0 == verified(target, LAYOUT).exit_code()

    copied(source.store, target, asked=TopicFilter(["orders"], partitions=(1,)))

    state = backup_state.read(target, LAYOUT, SystemClock())
    assert [1] == [*state.ledgers["orders"].partitions]
    assert 0 == verified(target, LAYOUT).exit_code()


def test_a_partition_that_is_not_there_is_no_copy(source: Source, target: Store) -> None:
    """Nobody is told that all is well where nothing was looked at; a topic is named (7) too."""
    told = copied(source.store, target, 7, asked=TopicFilter(partitions=[7]))

    assert ["incomplete"] == [error["code"] for error in told["errors"]]
    assert [] == [one.key for one in target.list("topics/")]


def test_a_dry_run_writes_nothing(source: Source, target: Store) -> None:
    """It says what would be sent."""
    said = copied(source.store, target, is_dry=True)

    assert 5 == said["sent"]
    assert [] == [*target.list("")]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    ("grown", "pace"),
    [
        pytest.param(False, 1, id="first"),
        pytest.param(True, 4, id="later, with a new topic"),
        pytest.param(True, 1, id="later, at each request", marks=pytest.mark.nightly),
    ],
)
def test_a_copy_killed_between_any_two_requests_is_a_backup(
    side: str, grown: bool, pace: int, source: Source
) -> None:
    """`verify` there is 0 whenever it dies, and the next run ends with all of it."""
    first = open_store(StoreSettings(f"memory://{uuid4()}"))
    if grown:
        copied(source.store, first)
        source.kafka.create("late", 8)
        source.grow()
        source.sink("late")
    before, at, is_over = contents(first) | _ledger_files(first), 0, False
    while not is_over:
        target = open_store(StoreSettings(f"memory://{uuid4()}"))
        for key, (body, metadata) in before.items():
            _put(target, key, body, metadata)
        ends = {"source": source.store, "target": target}
        ends[side] = Mortal(ends[side], at)
        try:
            copied(ends["source"], ends["target"])
            is_over = True
        except Gone:
            pass
        if [*target.list("topics/")]:
            summary = verified(target, LAYOUT)
            assert 0 == summary.exit_code(), (at, to_json(summary.finish()))
            _check_prefix(source.store, target)
        if at % (5 * pace) == 0:
            copied(source.store, target)
            assert contents(source.store) == contents(target), at
            assert 0 == verified(target, LAYOUT).exit_code()
        at += pace
    assert at > 20


def _check_prefix(source: Store, target: Store) -> None:
    """What is there of a partition is what a sink that was killed would have stored."""
    for where in ("orders/partition=0", "orders/partition=1", "audit/partition=0"):
        every = [one.key for one in source.list(f"topics/{where}/")]
        there = [one.key for one in target.list(f"topics/{where}/")]
        assert every[: len(there)] == there


def _ledger_files(store: Store) -> dict[str, tuple[bytes, Mapping[str, str]]]:
    return {one.key: (store.open(one.key).read(), {}) for one in store.list("_kbackup/ledger/")}


def _put(store: Store, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
    put_bytes(store, key, body)
    head = store.head(key)
    assert head is not None
    with store.open(key) as file:
        facts = {name: text for name, text in metadata.items() if name != "sha256"}
        store.put(key, file, sha256=head.metadata["sha256"], metadata=facts)


def test_something_else_under_a_key_is_named_and_stays(source: Source, target: Store) -> None:
    """It is refused (4); the rest is copied, and of its partition what comes before."""
    put_bytes(target, OBJECT, b"something else")

    said = copied(source.store, target, 4)

    assert [OBJECT] == [error["key"] for error in said["errors"]]
    assert b"something else" == target.open(OBJECT).read()
    there = contents(target, "topics/").keys()
    assert {"audit/partition=0", "orders/partition=0", "orders/partition=1"} == {
        "/".join(key.split("/")[1:3]) for key in there
    }
    assert [OBJECT] == [key for key in there if "orders/partition=0" in key]
    state = backup_state.read(target, LAYOUT, SystemClock())
    assert {} == state.ledger(TopicPartition("orders", 0)).objects
    assert {} != state.ledger(TopicPartition("orders", 1)).objects


def test_the_place_of_the_backup_itself_is_refused(tmp_path: Path) -> None:
    """However it is named: exit 0 says that there is a second copy."""
    there, other = tmp_path / "there", tmp_path / "other"
    there.mkdir()
    other.symlink_to(there)

    for name in (there.as_uri(), f"{there.as_uri()}/../there", other.as_uri()):
        told = invoke("sink", "copy", "--store-url", there.as_uri(), "--to", name)
        assert (2, True) == (told.code, "is where the backup is" in told.stderr)


@pytest.mark.parametrize("below", ["topics", "topics/copy", "_kbackup"])
def test_a_place_among_the_backups_objects_is_refused(below: str, tmp_path: Path) -> None:
    """They would be foreign objects of it for good; beside them there is room."""
    there, outer, inner = tmp_path / "there", tmp_path.as_uri(), (tmp_path / below).as_uri()
    (tmp_path / below).mkdir(parents=True)
    there.mkdir()

    for one, other in ((outer, inner), (inner, outer)):
        told = invoke("sink", "copy", "--store-url", one, "--to", other)
        assert (2, True) == (told.code, "and the backup overlap" in told.stderr)
    assert "one within" not in invoke(
        "sink", "copy", "--store-url", outer, "--to", there.as_uri()
    ).stderr  # fmt: skip


def test_a_copy_that_its_store_could_not_lock_is_refused() -> None:
    """It would be taken for one that nobody can delete; a source may be locked all the same."""
    lock = "-X", "s3.object.lock.mode=COMPLIANCE", "-X", "s3.object.lock.days=30"
    told = invoke("sink", "copy", "--bucket", "locked", *lock, "--to", "gs://second")

    assert (2, True) == (told.code, "s3.object.lock.mode=COMPLIANCE" in told.stderr)
    assert "--to-config" in told.stderr


@pytest.mark.parametrize("url", ["gs://x", "az://account"])
def test_a_place_that_is_none_is_named_as_it_was_typed(url: str, tmp_path: Path) -> None:
    """Nobody has written the property that a store's URL is checked as."""
    told = invoke("sink", "copy", "--store-url", tmp_path.as_uri(), "--to", url)

    assert 2 == told.code
    assert told.stderr.startswith(f"error: --to {url}\n")


def test_another_backup_is_refused(source: Source, target: Store) -> None:
    """A bucket with another backup's id takes nothing."""
    put_json(target, identity.key(LAYOUT), {"id": "other", "topics_dir": "topics"})

    copied(source.store, target, 4)

    assert [identity.key(LAYOUT)] == [one.key for one in target.list("")]


@pytest.mark.parametrize("topic", ["orders", "users"])
@pytest.mark.parametrize("is_dry", [False, True])
def test_objects_without_an_id_are_another_backup_too(
    topic: str, is_dry: bool, source: Source, target: Store
) -> None:
    """As of a connector: a restore of the copy would take them for the source's."""
    key = f"topics/{topic}/partition=0/{topic}+0+0000000100.json"
    put_bytes(target, key, b"{}")
    put_bytes(target, "topics/README", b"")

    [refused] = copied(source.store, target, 4, is_dry=is_dry)["errors"]
    assert f"1 object that this backup does not have, such as {key}" in refused["why"]
    assert {key, "topics/README"} == {one.key for one in target.list("")}

    target.delete(key)
    copied(source.store, target)


def test_a_connectors_backup_is_not_copied_among_anothers_objects(target: Store) -> None:
    """Neither has an id."""
    backup = Backup()
    backup.put("orders", 0, range(5))
    key = "topics/orders/partition=0/orders+0+0000000100.json"
    put_bytes(target, key, b"{}")

    [refused] = copied(backup.store, target, 4)["errors"]
    assert f"such as {key}" in refused["why"]
    assert [key] == [one.key for one in target.list("")]


def test_what_was_copied_before_the_backup_had_an_id_is_its_own(target: Store) -> None:
    """A connector's bucket that a sink goes on with, and that has lost an object meanwhile."""
    backup = Backup()
    store = backup.store
    backup.put("orders", 0, range(5), range(5, 9))
    copied(store, target, run="2026-11-28T100000Z-1f2e")

    identity.ensure(store, LAYOUT, "here", SystemClock().now())
    store.delete(next(iter(store.list("topics/"))).key)
    copied(store, target)
    assert 2 == len([*target.list("topics/")])


@pytest.mark.parametrize("damage", ["deleted", "altered"])
def test_what_the_source_has_lost_is_named(damage: str, source: Source, target: Store) -> None:
    """It is 7, and all else is copied; verify there names it too."""
    if damage == "deleted":
        source.store.delete(OBJECT)
    else:
        head = source.store.head(OBJECT)
        assert head is not None
        _put(source.store, OBJECT, b"altered", head.metadata)

    said = copied(source.store, target, 7)

    assert [OBJECT] == [error["key"] for error in said["errors"]]
    assert 4 == len([*target.list("topics/")])
    assert 7 == verified(target, LAYOUT).exit_code()


def test_what_the_source_has_lost_since_stays_in_the_copy(source: Source, target: Store) -> None:
    """It is named as long as the source lacks it, and the copy is whole."""
    copied(source.store, target)
    source.store.delete(OBJECT)

    copied(source.store, target, 7)

    assert 0 == verified(target, LAYOUT).exit_code()


def test_what_was_removed_on_purpose_is_not_missing(source: Source, target: Store) -> None:
    """What was accepted in the source is accepted in the copy, whether it is there or not."""
    state = backup_state.read(source.store, LAYOUT, SystemClock())
    row = state.ledger(TopicPartition("orders", 0)).objects[OBJECT]
    source.store.delete(OBJECT)
    there = topic_stream(source.store, LAYOUT, "orders", SystemClock())
    there.append(table([of_object(ACCEPTED, row, "r", 1)], OBJECTS))

    copied(source.store, target)

    assert 0 == verified(target, LAYOUT).exit_code()


def expire(store: Store, **asked: Any) -> None:
    """Expire what is in a store."""
    done = Summary(f"e-{uuid4()}", "sink expire")
    settings = load("expire", s3_bucket_name="b", yes=True, no_lock=True).settings
    run = ExpireRun(
        settings, ExpireOptions(**asked), store, LAYOUT, SystemClock(), done, Stop(), None
    )
    list(run())
    assert 0 == done.exit_code()


def test_what_the_source_keeps_after_all_is_sent_again(source: Source, target: Store) -> None:
    """The copy had deleted it because of a mark that the source has taken back since."""
    every = contents(source.store, "topics/")
    expire(source.store, max_bytes=1)
    copied(source.store, target)
    expire(target, max_bytes=1, grace=timedelta())
    assert contents(target, "topics/").keys() < every.keys()
    expire(source.store, is_undo=True)

    copied(source.store, target)

    assert every == contents(target, "topics/")
    assert 0 == verified(target, LAYOUT).exit_code()


def test_what_the_copy_has_expired_is_not_sent_again(source: Source, target: Store) -> None:
    """A copy may be kept for less time; what the source grows by, it gets."""
    copied(source.store, target)
    for _ in range(2):
        expire(target, max_bytes=1, grace=timedelta())
    left = {*contents(target, "topics/")}

    assert 0 == copied(source.store, target)["sent"]
    source.grow()
    copied(source.store, target)

    new = contents(target, "topics/").keys() - left
    assert new
    assert left | new < contents(source.store, "topics/").keys()
    assert 0 == verified(target, LAYOUT).exit_code()


def test_what_is_removed_meanwhile_is_not_missing(source: Source, target: Store) -> None:
    """The copy learns with the object's row that it was removed on purpose."""
    state = backup_state.read(source.store, LAYOUT, SystemClock())
    row = state.ledger(TopicPartition("orders", 0)).objects[OBJECT]

    class Removing(Mortal):
        def open(self, key: str) -> BinaryIO:
            if key == OBJECT:
                there = topic_stream(source.store, LAYOUT, "orders", SystemClock())
                there.append(table([of_object(ACCEPTED, row, "r", 1)], OBJECTS))
                source.store.delete(key)
            return super().open(key)

    copied(Removing(source.store), target)

    assert 0 == verified(target, LAYOUT).exit_code()


def test_an_object_that_has_grown_takes_the_place_of_itself() -> None:
    """A sink that was killed stores the same records again, and more."""
    short, long = Backup(), Backup()
    (key,) = short.put("orders", 0, range(5))
    assert [key] == long.put("orders", 0, range(9))

    target = open_store(StoreSettings(f"memory://{uuid4()}"))
    copied(short.store, target)
    copied(long.store, target)

    assert contents(long.store) == contents(target)
    copied(short.store, target, 4)
    assert contents(long.store) == contents(target)


def test_an_object_that_was_repaired_takes_the_place_of_itself() -> None:
    """It holds the same records in other bytes."""
    one, other = Backup(), Backup()
    (key,) = one.put("orders", 0, range(5))
    (again,) = other.put("orders", 0, range(5), views=SNAPPY)
    head = other.store.head(again)
    assert head is not None
    with other.store.open(again) as body:
        _put(one.store, key, body.read(), head.metadata)
    target, before = open_store(StoreSettings(f"memory://{uuid4()}")), Backup()
    before.put("orders", 0, range(5))

    copied(before.store, target)
    copied(one.store, target)

    assert contents(before.store) != contents(one.store) == contents(target)


def test_a_store_that_fails_ends_the_run(source: Source, target: Store) -> None:
    """It is 6, with nothing entered that is not there; the next run goes on."""

    class Full(Mortal):
        def put(self, key: str, body: BinaryIO, **more: Any) -> bool:
            if "orders+0+0000000014" in key:
                raise StoreError("put", "503")
            return super().put(key, body, **more)

    copied(source.store, Full(target), 6)

    assert 0 == verified(target, LAYOUT).exit_code()
    copied(source.store, target)
    assert contents(source.store) == contents(target)


@pytest.mark.parametrize("views", [RECORD, SIBLINGS], ids=["records", "siblings"])
def test_a_bucket_without_a_ledger_is_copied_between_folders(views: Any, tmp_path: Path) -> None:
    """As of a connector: what is there is what is copied, and compared when it is run again."""
    (tmp_path / "to").mkdir()
    (tmp_path / "from").mkdir()
    backup = Backup.in_folder(tmp_path / "from")
    backup.put("orders", 0, range(5), range(5, 9), views=views)
    target = open_store(StoreSettings(f"file://{tmp_path}/to"))

    first = copied(backup.store, target)
    again = copied(backup.store, target)

    assert (2 * len(views), 0) == (first["sent"], again["sent"])
    assert contents(backup.store) == contents(target)


def test_a_copy_that_follows_brings_what_is_new(source: Source, target: Store) -> None:
    """Each pass; a failure holds until a pass went well."""
    summary, stop = Summary("r", "sink copy"), Stop()
    told = iter(copy_run(source.store, target, summary, stop=stop, poll_s=0.001)())
    first = [next(told), next(told)]
    source.grow()
    then = [next(told), next(told)]
    stop.ask(15)

    assert [] == list(told)
    assert [5, 6] == [sum(to_json(row)["sent"] for row in rows) for rows in (first, then)]
    assert 143 == summary.exit_code(15)


def test_a_copy_that_follows_names_what_is_foreign_once(source: Source, target: Store) -> None:
    """However many passes see it; the summary has it as long as it is there."""
    summary, stop, passes = Summary("r", "sink copy"), Stop(), list[list[str]]()
    put_bytes(source.store, "topics/orders/README", b"hands off")
    copy = copy_run(source.store, target, summary, stop=stop, poll_s=0.0)

    def look(timeout: float | None = None) -> bool:
        passes.append([each.code for each in summary.finish().warnings])
        if len(passes) == 3:
            stop.ask(15)
        return stop.event.is_set()

    stop.event.wait = look  # type: ignore[method-assign]
    told = [event.code for event in copy() if isinstance(event, Warned)]

    assert (["foreign_object"], [["foreign_object"]] * 3) == (told, passes)


def test_a_copy_that_follows_says_each_ten_minutes_that_it_does(
    source: Source, target: Store
) -> None:
    """And at once what it has sent: a bucket with locks keeps each of these records."""
    clock, stop, put = HandClock(), Stop(), list[str]()

    class Noting(Mortal):
        def put(self, key: str, body: BinaryIO, **more: Any) -> bool:
            put.append(key)
            return super().put(key, body, **more)

    copy = copy_run(
        source.store, Noting(target), Summary("r", "sink copy"), clock=clock, stop=stop, poll_s=0.0
    )
    passes, counts = 0, list[int]()

    def look(timeout: float | None = None) -> bool:
        nonlocal passes
        passes += 1
        counts.append(sum(key.endswith("-sink-copy.json") for key in put))
        clock.pass_s(200)
        if passes == 8:
            stop.ask(15)
        return stop.event.is_set()

    stop.event.wait = look  # type: ignore[method-assign]
    list(copy())

    assert [1, 1, 1, 3, 3, 3, 5, 5] == counts


def test_two_copies_at_once_do_no_harm(source: Source, target: Store) -> None:
    """Whatever another run has done between listing and sending is found to be the same."""

    class Beside(Mortal):
        def head(self, key: str) -> ObjectHead | None:
            if key == identity.key(LAYOUT) and self.made < 10_000:
                self.made = 10_000
                copied(source.store, target)
            return super().head(key)

    copied(source.store, Beside(target))

    assert contents(source.store) == contents(target)
    assert 0 == verified(target, LAYOUT).exit_code()


def test_a_sink_may_work_meanwhile(source: Source, target: Store) -> None:
    """What it stores after the ledger was read is not entered before it is copied."""

    class Growing(Mortal):
        def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
            if prefix == "topics/" and not self.made:
                self.made = 1
                source.grow()
            return self._store.list(prefix, after=after)

    copied(Growing(source.store), target)
    assert 0 == verified(target, LAYOUT).exit_code()

    copied(source.store, target)
    assert ledger(source.store, "orders", "audit") == ledger(target, "orders", "audit")
