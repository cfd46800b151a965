"""Keep and read captures: the offsets of consumer groups, under ``_kbackup/groups/``.

A sink asks for the committed offsets of all groups before it asks for high watermarks, and for
those before it reads records.  Once the backup has reached the high watermarks, the capture is
stored: all that an application had written when it committed an offset is in the backup then.

Captures are a stream as those of the ledger are, and stay few: of a topic, those of the newest two
hours, and of older ones the last of each hour, day, then week.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.ledger.rows import StreamForm, latest, rows_of
from kbackup.catalog.ledger.stream import Contents, Stream, folder
from kbackup.clock import Clock
from kbackup.errors import Issue
from kbackup.naming import Layout
from kbackup.naming.renaming import matching
from kbackup.records import TopicPartition
from kbackup.stores import Store

STREAMS: Final = "streams"
"""The protocol type of groups of Kafka Streams whose tasks the broker assigns (KIP-1071)."""

TOPIC: Final = "topic"
OFFSET: Final = "offset"
UNSETTLED: Final = "unsettled"

TRANSACTION: Final = "transaction"
TAIL: Final = "tail"
REFUSED: Final = "refused"
FAILED: Final = "failed"
BEHIND: Final = "behind"

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_STEPS: Final = ((31 * _DAY, 7 * _DAY), (2 * _DAY, _DAY), (2 * _HOUR, _HOUR))
"""Of captures that are older than the first, in ms, the last in each of the second is kept.

