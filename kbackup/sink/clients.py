"""The clients of a task."""

from dataclasses import dataclass

from kbackup.channel import Line
from kbackup.kafka import Positions, Reader
from kbackup.runs.letters import DeadLetters
from kbackup.sink.job import SinkJob
from kbackup.sink.schemas import SchemaKeeper
from kbackup.sink.storing import Storing
from kbackup.stores import Store, open_store


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of a task: made once, and used for all its partitions.

    Attributes:
        store: Where objects go.
        positions: Where the group's positions are kept.
        reader: Where records come from.
        letters: Where records go that are left out; None for nowhere.
        schemas: Stores the schemas that records name; None where no registry is known.
    """

    store: Store
    positions: Positions
    reader: Reader
    letters: DeadLetters | None = None
    schemas: SchemaKeeper | None = None

    def close(self) -> None:
        """Leave the cluster."""
        self.positions.close()
        self.reader.close()
        if self.letters is not None:
            self.letters.close()


def connect(job: SinkJob, line: Line, instead_of: Clients | None = None) -> Clients:
    """Open the clients of a task.

    Args:
        job: What they are for.
        line: To the driver.
        instead_of: These are closed, but for their store, which is kept, and what is known of
            schemas.
    """
    if instead_of is not None:
        instead_of.close()
    store = open_store(job.store) if instead_of is None else instead_of.store
    topic = job.errors.topic
    letters = None if topic is None else DeadLetters(job.kafka, job.group, topic)
    schemas = None if instead_of is None else instead_of.schemas
    if schemas is None and job.schemas.registries:
        schemas = SchemaKeeper(job.schemas, store, job.layout, job.clock, job.run, line)
    positions, reader = job.kafka.positions(job.group), job.kafka.reader(job.group)
    return Clients(store, positions, reader, letters, schemas)


def storing(job: SinkJob, clients: Clients) -> Storing:
    """Open what takes the cuts of a task."""
    limit_bytes = job.spool_bytes * len(job.views)
    return Storing(clients.store, job.layout, clients.positions, job.clock, limit_bytes)
