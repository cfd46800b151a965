"""The job, the units and the messages of a sink's tasks: plain data that crosses processes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from kbackup.clock import Clock
from kbackup.errors import TopicChangedError
from kbackup.events import Event
from kbackup.files import SPOOL_BYTES
from kbackup.kafka import Connection
from kbackup.naming import Layout
from kbackup.naming.renaming import UNROUTED, Routes
from kbackup.pipeline.convert import NO_AFFIX, Affix
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.rows import Nulls
from kbackup.pipeline.views import ViewSpec
from kbackup.plugins import Step
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.rejects import INTOLERANT, ErrorPolicy
from kbackup.sink.schemas import NO_SCHEMAS, SchemaSource
from kbackup.sink.start import StoredCut
from kbackup.spark.channel import unpacked
from kbackup.stores import StoreSettings


@dataclass(frozen=True, slots=True)
class SinkJob:
    """One run's settings for its tasks.

    Attributes:
        views: The files of one cut, in the order they are stored; the last one marks the set
            as complete.
        flush_tail: Close the last, short file at the end of a span.
        nulls: What becomes of records without a value in the connectors' layout.
        schemas: The registries whose schemas are stored.
        plugin_options: What was given for the options of partitioner and extractor, by property.
        transforms: What is done to records between converting and filing them, in order.
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

    @property
    def is_by_batches(self) -> bool:
        """Whether record batches are stored as they are, and nothing is converted."""
        return self.views[-1].stores_batches


@dataclass(frozen=True, slots=True)
class SinkUnit:
    """One partition's share of a run.

    Attributes:
        commit_metadata: What was committed beside *span*'s start, None where it is nothing of ours.
        identity: Which topic it is; kept with each object and each position.
        held: The cuts of values in the bucket that are stored a second time, one after the other.
        kept: Offsets after *span*'s start that the bucket holds, or is known not to: no gap.
    """

    where: TopicPartition
    span: Span
    commit_metadata: SinkPosition | None = None
    identity: TopicIdentity = UNKNOWN
    held: tuple[StoredCut, ...] = ()
    kept: tuple[Span, ...] = ()


def recreated(topic: str, stored_as: str | None = None) -> TopicChangedError:
    """Return the error of a topic that is another one than was backed up.

    Args:
        stored_as: The name that transforms give it, if that is another one.
    """
    do = "back it up to another topics.dir; the existing backup stays as it is"
    if stored_as not in (None, topic):
        return TopicChangedError(
            f"{topic} is not the topic that was backed up as {stored_as}",
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


@dataclass(frozen=True, slots=True)
class _Message:
    """What driver and tasks say to each other beside what the screen shows."""

    TYPE: ClassVar[str]
    """Looked at before the rest is read: messages of other types are on the same channel."""

    def to_dict(self) -> Event:
        """Return the message as plain data."""
        return {"type": self.TYPE, **asdict(self)}

    @classmethod
    def from_dict(cls, message: Event) -> Self:
        """Read what `to_dict` returned, and its way through JSON left of it."""
        found: Self = unpacked(cls, message)
        return found


@dataclass(frozen=True, slots=True)
class FollowReport(_Message):
    """A task's message: how far it is in a partition that it follows."""

    TYPE = "report"

    report: PartitionReport[OfSink]


@dataclass(frozen=True, slots=True)
class BrokersGone(_Message):
    """A task's message: no broker answers, so it ends, and the run with it."""

    TYPE = "gave_up"


@dataclass(frozen=True, slots=True)
class FollowOrder(_Message):
    """The driver's order to follow one more partition; a task takes those that are its own."""

    TYPE = "adopt"

    unit: SinkUnit