Each is a part of the one before it, so what is left out now would be left out later anyway.
"""


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """One row of a capture.

    Attributes:
        kind: ``topic``: the capture is of this topic, or of this partition of it, if the run was
            asked for some alone; and of *groups*.  ``offset``: where a group stood in a partition.
            ``unsettled``: not all that was there then is in the backup.
        taken: When offsets began to be asked for, in ms since the epoch, which tells captures
            apart.
        topic: The topic, as it is called in the bucket.
        is_complete: Of a topic: whether these are known to be all groups that there were.
        protocol_type: ``consumer``, ``streams``, or what else its members speak; empty where
            nobody knows.
        state: The group's, such as ``EMPTY`` or ``STABLE``.
        offset: The next offset that the group reads.
        metadata: What its consumers keep beside that, byte for byte.
        high_watermark: Where the partition's log ended, asked for after the offset.
        beyond: How many offsets before *offset* the backup had not reached; null for none.
        why: Of an unsettled partition: an open ``transaction``, a ``tail`` that waits for a file
            to be full, ``refused``: the sink does not back it up, ``failed``: an error stops it,
            or ``behind``: Kafka has not shown it yet, as after a change of leaders.
        groups: Of a topic: the Java regular expression that chose the groups to look at; null: all
            were, or an earlier version has not kept it.
    """

    kind: str
    taken: int
    topic: str
    cluster_id: str = ""
    topic_id: str = ""
    is_complete: bool | None = None
    group: str | None = None
    protocol_type: str | None = None
    state: str | None = None
    partition: int | None = None
    offset: int | None = None
    metadata: bytes | None = None
    high_watermark: int | None = None
    beyond: int | None = None
    why: str | None = None
    groups: str | None = None
    run: str | None = None
    time: int = 0
    counter: int | None = None

    @property
    def where(self) -> TopicPartition:
        """The partition of a row that is about one."""
        assert self.partition is not None  # noqa: S101
        return TopicPartition(self.topic, self.partition)


def _merged(rows: pa.Table) -> pa.Table:
    """Of captures of the same partitions and groups in one step of time the latest counts."""
    if not len(rows):
        return rows
    text = [rows["topic"], *(_text(rows[name]) for name in ("taken", "counter", "run"))]
    capture = pc.binary_join_element_wise(*text, "\n")
    is_part = pc.and_(
        pc.equal(rows["kind"], TOPIC),
        pc.or_(pc.is_valid(rows["partition"]), pc.is_valid(rows["groups"])),
    )
    parts = dict[str, frozenset[tuple[int | None, str | None]]]()
    names = rows["partition"], rows["groups"]
    found = (column.filter(is_part).to_pylist() for column in (capture, *names))
    for one, *part in zip(*found, strict=True):
        parts[one] = parts.get(one, frozenset()) | {tuple(part)}
    kept = pa.array(_kept(pc.unique(capture).to_pylist(), parts), pa.string())
    is_kept = pc.is_in(capture, kept)
    rows, capture = rows.filter(is_kept), capture.filter(is_kept)
    about = [rows["kind"], *(_text(rows[name]) for name in ("group", "partition"))]
    return latest(rows, pc.binary_join_element_wise(capture, *about, "\n"))


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(column.cast(pa.string()), "")


def _kept(captures: Iterable[str], parts: Mapping[str, object]) -> Iterator[str]:
    """Yield the captures that count, of all those of all topics, or of the same *parts*."""
    alike: defaultdict[object, list[tuple[int, int, str, str]]] = defaultdict(list)
    for text in captures:
        topic, taken, counter, run = text.split("\n", 3)
        alike[topic, parts.get(text)].append((int(taken), int(counter or -1), run, text))
    for found in alike.values():
        newest = max(found)[0]
        steps = {}
        for one in sorted(found):
            width = _width(one[0], newest)
            steps[width, one[0] // width] = one[-1]
        yield from steps.values()


def _width(taken: int, newest: int) -> int:
    """Return the step of time in which a capture stands for the others, in ms."""
    # all captures of a step agree, so it does not matter in how many folds they came together
    for age, width in _STEPS:
        if (taken // width + 1) * width <= newest - age:
            return width
    return 1


GROUPS: Final = StreamForm.of(
    GroupEntry,
    _merged,
    pa.field("cluster_id", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("partition", pa.int32()),
    forged="move it away, and keep it: it may hold where groups stood",
)
"""The stream of captures: rows of `GroupEntry`."""


FOLD_AT: Final = 16
"""How many parts a reader may have to open before they are folded: each ``sink status`` is one."""


def group_stream(store: Store, layout: Layout, clock: Clock) -> Stream:
    """Return the stream of captures of a ``topics.dir``."""
    return Stream(store, folder(layout, "groups"), GROUPS, clock)


@dataclass(frozen=True, slots=True)
class TopicCapture:
    """Where groups stood in one topic, by the newest capture of each partition and group.

    *topic* is of the newest of them; *since* is when the first that is kept was taken, in ms since
    the epoch; *offsets* are in the order of group and partition; *unsettled* says why not all that
    was there is stored.
    """

    topic: GroupEntry
    since: int
    offsets: tuple[GroupEntry, ...] = ()
    unsettled: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Captures:
    """What is known of where groups stood."""

    newest: Mapping[str, TopicCapture] = field(default_factory=dict)
    damage: Sequence[Issue] = ()


def read(store: Store, layout: Layout, clock: Clock, until_ms: int | None = None) -> Captures:
    """Return the newest capture of each topic, taken no later than *until_ms* if that is given.

    Sinks that back up different topics into one ``topics.dir`` each have captures of their own.
    """
    return captures(group_stream(store, layout, clock).read(), until_ms)


def captures(contents: Contents, until_ms: int | None = None) -> Captures:
    """Return the newest capture of each topic of a stream; *until_ms* is as of `read`."""
    do = "the other captures are used; kbackup sink reindex leaves this file out from then on"
    damage = [replace(one, do=do) for one in contents.damage]
    rows = contents.rows
    if until_ms is not None:
        rows = rows.filter(pc.less_equal(rows["taken"], until_ms))
    return Captures(_InForce(rows).captures(), damage)


class _InForce:
    """The captures that no later one of at least the same partitions and groups replaces."""

    def __init__(self, rows: pa.Table) -> None:
        newest: dict[tuple[str, int | None, str | None], GroupEntry] = {}
        self._since: dict[str, int] = {}
        for one in rows_of(GroupEntry, rows.filter(pc.equal(rows["kind"], TOPIC))):
            part = one.topic, one.partition, one.groups
            newest[part] = max(newest.get(part, one), one, key=_order)
            self._since[one.topic] = min(self._since.get(one.topic, one.taken), one.taken)
        self._heads: defaultdict[tuple[str, int | None], list[GroupEntry]] = defaultdict(list)
        for (topic, partition, pattern), one in newest.items():
            wider = product((topic,), {None, partition}, {None, pattern})
            if all(_order(newest.get(part, one)) <= _order(one) for part in wider):
                self._heads[topic, partition].append(one)
        every = [*chain(*self._heads.values())]
        taken = pa.array(sorted({one.taken for one in every}), pa.int64())
        is_said = pc.and_(pc.not_equal(rows["kind"], TOPIC), pc.is_in(rows["taken"], taken))
        self._rows = rows.filter(is_said)
        names = pc.unique(self._rows["group"].drop_null()).to_pylist()
        self._groups = {
            pattern: frozenset(matching(names, pattern, "groups"))
            for pattern in {one.groups for one in every if one.groups is not None}
        }

    def captures(self) -> dict[str, TopicCapture]:
        """Return what they say, by topic."""
        heads: defaultdict[str, list[GroupEntry]] = defaultdict(list)
        for (topic, _), found in self._heads.items():
            heads[topic] += found
        said: defaultdict[tuple[str, str], list[GroupEntry]] = defaultdict(list)
        for one in rows_of(GroupEntry, self._rows):
            if self._has(one):
                said[one.topic, one.kind].append(one)
        return {
            name: TopicCapture(
                replace(max(found, key=_order), is_complete=all(one.is_complete for one in found)),
                self._since[name],
                tuple(sorted(said[name, OFFSET], key=_place)),
                {one.where: one.why or "" for one in said[name, UNSETTLED]},
            )
            for name, found in heads.items()
        }

    def _has(self, row: GroupEntry) -> bool:
        """Whether a row is of the latest that looked at its partition and group."""
        looked = (
            _order(head)
            for head in (*self._heads[row.topic, row.partition], *self._heads[row.topic, None])
            if row.group is None or head.groups is None or row.group in self._groups[head.groups]
        )
        return _order(row) == max(looked, default=None)


def _place(row: GroupEntry) -> tuple[str, int]:
    return row.group or "", row.partition or 0


def _order(row: GroupEntry) -> tuple[int, int, str]:
    return row.taken, -1 if row.counter is None else row.counter, row.run or ""
