"""Compare the records of a partition on two sides: those of a backup, and those in Kafka.

Both sides come as batches, in order; each is read once, and only a few batches are held.  Where
both know the same offsets, records are paired by them (`by_offset`); a restored topic has offsets
of its own, so its records are paired by their order (`in_order`).
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import Batches
from kbackup.batches.decoding import alike
from kbackup.catalog.ledger.rows import Entry
from kbackup.errors import (
    DiffersError,
    IncompleteBackupError,
    Issue,
    KafkaError,
    KbackupError,
    counted,
    form,
    some,
)
from kbackup.events import INLINE
from kbackup.records import TimestampType, TopicPartition, replaced
from kbackup.runs.context import Environment
from kbackup.runs.report import Summary
from kbackup.spark.channel import NotBegun, Task
from kbackup.spark.engine import discard

NAMED_MOST: Final = 10
"""Differences of a partition that are named; all are counted."""

ASIDE_MOST: Final = 1024
"""How far `in_order` looks for where two sides agree again, in records."""

ASIDE_BYTES: Final = 16 * 2**20
"""Likewise in bytes: records may be large."""

DISAGREED_MOST: Final = 100
"""How often it does so in one unit of work, before it says that the rest differs."""

_AT_ONCE_MOST: Final = 2**20
"""As many records of the backup are unpacked at once, at most; or one batch."""

_AGREED: Final = 2
"""As many records in a row have to be the same: one alone may be so by chance."""

COLUMNS: Final = ("key", "value", "headers", "timestamp", "timestamp_type")
"""What of a record is compared beside its place; `compared` says where not."""

BACKUP_ONLY: Final = "only in the backup"
KAFKA_ONLY: Final = "only in Kafka"


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that is not the same on both sides.

    Attributes:
        offset: Its offset in the backup; None where only Kafka has it.
        kafka_offset: Its offset in Kafka; None where only the backup has it.
    """

    offset: int | None
    kafka_offset: int | None
    what: str


@dataclass(frozen=True, slots=True)
class RecordsCompared:
    """What a comparison has shown, in records.

    Attributes:
        backup_only: Those that Kafka does not have.
        kafka_only: Those that the backup does not have.
        later: Those in Kafka behind the last one of the backup, where these are no difference.
        unread: Of the backup, those that were not compared because too much differed before.
    """

    same: int = 0
    different: int = 0
    backup_only: int = 0
    kafka_only: int = 0
    later: int = 0
    unread: int = 0
    named: tuple[Difference, ...] = ()

    def __add__(self, other: "RecordsCompared") -> "RecordsCompared":
        return RecordsCompared(
            self.same + other.same,
            self.different + other.different,
            self.backup_only + other.backup_only,
            self.kafka_only + other.kafka_only,
            self.later + other.later,
            self.unread + other.unread,
            (self.named + other.named)[:NAMED_MOST],
        )


NOTHING: Final = RecordsCompared()


@dataclass(frozen=True, slots=True)
class InBatches:
    """Records of one side that are still in their batches, and what reads them as rows."""

    batches: Batches
    unpack: Callable[[Batches], Iterable[pa.RecordBatch]]

    def behind(self, number: int) -> "InBatches | None":
        """Return those behind so many batches; None if there are none."""
        left = self.batches.slice(number)
        return replace(self, batches=left) if len(left) else None

    def unpacked(self, wanted: int) -> "tuple[Iterator[pa.RecordBatch], InBatches | None]":
        """Return the rows of as few batches as hold so many, and what is behind these."""
        up_to = pc.cumulative_sum(self.batches.headers["count"].cast(pa.int64()))
        last = pc.index(pc.greater_equal(up_to, wanted), value=True).as_py()
        number = len(self.batches) if last < 0 else last + 1
        return iter(self.unpack(self.batches.slice(0, number))), self.behind(number)


Part: TypeAlias = pa.RecordBatch | InBatches


