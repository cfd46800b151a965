"""The events that a command reports while it works, each of them a line of ``--json``.

An event is a frozen dataclass, from the task or the run to the screens.  `to_json` makes JSON
values of it for ``--json``, for run records, and for the line between tasks and driver.  The names
of its fields, their order, and which of them are null or left out, are a contract.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Protocol, Self, get_args

from kbackup import clock
from kbackup.errors import Issue, KbackupError
from kbackup.records import Facts, Span, TopicPartition

Event = dict[str, Any]
"""An event as JSON values, with its ``type``."""

INLINE: Final = {"json": "inline"}
"""Metadata of a field whose own fields, or entries, stand in its place in JSON."""

IF_KNOWN: Final = {"json": "if known"}
"""Metadata of a field that JSON has only where it is not None."""

NOT_SHOWN: Final = {"json": "not shown"}
"""Metadata of a field that JSON does not have."""

GOOD: Final = frozenset({0, 3})
"""Exit codes of a run that backed up all there was, even if it had to say something about it."""

NO_TOPIC: Final = "no_topic"
"""Code of the warning that the topics that were asked for match none."""

NULL_IF_EMPTY: Final = {"json": "null if empty"}
"""Metadata of a text that is null in JSON where it is empty."""

ROWS: Final = {"json": "rows"}
"""Metadata of a sequence of events that JSON has without their ``type``."""


class Plain(Protocol):
    """An event, or a part of one: a dataclass.

    Its class may have a ``HEAD``: what its JSON begins with, such as ``{"type": "progress"}``.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]


Tell = Callable[[Plain], None]
"""Takes events."""


def kind_of(event: Plain) -> str:
    """Return the ``type`` of an event."""
    return str(getattr(event, "HEAD", {}).get("type", ""))


def to_json(event: Plain) -> Event:
    """Return an event, or a part of one, as JSON values.

    A time is a text in RFC 3339, a `Span` its first and its last offset.  Of two fields of one name
    the first counts.
    """
    if (own := getattr(event, "to_dict", None)) is not None:
        return dict(own())
    found: Event = dict(getattr(event, "HEAD", {}))
    for each in fields(event):
        value, how = getattr(event, each.name), each.metadata.get("json")
        match how:
            case "inline":
                inline = _json(value or {})
                found |= {name: one for name, one in inline.items() if name not in found}
            case "rows":
                found[each.name] = [_without_type(to_json(row)) for row in value]
            case "null if empty":
                found[each.name] = value or None
            case "if known" if value is None:
                pass
            case "not shown":
                pass
            case _:
                found[each.metadata.get("name", each.name)] = _json(value)
    return found


@cache
def plain_kinds(kind: type[Any]) -> dict[str, tuple[type, ...]]:
    """Return of which types the JSON of a dataclass's fields is: of those that are plain values."""
    kinds: dict[str, tuple[Any, ...]] = {
        each.name: get_args(each.type) if isinstance(each.type, UnionType) else (each.type,)
        for each in fields(kind)
    }
    return {
        name: (*own, int) if float in own else own
        for name, own in kinds.items()
        if _PLAIN.issuperset(own)
    }


_PLAIN: Final = frozenset({bool, int, float, str, NoneType})


