"""What a command reports while it works: the events, each of them a line of ``--json``.

An event is a frozen dataclass until it leaves the task or the run; its `to_dict` fixes the names
of the JSON fields, which are a contract.  A task's line and a run's frame are these borders: past
them, from the driver's end of the line to the screens, an event is plain data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Protocol, Self

from kbackup.errors import KbackupError
from kbackup.records import Facts, TopicPartition

Event = dict[str, Any]
"""An event as plain data: JSON values, with its ``type``."""


class Plain(Protocol):
    """What can become plain data: an event, or a row of one."""

    def to_dict(self) -> Event:
        """Return it as JSON values, under the names of the contract."""
        ...


Tell = Callable[[Plain], None]
"""Takes events."""

PROGRESS: Final = "progress"

_KNOWN_BY_SOME: Final = ("target", "end", "bytes_read", "bytes_stored")
"""Fields of a `Progress` that are left out where they are None."""


@dataclass(frozen=True, slots=True)
class SinkStart:
    """What only a sink says when it starts: how it is going to store records."""

    format: str | None
    view: str
    flush_size: int | None


@dataclass(frozen=True, slots=True)
class RestoreStart:
    """What only a restore says when it starts: where it is going to write."""

    cluster_id: str
    target: str | None
    renames: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Started:
    """A run that has looked at what there is, and is about to work.

    Attributes:
        run: The run's id.
        topics: The topics of the cluster, or of the backup, that it is about.
        group: The consumer group that keeps its positions.
        store: URL of the store.
        topics_dir: Where the backup is in it.
        own: What only this direction says.
    """

    run: str
    topics: Sequence[str]
    group: str
    store: str
    topics_dir: str
    own: SinkStart | RestoreStart

    def to_dict(self) -> Event:
        """Return the event as plain data."""
        return {
            "type": "start", "v": 1, "run": self.run,
            "command": "sink" if isinstance(self.own, SinkStart) else "restore",
            "topics": list(self.topics), "group": self.group, "store": self.store,
            "topics_dir": self.topics_dir, **asdict(self.own),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """What only a sink plans for a topic.

    Attributes:
        partitions: How many the topic has.
        offsets: How many offsets are to be read.
    """

    partitions: int
    offsets: int


@dataclass(frozen=True, slots=True)
class RestoreTopic:
    """What only a restore plans for a topic.

    Attributes:
        partitions: How many the target has; None where there is none yet.
        objects: Objects to be read.
        records: Records in them, None if that is not known.
        bytes: Bytes of the objects.
        retention_ms: Of a topic that is created; None for one that is there.
    """

    partitions: int | None
    objects: int
    records: int | None
    bytes: int
    retention_ms: str | None


@dataclass(frozen=True, slots=True)
class TopicPlanned:
    """What is to be done with one topic.

    Attributes:
        source: The topic that is, or was, backed up.
        target: The prefix of its objects; of a restore, the topic that is written to.
        action: ``create``, ``append``, ``resume``, ``done`` or ``refuse``.
        partitions: How many of its partitions the backup has.
        refusal: Why nothing may be done; None if nothing forbids it.
        own: What only this direction plans.
    """

    source: str
    target: str
    action: str
    partitions: int
    refusal: KbackupError | None
    own: SinkTopic | RestoreTopic

    @property
    def code(self) -> str | None:
        """The code of the refusal; None if nothing forbids it."""
        return None if self.refusal is None else self.refusal.code

    def to_dict(self) -> Event:
        """Return the event as plain data."""
        match self.own:
            case SinkTopic(source, offsets):
                partitions: Event = {"source": source, "backup": self.partitions, "target": None}
                more: Event = {"objects": None, "records": None, "bytes": None, "offsets": offsets}
            case RestoreTopic(target, objects, records, size, retention_ms):
                partitions = {"backup": self.partitions, "target": target}
                more = {
                    "objects": objects, "records": records, "bytes": size,
                    "retention_ms": retention_ms,
                }  # fmt: skip
        return {
            "type": "plan_topic", "source": self.source, "target": self.target,
            "partitions": partitions, "action": self.action,
            "reason": None if self.refusal is None else str(self.refusal),
            "code": self.code, **more,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be done with each partition, for the display.

    Attributes:
        rows: One for each.
    """

    rows: Sequence[Plain]

    def to_dict(self) -> Event:
        """Return the event as plain data."""
        return {"type": "plan", "partitions": [row.to_dict() for row in self.rows]}


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a partition is safe, and how much is not safe yet.

    Attributes:
        run: The run's id.
        where: The partition that was, or is being, backed up.
        committed: The next offset of it to copy; None before anything is known.
        records: Records that this run has made safe.
        objects: Objects that it has stored, or read to their end.
        open: Records read or sent that are not safe yet.
        target: The topic that is written to; None where objects are.
        end: The offset to copy up to, as far as it is known.
        bytes_read: Bytes of the objects that were read; None where records are.
        bytes_stored: Bytes of the objects that were stored; None where records are written.
    """

    run: str
    where: TopicPartition
    committed: int | None
    records: int
    objects: int
    open: int
    target: str | None = None
    end: int | None = None
    bytes_read: int | None = None
    bytes_stored: int | None = None

    def to_dict(self) -> Event:
        """Return the event as plain data, without the fields that are None."""
        given = {name: getattr(self, name) for name in _KNOWN_BY_SOME}
        return {
            "type": PROGRESS, "run": self.run, "topic": self.where.topic,
            "partition": self.where.partition, "committed": self.committed,
            "records": self.records, "objects": self.objects, "open": self.open,
            **{name: value for name, value in given.items() if value is not None},
        }  # fmt: skip

    @classmethod
    def from_dict(cls, event: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        where = TopicPartition(event["topic"], event["partition"])
        names = (entry.name for entry in fields(cls) if entry.name != "where")
        return cls(where=where, **{name: event[name] for name in names if name in event})


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to know that ends nothing.

    Attributes:
        code: What kind of thing, for scripts.
        text: One sentence.
        run: The run's id; None for a command that only looks.
        place: Further fields, as plain JSON values: what it is about.
    """

    code: str
    text: str
    run: str | None = None
    place: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def about(
        cls, where: TopicPartition, code: str, text: str, run: str | None = None, **more: Any
    ) -> Self:
        """Return a warning about a partition."""
        place = {"topic": where.topic, "partition": where.partition, **more}
        return cls(code, text, run, place)

    def to_dict(self) -> Event:
        """Return the event as plain data."""
        run = {} if self.run is None else {"run": self.run}
        return {"type": "warning", **run, "code": self.code, "text": self.text, **self.place}


@dataclass(frozen=True, slots=True)
class ObjectStored:
    """An object that is complete in the store.

    Attributes:
        run: The run's id.
        key: The object.
        facts: What it holds.
        bytes: Its size.
    """

    run: str
    key: str
    facts: Facts
    bytes: int

    def to_dict(self) -> Event:
        """Return the event as plain data."""
        facts = self.facts
        return {
            "type": "object", "run": self.run, "key": self.key, "first": facts.first_offset,
            "last": facts.last_offset, "records": facts.records, "bytes": self.bytes,
            "min_timestamp": facts.min_timestamp, "max_timestamp": facts.max_timestamp,
            "sha256": facts.sha256,
        }  # fmt: skip
