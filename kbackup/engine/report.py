"""What tasks are, and what they hand back to the driver."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kbackup.channel import Line
from kbackup.errors import Failure


class Report(Protocol):
    """What became of one unit: a frozen dataclass of plain values, which Spark pickles."""

    @property
    def failure(self) -> Failure | None:
        """What stopped the work on the unit; None if nothing has."""
        ...


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The report of a task that could not begin, whatever its units.

    Attributes:
        failure: Why not.
    """

    failure: Failure


R = TypeVar("R", bound=Report)

Task = Callable[[Sequence[Any], Line], Iterator[R]]
"""A module's function, from units and the line to the driver to a report for each unit."""
