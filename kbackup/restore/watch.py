"""Report news of the bucket, and decide what of it a restore that follows may take.

A bucket that is being written to may show a part of what belongs together: one of the files of a
cut, or values before their keys.  A restore that took that part would be past the rest when it
comes.  The ledger says what is whole, for a sink enters a cut once all of its objects are stored;
where it says nothing, an object is taken when it has not changed for a while.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.catalog.ledger.rows import PartitionLedger
from kbackup.catalog.listing import OTHER_FORMAT, BackupFile, Catalog, FileSet
from kbackup.errors import KbackupError
from kbackup.events import NO_TOPIC, TopicPlanned
from kbackup.records import TopicPartition
from kbackup.restore.accounting import RestoreProgress, skipped
from kbackup.restore.checks import APPEND_TIME
from kbackup.restore.plan import PlannedTopic
from kbackup.restore.resume import LEFT_OUT
from kbackup.runs.backup_state import REMOVED_SINCE, BackupState, held_up
from kbackup.runs.context import RunContext
from kbackup.stores import Store

BUCKET: Final = ""
"""What is set aside where the bucket cannot be listed, or the cluster not be asked."""

_COUNTED: Final = {
    LEFT_OUT: "incomplete_partitions",  # the target still differs from the backup
    REMOVED_SINCE: "partitions_with_removed_objects",
}
"""Warnings of plans, and the reason by which each counts as left out."""

FOREIGN_MOST: Final = 20
"""Foreign objects that are named; all are counted."""


class RestoreNews:
    """Reports what a restore plans, and finds odd, where it is news; the summary has what holds."""

    def __init__(self, frame: RunContext, account: RestoreProgress) -> None:
        self._frame, self._account, self._summary = frame, account, frame.summary
        self._plans: dict[tuple[str, str], TopicPlanned] = {}
        self._retimed = set[str]()  # targets that replace the timestamps of what is written
        self._foreign: set[str] = set()  # what the last listing had

    def plans(self) -> list[TopicPlanned]:
        """Return the latest plan of each topic."""
        return list(self._plans.values())

    def planned(self, topics: Iterable[PlannedTopic]) -> None:
        """Report what is planned for topics, and what is odd about it."""
        for topic in topics:
            place, event = (topic.copy.source, topic.copy.target), topic.event()
            with self._summary.lock:
                before = self._plans.get(place)
                self._plans[place] = event
            if topic.units and any(code == APPEND_TIME for code, _ in topic.warnings):
                self._retimed.add(place[1])
            if before is None or (before.action, before.code) != (event.action, event.code):
                self._frame.tell(event)
            self._frame.remark((place[0], f"plan of {place[1]}"), *topic.warnings)
        with self._summary.lock:
            said = Counter(each.code for each in self._summary.holding())
            counts = {reason: said[code] for code, reason in _COUNTED.items()}
            counts["topics_with_other_timestamps"] = len(self._retimed)
            self._summary.skipped |= {reason: count for reason, count in counts.items() if count}

    def listed(self, found: Catalog) -> None:
        """Report objects that are not the backup's, and those of another format."""
        foreign = found.foreign[:FOREIGN_MOST]
        said = [("foreign_object", f"{key} is ignored: {why}", key) for key, why in foreign]
        reason, number = "foreign_objects", found.foreign_count
        self._frame.remark((BUCKET, reason), *said, skipped=reason, count=number)
        reason, number = OTHER_FORMAT, found.ignored
        self._frame.remark((BUCKET, reason), *found.left_out(), skipped=reason, count=number)
        for key, why in found.foreign:
            if key not in self._foreign:
                self._account.passes_over(skipped(key, why))
        self._foreign = {key for key, _ in found.foreign}

    def read(self, said: BackupState) -> None:
        """Report what of the backup's account of itself cannot be read."""
        for damage in said.all_damage():
            about = damage.what, damage.code
            self._frame.remark(about, (damage.code, damage.text, damage.what))

    def lacking(self, found: Catalog, missing: Iterable[KbackupError]) -> None:
        """Report what was overwritten of what is restored, and count and list what is missing."""
        self._frame.remark((BUCKET, "overwritten"), *found.as_stored())
        for error in missing:
            key = str(error.place.get("topic", "")), str(error)
            if self._frame.remark(key, ("missing_object", f"{error}; left out")):
                self._account.lacks(error)

    def routed(self, topic: str, text: str | None) -> None:
        """Report that no record of *topic* has a topic to go to: *text*; None: one has."""
        said = [] if text is None else [("no_topic_chosen", text)]
        self._frame.remark((topic, "no_topic_chosen"), *said)

    def held_up(
        self, store: Store, reached: Callable[[TopicPartition], int | None], topics: Collection[str]
    ) -> None:
        """Report what open transactions keep from the backup of *topics*; as `known.held_up`."""
        frame = self._frame
        found = held_up(store, frame.layout, reached, topics, frame.settings.partitions)
        frame.tell_all(self._summary.held_up(found))

    def names(self, there: Collection[str]) -> list[str]:
        """Return the topics to restore of those that are there; report which have yet to come."""
        settings = self._frame.settings
        wanted = settings.asked.topics(there)
        missing = [name for name in wanted if name not in there]
        said = []
        if missing or not wanted:
            what = ", ".join(missing) or f"a topic that matches {settings.topics_regex or '.*'}"
            said = [(NO_TOPIC, f"waiting for {what} in {self._frame.layout.place}")]
        self._frame.remark((BUCKET, NO_TOPIC), *said)
        return [name for name in wanted if name in there]


UNENTERED_S: Final = 300.0
"""How long an object stays the same that a topic's ledger should know, until it is taken."""

_Seen = tuple[tuple[int, float], float]
"""Size and time of an object, and since when it has had these by the monotonic clock."""


@dataclass(slots=True)
class Ready:
    """Remembers since when objects have been as they are, by topic and key.

    An object of a topic without a ledger is taken once it has stayed the same for *interval_s*, the
    time between two listings.
    """

    interval_s: float
    _since_of: dict[str, dict[str, _Seen]] = field(default_factory=dict)
    _waiting: dict[str, float] = field(default_factory=dict)

    def take(
        self,
        topics: Collection[str],
        found: Catalog,
        known: BackupState,
        now: float,
        clock_s: float | None = None,
    ) -> Catalog:
        """Return what of a listing is taken; of each partition all before what is not whole.

        Args:
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
        known: BackupState,
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

    def _is_taken(self, files: FileSet, known: BackupState, still_s: float) -> bool:
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


def stamps(found: Catalog, said: BackupState) -> dict[str, str]:
    """Return, for each topic, a digest of its objects and of what is said of it."""
    digests = {name: hashlib.sha256() for name in {*found.topics(), *said.topics}}
    for name, entry in said.topics.items():
        digests[name].update(f"{entry.identity} {entry.partitions} {entry.config}".encode())
    for where in sorted(found.sets):
        for files in found.sets[where]:
            for file in files.files:
                text = f"{file.key} {file.size} {file.modified}\n"
                digests[where.topic].update(text.encode(errors="surrogatepass"))
    return {name: digest.hexdigest() for name, digest in digests.items()}
