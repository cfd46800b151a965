"""Which objects a restore that follows takes now, and which it leaves until they are whole.

A bucket that is being written to may show a part of what belongs together: one of the files of a
cut, or values before their keys.  A restore that took that part would be past the rest when it
comes.  The ledger says what is whole, for a sink enters a cut once all of its objects are stored;
where it says nothing, an object is taken when it has not changed for a while.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.backup.catalog import Catalog
from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.ledger.objects import PartitionLedger
from kbackup.records import TopicPartition
from kbackup.runs.known import Known

UNENTERED_S: Final = 300.0
"""How long an object stays the same that a topic's ledger should know, until it is taken."""

_Seen = tuple[tuple[int, float], float]
"""Size and time of an object, and since when it has had these by the monotonic clock."""


@dataclass(slots=True)
class Ready:
    """Remembers since when objects have been as they are, by topic and key.

    Attributes:
        interval_s: How long an object of a topic without a ledger stays the same until it is
            taken, in seconds: the time between two listings.
    """

    interval_s: float
    _since_of: dict[str, dict[str, _Seen]] = field(default_factory=dict)
    _waiting: dict[str, float] = field(default_factory=dict)

    def take(
        self,
        topics: Collection[str],
        found: Catalog,
        known: Known,
        now: float,
        clock_s: float | None = None,
    ) -> Catalog:
        """Return what of a listing is taken; of each partition all before what is not whole.

        Args:
            topics: The topics that were listed.
            found: All their objects.
            known: What the backup says of itself, read before the listing.
            now: By the monotonic clock.
            clock_s: The time in seconds since the epoch, to tell the age of objects by that were
                there before the run; None where what has not been seen before is new.
        """
        taken = dict[TopicPartition, list[FileSet]]()
        before = {topic: self._since_of.pop(topic, {}) for topic in topics}
        for topic in topics:
            self._waiting.pop(topic, None)
        for where, sets in found.sets.items():
            limit = first = None
            for number, files in enumerate(sets):
                since = self._since(files, before[where.topic], known, now, clock_s)
                if since is None or self._is_taken(files, known, now - since):
                    continue
                limit = files.start_offset if limit is None else min(limit, files.start_offset)
                first = number if first is None else first
                self._waiting[where.topic] = min(since, self._waiting.get(where.topic, now))
            kept = [files for files in sets if limit is None or files.start_offset < limit]
            if sets[0].is_generic:  # they all begin at the same offset, and are in order
                kept = list(sets[:first])
            if kept:
                taken[where] = kept
        return replace(found, sets=taken)

    def waits(self, topic: str) -> bool:
        """Whether objects of *topic* were left when it was looked at."""
        return topic in self._waiting

    def longest_s(self, now: float) -> float:
        """Return for how long an object has been waiting, in seconds; 0 where none is."""
        return max((now - since for since in self._waiting.values()), default=0.0)

    def _since(
        self,
        files: FileSet,
        before: Mapping[str, _Seen],
        known: Known,
        now: float,
        clock_s: float | None,
    ) -> float | None:
        """Return since when a set has been as it is; None where the ledger knows it as it is."""
        topic, ledger = files.where.topic, known.ledger(files.where)
        if known.has_ledger(topic) and all(_bytes(one, ledger) == one.size for one in files.files):
            return None
        mine = self._since_of.setdefault(topic, {})
        for file in files.files:
            stamp = file.size, file.modified
            seen = before.get(file.key)
            if seen is None or seen[0] != stamp:
                age_s = 0.0
                if seen is None and clock_s is not None:
                    age_s = max(0.0, clock_s - file.modified)
                seen = stamp, now - age_s
            mine[file.key] = seen
        return max(mine[file.key][1] for file in files.files)

    def _is_taken(self, files: FileSet, known: Known, still_s: float) -> bool:
        """Whether a set that the ledger does not know as it is has been the same long enough."""
        if not known.has_ledger(files.where.topic):
            return still_s >= self.interval_s
        ledger = known.ledger(files.where)
        reached = ledger.reached()
        is_begun = any(file.key in ledger.objects for file in files.files)
        if reached is not None and files.start_offset >= reached and not is_begun:
            return False  # a sink is at it, or was killed and will store it again
        return still_s >= UNENTERED_S


def _bytes(file: BackupFile, ledger: PartitionLedger) -> int | None:
    entry = ledger.objects.get(file.key)
    return None if entry is None else entry.bytes