def by_offset(
    backup: Iterable[pa.RecordBatch],
    kafka: Iterable[pa.RecordBatch],
    lacking: Callable[[pa.RecordBatch], object] | None = None,
) -> RecordsCompared:
    """Compare records of ``records.SCHEMA`` that have the same offsets on both sides.

    Args:
        lacking: Kafka may have left some out: it is called with those, which are counted and not
            named.
    """
    mine, theirs, found = _Side(backup), _Side(kafka), NOTHING

    def left_out(rows: pa.RecordBatch) -> RecordsCompared:
        if lacking is None:
            return _alone(rows, backup=True)
        lacking(rows)
        return RecordsCompared(backup_only=len(rows))

    while (one := mine.next()) is not None and (two := theirs.next()) is not None:
        end = min(one["offset"][-1].as_py(), two["offset"][-1].as_py())
        one, two = (side.take(side.rows_to(end)) for side in (mine, theirs))
        if not one["offset"].equals(two["offset"]):
            ours = pc.is_in(one["offset"], value_set=two["offset"])
            others = pc.is_in(two["offset"], value_set=one["offset"])
            found += left_out(one.filter(pc.invert(ours)))
            found += _alone(two.filter(pc.invert(others)), backup=False)
            one, two = one.filter(ours), two.filter(others)
        found += _paired(one, two)
    while (one := mine.next()) is not None:
        found += left_out(mine.take(len(one)))
    while (two := theirs.next()) is not None:
        found += _alone(theirs.take(len(two)), backup=False)
    return found


def in_order(
    backup: Iterable[Part], kafka: Iterable[Part], *, may_follow: bool = False
) -> RecordsCompared:
    """Compare records of ``records.SCHEMA`` by their order, in their batches where both have them.

    Where they differ, the nearest place is looked for from which they are the same again: so one
    that is missing, or there twice, does not make all that follow it differ.

    Batches that are not copied are unpacked, of Kafka's as few as the backup's rows need: so both
    sides come to the next ones that are at the same time.  Of the backup's ever more are unpacked
    at once: who has packed some records anew may have done so with all.

    Args:
        may_follow: What follows the last record of the backup in Kafka is no difference.
    """
    mine, theirs, found, disagreed, at_once = _Side(backup), _Side(kafka), NOTHING, 0, 1
    while True:
        copied = _pass_copied(mine, theirs)
        found += RecordsCompared(same=copied)
        at_once = 1 if copied else min(2 * at_once, _AT_ONCE_MOST)
        if (one := mine.next(at_once)) is None or (two := theirs.next(len(one))) is None:
            break
        number = min(len(one), len(two))
        same = _first_wrong(one.slice(0, number), two.slice(0, number))
        found += RecordsCompared(same=same)
        mine.skip(same)
        theirs.skip(same)
        if same == number:
            continue
        if disagreed == DISAGREED_MOST:
            return found + RecordsCompared(unread=mine.drain())
        disagreed += 1
        ours, others = mine.ahead(), theirs.ahead()
        left, right = _apart(ours, others)
        both = min(left, right)
        found += _paired(ours.slice(0, both), others.slice(0, both))
        found += _alone(ours.slice(both, left - both), backup=True)
        found += _alone(others.slice(both, right - both), backup=False)
        mine.skip(left)
        theirs.skip(right)
    while (one := mine.next()) is not None:
        found += _alone(mine.take(len(one)), backup=True)
    if may_follow:
        return found + RecordsCompared(later=theirs.drain())
    while (two := theirs.next()) is not None:
        found += _alone(theirs.take(len(two)), backup=False)
    return found


def _pass_copied(mine: "_Side", theirs: "_Side") -> int:
    """Pass the batches that are copies of each other; return how many records they hold."""
    records = 0
    while (one := mine.batches()) is not None and (two := theirs.batches()) is not None:
        number = alike(one, two)
        if not number:
            break
        records += one.slice(0, number).records
        mine.pass_batches(number)
        theirs.pass_batches(number)
    return records


