"""The tasks of a restore that follows: Spark stays up from one visit to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from kbackup.engine import Manner, NotBegun, R, Task
from kbackup.errors import SparkError
from kbackup.events import PROGRESS, Event, Progress
from kbackup.restore.account import Account
from kbackup.runs.frame import Frame


@dataclass(frozen=True, slots=True)
class KeptTasks:
    """Runs tasks, and hears what they say.

    Attributes:
        frame: The run's.
        account: Takes in how far partitions are.
    """

    frame: Frame
    account: Account

    def run(
        self, task: Task[R], units: Sequence[Any], **manner: Unpack[Manner]
    ) -> list[R | NotBegun]:
        """Run *task* over *units* and return all reports: `Frame.tasks`."""
        manner["keeps"] = True
        return self.frame.tasks(task, units, self._hear, **manner)

    def reports(self, task: Task[R], units: Sequence[Any], **manner: Unpack[Manner]) -> list[R]:
        """Run *task* over *units* and return the reports of all of them.

        Raises:
            SparkError: If a task has not begun.
        """
        found = self.run(task, units, **manner)
        for each in found:
            if isinstance(each, NotBegun):
                raise SparkError(each.failure.what, each.failure.why)
        return [each for each in found if not isinstance(each, NotBegun)]

    def _hear(self, event: Event) -> None:
        if event["type"] == PROGRESS:
            self.frame.tell(self.account.progress(Progress.from_dict(event)))
        else:
            self.frame.show(event)
