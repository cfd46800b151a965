"""What ``kbackup sink status`` and ``kbackup restore status`` find out."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import groups, identity
from kbackup.errors import ConfigurationError, StoreError
from kbackup.events import to_json
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.runs import history
from kbackup.runs.locks import RunLock
from kbackup.runs.status import RESTORE, ThisRestore, status
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore, put_bytes
from tests.support.ended import ended, row
from tests.support.hand_clock import HandClock
from tests.unit.catalog.test_keys import private_key, run, sinks

LAYOUT = Layout()
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = 3600.0
ROW = to_json(row(committed=10, lag=2, records=10, state="done"))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def ran(store: Store, hours_ago: float, exit_code: int = 0, **more: Any) -> str:
    """Leave the record of a run; its id."""
    run = history.new_run_id(NOW - timedelta(hours=hours_ago))
    history.write_run(store, LAYOUT, ended(run=run, exit_code=exit_code, **more))
    return run


def look(store: Store, max_age_s: float | None = None, **more: Any) -> dict[str, Any]:
    return to_json(status(store, LAYOUT, max_age_s=max_age_s, now=NOW, **more))


@pytest.mark.parametrize(
    ("past", "max_age_s", "exit_code", "age_s"),
    [
        pytest.param([(0.5, 0)], HOUR, 0, 0.5 * HOUR, id="new enough"),
        pytest.param([(1, 0)], HOUR, 0, HOUR, id="just as old as allowed"),
        pytest.param([(2, 0)], HOUR, 7, 2 * HOUR, id="too old"),
        pytest.param([(2, 0)], None, 0, 2 * HOUR, id="any age will do"),
        pytest.param([(0.5, 3)], HOUR, 0, 0.5 * HOUR, id="with skips is good"),
        pytest.param([(0.5, 5), (0.9, 0)], HOUR, 0, 0.9 * HOUR, id="one failure since"),
        pytest.param([(0.5, 5), (2, 0)], HOUR, 7, 2 * HOUR, id="only failures since"),
        pytest.param([(0.5, 143), (2, 0)], HOUR, 7, 2 * HOUR, id="stopped is not good"),
        pytest.param([(0.5, 5)], HOUR, 7, None, id="never good"),
        pytest.param([(0.5, 5)], None, 7, None, id="never good, at any age"),
        pytest.param([], HOUR, 7, None, id="never run"),
        pytest.param([(-0.05, 0)], HOUR, 0, 0.0, id="a clock three minutes ahead"),
        pytest.param([(2, 0), (-9000, 0)], HOUR, 7, 2 * HOUR, id="one a year ahead does not count"),
    ],
)
def test_a_backup_is_as_old_as_its_newest_good_run(
    store: MemoryStore,
    past: list[tuple[float, int]],
    max_age_s: float | None,
    exit_code: int,
    age_s: float | None,
) -> None:
    """The exit code is 7 exactly when there is no good run, or it started too long ago."""
    for hours_ago, code in past:
        ran(store, hours_ago, code)

    found = look(store, max_age_s)

    assert (exit_code, age_s) == (found["exit_code"], found["age_s"])
    assert (exit_code == 7) == ("outdated" in [error["code"] for error in found["errors"]])
    expected = ["run_in_future" for hours_ago, _ in past if hours_ago < -1]
    assert expected == [warning["code"] for warning in found["warnings"]]


@pytest.mark.parametrize(("past", "do"), [
    ([], "run kbackup sink; if it has run, check bucket and topics.dir"),
    ([(0.5, 5)], "see the errors of the last run, and run kbackup sink"),
])  # fmt: skip
def test_where_nothing_has_run_there_are_no_errors_to_see(
    store: MemoryStore, past: list[tuple[float, int]], do: str
) -> None:
    """What to do fits what is there."""
    for hours_ago, code in past:
        ran(store, hours_ago, code)

    (error,) = look(store)["errors"]

    assert ("no good run of kbackup sink is known for topics", do) == (error["what"], error["do"])


def test_a_success_before_many_runs_of_others_is_known() -> None:
    """The status of a sink that runs rarely costs no more for the runs of one that runs often."""
    store = FaultyStore("ok " * 9_000)
    run = ran(store, 24 * 30)
    success = ended(run=run, names=["orders"], last_success=run[:20])
    history.write_success(store, LAYOUT, success)
    for at in range(2_000):
        ran(store, at / 4, names=["audit"])
    before = len(store.calls)

    found = look(store, asked=TopicFilter(["orders"]))

    assert (0, run[:20]) == (found["exit_code"], found["last_success"])
    assert len(store.calls) - before < 400


def test_a_failed_run_remembers_the_last_good_one(store: MemoryStore) -> None:
    """After many failures the last success is found without reading them all."""
    ran(store, 3)
    for minutes in range(1, 31):
        ran(store, minutes / 60, 5, last_success="2026-11-21T09:00:00Z", partitions=[ROW])
    counted = FaultyStore("ok " * 1000, store)

    found = status(counted, LAYOUT, max_age_s=HOUR, now=NOW)

    assert "2026-11-21T09:00:00Z" == to_json(found)["last_success"]
    assert 10 <= sum(method == "open" for method, _, _ in counted.calls) <= 15


def test_partitions_are_those_of_the_newest_run_that_has_any(store: MemoryStore) -> None:
    """How far each partition is stays known when a later run ended before it looked."""
    ran(store, 3, partitions=[{**ROW, "committed": 5}])
    ran(store, 2, partitions=[ROW])
    ran(store, 1, 5)

    assert [ROW] == look(store)["partitions"]


def test_the_newest_ten_runs_are_told(store: MemoryStore) -> None:
    """Past runs are listed with their results, newest first, up to a limit."""
    told = [ran(store, hours, hours % 2 * 5) for hours in range(1, 15)]

    found = look(store)["runs"]

    assert told[:10] == [run["run"] for run in found]
    assert [5, 0] * 5 == [run["exit_code"] for run in found]


def test_only_runs_of_the_sink_count(store: MemoryStore) -> None:
    """A restore, or a look at the status, makes no backup newer."""
    ran(store, 2)
    ran(store, 1, command="restore")
    ran(store, 1, command="sink status")

    assert 2 * HOUR == look(store)["age_s"]


@pytest.mark.parametrize(
    ("names", "age_s"),
    [
        pytest.param(["orders"], 5 * HOUR, id="one of two"),
        pytest.param(["payments", "audit"], HOUR, id="the other, in another order"),
        pytest.param(["stock"], None, id="neither"),
        pytest.param([], HOUR, id="all as one"),
    ],
)
def test_two_backups_in_one_place_are_told_apart(
    store: MemoryStore, names: list[str], age_s: float | None
) -> None:
    """A cron that works does not hide another one that fails."""
    ran(store, 5, names=["orders"])
    ran(store, 2, 5, names=["orders"])
    ran(store, 1, names=["audit", "payments"])

    assert age_s == look(store, asked=TopicFilter(names))["age_s"]


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        pytest.param({}, ["orders 0", "orders 1", "payments 0"], id="all"),
        pytest.param({"names": ["orders"]}, ["orders 0", "orders 1"], id="a topic"),
        pytest.param({"pattern": "pay.*"}, ["payments 0"], id="a pattern"),
        pytest.param({"partitions": {0}}, ["orders 0", "payments 0"], id="a partition"),
        pytest.param({"names": ["orders"], "partitions": {1}}, ["orders 1"], id="both"),
    ],
)
def test_only_what_was_asked_for_is_told(
    store: MemoryStore, asked: dict[str, Any], rows: list[str]
) -> None:
    """Topics and partitions choose the rows, of a run that covered others too."""
    places = [("orders", 0), ("orders", 1), ("payments", 0)]
    partitions = [ROW | {"topic": topic, "partition": number} for topic, number in places]
    ran(store, 1, names=["orders", "payments", "pay.*"], partitions=partitions)

    told = look(store, asked=TopicFilter(**asked))["partitions"]

    assert rows == [f"{row['topic']} {row['partition']}" for row in told]


def sink(store: MemoryStore, folder: Path, run: str, **changed: Any) -> RunLock:
    named = {
        "layout": LAYOUT, "purpose": "sink", "names": ["orders"], "identity": "",
        "folder": folder, "timeout_s": 0.0, "run": run, **changed,
    }  # fmt: skip
    return RunLock(store, **named)


@pytest.mark.parametrize(
    ("names", "running"),
    [
        pytest.param([], ["r1", "r2"], id="any"),
        pytest.param(["orders"], ["r1"], id="one backup"),
        pytest.param(["stock"], [], id="another"),
    ],
)
def test_a_running_sink_is_seen(
    store: MemoryStore, tmp_path: Path, names: list[str], running: list[str]
) -> None:
    """Sinks that are running are listed; restores and other folders do not count."""
    with (
        sink(store, tmp_path, "r1"),
        sink(store, tmp_path, "r2", names=["payments"]),
        sink(store, tmp_path, "r3", purpose="restore"),
        sink(store, tmp_path, "r4", layout=Layout("other")),
    ):
        found = status(
            store, LAYOUT, max_age_s=None, now=datetime.now(UTC), asked=TopicFilter(names)
        )

    assert running == sorted(one.run for one in found.facts["running"])


@pytest.mark.parametrize("forged", ['"names":5', '"names":[{}]', '"run":[]'])
def test_a_lock_that_no_run_has_written_is_passed_over(store: MemoryStore, forged: str) -> None:
    """What it says in another type than a run does is not known."""
    body = f'{{"purpose":"restore","topics_dir":"{LAYOUT.topics_dir}",{forged}}}'
    put_bytes(store, f"_kbackup/locks/{'0' * 32}", body.encode())

    of = ThisRestore(["g"], "l")
    found = status(store, LAYOUT, of=RESTORE, max_age_s=None, now=datetime.now(UTC), restore=of)

    assert [] == found.facts["running"]


def test_a_stale_lock_is_no_running_sink(store: MemoryStore, tmp_path: Path) -> None:
    """A sink that has been silent for five minutes is not called running."""
    with sink(store, tmp_path, "r1"):
        later = datetime.now(UTC) + timedelta(minutes=6)
        found = status(store, LAYOUT, max_age_s=None, now=later)

    assert [] == found.facts["running"]


def test_status_is_a_summary(store: MemoryStore) -> None:
    """What status says can be read as the summary of any command, and is plain JSON."""
    ran(store, 2, partitions=[ROW])

    found = json.loads(json.dumps(look(store, HOUR)))

    assert ("summary", 1, "sink status", "failed", 7) == tuple(
        found[name] for name in ("type", "v", "command", "result", "exit_code")
    )
    assert "2:00:00 ago" in found["errors"][0]["what"]


def test_status_writes_nothing(store: MemoryStore) -> None:
    """Asking for the status leaves the bucket as it was."""
    ran(store, 2, partitions=[ROW])
    put_bytes(store, "_kbackup/runs/2026-11-21T115900Z-0000-sink.json", b"")
    before = [(entry.key, entry.etag) for entry in store.list("")]

    look(store, HOUR)

    assert before == [(entry.key, entry.etag) for entry in store.list("")]


def test_a_store_that_fails_is_no_empty_backup(store: MemoryStore) -> None:
    """That nothing can be known is an error of the store, not a bad backup."""
    with pytest.raises(StoreError):
        status(FaultyStore("503", store), LAYOUT, max_age_s=HOUR, now=NOW)


# Restores


def put_back(store: MemoryStore, hours_ago: float, group: str = "standby", **more: Any) -> str:
    """Leave the record of a restore; its id."""
    return ran(store, hours_ago, command="restore", group=group, **more)


def of_group(name: str) -> ThisRestore:
    """The restores that a person names by their group."""
    return ThisRestore([name], name, is_configured=False)


def test_a_restore_is_as_old_as_what_it_has_put_back(store: MemoryStore) -> None:
    """One that follows says so itself; a sink's success, however new, is none of a restore."""
    ran(store, 0.1)
    put_back(store, 5, last_success="2026-11-21T11:00:00Z", partitions=[ROW], exit_code=143)

    found = look(store, 0.5 * HOUR, of=RESTORE)

    assert (7, HOUR, [ROW]) == (found["exit_code"], found["age_s"], found["partitions"])
    assert (
        "the restore is known to hold only what was in the bucket 1:00:00 ago"
        == (found["errors"][0]["what"])
    )
    assert 0 == look(store, 2 * HOUR, of=RESTORE)["exit_code"]