class _Side:
    """The records of one side; some rows of those at hand have been taken."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._held: deque[pa.RecordBatch] = deque()
        self._rows: Iterator[pa.RecordBatch] = iter(())  # behind those at hand
        self._packed: InBatches | None = None  # behind these
        self._more = iter(parts)

    def _next(self) -> Part | None:
        """Return what is behind the rows at hand: rows, at least one, or batches."""
        while True:
            for rows in self._rows:
                if len(rows):
                    return rows
            part, self._packed = self._packed or next(self._more, None), None
            if part is None or isinstance(part, InBatches):
                return part
            self._rows = iter((part,))

    def _next_rows(self, wanted: int) -> pa.RecordBatch | None:
        while isinstance(part := self._next(), InBatches):
            self._rows, self._packed = part.unpacked(wanted)
        return part

    def next(self, wanted: int = 1) -> pa.RecordBatch | None:
        """Return the rows at hand, at least one; unpacks *wanted* if none are; None at the end."""
        if not self._held and (rows := self._next_rows(wanted)) is not None:
            self._held.append(rows)
        return self._held[0] if self._held else None

    def batches(self) -> Batches | None:
        """Return the batches that come next; None where rows do, or nothing."""
        if self._held:
            return None
        part = self._next()
        if isinstance(part, InBatches):
            self._packed = part
            return part.batches
        if part is not None:
            self._held.append(part)
        return None

    def pass_batches(self, number: int) -> None:
        """Pass so many of the batches that come next."""
        assert self._packed is not None  # noqa: S101  (whoever calls has seen them)
        self._packed = self._packed.behind(number)

    def rows_to(self, offset: int) -> int:
        """Return how many rows at hand have at most this offset."""
        number: int = pc.sum(pc.less_equal(self._held[0]["offset"], offset)).as_py()
        return number

    def take(self, number: int) -> pa.RecordBatch:
        """Take so many of the rows at hand."""
        batch = self._held.popleft()
        if number < len(batch):
            self._held.appendleft(batch.slice(number))
        return batch.slice(0, number)

    def skip(self, number: int) -> None:
        """Pass so many rows, of as many batches."""
        while number:
            number -= len(self.take(min(number, len(self._held[0]))))

    def ahead(self) -> pa.RecordBatch:
        """Return the next rows, `ASIDE_MOST` of them at most, without taking any."""
        while (
            sum(map(len, self._held)) < ASIDE_MOST
            and sum(batch.nbytes for batch in self._held) < ASIDE_BYTES
            and (batch := self._next_rows(ASIDE_MOST)) is not None
        ):
            self._held.append(batch)
        held = pa.Table.from_batches([*self._held]).slice(0, ASIDE_MOST).combine_chunks()
        (whole,) = held.to_batches()
        return whole

    def drain(self) -> int:
        """Read to the end; return how many rows were left."""
        number = 0
        while (batch := self.next()) is not None:
            number += len(batch)
            self._held.popleft()
            while (batches := self.batches()) is not None:
                number += batches.records
                self.pass_batches(len(batches))
        return number


def untimed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records of Kafka without the times that a broker has set, which no backup has."""
    is_own = pc.not_equal(batch["timestamp_type"], TimestampType.LOG_APPEND)
    if pc.all(is_own).as_py():
        return batch
    times = batch["timestamp"]
    return replaced(batch, "timestamp", pc.if_else(is_own, times, pa.scalar(None, times.type)))


def are_same(one: pa.RecordBatch, two: pa.RecordBatch) -> bool:
    """Whether as many records of each side are equal, wherever they stand."""
    return not _wrong(one, two)


def _first_wrong(one: pa.RecordBatch, two: pa.RecordBatch) -> int:
    """Return the first row that differs; the number of rows where none does."""
    wrong = [pc.index(mask, value=True).as_py() for mask in _wrong(one, two).values()]
    return min((row for row in wrong if row >= 0), default=len(one))


def _paired(one: pa.RecordBatch, two: pa.RecordBatch) -> RecordsCompared:
    """Compare rows that stand for each other."""
    masks = _wrong(one, two)
    if not masks:
        return RecordsCompared(same=len(one))
    every = pa.Table.from_pydict(masks).to_pylist()  # only where something differs
    wrong = [(row, ", ".join(filter(each.get, each))) for row, each in enumerate(every)]
    wrong = [(row, what) for row, what in wrong if what]
    named = (
        Difference(one["offset"][row].as_py(), two["offset"][row].as_py(), what)
        for row, what in wrong[:NAMED_MOST]
    )
    return RecordsCompared(len(one) - len(wrong), len(wrong), named=tuple(named))


