"""A partition whose backup an open transaction holds up.

Consumers of committed records read no further than the first offset of a transaction that is open.
While it is open, all that follows is kept from a backup too: for moments as a rule, and until
somebody ends it where its producer is gone and the coordinator has lost it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from kbackup import moments
from kbackup.records import Span, TopicPartition

LONG_S: Final = 900.0
"""Kafka's default for ``transaction.max.timeout.ms``: no transaction should be open for longer."""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Where a transaction holds a partition's backup up, as of a look at the cluster.

    Times are in seconds since the epoch, by the clock of the host that looked.

    Attributes:
        offset: The last stable offset.
        end: The end of the log, behind the transaction.
        seen: When the log ended there.
        since: When the backup was first seen to be held up at this offset.
        until: All that was written before then is in the backup once *offset* is; None where that
            is not known.
        waits: An end of the log, and when it was that: once the backup is there, all that was
            written before then is in it.
        is_at_start: The log begins at *offset*: retention has deleted what was before it, and the
            transaction may be one that had begun there.
    """

    offset: int
    end: int
    seen: float
    since: float
    until: float | None = None
    waits: tuple[int, float] | None = None
    is_at_start: bool = False

    @classmethod
    def of(cls, log: Span, end: int, now: float) -> Self | None:
        """Return what a look at the cluster shows; None where no transaction holds anything up.

        Args:
            log: From its start to the last stable offset.
            end: The end of the log, asked for before that: what is written meanwhile is not behind
                a transaction.
            now: Seconds since the epoch.
        """
        offset = log.end_offset
        if end <= offset:
            return None
        return cls(offset, end, now, now, None, (end, now), not len(log))

    @property
    def behind(self) -> int:
        """How many offsets are not in the backup for it."""
        return self.end - self.offset

    @property
    def is_long(self) -> bool:
        """Whether it has lasted for longer than a transaction may."""
        return self.seen - self.since > LONG_S

    def after(self, earlier: "HeldUp | None") -> "HeldUp":
        """Return this with what an earlier look has shown of the same partition."""
        if earlier is None:
            return self
        is_same = self.offset == earlier.offset or (
            self.is_at_start and self.offset > earlier.offset
        )
        since = min(self.since, earlier.since) if is_same else self.since
        until, waits = earlier.until, earlier.waits
        if waits is None or self.offset >= waits[0]:
            until, waits = (until if waits is None else waits[1]), self.waits
        return replace(self, since=since, until=until, waits=waits)

    def text(self, where: TopicPartition) -> str:
        """Return the sentence that says so of *where*."""
        since = moments.text(datetime.fromtimestamp(self.since, UTC))
        return (
            f"{where} is held up at offset {self.offset} since {since} by an open transaction; "
            f"{self.behind:,} offsets behind it are not in the backup; if it stays open, see "
            "kafka-transactions.sh find-hanging"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "offset": self.offset, "end": self.end, "seen": self.seen, "since": self.since,
            "until": self.until, "waits": self.waits,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned.

        Raises:
            KeyError: If it is anything else.
            TypeError: Likewise.
            ValueError: Likewise.
        """
        until, waits = data["until"], data["waits"]
        return cls(
            int(data["offset"]),
            int(data["end"]),
            float(data["seen"]),
            float(data["since"]),
            None if until is None else float(until),
            None if waits is None else (int(waits[0]), float(waits[1])),
        )
