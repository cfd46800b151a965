"""A task that asks the driver for spans, one after the other, until none is left.

The last cut of a span is stored beside the reading of the next one.  What becomes of a span goes
to the driver over the line, so that it is known once, whatever Spark does with the task.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from kbackup.errors import KbackupError, SparkError
from kbackup.events import Event
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink import task
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.spans.lease import LOOK_S, DroppedError, SpanTurn
from kbackup.sink.spans.messages import NONE, TAKE, Ask, Leaves, Over, Take
from kbackup.sink.spans.scheduler import SpanWorker
from kbackup.sink.storing import Storing, TaskClients, connect, storing
from kbackup.sink.task import SinkPartitionTask
from kbackup.spark.channel import Line

ANSWER_S: Final = 60.0
"""How long a driver that stops the run may take to answer; whether it has died is not seen then.

Else a task waits as long as the connection lasts: a driver may be held up by whoever reads what it
prints.
"""


def back_up(
    job: SinkJob, units: Sequence[SinkUnit | SpanWorker], line: Line
) -> Iterator[PartitionReport[OfSink]]:
    """Work through *units*; a `SpanWorker` asks the driver for others, who hears of them itself."""
    for one in units:
        if isinstance(one, SpanWorker):
            back_up_spans(job, one, line)
    yield from task.back_up(job, [one for one in units if isinstance(one, SinkUnit)], line)


def back_up_spans(job: SinkJob, seat: SpanWorker, line: Line) -> None:
    """Back up the spans that the driver hands out.

    Raises:
        SparkError: If the driver is out of reach: Spark runs the task again.
    """
    if line.is_lost():
        raise _lost()
    with closing(connect(job, line)) as clients, storing(job, clients) as cuts:
        _Sitting(job, seat, line, clients, cuts).run()


@dataclass(slots=True)
class _Sitting:
    """One task's way from span to span."""

    job: SinkJob
    seat: SpanWorker
    line: Line
    clients: TaskClients
    cuts: Storing
    _begun: deque[SinkPartitionTask] = field(default_factory=deque)

    def run(self) -> None:
        """Work until nothing is handed out any more."""
        while (given := self._ask()) is not None:
            self._work(given)
        self._drain()
        self.line.tell(Leaves())
        self._answer()

    def _ask(self) -> Take | None:
        """Return the next span; None if there is none, or the task is to stop."""
        while not self.line.is_stopped():
            self.line.tell(Ask(self.seat.number))
            order = self._answer()
            if order["type"] == TAKE:
                return Take.from_dict(order)
            if not self._begun:
                return None
            self._drain()  # whose failure may leave something to do
        return None

    def _answer(self) -> Event:
        """Return the answer to what was said last.

        Raises:
            SparkError: If there is none.
        """
        clock = self.job.clock
        stopped_at: float | None = None
        while not self.line.is_lost():
            order = self.line.next_order(LOOK_S)
            if order is not None and order["type"] in (TAKE, NONE):
                return order
            if self.line.is_stopped():
                stopped_at = clock.steady_s() if stopped_at is None else stopped_at
                if clock.steady_s() - stopped_at >= ANSWER_S:
                    break
        raise _lost()

    def _work(self, given: Take) -> None:
        turn = SpanTurn(given, self.line, self._settle)
        work = SinkPartitionTask(self.job, given.unit, self.clients, self.line, turn)
        try:
            work.begin(self.cuts)
        except DroppedError:
            return
        except KbackupError as error:
            if not work.has_begun:  # asked to stop before its turn: nothing to report
                return
            work.fail(error)
        self._begun.append(work)
        self._settle()

    def _settle(self) -> None:
        """Tell the driver of what has been settled."""
        while self._begun and self._begun[0].is_settled():
            work = self._begun.popleft()
            try:
                work.finish()
            except KbackupError as error:
                work.fail(error)
            self.line.tell(Over(self.job.run, work.report))

    def _drain(self) -> None:
        self.cuts.drain()
        self._settle()


def _lost() -> SparkError:
    return SparkError(
        "a task that shares partitions with others lost its connection to the driver",
        "it cannot learn what to do next",
        "check the network between driver and workers, and run the same command again: it "
        "continues from the committed offsets",
    )
