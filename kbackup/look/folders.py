"""The directories of a topic: where a partitioner has put its objects."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbackup.backup.file_sets import FileSet
from kbackup.events import Event


@dataclass(frozen=True, slots=True)
class Folder:
    """One directory that holds objects.

    Attributes:
        topic: The topic.
        path: Its segments after the topic's own.
        objects: Number of objects, siblings counted.
        bytes: Their sizes together.
        partitions: How many Kafka partitions they are of.
    """

    topic: str
    path: tuple[str, ...]
    objects: int
    bytes: int
    partitions: int

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {
            "type": "directory", "topic": self.topic, "directory": list(self.path),
            "partitions": self.partitions, "objects": self.objects, "bytes": self.bytes,
        }  # fmt: skip


def folders(topic: str, sets: Iterable[FileSet], delimiter: str) -> Iterator[Folder]:
    """Yield the directories of one topic's objects, by name.

    Args:
        topic: The topic.
        sets: Of all partitions.
        delimiter: Between two directories.
    """
    found: dict[str, list[FileSet]] = {}
    for one in sets:
        found.setdefault(one.encoded_partition, []).append(one)
    for name, among in sorted(found.items()):
        files = [file for each in among for file in each.files]
        yield Folder(
            topic,
            tuple(name.split(delimiter)) if name else (),
            len(files),
            sum(file.size for file in files),
            len({each.where.partition for each in among}),
        )
