"""What a task has read but not committed yet, for all its partitions.

Files are stored while reading continues, those of small partitions in parallel.  Cuts whose objects
are stored wait for each other: one part of the ledger and one commit serve many of them.  An object
is in the ledger before its offset is committed; where the ledger cannot be written, its cuts fail.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Self, TypeVar

from kbackup.backup.ledger import place
from kbackup.backup.ledger.rows import OBJECTS, Entry, table
from kbackup.clock import Clock
from kbackup.errors import KbackupError
from kbackup.kafka import OffsetMovedError, Position, Positions
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.stores import Store

_T = TypeVar("_T")

THREADS: Final = 8
"""Files that are stored side by side, as far as their bytes go."""

AGAIN_S: Final = 1.0
"""How long an answer about a group's position is believed before values are stored."""

CUTS_MOST: Final = 64
WAIT_S: Final = 0.5
"""Cuts are committed once this many are waiting, or once the first has waited this long."""


@dataclass(slots=True)
class StoredCut:
    """A cut whose objects are stored.

    Attributes:
        where: Its partition.
        rows: What the ledger is to say of its objects.
        position: What to commit.
        topic: The name under which its topic is stored.
        settled: Done when it is committed, or has failed.
    """

    where: TopicPartition
    rows: Sequence[Entry]
    position: Position
    topic: str
    settled: Future[None] = field(default_factory=Future)


class Storing:
    """Cuts in flight, from closed files to committed offsets.  A context manager.

    Args:
        store: Where the ledger is.
        layout: Which ``topics.dir``.
        positions: Where offsets are committed; nobody else may use it meanwhile.
        clock: The time.
        limit_bytes: What may be in flight at a time; a larger file goes alone.
    """

    def __init__(
        self, store: Store, layout: Layout, positions: Positions, clock: Clock, limit_bytes: int
    ) -> None:
        self._store, self._layout, self._clock = store, layout, clock
        self._positions, self._limit_bytes = positions, limit_bytes
        self._pool = ThreadPoolExecutor(THREADS)
        self._known: dict[TopicPartition, Position | None] = {}
        self._asked: dict[TopicPartition, tuple[float, int]] = {}
        self._turn = threading.Lock()  # held while positions are asked for or committed
        self._changed = threading.Condition()  # guards what follows
        self._bytes = self._jobs = 0
        self._waiting: list[StoredCut] = []
        self._since = 0.0
        self._is_asked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def expect(self, wheres: Iterable[TopicPartition]) -> None:
        """Ask for the positions of many partitions at once; `position` asks for any others.

        Raises:
            KafkaError: If the cluster does not say.
        """
        self._known = self._positions.read_all(list(wheres))
        for where, found in self._known.items():
            self._note(where, found)

    def position(self, where: TopicPartition) -> Position | None:
        """Return the position of a partition of which nothing has been committed here yet.

        Raises:
            KafkaError: If the cluster does not say.
        """
        if where in self._known:
            return self._known.pop(where)
        with self._turn:
            found = self._positions.read(where)
        self._note(where, found)
        return found

    def check(self, where: TopicPartition, reached: int) -> None:
        """Check that nobody else has committed what comes after *reached*.

        It is asked again only once a while has passed: that takes a run that slept.

        Raises:
            KafkaError: If the cluster does not say.
            OffsetMovedError: If somebody has.
        """
        if self._clock.steady_s() - self._asked.get(where, (-inf, 0))[0] >= AGAIN_S:
            with self._turn:
                self._note(where, self._positions.read(where))
        offset = self._asked[where][1]
        if offset > reached:
            raise OffsetMovedError(
                f"storing {where} from offset {reached} on",
                f"the group's offset is already {offset}: another run has overtaken this one",
                "no record is lost; let one run at a time work on a group",
            )

    def _note(self, where: TopicPartition, found: Position | None) -> None:
        self._asked[where] = self._clock.steady_s(), 0 if found is None else found.offset

    def submit(self, size: int, function: Callable[..., _T], *arguments: Any) -> "Future[_T]":
        """Call *function* in another thread, once there is room for *size* bytes."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._bytes or self._bytes + size <= self._limit_bytes
            )
            self._bytes += size
            self._jobs += 1
        future = self._pool.submit(function, *arguments)
        future.add_done_callback(lambda _: self._end(size))
        return future

    def add(self, cut: StoredCut) -> None:
        """Take a cut whose objects are stored; `flush` settles it."""
        with self._changed:
            if not self._waiting:
                self._since = self._clock.steady_s()
            self._waiting.append(cut)

    def is_due(self) -> bool:
        """Whether cuts should not wait for more of them."""
        with self._changed:
            return len(self._waiting) >= CUTS_MOST or (
                bool(self._waiting) and self._clock.steady_s() - self._since >= WAIT_S
            )

    def flush_beside(self) -> None:
        """Settle what is due in another thread."""
        if self.is_due() and not self._is_asked:
            self._is_asked = True
            self.submit(0, self.flush)

    def flush(self) -> None:
        """Settle all cuts that wait; when this returns, those that were added before are."""
        with self._turn:  # commits stay in order
            with self._changed:
                cuts, self._waiting = self._waiting, []
                self._is_asked = False
            try:
                self._settle(cuts)
            except BaseException as error:
                for cut in cuts:
                    if not cut.settled.done():
                        cut.settled.set_exception(error)
                raise

    def drain(self) -> None:
        """Return when nothing is in flight any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs)
        self.flush()

    def _end(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            self._jobs -= 1
            self._changed.notify_all()

    def _settle(self, cuts: Sequence[StoredCut]) -> None:
        topics = sorted({cut.topic for cut in cuts if cut.rows})
        with ThreadPoolExecutor(min(THREADS, len(topics)) or 1) as pool:
            enter = [pool.submit(self._enter, topic, cuts) for topic in topics]
            failed = {
                topic: error
                for topic, entered in zip(topics, enter, strict=True)
                if (error := entered.result()) is not None
            }
        entered = {cut.where: cut for cut in cuts if cut.topic not in failed or not cut.rows}
        refused = self._positions.advance_all({at: cut.position for at, cut in entered.items()})
        for cut in cuts:
            error = refused.get(cut.where) if cut.where in entered else failed[cut.topic]
            if error is None:
                self._note(cut.where, cut.position)
                cut.settled.set_result(None)
            else:
                cut.settled.set_exception(type(error)(error.what, error.why, error.do))

    def _enter(self, topic: str, cuts: Sequence[StoredCut]) -> KbackupError | None:
        """Enter the objects of a topic into the ledger; return why not."""
        rows = [row for cut in cuts if cut.topic == topic for row in cut.rows]
        stream = place.of_topic(self._store, self._layout, topic, self._clock)
        try:
            stream.append(table(rows, OBJECTS))
        except KbackupError as error:
            return error
        return None
