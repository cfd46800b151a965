"""What a restore task needs to know: plain data that crosses processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from kbackup.catalog.listing import FileSet
from kbackup.catalog.reading import EVERYTHING, Window
from kbackup.errors import KbackupError, counted, form
from kbackup.kafka import Connection, Position
from kbackup.pipeline.views import ReadOptions
from kbackup.plugins import Step
from kbackup.records import TopicPartition
from kbackup.runs.position import CommitMetadata, Mark
from kbackup.stores import StoreSettings


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """One run's settings for its tasks.

    Attributes:
        run: The run's id.
        kafka: The target cluster.
        store: Where the backup is.
        reading: How objects are read.
        group: The consumer group that keeps the positions.
        exactly_once: Write in transactions that carry the position.
        on_error: ``fail``, ``ignore`` or ``log``: what a bad record or object does.
        error_topic: Where what cannot be read is written to; None for nowhere.
        max_record_bytes: Larger records are bad records.
        offset_header: A header that keeps the offset of the backup; None if there is none.
        transforms: What is done to records before they are written, in order.
        is_renamed: Whether a transform is to see the new name of a topic from the beginning.
        max_records_per_second: What all tasks together may write; None for no limit.
        max_bytes_per_second: The same in bytes.
        schema_ids: By topic of the backup and part, "key" or "value": the id that each of its
            schemas has in the target's registry.  Other ids stay as they are; a topic is left out
            where no registry is given.
        visit: Which visit of a run that follows this is, from 1; 0 where the run does not follow.
    """

    run: str
    kafka: Connection
    store: StoreSettings
    reading: ReadOptions
    group: str
    exactly_once: bool = True
    on_error: str = "fail"
    error_topic: str | None = None
    max_record_bytes: int = 2**28
    offset_header: str | None = None
    transforms: tuple[Step, ...] = ()
    is_renamed: bool = False
    max_records_per_second: int | None = None
    max_bytes_per_second: int | None = None
    schema_ids: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    visit: int = 0

    @property
    def committer(self) -> str:
        """The name under which positions are committed, so that no visit counts another's work."""
        return f"{self.run}.{self.visit}" if self.visit else self.run

    def reads(self, topic: str) -> ReadOptions:
        """Return how objects are read for a target."""
        return replace(self.reading, topic=topic, salvages=self.on_error != "fail")


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition that a unit writes to.

    Attributes:
        target: The partition.
        bookmark: Where the restore of the unit's source stands, as it is to be committed there.
        committed: What the group's position there was when that was found out; None for none.
    """

    target: TopicPartition
    bookmark: CommitMetadata[Mark]
    committed: Position | None = None

    def position(self) -> Position:
        """Return what to commit."""
        return self.bookmark.position(self.bookmark.of.place.reached)

    def marked(self, target_id: str) -> Self:
        """Return it with the id of a target that was created meanwhile."""
        mark = replace(self.bookmark.of, target_id=target_id)
        return replace(self, bookmark=replace(self.bookmark, of=mark))

    def reading(self, *, is_all: bool) -> Self:
        """Return it with the note whether all sets of the partition are read for it."""
        mark = replace(self.bookmark.of, is_all=is_all)
        return replace(self, bookmark=replace(self.bookmark, of=mark))


@dataclass(frozen=True, slots=True)
class RestoreUnit:
    """One partition's share of a restore.

    Attributes:
        target: The partition to write to; of several the first, in which the position is asked for.
        sets: The file sets that are left, in order.
        bookmark: Where the restore stands.
        committed: What the group's position in the target was when that was found out; None for
            none.
        begins: The restore begins at *bookmark*, which has to be committed before anything is
            written.
        before: Digest of the value sets that are done.
        max_message_bytes: Largest record the target takes; None for what the broker says.
        window: Which of the records are restored.
        group: Keeps the positions of this source alone; None for the run's group.
        routed_from: Where the transforms choose a topic for each record: the one that they see at
            first.  Only the records for which they choose the topic of *target* are written.  None
            where all records are.
        counts_rest: It counts the records that have no topic, because they are bad or left out.
        others: The further partitions that it writes to, with *target* all of the topic: a record
            goes by its key.  All lanes are committed together.
        writers: How many tasks work at the same time, and share the run's limits.
    """

    target: TopicPartition
    sets: tuple[FileSet, ...]
    bookmark: CommitMetadata[Mark]
    committed: Position | None = None
    begins: bool = False
    before: str = ""
    max_message_bytes: int | None = None
    window: Window = EVERYTHING
    group: str | None = None
    others: tuple[Lane, ...] = ()
    writers: int = 1
    routed_from: str | None = None
    counts_rest: bool = True

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All partitions that it writes to."""
        return Lane(self.target, self.bookmark, self.committed), *self.others

    def marked(self, target_id: str) -> Self:
        """Return it with the id of a target that was created meanwhile."""
        home, *others = (lane.marked(target_id) for lane in self.lanes)
        return replace(self, bookmark=home.bookmark, others=tuple(others))

    def reading(self, *, is_all: bool) -> Self:
        """Return it with the note whether all sets of the partition are read for it."""
        home, *others = (lane.reading(is_all=is_all) for lane in self.lanes)
        return replace(self, bookmark=home.bookmark, others=tuple(others))

    def begun(self) -> Self:
        """Return it once its beginning is committed, where it had one to commit."""
        if not self.begins:
            return self
        home, *others = (replace(lane, committed=lane.position()) for lane in self.lanes)
        return replace(self, committed=home.committed, begins=False, others=tuple(others))

    @property
    def source(self) -> TopicPartition:
        """The partition that was backed up."""
        return self.bookmark.of.source.where

    def left(self, files: FileSet, error: KbackupError, unread: int | None) -> KbackupError:
        """Return the error of a set the rest of which is left out; it says how much that is.

        Args:
            files: The set.
            error: Why it cannot be read.
            unread: How many of its records were not; None where that is not known.
        """
        place = {**error.place, "key": files.id}
        if unread is None or not (self.window.is_everything and self.counts_rest):
            said = "how many of its records are left out is not known"
        else:
            said = f"{counted(unread, 'record')} of it {form(unread, 'is', 'are')} left out"
            place["records"] = unread
        why = "; ".join(filter(None, (error.why, said)))
        return type(error)(error.what, why, error.do, **place)

    @property
    def size(self) -> int:
        """Bytes of its objects."""
        return sum(file.size for files in self.sets for file in files.files)
