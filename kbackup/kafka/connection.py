"""How to reach a cluster: plain data that opens clients, and what it means that none answers."""

from typing import Protocol

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka.administration import Cluster, Permissions
from kbackup.kafka.transport import Positions, Reader, Writer
from kbackup.records import TopicPartition


class Connection(Protocol):
    """How to reach a cluster: plain data that opens clients."""

    def cluster(self) -> Cluster:
        """Open the cluster as an administrator sees it.

        Raises:
            KafkaError: If no broker answers within the timeout.
        """
        ...

    def reader(self, group: str) -> Reader:
        """Open a reader that may read as *group* may."""
        ...

    def writer(
        self,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> Writer:
        """Open a writer, and end whatever an earlier writer of its `fence` had begun.

        Args:
            target: The partition.
            group: Keeps the position.
            exactly_once: Write in transactions that carry the position.  Otherwise records are
                written idempotently, and a killed run may repeat those after the last position.
            max_message_bytes: What the topic takes; None for what the broker says.
            is_spread: Whether records go to other partitions of the topic too.
        """
        ...

    def fence(self, target: TopicPartition) -> TopicPartition:
        """Return the partition that stands for all those whose writers take over from each other.

        Of a group's writers to partitions with the same fence only the newest can write.  It does
        not depend on the run, so a run that goes on where another one was killed always takes over
        from what is left of it.
        """
        ...

    def positions(self, group: str) -> Positions:
        """Open the positions that *group* keeps, as a task sees them."""
        ...

    def permissions(self) -> Permissions:
        """Ask what this principal may do."""
        ...


class Outage:
    """Remembers that no broker answers, so that a task waits for that once, not once per partition.

    A partition without a leader looks the same to whoever reads or writes it, but others may work.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._error: KbackupError | None = None

    def check(self) -> None:
        """Raise the error that no broker answers, once that is known."""
        if self._error is not None:
            raise type(self._error)(self._error.what, self._error.why, self._error.do)

    def note(self, error: KbackupError) -> None:
        """After *error*, find out whether a broker answers at all."""
        if self._error is None and isinstance(error, KafkaError):
            try:
                self._connection.cluster()
            except KbackupError as away:
                self._error = away