@pytest.mark.parametrize(
    ("how", "asked", "exit_code"),
    [
        pytest.param("key", "standby.3", 0, id="of a partition"),
        pytest.param("key", "standby", 0, id="of the restore"),
        pytest.param("key", "standby.x", 7, id="of something else"),
        pytest.param("key", "other.3", 7, id="of another restore"),
        pytest.param("same", "standby.3", 7, id="without a map"),
        pytest.param(None, "standby.3", 7, id="by an earlier version"),
    ],
)
def test_a_partition_maps_groups_are_those_of_its_restore(
    store: MemoryStore, how: str | None, asked: str, exit_code: int
) -> None:
    """The group of any partition, as ``kafka-consumer-groups`` lists it, finds the restore."""
    put_back(store, 0.1, partition_map=how)

    found = look(store, HOUR, of=RESTORE, restore=of_group(asked))

    assert exit_code == found["exit_code"]


def test_restores_into_two_clusters_do_not_stand_for_each_other(store: MemoryStore) -> None:
    """Where restores of several groups have run, one of them has to be named."""
    one = put_back(store, 0.1)
    two = put_back(store, 3, group="drill", partitions=[ROW | {"target": "copy"}])

    with pytest.raises(
        ConfigurationError, match=rf"found: standby \({one}\); drill \({two}, copy\)"
    ):
        look(store, HOUR, of=RESTORE)
    found = [
        look(store, HOUR, of=RESTORE, restore=of_group(group))
        for group in ("standby", "drill", "none")
    ]

    assert [0, 7, 7] == [one["exit_code"] for one in found]


