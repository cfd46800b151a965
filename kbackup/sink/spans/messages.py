"""What the driver and the tasks that share partitions tell each other.

They cross the line as JSON; this module owns their fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from kbackup.events import Event
from kbackup.records import TopicPartition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import Examined, SinkUnit

ASK: Final = "span_asked"
WAITS: Final = "span_waits"
OVER: Final = "span_over"
LEAVES: Final = "span_leaves"
TO_DRIVER: Final = frozenset({ASK, WAITS, OVER, LEAVES})
"""The types of messages that are for the driver's hand-out alone."""

TAKE: Final = "span_given"
NONE: Final = "span_none"
TURN: Final = "span_turn"
DROP: Final = "span_dropped"


@dataclass(frozen=True, slots=True)
class Ask:
    """A task is free.

    Attributes:
        seat: Which of the tasks that share partitions; Spark runs one that died again.
    """

    seat: int

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        return {"type": ASK, "seat": self.seat}


@dataclass(frozen=True, slots=True)
class Waits:
    """A task can do no more for its span before its turn.

    Attributes:
        span: Which.
    """

    span: "SpanName"

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        return {"type": WAITS, **self.span.to_dict()}


@dataclass(frozen=True, slots=True)
class Over:
    """A task has ended its work on a span, in its turn.

    Attributes:
        run: The run's id.
        report: What has become of it, which counts what the run has done in the partition so far.
    """

    run: str
    report: PartitionReport[OfSink]

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        return {**Examined(self.run, self.report).to_dict(), "type": OVER}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        found = Examined.from_dict(message)
        return cls(found.run, found.report)


@dataclass(frozen=True, slots=True)
class Leaves:
    """A task ends; the answer shows that all it has said was heard."""

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        return {"type": LEAVES}


@dataclass(frozen=True, slots=True)
class SpanName:
    """What a span is known by.

    Attributes:
        where: The partition.
        start: Its first offset.
    """

    where: TopicPartition
    start: int

    @classmethod
    def of(cls, unit: SinkUnit) -> Self:
        """Return the name of a unit that is a span."""
        return cls(unit.where, unit.span.start_offset)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        return cls(TopicPartition(message["topic"], message["partition"]), message["start"])

    def to_dict(self) -> Event:
        """Return it as plain data."""
        where = self.where
        return {"topic": where.topic, "partition": where.partition, "start": self.start}


@dataclass(frozen=True, slots=True)
class Take:
    """The answer to a task that is free.

    Attributes:
        unit: The span that it is to work on.
        is_first: It is the first one of its partition, whose position is whatever the plan found.
        has_turn: Its turn has come already.
    """

    unit: SinkUnit
    is_first: bool
    has_turn: bool

    def to_dict(self) -> Event:
        """Return the order as plain data."""
        return {
            "type": TAKE,
            **self.unit.to_dict(),
            "is_first": self.is_first,
            "has_turn": self.has_turn,
        }

    @classmethod
    def from_dict(cls, order: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        return cls(SinkUnit.from_dict(order), order["is_first"], order["has_turn"])


@dataclass(frozen=True, slots=True)
class Nothing:
    """The answer where nothing is left to hand out, and to a task that leaves."""

    def to_dict(self) -> Event:
        """Return the order as plain data."""
        return {"type": NONE}


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A span's turn has come.

    Attributes:
        span: Which.
    """

    span: SpanName

    def to_dict(self) -> Event:
        """Return the order as plain data."""
        return {"type": TURN, **self.span.to_dict()}


@dataclass(frozen=True, slots=True)
class Drop:
    """A span is no longer the task's, which is to ask again.

    Its partition has failed, or a lower span of it waits for a task while this one waits for that
    span.

    Attributes:
        span: Which.
    """

    span: SpanName

    def to_dict(self) -> Event:
        """Return the order as plain data."""
        return {"type": DROP, **self.span.to_dict()}
