"""What driver and tasks of a sink that follows tell each other, beside the news for the screen.

They cross the line as JSON; this module owns its fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from kbackup.errors import Issue
from kbackup.events import Event, to_json
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import Done, LastObject
from kbackup.runs.report import HeldUp, OfSink, PartitionReport
from kbackup.sink.job import SinkUnit

ADOPT: Final = "adopt"
"""The driver's order to follow one more partition; each task takes those that are its own."""

EXAMINED: Final = "report"
"""A task's message about a partition that it has examined: an `Examined`."""

GAVE_UP: Final = "gave_up"
"""A task's message when it ends without being asked to: the run ends with it."""


@dataclass(frozen=True, slots=True)
class Examined:
    """How far a task is in a partition that it follows.

    Attributes:
        run: The run's id.
        report: How far.
    """

    run: str
    report: PartitionReport[OfSink]

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        report, own = self.report, self.report.own
        return {
            "type": EXAMINED,
            "run": self.run,
            "topic": report.where.topic,
            "partition": report.where.partition,
            "start": report.start,
            "end": report.end,
            "committed": report.committed,
            "metadata": "" if own.bookmark is None else own.bookmark.to_metadata(),
            "gaps": _ends(own.gaps),
            "skipped": _ends(own.skipped),
            "until": own.until,
            "done": report.done.to_dict(),
            **({} if report.failure is None else {"failure": report.failure.to_dict()}),
            **({} if report.held_up is None else {"held_up": to_json(report.held_up)}),
        }

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        own = OfSink(
            LastObject.read(message["metadata"]),
            _spans(message["gaps"]),
            _spans(message["skipped"]),
            message["until"],
        )
        report = PartitionReport(
            TopicPartition(message["topic"], message["partition"]),
            message["start"],
            message["end"],
            message["committed"],
            own,
            Done.from_dict(message["done"]),
            Issue.from_dict(message["failure"]) if "failure" in message else None,
            HeldUp.from_dict(message["held_up"]) if "held_up" in message else None,
        )
        return cls(message["run"], report)


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A task ends because no broker answers.

    Attributes:
        run: The run's id.
    """

    run: str

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        return {"type": GAVE_UP, "run": self.run}


@dataclass(frozen=True, slots=True)
class Adopt:
    """One more partition is to be followed.

    Attributes:
        unit: What to begin with.
    """

    unit: SinkUnit

    def to_dict(self) -> Event:
        """Return the order as plain data."""
        return {"type": ADOPT, **self.unit.to_dict()}


def _ends(spans: tuple[Span, ...]) -> list[list[int]]:
    return [[span.start_offset, span.end_offset] for span in spans]


def _spans(ends: list[list[int]]) -> tuple[Span, ...]:
    return tuple(Span(start, end) for start, end in ends)