@pytest.mark.parametrize(
    ("target", "exit_code"),
    [
        pytest.param("a:9092", 0, id="the one"),
        pytest.param("c:9092, b:9092", 7, id="the other, by a broker of several"),
        pytest.param("new:9092", 7, id="one that none was into"),
    ],
)
def test_two_standbys_that_share_a_group_are_told_apart_by_their_brokers(
    store: MemoryStore, target: str, exit_code: int
) -> None:
    """One configuration may serve both, with -k; where nothing says which, none is guessed."""
    put_back(store, 0.1, target="a:9092")
    put_back(store, 3, target="b:9092,b2:9092")

    found = look(
        store, HOUR, of=RESTORE, restore=ThisRestore(["standby"], "standby", target=target)
    )

    assert exit_code == found["exit_code"]
    with pytest.raises(ConfigurationError, match="into 2 clusters were found: a:9092; b:9092"):
        look(store, HOUR, of=RESTORE, restore=of_group("standby"))


CONFIGURED = ThisRestore(["standby", "before-the-id"], "restore|x")


@pytest.mark.parametrize(
    ("asked", "more", "exit_code"),
    [
        pytest.param(TopicFilter(), {}, 0, id="all topics"),
        pytest.param(TopicFilter(["a", "b"]), {"names": ["a", "b"]}, 0, id="several topics"),
        pytest.param(
            TopicFilter(["a", "b"]), {"names": ["a"]}, 7, id="of which only some were restored"
        ),
        pytest.param(
            TopicFilter(), {"names": ["a"]}, 7, id="all topics, of which one was restored"
        ),
        pytest.param(TopicFilter(), {"only_partitions": [0]}, 7, id="not all partitions"),
        pytest.param(TopicFilter(), {"partition_map": "key"}, 0, id="partition map"),
        pytest.param(
            TopicFilter(), {"group": "before-the-id"}, 0, id="begun before the backup's id"
        ),
        pytest.param(TopicFilter(), {"group": "drill"}, 7, id="never run"),
    ],
)
def test_the_restore_of_a_configuration_is_looked_at_alone(
    store: MemoryStore, asked: TopicFilter, more: dict[str, Any], exit_code: int
) -> None:
    """What others have restored from the bucket, later and well, does not count."""
    put_back(store, 0.5, **more)
    put_back(store, 0.1, group="other")

    found = look(store, HOUR, of=RESTORE, restore=CONFIGURED, asked=asked)

    assert exit_code == found["exit_code"]


