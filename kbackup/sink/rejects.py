"""Reject the records that do not fit the layout: one policy, and the topic of dead letters.

Either the first one stops its partition, or each is left out, counted and named: in the report, in
the ledger beside the objects of its cut, and, where asked, in a dead letter topic.

Source of the headers: Kafka Connect's ``DeadLetterQueueReporter``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.ledger.rows import SKIPPED, Entry, ranged
from kbackup.errors import BadRecordError
from kbackup.events import Warned
from kbackup.pipeline.rows import BadRecord, Rows
from kbackup.records import Span, TopicPartition, joined
from kbackup.runs.dead_letters import CONTEXT, DeadLetters, with_headers
from kbackup.spark.channel import TaskChannel

_CLASS: Final = "org.apache.kafka.connect.sink.SinkTask"
"""In whose name Connect reports what a sink connector complains of."""
_EXCEPTION: Final = "org.apache.kafka.connect.errors.DataException"


def context(
    bad: BadRecord, where: TopicPartition, connector: str, classes: Mapping[str, str]
) -> Iterable[dict[str, Any]]:
    """Yield headers that say where a record came from and what is wrong with it.

    Args:
        classes: The Java class at work in a stage; what is missing is the sink's task.
    """
    error = bad.error(where)
    facts = {
        "topic": where.topic,
        "partition": str(where.partition),
        "offset": str(bad.offset),
        "connector.name": connector,
        "task.id": "0",
        "stage": bad.stage,
        "class.name": bad.by or classes.get(bad.stage, _CLASS),
        "exception.class.name": _EXCEPTION,
        "exception.message": str(error),
        "exception.stacktrace": "\n".join(filter(None, (error.what, bad.why, bad.do))),
    }
    for name, text in facts.items():
        yield {"key": CONTEXT + name, "value": text.encode()}


def of_offsets(batch: pa.RecordBatch, offsets: Sequence[int]) -> pa.RecordBatch:
    """Return the rows of *batch* that have these offsets."""
    return batch.filter(pc.is_in(batch["offset"], pa.array(offsets, pa.int64())))


ENTRIES_MOST: Final = 1000
"""Spans of one cut that the ledger names one by one; more of them are named as one."""

FIRST_WAIT_S: Final = 0.3
"""The wait before a conversion is tried again; each further wait is twice as long."""

NULL: Final = "Skipping null value record."
"""The reason in a dead letter that has only a missing value; the connector's text."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What becomes of a bad record, as ``errors.*`` says.

    Attributes:
        tolerates: It is left out, and the run continues; otherwise its partition ends before it.
        topic: The dead letter topic; None if there is none.
        has_context: Dead letters have headers that say what is wrong.
        takes_nulls: Records that are left out because they have no value are dead letters too.
        reports_all: Each one is reported, rather than the first of a partition.
        reports_time: A report has the record's timestamp.
        connector: The name that the headers give.
        classes: The Java class at work in a stage of `BadRecord`, which the headers give too.
        retry_s: How long to retry a conversion when the registry does not deliver its schema, in
            seconds; negative for ever.
        longest_wait_s: The longest wait between two attempts, in seconds.
        is_secret: No reason is told but in dead letters: it may quote the record.
    """

    tolerates: bool = False
    topic: str | None = None
    has_context: bool = False
    takes_nulls: bool = False
    reports_all: bool = False
    reports_time: bool = False
    connector: str = "kbackup"
    classes: Mapping[str, str] = field(default_factory=dict)
    retry_s: float = 0.0
    longest_wait_s: float = 60.0
    is_secret: bool = False

    def wait_s(self, attempt: int, waited_s: float, jitter: float) -> float | None:
        """Return how long to wait before a conversion is tried again; None to give up.

        Source: Kafka Connect's ``RetryWithToleranceOperator``.

        Args:
            attempt: How many have failed, from 1.
            waited_s: How long ago the first one failed, in seconds.
            jitter: 0 to 1; shortens the wait by up to a fifth.
        """
        left = self.retry_s - waited_s
        if self.retry_s >= 0 and left <= 0:
            return None
        wait = min(FIRST_WAIT_S * 2.0 ** min(attempt - 1, 32), self.longest_wait_s)
        wait *= 1 - jitter / 5
        return wait if self.retry_s < 0 else min(wait, left)


INTOLERANT: Final = ErrorPolicy()
"""The first bad record ends its partition."""


@dataclass(frozen=True, slots=True)
class RecordsLeftOut:
    """What one cut lacks.

    Attributes:
        bad: Offsets of its bad records, in as few spans as will do.
    """

    bad: tuple[Span, ...] = ()
    nulls: int = 0
    filtered: int = 0

    @property
    def bad_records(self) -> int:
        """How many bad records there are."""
        return sum(map(len, self.bad))

    def entries(self, where: TopicPartition, run: str, time_ms: int) -> list[Entry]:
        """Return what the ledger is to say of the bad records."""
        if len(self.bad) <= ENTRIES_MOST:
            return [
                ranged(SKIPPED, where, span, run, time_ms, records=len(span)) for span in self.bad
            ]
        whole = Span(self.bad[0].start_offset, self.bad[-1].end_offset)
        return [ranged(SKIPPED, where, whole, run, time_ms, records=self.bad_records)]


@dataclass(slots=True)
class LeftOutCount:
    """How many records have been left out for one reason since the last cut.

    Offsets are kept only where a cut may still come before them: any number of records may be left
    out between two cuts.
    """

    _sure: int = 0
    _kept: int = -1  # offset of the last record that goes into a file
    _after: list[tuple[int, int]] = field(default_factory=list)  # first offset, records

    def take(self, rows: Rows, gone: Sequence[int]) -> None:
        """Count the offsets *gone* from *rows*, which come after all that was counted before."""
        self._sure += sum(count for at, count in self._after if at < self._kept)
        self._after = [each for each in self._after if each[0] > self._kept]
        if len(rows):
            self._after += ((at, 1) for at in gone)
            self._kept = rows.last_offset
        elif gone:  # between records that go into no file only what is stored already ends
            at, count = self._after.pop() if self._after else (gone[0], 0)
            self._after.append((at, count + len(gone)))

    def before(self, offset: int) -> int:
        """Return how many there were before *offset*, once."""
        found = self._sure + sum(count for at, count in self._after if at < offset)
        self._sure, self._after = 0, [each for each in self._after if each[0] >= offset]
        return found


@dataclass(slots=True)
class Rejects:
    """The records of one partition that were left out and whose cut is not committed yet.

    Attributes:
        letters: Takes them; None for nobody.
        is_reported: One of the partition has been reported.
    """

    where: TopicPartition
    policy: ErrorPolicy
    run: str
    channel: TaskChannel
    letters: DeadLetters | None = None
    is_reported: bool = False
    _bad: list[Span] = field(default_factory=list)
    _nulls: LeftOutCount = field(default_factory=LeftOutCount)
    _filtered: LeftOutCount = field(default_factory=LeftOutCount)

    def take(self, batch: pa.RecordBatch, rows: Rows) -> None:
        """Take what is not in *rows*, which were made from some of *batch*.

        Raises:
            BadRecordError: Of the first bad record, if it is not to be left out.
            KbackupError: If a dead letter could not be written.
        """
        self._filtered.take(rows, rows.filtered)
        self._nulls.take(rows, rows.left_out)
        if rows.left_out and self.policy.tolerates and self.policy.takes_nulls:
            self._send(batch, [BadRecord(at, NULL) for at in rows.left_out])
        if not rows.bad:
            return
        if not self.policy.tolerates:
            raise self._error(rows.bad[0])
        self._send(batch, rows.bad)
        self._report(rows.bad, batch)
        self._note(rows.bad)

    def leave_out(self, bad: BadRecord) -> None:
        """Leave out a record that could not even be read.

        Raises:
            BadRecordError: If it is not to be left out, or was to become a dead letter.
        """
        error = self._error(bad)
        if not self.policy.tolerates:
            raise error
        if self.letters is not None:
            raise BadRecordError(
                error.what, "it cannot be sent to the dead letter topic either",
                "fix what writes such records, or run once without a dead letter topic",
                **error.place,
            )  # fmt: skip
        self._report([bad])
        self._note([bad])

    def settle(self) -> None:
        """Wait until all dead letters are acknowledged.

        Raises:
            KbackupError: If one was not; nothing after it may be committed.
        """
        if self.letters is not None:
            self.letters.flush()

    def before(self, offset: int) -> RecordsLeftOut:
        """Return what was left out before *offset*, once."""
        bad = joined(Span(one.start_offset, min(one.end_offset, offset)) for one in self._bad)
        rest = (Span(max(one.start_offset, offset), one.end_offset) for one in self._bad)
        self._bad = [one for one in rest if len(one)]
        return RecordsLeftOut(bad, self._nulls.before(offset), self._filtered.before(offset))

    def _note(self, some: Iterable[BadRecord]) -> None:
        for bad in some:
            start = bad.offset
            if self._bad and self._bad[-1].end_offset == start:
                start = self._bad.pop().start_offset
            self._bad.append(Span(start, bad.offset + 1))

    def _error(self, bad: BadRecord) -> BadRecordError:
        return bad.error(self.where, is_secret=self.policy.is_secret)

    def _send(self, batch: pa.RecordBatch, bad: Sequence[BadRecord]) -> None:
        if self.letters is None:
            return
        found = of_offsets(batch, [one.offset for one in bad])
        if self.policy.has_context:
            of = self.where, self.policy.connector, self.policy.classes
            found = with_headers(found, (context(one, *of) for one in bad))
        self.letters.send(found)

    def _report(self, bad: Sequence[BadRecord], batch: pa.RecordBatch | None = None) -> None:
        """Report which records are left out, and why: all, or the first."""
        if self.is_reported and not self.policy.reports_all:
            return
        self.is_reported = True
        named = bad if self.policy.reports_all else bad[:1]
        times: list[int | None] = [None] * len(named)
        if batch is not None:
            times = of_offsets(batch, [one.offset for one in named])["timestamp"].to_pylist()
        for one, time in zip(named, times, strict=True):
            text = f"{self._error(one)}; left out"
            if self.policy.reports_time and time is not None:
                text += f" (timestamp {time})"
            warned = Warned.about(self.where, "bad_record", text, self.run, offset=one.offset)
            self.channel.tell(warned)
