"""The ledger under any interleaving of writers, folders and readers."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import BinaryIO
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.catalog.ledger import stream as streams
from kbackup.catalog.ledger.rows import OBJECTS, Entry, entries, table
from kbackup.catalog.ledger.stream import Stream, encoded, new_name
from kbackup.errors import StoreError
from kbackup.stores import ObjectHead, StoredObject, StoreSettings
from kbackup.stores.memory import MemoryStore

MINUTE = 60_000
PREFIX = "_kbackup/ledger/0/objects/orders/"
PAUSES = (0, 0, 1, 1000, MINUTE, 5 * MINUTE, 20 * MINUTE, 45 * MINUTE, 3 * 60 * MINUTE)


class World:
    """Threads of which one runs at a time, and a clock that only the world moves."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 1_800_000_000_000
        self.late: list[Callable[[], object]] = []
        self._baton = threading.Semaphore(0)
        self._turns: dict[int, threading.Semaphore] = {}
        self._running: list[threading.Semaphore] = []

    def play(self, actors: list[Callable[[], None]]) -> None:
        """Run all to their ends, switching wherever one asks the store for something."""
        threads = [threading.Thread(target=self._act, args=(actor,)) for actor in actors]
        for thread in threads:
            thread.start()
            self._baton.acquire()
        while self._running:
            if self.late and self.random.random() < 0.2:
                self.late.pop(self.random.randrange(len(self.late)))()
            self.now += self.random.choice(PAUSES)
            self._running[self.random.randrange(len(self._running))].release()
            self._baton.acquire()
        for thread in threads:
            thread.join()

    def pause(self) -> None:
        """Let others go on, until it is this thread's turn again."""
        self._baton.release()
        self._turns[threading.get_ident()].acquire()

    def _act(self, actor: Callable[[], None]) -> None:
        turn = threading.Semaphore(0)
        self._turns[threading.get_ident()] = turn
        self._running.append(turn)
        self.pause()
        try:
            actor()
        finally:
            self._running.remove(turn)
            self._baton.release()


@dataclass(frozen=True)
class SkewedClock:
    """A `kbackup.clock.Clock` of a host that is wrong."""

    environment: World
    skew_ms: int

    def now(self) -> datetime:
        """As that host has it."""
        return datetime.fromtimestamp(self.ms() / 1000, UTC)

    def ms(self) -> int:
        """As that host has it."""
        return self.environment.now + self.skew_ms

    def steady_s(self) -> float:
        """Nobody sets it."""
        return self.environment.now / 1000


class SlowStore(MemoryStore):
    """Puts land late, or after their answer was given up; listings come page by page."""

    def __init__(self, settings: StoreSettings, environment: World) -> None:
        super().__init__(settings)
        self._world = environment

    def put(self, key: str, body: BinaryIO, *, sha256: str, metadata: Mapping[str, str],
            if_absent: bool = False, if_match: str | None = None) -> bool:  # fmt: skip
        def land() -> bool:
            return MemoryStore.put(
                self, key, body, sha256=sha256, metadata=metadata, if_absent=if_absent,
                if_match=if_match,
            )  # fmt: skip

        self._world.pause()
        fate = self._world.random.random()
        if fate < 0.1:
            self._world.late.append(land)
        if fate < 0.15:
            raise StoreError("no answer")
        done = land()
        self._world.pause()
        if fate > 0.95:
            raise StoreError("the answer was lost")
        return done

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        last = after
        while True:
            self._world.pause()
            page = [one for one in MemoryStore.list(self, prefix) if one.key > last][:2]
            yield from page
            if len(page) < 2:
                return
            last = page[-1].key

    def head(self, key: str) -> ObjectHead | None:
        del key
        raise AssertionError("the ledger asks for no heads")


