"""A restore that is no faster than asked for."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from backup_samples import JSON, RECORD
from hypothesis import given
from hypothesis import strategies as st

from kbackup.kafka import KafkaSettings
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.restore import transaction
from kbackup.restore.job import RestoreJob
from kbackup.restore.task import RestorePartitionTask
from kbackup.restore.transaction import FIRST_BYTES, TRANSACTION_BYTES, RateLimit, next_limit
from tests.support.fakes import SilentLine
from tests.support.target import MARKER, FakeWriter, Restoring


@dataclass
class Time:
    """A clock that only waiting moves."""

    now: float = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.now += seconds


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), min_size=1, max_size=30))
def test_what_is_written_takes_its_time(batches: list[tuple[int, int]]) -> None:
    """Neither rate limit is exceeded, however records arrive."""
    time = Time()
    found = RateLimit(10, 1000, writers=2, steady_s=time, sleep=time.sleep)
    records = size = 0

    for more, its_size in batches:
        found.wait(more, its_size, lambda: False)
        assert records <= 10 / 2 * (time.now - 100) + 1e-6
        assert size <= 1000 / 2 * (time.now - 100) + 1e-6
        records, size = records + more, size + its_size


def test_a_stop_is_not_waited_for() -> None:
    """A task that waits for its rate limit stops at once."""
    time = Time()
    found = RateLimit(1, steady_s=time, sleep=time.sleep)
    found.wait(10_000, 1, lambda: False)

    found.wait(1, 1, lambda: time.now >= 101)

    assert 101 == time.now


@pytest.mark.parametrize("views", [RECORD, JSON], ids=["record", "values"])
def test_records_are_written_in_portions_that_are_committed_in_time(
    views: tuple[ViewSpec, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record once and in order, and no transaction that waits comes near its timeout."""
    time, longest = Time(), [0.0]
    for module in ("task", "transaction"):
        monkeypatch.setattr(f"kbackup.restore.{module}.monotonic", time)
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(100), range(100, 200), views=views)
    restoring.cluster.create_topic("copy_of_orders", 1, 1, {})
    plan = restoring.plan()
    (unit,) = plan.units()
    job = RestoreJob("r", KafkaSettings("-"), restoring.backup.settings, ReadOptions(), plan.group)
    own = RateLimit(records=2, steady_s=time, sleep=time.sleep)
    work = RestorePartitionTask(job, unit, restoring.store, SilentLine(), own)
    writer: Any = FakeWriter(restoring.cluster, plan.group, unit.target)
    commit = work._commit

    def timed() -> None:
        if work._out.records:
            longest[0] = max(longest[0], time.now - work._out.begun)
        commit()

    monkeypatch.setattr(RestorePartitionTask, "_commit", lambda _: timed())

    work.run(writer)

    assert [b'{"n":%d}' % at for at in range(200)] == restoring.cluster.values("copy_of_orders")
    assert 95 <= time.now - 100 <= 105
    assert 0 < longest[0] <= transaction.OPEN_S + 1
    rows = next(iter(restoring.cluster.logs.values())).rows
    assert work.report.done.commits == sum(row is MARKER for row in rows)


def test_tasks_share_the_limits_of_a_run() -> None:
    """Each knows how many of them work at the same time; without a limit nothing changes."""
    restoring = Restoring()
    for partition in range(5):
        restoring.backup.put("orders", partition, range(3))
    plan = restoring.plan()
    job = RestoreJob("r", KafkaSettings("-"), restoring.backup.settings, ReadOptions(), plan.group)
    limited = replace(job, max_bytes_per_second=1000)

    shares = transaction.task_options(limited)["deal"](plan.units(), 2)

    assert {2} == {unit.writers for share in shares for unit in share}
    assert [3, 2] == [len(share) for share in shares]
    assert {1} == {
        unit.writers for unit in transaction.task_options(job)["deal"](plan.units(), 1)[0]
    }


# how much is committed at once


def test_transactions_grow_while_the_cluster_is_quick() -> None:
    """Transactions grow from a few small ones to the size that costs least."""
    limits = [FIRST_BYTES]
    for _ in range(4):
        limits.append(next_limit(limits[-1], 1.0))

    assert limits == sorted(limits)
    assert [TRANSACTION_BYTES] * 2 == limits[-2:]


@pytest.mark.parametrize("bytes_per_s", [20_000, 100_000, 1_000_000, 50_000_000])
def test_a_slow_cluster_gets_transactions_that_end_in_time(bytes_per_s: int) -> None:
    """From the second one on, none comes near the five minutes after which it would be aborted."""
    limit, seconds = FIRST_BYTES, []
    for _ in range(20):
        seconds.append(limit / bytes_per_s)
        limit = next_limit(limit, seconds[-1])

    assert max(seconds[2:]) < 150
