"""``kill -9`` at any moment, and what must hold after it."""

import os
import random
import time
from collections.abc import Callable

from tests.support.in_process import WITHOUT_SPARK
from tests.support.running import Running, wait_until

KILLS = int(os.environ.get("CRASH_KILLS", "5"))
"""In each test of the night; the gate kills less often, and simulation at every moment."""
GATES_KILLS = min(KILLS, 3)


def kill_somewhen(command: Running, chance: random.Random, at_work: Callable[[], object]) -> bool:
    """Kill the whole group at a random moment; False where it was over before.

    One kill in four comes while the command starts, one at the first sign of work, the others
    later; without Spark, which takes seconds to start and to end, all come sooner.
    """
    pace = 0.2 if command.kbackup.module == WITHOUT_SPARK else 1.0
    kind = chance.choice(("start", "first sign", "work", "work"))
    if kind == "start":
        wait_s = pace * chance.uniform(0.5, 6)
    else:
        wait_until(lambda: command.is_over or at_work(), "work")
        wait_s = chance.uniform(0, 0.1) if kind == "first sign" else pace * chance.expovariate(1.0)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not command.is_over:
        time.sleep(0.005)
    if command.is_over:
        return False
    command.kill_group()
    return True


def kill_workers(command: Running) -> int:
    """Kill the Python workers of Spark; return how many there were."""
    workers = command.workers()
    for worker in workers:
        worker.kill()
    return len(workers)


def shows_what_is_safe(command: Running, committed: list[int]) -> bool:
    """Whether no progress line went beyond what is committed."""
    return all(
        line["committed"] is None or line["committed"] <= max(0, committed[line["partition"]])
        for line in command.of("progress")
    )