@dataclass
class Story:
    """Writers, folders and readers of one stream, each with a clock of its own."""

    environment: World  # what makes them take turns
    returned: set[int] = field(default_factory=set)  # the rows whose append has returned
    # rows that were returned before a reader began, and that it did not see
    overlooked: set[int] = field(default_factory=set)

    def play(self) -> None:
        """Play three writers, two folders and a reader."""
        place = StoreSettings(f"memory://{uuid4()}")
        store = SlowStore(place, self.environment)
        random = self.environment.random
        all_of_them: list[Callable[[], None]] = []
        for at in range(6):
            skew = random.randint(-14 * MINUTE, 14 * MINUTE)
            clock = SkewedClock(self.environment, skew)
            stream = Stream(store, PREFIX, OBJECTS, clock)
            actor = (self._write, self._write, self._write, self._fold, self._fold, self._read)[at]
            all_of_them.append(lambda actor=actor, at=at, stream=stream: actor(at, stream))  # type: ignore[misc]
        self.environment.play(all_of_them)
        self._check(Stream(MemoryStore(place), PREFIX, OBJECTS, clock))

    def _write(self, writer: int, stream: Stream) -> None:
        for number in range(4):
            row = 100 * writer + number
            try:
                stream.append(table([Entry("object", 0, row, row, f"key-{row}", time=1)], OBJECTS))
            except StoreError:
                continue
            self.returned.add(row)

    def _fold(self, _: int, stream: Stream) -> None:
        for _again in range(3):
            try:
                stream.fold(1)
            except StoreError:
                continue

    def _read(self, _: int, stream: Stream) -> None:
        for _again in range(3):
            self._check(stream)

    def _check(self, stream: Stream) -> None:
        before = set(self.returned)
        seen = {entry.first for entry in entries(stream.read().rows)}
        self.overlooked |= before - seen


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_a_reader_sees_every_row_whose_append_returned(seed: int) -> None:
    """No row is overlooked, whoever folds meanwhile, however late a write or wrong a clock."""
    story = Story(World(Random(seed)))

    story.play()

    assert set() == story.overlooked


@pytest.mark.parametrize(
    ("rule", "seeds"), [("no grace", range(380, 390)), ("no second write", range(260, 275))]
)
def test_these_stories_show_what_happens_without_either_rule(
    rule: str, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the grace period, or without repeating a late write, some row is overlooked."""
    if rule == "no grace":
        monkeypatch.setattr(streams, "_watermark", lambda wall_ms, _: wall_ms)
    else:
        monkeypatch.setattr(Stream, "append", lambda self, rows: self._put(
            new_name(self.clock.ms()), encoded(rows, self.form.schema, {})
        ))  # fmt: skip

    def overlooks(seed: int) -> bool:
        story = Story(World(Random(seed)))
        story.play()
        return bool(story.overlooked)

    assert any(overlooks(seed) for seed in seeds)  # rare: in one of hundreds


def named(entry: Entry) -> Entry:
    """Give an object the name that its place has: a key says where its records begin."""
    if entry.key is None:
        return entry
    return replace(entry, key=f"{entry.key}+{entry.partition}+{entry.first}")


ROWS = st.builds(
    Entry,
    st.sampled_from(["object", "gap", "accepted"]),
    st.integers(0, 1),
    st.integers(0, 3),
    st.integers(3, 5) | st.none(),
    st.sampled_from(["a", "b"]) | st.none(),
    records=st.integers(0, 3) | st.none(),
    sha256=st.sampled_from(["x", "y"]) | st.none(),
    run=st.sampled_from(["r1", "r2"]),
    time=st.integers(0, 3),
    counter=st.integers(4, 6) | st.none(),
    covers=st.sampled_from(["r1", "r2"]) | st.none(),
).map(named)


@given(st.lists(ROWS, max_size=12), st.randoms(use_true_random=False))
def test_what_counts_does_not_depend_on_order_or_repetition(
    rows: list[Entry], random: Random
) -> None:
    """Merging parts in any order, some of them twice, or folding in between, gives the same."""
    once = set(entries(OBJECTS.merged(table(rows, OBJECTS))))
    shuffled = [*rows, *random.sample(rows, len(rows) // 2)]
    random.shuffle(shuffled)
    half = [*entries(OBJECTS.merged(table(shuffled[: len(rows) // 2], OBJECTS)))]
    again = [*half, *shuffled[len(rows) // 2 :]]

    assert once == set(entries(OBJECTS.merged(table(again, OBJECTS))))
