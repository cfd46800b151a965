"""The group's positions in the partitions that a unit writes to: found, moved on and committed.

A position says where the restore stands, what this run has written, and which ids the schemas have.
All of a unit's positions are committed together.
"""

from dataclasses import replace

from kbackup.errors import RefusedError
from kbackup.kafka import Position, Writer
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.reports import NOTHING, Bookmark, Done, Mark, WrittenTo
from kbackup.restore.job import Lane, RestoreJob, RestoreUnit
from kbackup.restore.schemas import same_ids
from kbackup.restore.tasks.transaction import Transaction


class Positions:
    """What a unit's positions say, as the last commit has it.

    Args:
        job: The run's settings.
        unit: Whose they are; they begin as they were planned.
    """

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._job, self._unit = job, unit
        self._lanes: dict[TopicPartition, Lane] = {lane.target: lane for lane in unit.lanes}
        self._written = {at: WrittenTo(at.partition) for at in self._lanes}

    @property
    def mark(self) -> Mark:
        """Where the restore stands."""
        return self._home.of

    @property
    def is_ours(self) -> bool:
        """Whether it was this run that committed them."""
        return self._home.run == self._job.committer

    @property
    def targets(self) -> list[TopicPartition]:
        """The partitions, in order."""
        return list(self._lanes)

    @property
    def written(self) -> tuple[WrittenTo, ...]:
        """What this run has written to each partition."""
        return tuple(self._written.values())

    def check_ids(self) -> None:
        """Check that the rest gets the ids of what is restored.

        Raises:
            RefusedError: If it does not: another Schema Registry is given than before.
        """
        same_ids.check(self.mark, self._ids)

    def catch_up(self, writer: Writer, found: Position | None) -> Done:
        """Take what was committed since the run was planned.

        Args:
            writer: Knows the positions.
            found: The one in the unit's target.

        Returns:
            What of it this run has done, in a task that died.

        Raises:
            RefusedError: If that is not of this restore.
        """
        moved: dict[TopicPartition, Bookmark[Mark]] = {}
        for at, lane in self._lanes.items():
            now = found if at == self._unit.target else writer.position(at)
            bookmark = None if now is None else Mark.read(now, Layout())
            if bookmark is None or not bookmark.of.follows(lane.bookmark.of):
                group = self._unit.group or self._job.group
                raise RefusedError(
                    f"the position of group {group} in {at} has been moved",
                    "another restore or another tool moved it while this run was starting",
                    "let one restore at a time write to a topic, then run the command again",
                )
            moved[at] = bookmark
        self._lanes = {at: replace(lane, bookmark=moved[at]) for at, lane in self._lanes.items()}
        if not self.is_ours:
            return NOTHING
        ours = {at: each.done for at, each in moved.items()}
        self._written = {
            at: WrittenTo(at.partition, each.records, each.commits) for at, each in ours.items()
        }
        return replace(
            self._home.done,
            records=sum(each.records for each in ours.values()),
            commits=sum(each.commits for each in ours.values()),
        )

    def take(self, opened: Transaction) -> None:
        """Move all of them on to where a transaction that is to be committed leads."""
        for at, lane in self._lanes.items():
            sent = opened.sent.get(at, 0)
            commits = int(bool(sent))  # a transaction leaves a marker where it has written
            before = self._written[at]
            written = WrittenTo(at.partition, before.records + sent, before.commits + commits)
            self._written[at] = written
            mark = lane.bookmark.of.moved(
                opened.place,
                passed=opened.passed,
                log_grew=sent + (commits if self._job.exactly_once else 0),
            )
            mark = replace(mark, ids=same_ids.noted(mark, self._ids))
            done = replace(opened.done, records=written.records, commits=written.commits)
            bookmark = Bookmark(mark, self._job.committer, done)
            self._lanes[at] = replace(lane, bookmark=bookmark)

    def commit(self, writer: Writer) -> None:
        """Have the cluster keep them, with what was written.

        Raises:
            KafkaError: If it refused.
        """
        positions = {at: lane.position() for at, lane in self._lanes.items()}
        writer.commit(positions.pop(self._unit.target), positions)

    @property
    def _home(self) -> Bookmark[Mark]:
        """What the position in the unit's target says."""
        return self._lanes[self._unit.target].bookmark

    @property
    def _ids(self) -> same_ids.Ids | None:
        """The ids of the topic's schemas in the target; None where no registry is given."""
        return self._job.schema_ids.get(self._unit.source.topic)
