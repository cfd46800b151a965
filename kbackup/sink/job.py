"""What a sink task needs to know: plain data that crosses processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from kbackup.clock import Clock
from kbackup.errors import Issue, TopicChangedError
from kbackup.events import Event, to_json
from kbackup.kafka import Connection
from kbackup.naming import Layout
from kbackup.naming.renaming import UNROUTED, Routes
from kbackup.pipeline.convert import NO_AFFIX, Affix
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.rows import Nulls
from kbackup.pipeline.views import ViewSpec
from kbackup.plugins import Step
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.runs.position import Done, SinkPosition
from kbackup.runs.report import HeldUp, OfSink, PartitionReport
from kbackup.sink.rejects import INTOLERANT, ErrorPolicy
from kbackup.sink.schemas import NO_SCHEMAS, SchemaSource
from kbackup.sink.start import HeldCut
from kbackup.stores import StoreSettings

SPOOL_BYTES: Final = 32 * 2**20
"""What an unfinished file may hold in memory; a task has one filling and one being stored."""


@dataclass(frozen=True, slots=True)
class SinkJob:
    """One run's settings for its tasks.

    Attributes:
        run: The run's id.
        kafka: The cluster.
        store: Where objects go.
        layout: How they are named.
        clock: The time.
        views: The files of one cut, in the order they are stored; the last one marks the set
            as complete.
        partitioner: Name of the partitioner's plugin.
        extractor: Name of the timestamp extractor's plugin.
        rule: When files are cut.
        group: The consumer group that keeps the position.
        flush_tail: Close the last, short file at the end of a span.
        nulls: What becomes of records without a value in the connectors' layout.
        errors: What becomes of bad records.
        schemas: The registries whose schemas are stored.
        plugin_options: What was given for the options of partitioner and extractor, by property.
        transforms: What is done to records between converting and filing them, in order.
        routes: Under which names topics are stored.
        affix: Where the name of a value's schema stands beside its directory.
        spool_bytes: What an unfinished file may hold in memory before it moves to disk.
        points: In a dated layout, have the pointer name the index of each file that is stored.
        backup: Id of the backup; empty where it has none.
    """

    run: str
    kafka: Connection
    store: StoreSettings
    layout: Layout
    clock: Clock
    views: tuple[ViewSpec, ...]
    partitioner: str
    extractor: str
    rule: Rule
    group: str
    flush_tail: bool = True
    nulls: Nulls = Nulls.FAIL
    affix: Affix = NO_AFFIX
    transforms: tuple[Step, ...] = ()
    routes: Routes = UNROUTED
    plugin_options: Mapping[str, Any] = field(default_factory=dict)
    spool_bytes: int = SPOOL_BYTES
    errors: ErrorPolicy = INTOLERANT
    schemas: SchemaSource = NO_SCHEMAS
    points: bool = True
    backup: str = ""


@dataclass(frozen=True, slots=True)
class SinkUnit:
    """One partition's share of a run.

    Attributes:
        where: The partition.
        span: The offsets to back up.
        bookmark: What was committed beside *span*'s start, None where it is nothing of ours.
        identity: Which topic it is; kept with each object and each position.
        held: The cuts of values in the bucket that are stored a second time, one after the other.
        kept: Offsets after *span*'s start that the bucket holds, or is known not to: no gap.
    """

    where: TopicPartition
    span: Span
    bookmark: SinkPosition | None = None
    identity: TopicIdentity = UNKNOWN
    held: tuple[HeldCut, ...] = ()
    kept: tuple[Span, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the unit as plain data."""
        return {
            "topic": self.where.topic,
            "partition": self.where.partition,
            "start": self.span.start_offset,
            "end": self.span.end_offset,
            "metadata": "" if self.bookmark is None else self.bookmark.to_metadata(),
            **self.identity.to_metadata(),
            "held": [[cut.start, cut.end, cut.objects, cut.is_whole] for cut in self.held],
            "kept": [[span.start_offset, span.end_offset] for span in self.kept],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        return cls(
            TopicPartition(data["topic"], data["partition"]),
            Span(data["start"], data["end"]),
            SinkPosition.read(data["metadata"]),
            TopicIdentity.from_metadata(data),
            tuple(HeldCut(Span(start, end), *rest) for start, end, *rest in data["held"]),
            tuple(Span(start, end) for start, end in data["kept"]),
        )


def recreated(topic: str, stored_as: str | None = None) -> TopicChangedError:
    """Return the error of a topic that is another one than was backed up.

    Args:
        topic: Its name.
        stored_as: The name that transforms give it, if that is another one.
    """
    do = "back it up to another topics.dir; the existing backup stays as it is"
    if stored_as not in (None, topic):
        return TopicChangedError(
            f"{topic} is not the topic whose backup {stored_as} is",
            "transforms give it the name of another backup, or the topic was deleted and created "
            "again, or this is another cluster",
            f"{do}; or give it another name",
            topic=topic,
        )
    return TopicChangedError(
        f"{topic} is not the topic that was backed up",
        "its topic id has changed: the topic was deleted and created again, or this is another "
        "cluster",
        do,
        topic=topic,
    )


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
            **({} if report.failure is None else {"failure": to_json(report.failure)}),
            **({} if report.held_up is None else {"held_up": to_json(report.held_up)}),
        }

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        own = OfSink(
            SinkPosition.read(message["metadata"]),
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