def test_a_restore_that_has_never_run_says_which_have(store: MemoryStore) -> None:
    """Its group is named, since it follows from options; so is what has run in its place."""
    put_back(store, 0.1, group="other")
    put_back(store, 0.1, names=["a"])

    (error,) = look(store, HOUR, of=RESTORE, restore=CONFIGURED)["errors"]

    assert "no good run of kbackup restore is known for topics with group standby" == error["what"]
    assert "restores there are of other, standby for a" == error["why"]
    assert "--of-group" in error["do"]


@pytest.mark.parametrize(
    ("names", "restore", "running"),
    [
        pytest.param("restore|x", CONFIGURED, ["r1"], id="its options"),
        pytest.param("other", CONFIGURED, [], id="another"),
        pytest.param("restore|x", of_group("other"), [], id="another group"),
    ],
)
def test_a_running_restore_is_known_by_what_it_was_given(
    store: MemoryStore, tmp_path: Path, names: str, restore: ThisRestore, running: list[str]
) -> None:
    """Its lock holds no group that follows from options."""
    now = datetime.now(UTC)
    with sink(store, tmp_path, "r1", purpose="restore", names=[names]):
        found = status(store, LAYOUT, max_age_s=None, now=now, of=RESTORE, restore=restore)

    assert running == [each.run for each in found.facts["running"]]