def _alone(rows: pa.RecordBatch, *, backup: bool) -> RecordsCompared:
    """Count rows that one side alone has."""
    offsets = rows["offset"].slice(0, NAMED_MOST).to_pylist()
    if backup:
        named = tuple(Difference(offset, None, BACKUP_ONLY) for offset in offsets)
        return RecordsCompared(backup_only=len(rows), named=named)
    named = tuple(Difference(None, offset, KAFKA_ONLY) for offset in offsets)
    return RecordsCompared(kafka_only=len(rows), named=named)


def _wrong(one: pa.RecordBatch, two: pa.RecordBatch) -> dict[str, pa.BooleanArray]:
    """Return which rows differ, of each column in which some do."""
    found = {}
    for name in COLUMNS:
        if not one[name].equals(two[name]):
            unequal = _unequal_headers if name == "headers" else _unequal
            mask = unequal(one[name], two[name])
            if name == "timestamp":  # not stored with values, and nobody's where a broker sets it
                mask = pc.and_(mask, pc.and_(one[name].is_valid(), two[name].is_valid()))
            if pc.any(mask).as_py():
                found[name] = mask
    return found


def _unequal(one: pa.Array, two: pa.Array) -> pa.BooleanArray:
    """Return where two arrays differ; a null is equal to a null alone."""
    both = pc.and_(one.is_null(), two.is_null())
    return pc.invert(pc.or_(pc.fill_null(pc.equal(one, two), fill_value=False), both))


def _unequal_headers(one: pa.ListArray, two: pa.ListArray) -> pa.BooleanArray:
    """Return where two columns of headers differ: by number, order, names or values."""
    apart = _unequal(pc.list_value_length(one), pc.list_value_length(two))
    rows = pa.array(range(len(one)), pa.int64()).filter(pc.invert(apart))
    left, right = one.take(rows), two.take(rows)
    names, values = (
        _unequal(left.flatten().field(part), right.flatten().field(part))
        for part in ("key", "value")
    )
    parents = pc.list_parent_indices(left).filter(pc.or_(names, values))
    wrong = rows.take(pc.unique(parents))
    return pc.or_(apart, pc.is_in(pa.array(range(len(one)), pa.int64()), value_set=wrong))


_Row = tuple[str, int | None]
"""A record as text, without its time, and that; None where it is nobody's."""


def _rows(batch: pa.RecordBatch) -> list[_Row]:
    """Return the rows, and an empty one that stands for the end."""
    names = [name for name in COLUMNS if name != "timestamp"]
    texts = map(repr, batch.select(names).to_pylist())
    return [*zip(texts, batch["timestamp"].to_pylist(), strict=True), ("", None)]


def _is_alike(one: _Row, two: _Row) -> bool:
    return one[0] == two[0] and (None in (one[1], two[1]) or one[1] == two[1])


def _apart(one: pa.RecordBatch, two: pa.RecordBatch) -> tuple[int, int]:
    """Return how many rows of each side to pass until both are the same again."""
    # rows become Python objects here: some hundred, `DISAGREED_MOST` times at most
    ours, others = _rows(one), _rows(two)
    at_time, at_any = defaultdict[_Row, list[int]](list), defaultdict[str, list[int]](list)
    for at, row in enumerate(others):
        at_time[row].append(at)
        at_any[row[0]].append(at)

    def agrees(left: int, right: int) -> bool:
        pairs = zip_longest(ours[left : left + _AGREED], others[right : right + _AGREED])
        return all(mine and other and _is_alike(mine, other) for mine, other in pairs)

    if agrees(1, 1):  # among equal records other pairs would fit as well
        return 1, 1
    best = len(one), len(two)
    for left, (text, time) in enumerate(ours):
        alike = at_time[text, time], at_time[text, None]
        for right in at_any[text] if time is None else chain(*alike):
            if left + right < sum(best) and agrees(left, right):
                best = left, right
    return best


