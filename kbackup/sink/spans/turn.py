"""When a unit's files may be stored: at once, or when its turn has come."""

from collections.abc import Callable
from typing import Final, Protocol

from kbackup.channel import Line
from kbackup.errors import StoppedError
from kbackup.events import Event
from kbackup.kafka import OffsetMovedError, Position
from kbackup.reports import LastObject
from kbackup.sink.spans.messages import DROP, TURN, SpanName, Take, Waits

LOOK_S: Final = 0.1
"""How often a task that waits for its turn looks whether it is to stop."""


class DroppedError(Exception):
    """A span is no longer the task's: whatever it has read of it is given up."""


class Turn(Protocol):
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
