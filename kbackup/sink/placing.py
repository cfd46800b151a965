"""How the files of one partition become objects: under which dates, kept with what beside them."""

from collections.abc import Callable
from dataclasses import dataclass

from kbackup.backup.ledger.rows import TOMBSTONES, Entry, stored
from kbackup.flow.write import ClosedFile
from kbackup.records import Facts, TopicPartition
from kbackup.sink.dated import UploadDates, keep_indexed, point
from kbackup.sink.job import SinkJob
from kbackup.sink.keep import keep
from kbackup.stores import Store


@dataclass(frozen=True, slots=True)
class Placing:
    """Where the objects of a partition go.

    Attributes:
        job: The run's settings.
        store: Where to.
        where: The partition.
        stored_as: The name under which it is stored.
    """

    job: SinkJob
    store: Store
    where: TopicPartition
    stored_as: TopicPartition

    def dates(self, last_key: str | None) -> Callable[[int], str] | None:
        """Return what gives files the dates of their upload, None where none have them.

        Args:
            last_key: The object that was stored last, None if there is none.
        """
        job = self.job
        if not job.layout.is_dated:
            return None
        return UploadDates(self.store, job.layout, self.stored_as, job.clock, last_key).of

    def keep(self, file: ClosedFile) -> Facts:
        """Store a file with all that belongs beside it; return what is there now.

        Raises:
            KbackupError: As `kbackup.sink.keep.keep`.
        """
        if file.index is None:
            return keep(self.store, file)
        facts = keep_indexed(self.store, file)
        if self.job.points:
            point(self.store, self.job.layout, self.stored_as, file.index)
        return facts

    def row(self, file: ClosedFile, facts: Facts) -> Entry:
        """Return what the ledger is to say of a file whose object has *facts* now."""
        size = file.body.size
        if facts != file.facts:  # a longer object was there already
            head = self.store.head(file.key)
            size = size if head is None else head.size
        view = TOMBSTONES if file.is_tombstones else file.spec.view
        return stored(
            self.where, file.key, view, facts, size, file.cut.span, self.job.run,
            self.job.clock.ms(),
        )  # fmt: skip