NOT_COMPARED: Final = "partitions_not_compared"
"""Counts partitions of which the backup has something and nothing could be compared."""

NOT_RESTORED: Final = "offsets_not_restored"
"""Counts offsets that the restore has not come to."""


@dataclass(frozen=True, slots=True)
class PartitionCompared:
    """What comparing a partition has shown.

    Attributes:
        target: The restored topic; None where the source is compared.
        backup_only: Records that Kafka should have and has not.
        kafka_only: Records that Kafka should not have.
        expired: Records that Kafka has deleted by its retention since.
        compacted: Records that are gone from a compacted topic.
        before: Offsets in Kafka before the backup begins.
        behind: Offsets in Kafka behind what was compared, which was written since.
        left: Offsets of the backup that the restore has not come to.
        proven: Objects whose digest alone has proved them.
        why: Why it could not be compared; empty where it was.
    """

    HEAD: ClassVar = {"type": "compared"}

    where: TopicPartition = field(metadata=INLINE)
    target: str | None
    records: int = 0
    different: int = 0
    backup_only: int = 0
    kafka_only: int = 0
    expired: int = 0
    compacted: int = 0
    before: int = 0
    behind: int = 0
    left: int = 0
    proven: int = 0
    state: str = ""
    why: str = ""
    differences: tuple[Difference, ...] = ()

    @property
    def objects(self) -> int:
        """Objects that are proved, for the summary."""
        return self.proven

    @property
    def has_differences(self) -> bool:
        """Whether a record is not what it should be."""
        return bool(self.different or self.backup_only or self.kafka_only)

    @property
    def is_compared(self) -> bool:
        """Whether there is a record that both sides have, or nothing to compare."""
        return not self.why

    @property
    def result(self) -> str:
        """The verdict, with the number of records that differ, or why there is none."""
        counts = {
            "different": self.different, BACKUP_ONLY: self.backup_only, KAFKA_ONLY: self.kafka_only
        }  # fmt: skip
        found = [f"{counted(number, 'record')} {what}" for what, number in counts.items() if number]
        if found:
            return f"differs: {', '.join(found)}"
        return f"{self.state}: {self.why}" if self.why else self.state

    def judged(self) -> "PartitionCompared":
        """Return it with its verdict."""
        if self.has_differences:
            return replace(self, state="differs")
        if self.why:
            return replace(self, state="not comparable")
        if not self.records and (self.expired or self.compacted):
            why = "Kafka has none of its records any more"
            return replace(self, state="not comparable", why=why)
        found = ["same" if self.records else "empty"]
        names = ("expired", "compacted", "before", "behind")
        counts = {name: getattr(self, name) for name in names}
        found += [f"{number} {what}" for what, number in counts.items() if number]
        if self.left:
            found.append(f"{self.left} not restored yet")
        return replace(self, state=", ".join(found))


@dataclass(frozen=True, slots=True)
class UnitCompared:
    """What a task has shown of its part of a partition.

    Attributes:
        unclear: Why some of it could not be compared; empty where all was.
        bad_objects: Objects that the restore has left out; other units may name the same.
        bad_records: Records and lines that it has left out.
    """

    where: TopicPartition
    compared: RecordsCompared = NOTHING
    expired: int = 0
    compacted: int = 0
    proven: int = 0
    unclear: str = ""
    bad_objects: frozenset[str] = frozenset()
    bad_records: int = 0
    failure: Issue | None = None


U = TypeVar("U")


@dataclass(slots=True)
class ComparisonPlan(Generic[U]):
    """A partition to compare: its units, what is known of it before, and what is wrong already."""

    row: PartitionCompared
    units: Sequence[U] = ()
    failure: KbackupError | None = None