def known_fields(kind: type[Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what JSON values say of a dataclass's fields; what it does not know is left out.

    A plain one of another type raises `ValueError`: anybody may have written it.
    """
    for name, kinds in plain_kinds(kind).items():  # type: ignore[arg-type]
        if name in said and type(said[name]) not in kinds:
            raise ValueError(f"{name} is {said[name]!r}")
    return {each.name: said[each.name] for each in fields(kind) if each.name in said}


def _without_type(row: Event) -> Event:
    return {name: value for name, value in row.items() if name != "type"}


def _json(value: Any) -> Any:
    if value is None or type(value) in (int, str, float, bool):  # as nearly all are
        return value
    found = value
    match value:
        case Enum():
            found = value.value
        case datetime():
            found = clock.rfc3339(value)
        case Span():
            found = [value.start_offset, value.end_offset - 1]
        case Mapping():
            found = {name: _json(one) for name, one in value.items()}
        case list() | tuple():
            found = [_json(one) for one in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            found = to_json(value)
    return found


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
    window: str | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True)
class Started:
    """A run that has looked at what there is, and is about to work.

    Attributes:
        topics: The topics of the cluster, or of the backup, that it is about.
        version: That of kbackup; what starts a run does not say.
        config_sha256: Of the settings, likewise.
        excluded: Topics that are left out because they match ``topics.exclude``; None without any.
        internal: Topics of Kafka itself that are left out, as nobody named them, likewise.
        from_environment: The variables that choose topics or records, likewise.
        not_yet: Topics of which nothing had been backed up by the time of ``as.of``, likewise.
        drills: Topics of drills, which are never backed up, likewise.
        server: The URL of the store's server; None for the usual one.
    """

    HEAD: ClassVar = {"type": "start", "v": 1}

    run: str
    command: str
    topics: Sequence[str]
    group: str
    store: str
    topics_dir: str
    own: SinkStart | RestoreStart = field(metadata=INLINE)
    excluded: Sequence[str] | None = field(default=None, metadata=IF_KNOWN)
    internal: Sequence[str] | None = field(default=None, metadata=IF_KNOWN)
    version: str | None = field(default=None, metadata=IF_KNOWN)
    config_sha256: str | None = field(default=None, metadata=IF_KNOWN)
    from_environment: Sequence[str] | None = field(default=None, metadata=IF_KNOWN)
    not_yet: Sequence[str] | None = field(default=None, metadata=IF_KNOWN)
    drills: Sequence[str] | None = field(default=None, metadata=IF_KNOWN)
    server: str | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """How many partitions a topic has.

    Attributes:
        source: In the cluster that is backed up; of sinks only.
        target: In the cluster that is restored to; None where there is no such topic yet.
    """

    source: int | None = field(default=None, kw_only=True, metadata=IF_KNOWN)
    backup: int
    target: int | None = None


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """What only a sink plans for a topic.

    Attributes:
        objects: How many there will be is not known; `records` and `bytes` likewise.
        offsets: How many offsets are to be read.
    """

    objects: None = field(default=None, init=False)
    records: None = field(default=None, init=False)
    bytes: None = field(default=None, init=False)
    offsets: int


@dataclass(frozen=True, slots=True)
class RestoreTopic:
    """What only a restore plans for a topic.

    Attributes:
        records: Records in them, None if that is not known.
        retention_ms: Of a topic that is created; None for one that is there.
    """

    objects: int
    records: int | None
    bytes: int
    retention_ms: str | None


@dataclass(frozen=True, slots=True)
class TopicPlanned:
    """What is to be done with one topic.

    Attributes:
        target: The prefix of its objects; of a restore, the topic that is written to.
        action: ``create``, ``append``, ``resume``, ``done`` or ``refuse``.
        reason: Why nothing may be done; None if nothing forbids it.
    """

    HEAD: ClassVar = {"type": "plan_topic"}

    source: str
    target: str
    partitions: PartitionCounts
    action: str
    reason: str | None
    code: str | None
    own: SinkTopic | RestoreTopic = field(metadata=INLINE)

    @classmethod
    def of(
        cls,
        source: str,
        target: str,
        partitions: PartitionCounts,
        action: str,
        refusal: KbackupError | None,
        own: SinkTopic | RestoreTopic,
    ) -> Self:
        """Return the plan of a topic that *refusal* forbids; None if nothing forbids it."""
        reason, code = (None, None) if refusal is None else (str(refusal), refusal.code)
        return cls(source, target, partitions, action, reason, code, own)


@dataclass(frozen=True, slots=True)
class NewestObject:
    """The object of another tool that a sink goes on after."""

    key: str
    first: int
    records: int


@dataclass(frozen=True, slots=True)
class PartitionPlanned:
    """A sink's plan for a partition: where group and objects left off, what is next.

    Attributes:
        committed: The group's offset; None where it has none.
        start: Where the sink begins; None where it is refused.
        next_key: The first object that would be stored; None where nothing is to be done.
        held_up: The open transaction that holds it up, None where there is none.
    """

    HEAD: ClassVar = {"type": "plan_partition"}

    where: TopicPartition = field(metadata=INLINE)
    state: str
    committed: int | None
    start: int | None
    end: int
    next_key: str | None
    newest: NewestObject | None
    held_up: Plain | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """How far the work on a partition is: a row of a plan, a summary and a run record.

    Attributes:
        start: The first offset of it to copy; None: nowhere, it is refused.
        first: Offset of the first record that is safe; None without one.
        last: That of the last one.
        records: Records that are safe.
        bytes_read: Bytes of the records read; of a restore, of the objects read.
        end: Where the work ends, as far as that is known.
        committed: The next offset to copy, as committed; None before anything is.
        lag: Offsets that are left; None where start or end is not known.
        filtered: Records that a transform left out; None before a task has ended its work on it.
        held_up: The open transaction that holds it up, None where there is none.
        complete_until: All that was written to it before then is backed up; of sinks only, None
            where the run does not know.
        target: The topic that is written to; of restores only.
        planned_objects: Objects to be read; of restores only.
        duplicates: Records that several objects hold; of restores that have ended.
        bytes_stored: Bytes of the objects stored; of sinks only.
        skipped: Records, or objects, that were left out because they are bad.
        skipped_offsets: The first and last of each range of them; of sinks only.
        nulls_left_out: Records left out because they have no value; of sinks that have ended.
        group_offset: The group's offset; of a sink's plan only.
    """

    where: TopicPartition = field(metadata=INLINE)
    start: int | None
    first: int | None
    last: int | None
    records: int
    objects: int
    bytes_read: int
    end: int | None
    committed: int | None
    lag: int | None
    state: str
    filtered: int | None = field(default=None, metadata=IF_KNOWN)
    held_up: Plain | None = field(default=None, metadata=IF_KNOWN)
    complete_until: datetime | None = field(default=None, metadata=IF_KNOWN)
    target: str | None = field(default=None, metadata=IF_KNOWN)
    planned_objects: int | None = field(default=None, metadata=IF_KNOWN)
    duplicates: int | None = field(default=None, metadata=IF_KNOWN)
    bytes_stored: int | None = field(default=None, metadata=IF_KNOWN)
    skipped: int | None = field(default=None, metadata=IF_KNOWN)
    skipped_offsets: Sequence[Span] | None = field(default=None, metadata=IF_KNOWN)
    nulls_left_out: int | None = field(default=None, metadata=IF_KNOWN)
    group_offset: int | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be done with each partition, for the display."""

    HEAD: ClassVar = {"type": "plan"}

    partitions: Sequence[PartitionRow]


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a partition is safe, and how much is not safe yet.

    Attributes:
        committed: The next offset of it to copy; None before anything is known.
        records: Records that this run has made safe.
        objects: Objects that it has stored, or read to their end.
        open: Records read or sent that are not safe yet.
        end: The offset to copy up to, as far as it is known.
        bytes_read: Bytes of the objects that were read; None where records are.
        bytes_stored: Bytes of the objects that were stored; None where records are written.
    """

    HEAD: ClassVar = {"type": "progress"}

    run: str
    where: TopicPartition = field(metadata=INLINE)
    committed: int | None
    records: int
    objects: int
    open: int
    target: str | None = field(default=None, metadata=IF_KNOWN)
    end: int | None = field(default=None, metadata=IF_KNOWN)
    bytes_read: int | None = field(default=None, metadata=IF_KNOWN)
    bytes_stored: int | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to know that ends nothing.

    Attributes:
        run: The run's id; None for a command that only looks.
        place: Further fields, as plain JSON values: what it is about.
    """

    HEAD: ClassVar = {"type": "warning"}

    run: str | None = field(default=None, kw_only=True, metadata=IF_KNOWN)
    code: str
    text: str
    place: Mapping[str, Any] = field(default_factory=dict, metadata=INLINE)

    @classmethod
    def about(
        cls, where: TopicPartition, code: str, text: str, run: str | None = None, **more: Any
    ) -> Self:
        """Return a warning about a partition."""
        place = {"topic": where.topic, "partition": where.partition, **more}
        return cls(code, text, place, run=run)


@dataclass(frozen=True, slots=True)
class ObjectStored:
    """An object that is complete in the store.

    Attributes:
        min_timestamp: In ms since the epoch; None where no record has one.
    """

    HEAD: ClassVar = {"type": "object"}

    run: str
    key: str
    first: int
    last: int
    records: int
    bytes: int
    min_timestamp: int | None
    max_timestamp: int | None
    sha256: str

    @classmethod
    def of(cls, run: str, key: str, facts: Facts, size: int) -> Self:
        """Return the event of an object that holds what *facts* say."""
        return cls(
            run, key, facts.first_offset, facts.last_offset, facts.records, size,
            facts.min_timestamp, facts.max_timestamp, facts.sha256,
        )  # fmt: skip


class SummaryRow(Plain, Protocol):
    """A partition's row of a summary: a `PartitionRow`, or what a command found out of it."""

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        ...

    @property
    def records(self) -> int | None:
        """Its records, None where that is not known."""
        ...

    @property
    def objects(self) -> int:
        """Its objects."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSums:
    """The sums of a topic's partitions.

    Attributes:
        target: The topic that is written to; None where none is.
        records: Theirs together, as far as they are known.
        bytes: Of objects stored, of those there are, or of those read.
    """

    topic: str
    target: str | None = None
    partitions: int = 0
    records: int = 0
    objects: int = 0
    bytes: int = 0
    skipped: int = 0

    def plus(self, row: SummaryRow) -> "TopicSums":
        """Return the sums with a partition's."""
        sizes = (getattr(row, name, None) for name in ("bytes_stored", "bytes", "bytes_read"))
        return TopicSums(
            self.topic,
            self.target,
            self.partitions + 1,
            self.records + (row.records or 0),
            self.objects + (row.objects or 0),
            self.bytes + next(filter(None, sizes), 0),
            self.skipped + (getattr(row, "skipped", None) or 0),
        )


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A command that remains to be run after another one.

    Attributes:
        purpose: What for, in words that end with a colon.
    """

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its summary.

    Attributes:
        result: ``ok``, ``skipped``, ``refused``, ``stopped`` or ``failed``.
        records: Of all partitions; None where that is not known, as with the counts below.
        bytes_stored: Likewise; of a command that only looks, what there is.
        skipped: Counts of what was left out, by reason.
        topics: A row for each, or for each topic that records of one are restored to.
        facts: What only this command says.
        next: The command that goes on where this one stopped, or that remains to be run.
    """

    HEAD: ClassVar = {"type": "summary", "v": 1}

    run: str
    command: str
    result: str
    exit_code: int
    seconds: float | None = None
    records: int | None = None
    objects: int | None = None
    bytes_read: int | None = None
    bytes_stored: int | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    partitions: Sequence[SummaryRow] = field(default=(), metadata=ROWS)
    topics: Sequence[TopicSums] = ()
    errors: Sequence[Issue] = ()
    warnings: Sequence[Warned] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, metadata=INLINE)
    next: str | None = field(default=None, metadata=IF_KNOWN)

    @property
    def is_good(self) -> bool:
        """Whether it found topics, and did all that there was to do for them."""
        found_none = any(warned.code == NO_TOPIC for warned in self.warnings)
        is_empty = found_none and not self.partitions
        return self.exit_code in GOOD and not self.errors and not is_empty

    def saying(self, **facts: Any) -> "Ended":
        """Return the summary with more facts, in place of those of the same name."""
        return replace(self, facts={**self.facts, **facts})


_BY_TYPE: Final[Mapping[str, type[Progress | Warned | ObjectStored]]] = {
    kind.HEAD["type"]: kind for kind in (Progress, Warned, ObjectStored)
}


def from_json(data: Mapping[str, Any]) -> Progress | Warned | ObjectStored | None:
    """Read what a task tells the screen: what `to_json` made of it; None for anything else."""
    kind = _BY_TYPE.get(data["type"])
    if kind is None:
        return None
    given = {name: value for name, value in data.items() if name != "type"}
    if kind is Progress:
        given["where"] = TopicPartition(given.pop("topic"), given.pop("partition"))
    elif kind is Warned:
        place = given.keys() - {"run", "code", "text"}
        given["place"] = {name: given.pop(name) for name in sorted(place)}
    return kind(**given)
