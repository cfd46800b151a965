"""Time, dice and threads of a play: all of them follow from its seed and its virtual clock."""

import io
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from random import Random
from typing import Any, BinaryIO, ClassVar
from uuid import UUID, uuid4

import pyarrow as pa

from tests.simulation.product import (
    BEAT_S,
    CorruptObjectError,
    Periodic,
    Prefetch,
    linked,
    parsed,
    read_records,
)

_LEFT_ALONE = "kbackup.spark"


class Clock:
    """A virtual time, which only moves when somebody moves it: a `kbackup.clock.Clock`.

    Attributes:
        right: The right time, which Kafka and the object store have.
        apart: By how much the clock of the host is wrong that is at work.
    """

    def __init__(self) -> None:
        self.right = datetime(2026, 1, 1, tzinfo=UTC)
        self.apart = timedelta()

    @property
    def time(self) -> datetime:
        """The time on the host that is at work."""
        return self.right + self.apart

    def now(self) -> datetime:
        """The time of day."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self.right += timedelta(seconds=seconds)

    def ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self.time.timestamp() * 1000)

    def steady_s(self) -> float:
        """Seconds since the epoch."""
        return self.time.timestamp()


class SerialPool(Executor):
    """A thread pool without threads: work is done when it is handed in."""

    def __init__(self, max_workers: int | None = None, *_: object, **__: object) -> None:
        self.max_workers = max_workers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  (that is what a future does)
            future.set_exception(error)
        return future


class SerialAhead:
    """`restore.task.Prefetch` that does not read ahead."""

    def __init__(self, source: Iterable[Any], depth: int = 0, **_: object) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source)

    def __enter__(self) -> "SerialAhead":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class SerialBeats:
    """`runs.context.Periodic` in the thread that waits, by the virtual clock."""

    _active: ClassVar[dict[int, list["SerialBeats"]]] = {}

    def __init__(
        self, what: str, beat: Callable[[], None], every_s: float = BEAT_S, *, at_once: bool = False
    ) -> None:
        self._beat, self._every_s, self._at_once = beat, every_s, at_once
        self._last: float | None = None

    def __enter__(self) -> None:
        if self._at_once:
            self._turn()
        self._active.setdefault(threading.get_ident(), []).append(self)

    def __exit__(self, *_: object) -> None:
        self._active[threading.get_ident()].remove(self)

    def _turn(self) -> None:
        with suppress(Exception):  # it is logged, and its next turn may go better
            self._beat()

    @classmethod
    def due(cls, clock: Clock) -> None:
        """Let those of this thread have their turns whose time has come."""
        for one in list(cls._active.get(threading.get_ident(), ())):
            if one._last is None:
                one._last = clock.steady_s()
            elif clock.steady_s() - one._last >= one._every_s:
                one._last = clock.steady_s()
                one._turn()


class _Secrets:
    """The module ``secrets``, drawn from a number."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def token_bytes(self, nbytes: int = 32) -> bytes:
        """As `secrets.token_bytes`."""
        return self._rng.randbytes(nbytes)

    def token_hex(self, nbytes: int = 16) -> str:
        """As `secrets.token_hex`."""
        return self._rng.randbytes(nbytes).hex()


class _Time:
    """The module ``time``, by a virtual clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sleep = clock.sleep

    def time(self) -> float:
        """As `time.time`."""
        return self._clock.time.timestamp()

    def time_ns(self) -> int:
        """As `time.time_ns`."""
        return self._clock.ms() * 1_000_000

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return self._clock.time.timestamp()


def _datetime(clock: Clock) -> type[datetime]:
    class Datetime(datetime):
        """`datetime` by a virtual clock."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            """As `datetime.now`."""
            return clock.time.astimezone(tz)

    return Datetime


_parsed = lru_cache(2_000)(parsed)
"""The same bytes are read many times in a play, and say the same each time."""


def _remembered(
    file: BinaryIO, max_record_bytes: int, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """As `read_records`, which reads the same bytes once."""
    file.seek(0)
    wanted = None if columns is None else frozenset(columns)
    batches, error = _read(file.read(), max_record_bytes, wanted)
    yield from batches
    if error is not None:
        raise error


@lru_cache(2_000)
def _read(
    body: bytes, max_record_bytes: int, columns: frozenset[str] | None
) -> tuple[list[pa.RecordBatch], Exception | None]:
    found: list[pa.RecordBatch] = []
    try:
        found.extend(read_records(io.BytesIO(body), max_record_bytes, columns))
    except CorruptObjectError as error:
        return found, error.with_traceback(None)
    return found, None


def _originals() -> dict[str, Any]:
    """What is replaced, wherever a module of kbackup has it, by whatever name."""
    return {
        "parsed": parsed, "read_records": read_records,
        "pool": ThreadPoolExecutor, "ahead": Prefetch, "beats": Periodic, "linked": linked,
        "random": random, "uuid4": uuid4, "secrets": secrets,
        "module": time, "time": time.time, "time_ns": time.time_ns, "monotonic": time.monotonic,
        "sleep": time.sleep, "datetime": datetime,
    }  # fmt: skip


@cache
def _places() -> list[tuple[Any, str, str]]:
    """Module, attribute, and which original it is."""
    named = [name for name in sorted(sys.modules) if name.startswith("kbackup.")]
    return [
        (sys.modules[name], attribute, which)
        for name in named
        if not name.startswith(_LEFT_ALONE)
        for attribute, value in vars(sys.modules[name]).items()
        for which, original in _originals().items()
        if value is original
    ]


@contextmanager
def deterministic(rng: Random, clock: Clock) -> Iterator[None]:
    """No threads, no dice and no time of their own in any module of kbackup."""
    virtual = _Time(clock)
    replaced: dict[str, Any] = {
        "parsed": _parsed, "read_records": _remembered,
        "pool": SerialPool, "ahead": SerialAhead, "beats": SerialBeats,
        "linked": lambda *_: nullcontext(), "random": rng,
        "uuid4": lambda: UUID(bytes=rng.randbytes(16)),
        "secrets": _Secrets(rng), "module": virtual, "time": virtual.time,
        "time_ns": virtual.time_ns, "monotonic": virtual.monotonic, "sleep": clock.sleep,
        "datetime": _datetime(clock),
    }  # fmt: skip
    for module, attribute, which in _places():
        setattr(module, attribute, replaced[which])
    try:
        yield
    finally:
        for module, attribute, which in _places():
            setattr(module, attribute, _originals()[which])
