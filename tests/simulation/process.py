"""A run as the world sees it: a row of requests that may meet a fault, a kill or another run."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from tests.simulation.determinism import Clock, SerialBeats
from tests.simulation.product import Event, TaskChannel, deal, to_json

REQUESTS_MAX = 20_000
"""A run that asks more often than this goes round in circles."""

CORES = 2


class KilledError(BaseException):
    """The process is dead: nothing that comes after this point happens.

    Attributes:
        is_now: Whether this is the request it died at, and not one that its ruins make.
    """

    def __init__(self, *, is_now: bool = False) -> None:
        super().__init__()
        self.is_now = is_now


@dataclass
class Script:
    """What befalls a run, by the number of its request, counted from 1."""

    dies_at: int = 0  # the request that is its last; 0 for none
    worker_dies_at: int = 0  # the same of its worker, which Spark replaces; 0 for none
    dies_before: str = ""  # the kind of request that it dies at, the first time; empty for none
    # whether its PUTs in the place of other objects get no answer and land later
    is_slow: bool = False
    turns: int = 0  # how often a task that follows looks at the cluster before it is asked to stop
    # ``fail``: refused; ``lost``: done, but the answer is lost; ``late``: no answer, and done
    # later, if at all
    faults: Mapping[int, str] = field(default_factory=dict)
    # what others do just before a request
    events: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    cores: int = CORES  # tasks that Spark runs at a time


class Process:
    """One run.

    Attributes:
        fetched: Partition and offset of the records that it has read.
        sent: Those of the records of all objects that it wanted to store.
        apart: By how much the clock of its host is wrong.
    """

    def __init__(self, name: str, rng: Random, clock: Clock, script: Script) -> None:
        self.name, self.rng, self.clock, self.script = name, rng, clock, script
        self.requests = 0
        self.apart = timedelta()
        self.of_kind: dict[str, int] = {}
        self.fetched: set[Any] = set()
        self.sent: set[Any] = set()
        self.is_dead = self.is_in_task = self.has_no_worker = False
        self.turn: Callable[[], None] = lambda: None
        self.pause: Callable[[], None] = lambda: None
        self.on_request: Callable[[], None] = lambda: None
        self.on_wait: Callable[[], None] = lambda: None

    def request(self, kind: str) -> str:
        """Make a request; return what it meets.

        Raises:
            KilledError: If the process, or its worker, is dead now.
        """
        if self.is_dead or self.has_no_worker:
            raise KilledError
        self.pause()
        self.turn()
        self.clock.apart = self.apart
        if self.is_dead:  # killed by another task of its own meanwhile
            raise KilledError
        self.requests += 1
        self.of_kind[kind] = self.of_kind.get(kind, 0) + 1
        assert self.requests < REQUESTS_MAX, f"{self.name} goes round in circles"
        self.clock.sleep(0.01)
        self.on_request()
        at, script = self.requests, self.script
        if at in script.events:
            script.events[at]()
        if at == script.dies_at or kind == script.dies_before:
            self.is_dead = True
            raise KilledError(is_now=True)
        if at == script.worker_dies_at and self.is_in_task:
            self.has_no_worker = True
            raise KilledError(is_now=True)
        return script.faults.get(at, "ok")

    def attempt(self, task: Any, share: Sequence[Any], hear: Callable[[Event], None]) -> list[Any]:
        """Run a task, again where its worker died."""
        while True:
            self.is_in_task, self.has_no_worker = True, False
            try:
                reports = list(task(share, _Line(hear, self)))
                if not self.has_no_worker:
                    return reports
            except KilledError:
                if self.is_dead:
                    raise
            finally:
                self.is_in_task = self.has_no_worker = False


class Tasks:
    """Runs the tasks of a process one after the other: `runs.context.RunTasks`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self) -> None:
        """There is nothing to start."""

    def end(self) -> None:
        """There is nothing to end."""

    def __call__(
        self,
        task: Any,
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event,
        *,
        slices_per_core: int | None = None,
        deal: Callable[[Sequence[Any], int], list[list[Any]]] = deal,
        orders: object = None,
        timings: object = None,
        keeps: bool = False,
    ) -> list[Any]:
        """Return all reports."""
        del orders, timings, keeps
        slots = (slices_per_core or 4) * self._process.script.cores
        shares = deal(units, min(len(units), slots))
        return [report for share in shares for report in self._process.attempt(task, share, hear)]


class _Line(TaskChannel):
    """A line that is a function call; a task that follows is asked to stop after some turns."""

    def __init__(self, hear: Callable[[Event], None], process: Process) -> None:
        super().__init__(None)
        self.tell = lambda event: hear(to_json(event))  # type: ignore[method-assign]
        self._process, self._left = process, process.script.turns

    def wait(self, seconds: float) -> bool:
        """Let time pass, and what happens in it."""
        self._left -= 1
        if self._left <= 0:
            self._stopped.set()
        self._process.clock.sleep(seconds)
        self._process.on_wait()
        SerialBeats.due(self._process.clock)
        return self._stopped.is_set()


class Looks(threading.Event):
    """The stop of a restore that follows: it is asked to stop after some looks at the bucket."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process, self._left = process, process.script.turns

    def wait(self, timeout: float | None = None) -> bool:
        """Let time pass, and what happens in it."""
        self._left -= 1
        if self._left <= 0:
            self.set()
        self._process.clock.sleep(timeout or 0)
        self._process.on_wait()
        SerialBeats.due(self._process.clock)
        return self.is_set()


class Together:
    """Several processes at once, in threads of which one runs at a time.

    Before each request it is drawn anew whose turn it is, so a number tells the whole order.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._turns: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)

    def run(self, works: Mapping[Process, Callable[[], None]]) -> None:
        """Run *works* to their ends."""
        threads = {}
        failures: list[BaseException] = []
        for process, work in works.items():
            mine = threading.Semaphore(0)
            self._turns[process.name] = mine
            process.turn = lambda mine=mine: self._give_back(mine)  # type: ignore[misc]
            body = self._body(work, mine, process.name, failures)
            threads[process.name] = threading.Thread(target=body, name=process.name, daemon=True)
        for thread in threads.values():
            thread.start()
        while self._turns:
            name = self._rng.choice(sorted(self._turns))
            steps = self._rng.choice((1, 1, 2, 5, 30))  # some stand still for long
            for _ in range(steps):
                if name in self._turns:
                    self._turns[name].release()
                    self._back.acquire()
        for thread in threads.values():
            thread.join()
        if failures:
            raise failures[0]

    def _give_back(self, mine: threading.Semaphore) -> None:
        self._back.release()
        mine.acquire()

    def _body(
        self,
        work: Callable[[], None],
        mine: threading.Semaphore,
        name: str,
        failures: list[BaseException],
    ) -> Callable[[], None]:
        def body() -> None:
            mine.acquire()
            try:
                work()
            except BaseException as error:  # noqa: BLE001  (raised in the main thread)
                failures.append(error)
            finally:
                del self._turns[name]
                self._back.release()

        return body
