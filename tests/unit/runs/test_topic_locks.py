"""Which topics a run works on, where others were asked for them in other words."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kbackup.errors import TopicsLockedError
from kbackup.runs.locks import STALE_S, RunLock
from kbackup.stores import ObjectHead, StoredObject, StoreSettings, open_store
from tests.support.locking import LAYOUT, ClockedStore, Clocks, crash

Make = Callable[..., RunLock]


def test_topics_of_another_live_run_are_left_to_it(lock: Make) -> None:
    """A sink by name beside one by pattern backs up what the other does not."""
    with lock("r1", names=["t.*"]) as first, lock("r2", "there", names=["t1", "u"]) as second:
        begun, left = first.claim(["t1", "t2"]), second.claim(["t1", "u"])
        later = first.claim(["u", "t3"])

    assert ({}, ["t1"], ["r1"]) == (begun, [*left], [one.body["run"] for one in left.values()])
    assert ["u"] == [*later]


def test_topics_are_free_again_when_the_other_run_has_ended(lock: Make) -> None:
    """What was left to another run is taken as soon as that one is over."""
    with lock("r2", "there", names=["t1"]) as second:
        with lock("r1", names=["t.*"]) as first:
            first.claim(["t1"])
            before = second.claim(["t1"])
        after = second.claim(["t1"])

    assert (["t1"], {}) == ([*before], after)


def test_a_run_whose_topics_are_all_taken_is_told_so(lock: Make) -> None:
    """A run that could do nothing ends with exit code 8, and names the run that works on them."""
    with lock("r1", names=["t.*"]) as first, lock("r2", "there", names=["t1"]) as second:
        first.claim(["t1", "t2"])

        with pytest.raises(TopicsLockedError, match=r"run r1 .*: t1") as raised:
            second.claim_some(["t1"])

    assert 8 == raised.value.exit_code


def test_it_waits_as_long_as_it_was_told(lock: Make, clocks: Clocks) -> None:
    """``lock.timeout`` holds for topics too."""
    with lock("r2", "there", names=["t1"], timeout_s=600.0) as second:
        first = lock("r1", names=["t.*"])
        first.__enter__()
        first.claim(["t1"])
        clocks.while_asleep = lambda: first.__exit__(None, None, None)

        assert {} == second.claim_some(["t1"])


def test_a_dead_run_keeps_no_topic(lock: Make, clocks: Clocks) -> None:
    """On the same host a dead run is known at once, on another one by its silence."""
    crash(lock("r1", names=["t.*"])).claim(["t1", "t2"])

    with lock("r2", names=["t1"]) as here, lock("r3", "there", names=["t2"]) as there:
        at_once, still = here.claim(["t1"]), there.claim(["t2"])
        clocks.pass_by(STALE_S + 1)
        later = there.claim(["t2"])

    assert ({}, ["t2"], {}) == (at_once, [*still], later)


def test_a_run_that_slept_learns_that_its_topics_are_anothers(lock: Make, clocks: Clocks) -> None:
    """Whoever wakes up after minutes has lost the topics that another run took meanwhile."""
    with lock("r1", names=["t.*"]) as asleep, lock("r2", "there", names=["t1"]) as awake:
        asleep.claim(["t1", "t2"])
        clocks.pass_by(STALE_S + 1)
        awake.beat()
        taken = awake.claim(["t1"])
        asleep.beat()

    assert ({}, True, False) == (taken, asleep.is_lost, awake.is_lost)


def test_restores_locks_are_no_sinks_locks(lock: Make) -> None:
    """A restore of a topic keeps no sink from backing it up."""
    with lock("r1", names=["t1"], purpose="restore") as first, lock("r2", "there") as second:
        first.claim(["t1"])

        assert {} == second.claim(["t1"])


def test_a_heartbeat_keeps_what_is_claimed(lock: Make, store: ClockedStore) -> None:
    """A lock that was refreshed names its topics still."""
    with lock("r1", names=["t.*"]) as first, lock("r2", "there", names=["t1"]) as second:
        first.claim(["t1"])
        first.beat()

        assert ["t1"] == [*second.claim(["t1"])]


class Counted(ClockedStore):
    """Counts what it is asked."""

    asked = 0

    def head(self, key: str) -> ObjectHead | None:
        """Count a question."""
        self.asked += 1
        return super().head(key)

    def put(self, key: str, *args: Any, **named: Any) -> bool:
        """Count a write."""
        self.asked += 1
        return super().put(key, *args, **named)

    def open(self, key: str) -> BinaryIO:
        """Count a read."""
        self.asked += 1
        return super().open(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Count a listing."""
        self.asked += 1
        return super().list(prefix, after=after)


def test_a_claim_costs_as_much_for_many_topics_as_for_one(lock: Make, clocks: Clocks) -> None:
    """A lock names them all, so neither a run nor the one beside it asks for each."""
    asked = []
    for topics in (2, 2000):
        store = Counted(clocks)
        with lock("r1", store=store) as first, lock("r2", "there", names=["u"], store=store) as at:
            store.asked = 0
            first.claim([f"t{number}" for number in range(topics)])
            left = at.claim([f"t{number}" for number in range(topics)])
            first.beat()
            asked.append(store.asked)
        assert topics == len(left)

    assert asked[0] == asked[1] < 40


@pytest.mark.parametrize("attempt", range(5))
def test_of_two_that_claim_at_once_exactly_one_wins(attempt: int, tmp_path: Path) -> None:
    """Of runs that begin at the same moment each topic goes to one at most, and all to somebody."""
    place = tmp_path / "store"
    place.mkdir()
    gate, won = threading.Barrier(2), dict[str, list[str]]()

    def contend(run: str, name: str, topics: list[str]) -> None:
        mine = RunLock(
            open_store(StoreSettings(place.as_uri())), LAYOUT, "sink", [name], identity="x",
            folder=tmp_path / run, timeout_s=0.0, run=run,
        )  # fmt: skip
        with mine:
            gate.wait(60)
            left = mine.claim(topics)
            won[run] = [topic for topic in topics if topic not in left]
            gate.wait(60)

    runs = [("r1", f"a{attempt}", ["t1", "t2"]), ("r2", f"b{attempt}", ["t2", "t3"])]
    threads = [threading.Thread(target=contend, args=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert ["t1", "t2", "t3"] == sorted([*won["r1"], *won["r2"]])
