"""What ``restore verify`` concludes about one partition."""

from dataclasses import dataclass

from kbackup.events import Event
from kbackup.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Verdict:
    """A partition's row of the summary, and its line of ``--json``.

    Attributes:
        where: The partition.
        objects: Objects read by a deep verify; otherwise those listed.
        listed: Objects listed.
        first: Offset of the first record; None where nothing is stored.
        last: That of the last one; None where it is not known.
        records: Number of records; None where it is not known.
        bytes: Bytes of the objects listed.
        bytes_read: Bytes of the objects read.
        not_checkable: Objects in which a flipped bit would go unnoticed.
        state: The conclusion, in a few words.
    """

    where: TopicPartition
    objects: int
    listed: int
    first: int | None
    last: int | None
    records: int | None
    bytes: int
    bytes_read: int
    not_checkable: int
    state: str

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {"type": "partition", **self.row()}

    def row(self) -> Event:
        """Return it as a row of the summary."""
        return {
            "topic": self.where.topic, "partition": self.where.partition,
            "objects": self.objects, "listed": self.listed,
            "first": self.first, "last": self.last, "records": self.records,
            "bytes": self.bytes, "bytes_read": self.bytes_read,
            "not_checkable": self.not_checkable, "state": self.state,
        }  # fmt: skip
