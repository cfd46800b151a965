"""Dead letters, as a task writes them."""

from typing import Any

from record_samples import batch_of

from kbackup.records import TopicPartition
from kbackup.runs.dead_letters import DeadLetters


class Connection:
    """A cluster that takes everything."""

    def __init__(self) -> None:
        self.spread: list[bool] = []

    def writer(
        self, target: TopicPartition, group: str, *, exactly_once: bool, is_spread: bool = False
    ) -> "Connection":
        """Itself."""
        del target, group, exactly_once
        self.spread.append(is_spread)
        return self

    def write(self, batch: Any) -> int:
        """Take a batch."""
        del batch
        return 0


def test_letters_do_not_wait_for_full_batches_of_one_partition() -> None:
    """Their keys choose the partitions of the dead letter topic, of which none may fill a batch."""
    kafka = Connection()
    letters = DeadLetters(kafka, "group", "dead")  # type: ignore[arg-type]

    letters.send(batch_of([{"value": b"bad"}]))

    assert [True] == kafka.spread
