"""What a restore task needs to know: plain data that crosses processes."""

from dataclasses import dataclass

from kbackup.backup.catalog import FileSet
from kbackup.flow.views import ReadOptions
from kbackup.kafka import Connection
from kbackup.records import TopicPartition
from kbackup.stores import StoreSettings


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """One run's settings for its tasks.

    Attributes:
        run: The run's id.
        kafka: The target cluster.
        store: Where the backup lies.
        reading: How objects are read.
        group: The consumer group that keeps the positions.
        exactly_once: Write in transactions that carry the position.
        on_error: ``fail``, ``ignore`` or ``log``: what a bad record or object does.
        max_record_bytes: Larger records are bad records.
    """

    run: str
    kafka: Connection
    store: StoreSettings
    reading: ReadOptions
    group: str
    exactly_once: bool = True
    on_error: str = "fail"
    max_record_bytes: int = 2**28


@dataclass(frozen=True, slots=True)
class RestoreUnit:
    """One partition's share of a restore.

    Attributes:
        source: The partition that was backed up.
        target: The partition to write to.
        sets: Its file sets, by start offset.
        max_message_bytes: Largest record the target takes; None for what the broker says.
    """

    source: TopicPartition
    target: TopicPartition
    sets: tuple[FileSet, ...]
    max_message_bytes: int | None = None

    @property
    def size(self) -> int:
        """Bytes of its objects."""
        return sum(file.size for files in self.sets for file in files.files)