def compare(
    environment: Environment,
    task: Task[UnitCompared],
    planned: Sequence[ComparisonPlan[U]],
    summary: Summary,
    stop: threading.Event,
) -> Iterator[PartitionCompared]:
    """Run a task over the units of all partitions; yield the verdict on each, and sum them up."""
    units = [unit for each in planned for unit in each.units]
    reports: defaultdict[TopicPartition, list[UnitCompared]] = defaultdict(list)
    for report in environment.run_tasks(task, units, discard, stop) if units else ():
        if isinstance(report, NotBegun):
            summary.fail(report.failure)
            continue
        reports[report.where].append(report)
        if report.failure is not None:
            summary.fail(report.failure.at(**report.where.place))
    is_alone = not summary.partitions  # else they are those that were read
    for each in planned:
        if each.failure is not None:
            summary.fail(each.failure)
        of_this = reports[each.row.where]
        row = _entered(_summed(each, of_this), summary)
        summary.skip("bad_objects", len({key for one in of_this for key in one.bad_objects}))
        summary.skip("bad_records", sum(one.bad_records for one in of_this))
        if is_alone:
            summary.partitions.append(row)
        yield row


def check_settings(topics: Iterable[str], configs: Mapping[str, object]) -> None:
    """See that the settings of topics are known: they say whether a topic is compacted."""
    if lacking := sorted({*topics} - configs.keys()):
        raise KafkaError(
            f"the settings of {some(lacking)} cannot be read",
            "so it is not known whether compaction may have removed records",
            "allow DESCRIBE_CONFIGS on the topics (kafka-acls)",
            topic=lacking[0],
        )


def names_of(missing: Sequence[Entry]) -> str:
    """Return the keys of some objects that are gone."""
    return some([entry.key or "" for entry in missing], 3)


def incomplete(row: PartitionCompared, missing: Sequence[Entry]) -> ComparisonPlan[Any]:
    """Return that a partition cannot be the same: the backup lacks objects that it had."""
    verb = form(len(missing), "is", "are")
    failure = IncompleteBackupError(
        f"{row.where} cannot be compared: the backup lacks objects that it had",
        names_of(missing), "see what is missing: kbackup restore verify", **row.where.place,
    )  # fmt: skip
    why = f"{counted(len(missing), 'object')} of the backup {verb} missing"
    return ComparisonPlan(replace(row, why=why), failure=failure)


def _summed(planned: ComparisonPlan[U], reports: Sequence[UnitCompared]) -> PartitionCompared:
    row, total = planned.row, sum((one.compared for one in reports), NOTHING)
    unclear = next(filter(None, (one.unclear for one in reports)), "")
    if any(one.failure for one in reports) or len(reports) < len(planned.units):
        unclear = "not all of it could be read"
    return replace(
        row,
        records=total.same,
        different=total.different,
        backup_only=total.backup_only,
        kafka_only=total.kafka_only,
        expired=row.expired + sum(one.expired for one in reports),
        compacted=sum(one.compacted for one in reports),
        behind=row.behind + total.later,
        proven=sum(one.proven for one in reports),
        why=row.why or unclear,
        differences=total.named,
    )


def _entered(row: PartitionCompared, summary: Summary) -> PartitionCompared:
    """Judge a partition, and take the verdict into a summary: what differs makes it exit 7."""
    row = row.judged()
    where = row.where if row.target is None else TopicPartition(row.target, row.where.partition)
    if row.has_differences:
        first = row.differences[0]
        at = first.offset if first.kafka_offset is None else first.kafka_offset
        places = {"of the backup": first.offset, "in Kafka": first.kafka_offset}
        named = ", ".join(f"{n} {side}" for side, n in places.items() if n is not None)
        of_backup = f"{row.where.topic}:{row.where.partition}@{first.offset}"
        error = DiffersError(
            f"{where} does not hold what the backup holds",
            f"{row.result.partition(': ')[2]}; the first is offset {named}: {first.what}",
            f"find out what else writes to {where.topic}" if first.offset is None
            else f"compare it with the backup's: kbackup restore cat {of_backup} -c 1",
            **where.place, offset=at,
        )  # fmt: skip
        summary.fail(error)
    summary.skip(NOT_COMPARED, 0 if row.is_compared else 1)
    summary.skip(NOT_RESTORED, row.left)
    return row
