"""A recovery that is rehearsed: compared, measured, and gone afterwards, on a real cluster."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup
from tests.support.running import ended, running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

DRILL: Final = ("restore", "drill")


@pytest.fixture
def stored(kbackup: Kbackup, cluster: TestCluster, topic: str) -> str:
    """A topic of two partitions that was backed up, in which a group stood; the group."""
    cluster.create(topic, 2)
    for partition in range(2):
        cluster.write(topic, varied(300, partition), partition)
    cluster.commit(group := f"billing-{topic}", topic, 120, "beside")
    kbackup.json("sink", "-t", topic, "--flush-size", "100")
    return group


def scratch(cluster: TestCluster) -> set[str]:
    """The topics and groups of drills that are there."""
    admin: Any = cluster.admin
    groups = admin.list_consumer_groups().result().valid
    names = {*admin.list_topics(timeout=10).topics, *(each.group_id for each in groups)}
    return {name for name in names if name.startswith("drill_")}


def kept(backup: Backup) -> list[str]:
    """What the bucket holds of what drills have in the cluster."""
    prefix = "_kbackup/"
    return [
        key for key in backup.keys(prefix) if "/scratch/" in key or "/restores/" in key
        or "/applied/" in key or "-restore" in key
    ]  # fmt: skip


def test_a_drill_compares_every_record_and_leaves_nothing(
    kbackup: Kbackup,
    cluster: TestCluster,
    topic: str,
    stored: str,
    backup: Backup,
    tmp_path: Path,
) -> None:
    """All records, the group, times of all phases, a report in the bucket, and metrics of it."""
    metrics = str(tmp_path / "drill.prom")
    words = ("--rto", "1h", "--rpo", "1h", "--metrics-file", metrics)
    done = kbackup.json(*DRILL, "-t", topic, *words)

    report = done.summary["drill"]
    assert (0, 600, 0) == (
        done.summary["exit_code"],
        sum(each["records"] for each in report["topics"]),
        sum(each["differences"] for each in report["topics"]),
    )
    assert [(stored, True)] == [(each["group"], each["is_equal"]) for each in report["groups"]]
    phases = ["plan", "creation", "restore", "groups", "comparison", "clean-up"]
    assert phases == [*report["seconds"]]
    assert 1 == done.summary["deleted"]
    assert (set(), []) == (scratch(cluster), kept(backup))
    (key,) = [key for key in backup.keys("_kbackup/drills/") if key.endswith(".json")]
    said = json.loads(backup.body(key))
    assert {**report, "previous": said["previous"]} == said
    lines = Path(metrics).read_text().splitlines()
    shown = {
        line.partition("{")[0].removeprefix("kbackup_last_drill_"): float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("kbackup_last_drill_")
    }
    ended = report["ended_ms"] // 1000
    assert (0, ended, ended) == (
        shown["exit_code"], shown["timestamp_seconds"], shown["passed_timestamp_seconds"]
    )  # fmt: skip
    assert [report["rto_s"], said["ages"][0]["rpo_s"] > 0] == [
        shown["rto_seconds"], shown["rpo_seconds"] > 0
    ]  # fmt: skip


def test_a_recovery_that_takes_too_long_is_a_failure(
    kbackup: Kbackup, cluster: TestCluster, topic: str, stored: str, backup: Backup
) -> None:
    """Exit 7, with a report, and no topic left, of a sample too."""
    words = (*DRILL, "-t", topic, "--rto", "100ms")
    done = kbackup.json(*words, "--sample", "1KiB", expect=7)

    report = done.summary["drill"]
    assert ["drill"] == [each["code"] for each in done.summary["errors"]]
    assert (7, False) == (report["exit_code"], report["topics"][0]["is_whole"])
    assert 0 < report["topics"][0]["records"] < 600
    assert report["rto_whole_s"] > report["rto_s"] > 0.1
    assert (set(), []) == (scratch(cluster), kept(backup))


def test_damage_is_a_failure_and_leaves_nothing(
    kbackup: Kbackup, cluster: TestCluster, topic: str, stored: str, backup: Backup
) -> None:
    """One object that is altered: exit 7, with a report."""
    key = sorted(key for key in backup.keys("topics/") if topic in key)[1]
    body = bytearray(backup.body(key))
    body[len(body) // 2] ^= 0xFF
    backup.client.put_object(Bucket=backup.bucket, Key=key, Body=bytes(body))

    done = kbackup.json(*DRILL, "-t", topic, expect=7)

    assert 7 == done.summary["drill"]["exit_code"]
    assert done.summary["drill"]["issues"]
    assert (set(), []) == (scratch(cluster), kept(backup))


def test_a_sink_of_all_topics_backs_up_none_of_a_drill(
    kbackup: Kbackup, cluster: TestCluster, topic: str, stored: str, backup: Backup
) -> None:
    """One that follows beside the drill, and one that begins meanwhile; neither is disturbed."""
    pattern = f"drill_.*|{topic}"
    follow = ("sink", "--topics-regex", pattern, "--follow", "--json", "--rotate-idle-ms", "500")
    with running(kbackup, *follow) as sink:
        sink.wait_for("start")
        with running(kbackup, *DRILL, "-t", topic, "--json") as drill:
            wait_until(lambda: scratch(cluster), "a topic of the drill")
            drill.signal_all(signal.SIGSTOP)  # or it may be over before the sink has looked
            once = kbackup.json("sink", "--topics-regex", pattern, "--group", "other", "--no-lock")
            drill.signal_all(signal.SIGCONT)
            found = drill.finish(300)
        cluster.write(topic, varied(10, 7))
        wait_until(lambda: cluster.committed("other", topic), "positions")
        sink.signal(15)
        followed = sink.finish()

    assert (0, 143) == (found.code, followed.code), f"{found.stderr}{followed.stderr}"
    assert once.of("start")[0]["drills"]
    assert {topic} == {key.split("/")[1] for key in backup.keys("topics/")}
    assert set() == scratch(cluster)


def names_stored(_cluster: TestCluster, backup: Backup) -> object:
    """Nothing is created yet."""
    return [key for key in backup.keys("_kbackup/drills/") if "/scratch/" in key]


def topics_there(cluster: TestCluster, _backup: Backup) -> object:
    """They are empty."""
    return scratch(cluster)


def records_there(cluster: TestCluster, _backup: Backup) -> object:
    """Some are written."""
    topics = cluster.admin.list_topics(timeout=10).topics
    return [name for name in topics if name.startswith("drill_") and any(cluster.end_offsets(name))]


def groups_there(cluster: TestCluster, _backup: Backup) -> object:
    """One is set, beside that of the positions."""
    return [name for name in scratch(cluster) if "billing" in name]


def groups_set(_cluster: TestCluster, backup: Backup) -> object:
    """It compares, or is about to."""
    return [key for key in backup.keys("_kbackup/groups/") if "/applied/" in key]


@pytest.mark.crash
@pytest.mark.parametrize(
    "phase",
    [
        topics_there,
        groups_there,
        *(
            pytest.param(phase, marks=pytest.mark.nightly)
            for phase in (names_stored, records_there, groups_set)
        ),
    ],
)
def test_what_a_killed_drill_left_the_next_one_deletes(
    phase: Callable[[TestCluster, Backup], object], kbackup: Kbackup, cluster: TestCluster,
    topic: str, stored: str, backup: Backup,
) -> None:  # fmt: skip
    """In whatever phase it was killed; a topic of others that is called alike stays."""
    foreign = f"drill_{topic}"
    cluster.create(foreign)
    cluster.write(foreign, [Record(None, b"of others")])
    with running(kbackup, *DRILL, "-t", topic) as drill:
        wait_until(
            lambda: drill.is_over or {*phase_of(phase, cluster, backup)} - {foreign}, "the phase"
        )
        assert not drill.is_over
        drill.kill_group()

    done = ended(kbackup, *DRILL, "-t", topic, "--json")

    assert 0 == done.summary["exit_code"]
    assert ({foreign}, []) == (scratch(cluster), kept(backup))
    assert [1] == cluster.end_offsets(foreign)
    cluster.delete(foreign)


def phase_of(
    phase: Callable[[TestCluster, Backup], object], cluster: TestCluster, backup: Backup
) -> list[object]:
    """What shows that a phase has begun."""
    found = phase(cluster, backup)
    return [*found] if isinstance(found, list | set) else [found] if found else []