def test_no_key_is_needed(store: MemoryStore, tmp_path: Path) -> None:
    """A host that only watches has none; captures alone are encrypted, and are not shown."""
    identity.ensure(store, LAYOUT, "here", NOW)
    sealed = run(sinks(tmp_path, private_key(tmp_path / "one")), store)
    clock = HandClock(NOW.timestamp() * 1000)
    groups.group_stream(sealed, LAYOUT, clock).append(groups.GROUPS.schema.empty_table())
    ran(store, 0.5)

    found = look(store)

    assert (0, 0.5 * HOUR, ["no_key"]) == (
        found["exit_code"], found["age_s"], [one["code"] for one in found["warnings"]]
    )  # fmt: skip
    assert not {"captures", "access_kept"} & found.keys()
    assert {"last_drill", "proofs"} <= found.keys()


@pytest.mark.parametrize(("past", "listings"), [(12, 1), (3, 2)])
def test_run_records_are_listed_once(past: int, listings: int) -> None:
    """For the last runs and what was verified; where few ran of late, older ones are asked for."""
    store = FaultyStore("ok " * 1_000)
    for hours_ago in range(1, past + 1):
        history.write_run(
            store, LAYOUT,
            ended(run=history.new_run_id(NOW - timedelta(hours=hours_ago)), exit_code=0,
                  partitions=[ROW]),
        )  # fmt: skip
    begun = len(store.calls)

    found = look(store)

    assert (0, min(past, 10)) == (found["exit_code"], len(found["runs"]))
    asked = [key for method, key, _ in store.calls[begun:] if method == "list"]
    assert listings == len([key for key in asked if key.startswith("_kbackup/runs/")])
