"""When a unit's files may be stored: at once, or when its turn has come."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from kbackup.errors import StoppedError
from kbackup.events import Event
from kbackup.files import free_bytes
from kbackup.kafka import OffsetMovedError, Position
from kbackup.pipeline.write import ClosedFile
from kbackup.runs.position import LastObject
from kbackup.sink.rejects import LeftOut
from kbackup.sink.spans.messages import DROP, TURN, SpanName, Take, Waits
from kbackup.spark.channel import Line

LOOK_S: Final = 0.1
"""How often a task that waits for its turn looks whether it is to stop."""


class DroppedError(Exception):
    """A span is no longer the task's: whatever it has read of it is given up."""


class Lease(Protocol):
    """When a unit's files may be stored.

    Attributes:
        is_of_span: Others wait for what the unit commits.
    """

    is_of_span: bool

    def has_come(self) -> bool:
        """Whether they may be stored now.

        Raises:
            DroppedError: If the unit is no longer the task's.
        """
        ...

    def wait(self) -> None:
        """Return when they may be.

        Raises:
            DroppedError: If the unit is no longer the task's.
            StoppedError: When asked to stop.
        """
        ...

    def check(self, position: Position | None, run: str) -> None:
        """Compare what the driver said with the group's position, before anything is stored.

        Raises:
            OffsetMovedError: If the run has not committed everything before the unit.
        """
        ...


class AtOnce:
    """The turn of a unit that no other one goes before."""

    is_of_span = False

    def has_come(self) -> bool:
        """Yes."""
        return True

    def wait(self) -> None:
        """Return at once."""

    def check(self, position: Position | None, run: str) -> None:
        """A unit continues wherever the group is."""


AT_ONCE: Final = AtOnce()


class SpanTurn:
    """The turn of a span that the driver has handed out.

    Args:
        given: The span.
        line: To the driver.
        meanwhile: Called again and again while the span is worked on and waited for.
    """

    is_of_span = True

    def __init__(self, given: Take, line: Line, meanwhile: Callable[[], None]) -> None:
        self._span, self._line, self._meanwhile = SpanName.of(given.unit), line, meanwhile
        self._is_first, self._has_come = given.is_first, given.has_turn

    def has_come(self) -> bool:
        """Whether the driver has said so."""
        self._meanwhile()
        for order in self._line.orders():
            self._take(order)
        return self._has_come

    def wait(self) -> None:
        """Wait until the driver says so."""
        if self.has_come():
            return
        self._line.tell(Waits(self._span))
        while not self._has_come:
            if self._line.is_stopped():
                raise StoppedError(f"{self._span.where} stopped")
            order = self._line.next_order(LOOK_S)
            if order is not None:
                self._take(order)
            self._meanwhile()

    def check(self, position: Position | None, run: str) -> None:
        """Compare what the driver said with the group's position."""
        if self._is_first:
            return
        bookmark = LastObject.beside(position)
        is_ours = bookmark is not None and bookmark.run == run
        if position is None or not is_ours or position.offset < self._span.start:
            stands = "has none" if position is None else f"is at {position.offset}"
            raise OffsetMovedError(
                f"{self._span.where} offset {self._span.start}: the group {stands}",
                "this run had committed all before this offset; somebody has moved the group since",
                "no record is lost; let one run at a time work on a group, and run again",
            )

    def _take(self, order: Event) -> None:
        if order["type"] not in (TURN, DROP) or SpanName.from_dict(order) != self._span:
            return  # of a span that this task had before
        if order["type"] == DROP:
            raise DroppedError
        self._has_come = True


BYTES_MOST: Final = 512 * 2**20
FILES_MOST: Final = 128
"""A task holds no more than this of a span before its turn, but for the cut that goes beyond."""

FREE_LEAST: Final = 2**30
"""While less than this is free in ``TMPDIR``, a task holds one cut only: whoever's turn it is has
to write there too, and fails where the others have filled the disk."""


@dataclass(frozen=True, slots=True)
class ClosedCut:
    """A cut whose files are complete.

    Attributes:
        files: In the order to store them.
        next_offset: The first offset after it.
        read: Bytes of the records read for it.
        lacks: What was left out of it.
    """

    files: tuple[ClosedFile, ...]
    next_offset: int
    read: int
    lacks: LeftOut

    def drop(self) -> None:
        """Throw the files away."""
        for file in self.files:
            file.body.close()


@dataclass(slots=True)
class ReadAhead:
    """What a task has read of a span before its turn.

    Attributes:
        free: Says how many bytes are free where it is held.
    """

    free: Callable[[], int] = free_bytes
    _cuts: deque[ClosedCut] = field(default_factory=deque)

    def add(self, cut: ClosedCut) -> None:
        """Hold a cut, on disk.

        Raises:
            NoSpaceError: If the disk is full; the cut is thrown away.
        """
        try:
            for file in cut.files:
                file.body.move_to_disk()
        except BaseException:
            cut.drop()
            raise
        self._cuts.append(cut)

    @property
    def is_full(self) -> bool:
        """Whether no more is to be held."""
        files = [file for cut in self._cuts for file in cut.files]
        if len(files) >= FILES_MOST or sum(file.body.size for file in files) >= BYTES_MOST:
            return True
        return bool(files) and self.free() < FREE_LEAST

    def __len__(self) -> int:
        return len(self._cuts)

    def pop(self) -> ClosedCut:
        """Return the first cut, which is the caller's then."""
        return self._cuts.popleft()

    def drop(self) -> None:
        """Throw everything away."""
        while self._cuts:
            self.pop().drop()
