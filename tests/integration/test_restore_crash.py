"""A restore killed at any moment writes nothing twice, and leaves nothing out."""

import functools
import itertools
import random

import pytest

from tests.support.cluster import TestCluster
from tests.support.killing import (
    GATES_KILLS,
    KILLS,
    kill_somewhen,
    kill_workers,
    shows_what_is_safe,
)
from tests.support.large import Large
from tests.support.running import ended, running

pytestmark = [pytest.mark.integration, pytest.mark.crash]

_NUMBER = itertools.count()


_NIGHTS_KILLS = 10
"""In each of the three tests of the night whose backup is spread over directories: 30 in all."""


@pytest.mark.parametrize(
    ("seed", "backup", "kills_due"),
    [
        pytest.param(0, "large", GATES_KILLS, marks=pytest.mark.one_process),
        pytest.param(1, "large", KILLS, marks=pytest.mark.nightly),
        pytest.param(7, "large_in_batches", GATES_KILLS, marks=pytest.mark.one_process),
        pytest.param(
            8, "large_in_batches", 50, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]
        ),
        *(
            pytest.param(seed, "large_in_directories", _NIGHTS_KILLS, marks=pytest.mark.nightly)
            for seed in (4, 5, 6)
        ),
    ],
)
def test_a_restore_killed_again_and_again_delivers_every_record_once(
    seed: int, backup: str, kills_due: int, cluster: TestCluster, request: pytest.FixtureRequest
) -> None:
    """The same command goes on, and a reader sees each record once, in order of its directory."""
    large: Large = request.getfixturevalue(backup)
    if request.node.get_closest_marker("one_process") is not None:
        large = large.in_one_process()
    chance = random.Random(seed)
    kills = 0
    while kills < kills_due:
        prefix = f"crash_{next(_NUMBER)}_of_"
        target = f"{prefix}{large.topic}"
        while kills < kills_due:
            by_batches = large.is_noise and chance.random() < 0.7
            words = large.restore(prefix, by_batches=by_batches)
            with running(large.kbackup, *words) as command:
                before = cluster.end_offsets(target)
                moved = functools.partial(_has_moved, cluster, target, before)
                if not kill_somewhen(command, chance, moved):
                    assert 0 == command.finish().code, command.finish()
                    break
                kills += 1
                command.leave_nothing()
            for start in command.of("start"):
                committed = cluster.committed(start["group"], target, range(large.partitions))
                assert shows_what_is_safe(command, committed)
        else:
            ended(large.kbackup, *words)
        assert large.restored(cluster, target)
        cluster.delete(target)


def _has_moved(cluster: TestCluster, topic: str, before: list[int]) -> bool:
    return sum(cluster.end_offsets(topic)) != sum(before)


def test_a_restore_outlives_its_python_workers(cluster: TestCluster, large: Large) -> None:
    """Killed workers are replaced: transactions are aborted, retries go on, each counts once."""
    prefix = f"crash_{next(_NUMBER)}_of_"

    with running(large.kbackup, *large.restore(prefix)) as command:
        command.wait_for("progress", 2)
        killed = kill_workers(command)
        result = command.finish()

    assert (0, True) == (result.code, killed > 0), result.stdout
    assert large.partitions * large.count == result.summary["records"]
    assert large.restored(cluster, f"{prefix}{large.topic}")


@pytest.mark.nightly
def test_a_dead_driver_of_a_restore_leaves_no_orphans(large: Large) -> None:
    """A worker in the middle of a transaction ends with its driver."""
    with running(large.kbackup, *large.restore("orphan_of_")) as command:
        command.wait_for("progress")
        command.process.kill()
        command.process.wait()

        command.leave_nothing()
