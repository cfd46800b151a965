"""What a restore that follows sees in the bucket: what is whole, and what is set aside.

A bucket that is being written to may show a part of what belongs together: one of the files of a
cut, or values before their keys.  A restore that took that part would be past the rest when it
comes.  The ledger says what is whole, for a sink enters a cut once all of its objects are stored;
where it says nothing, an object is taken when it has not changed for a while.

Where transforms choose a topic for each record, what is new is read to find them out: nothing
of it is written before, and what was read once is not read again.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.catalog import listing
from kbackup.catalog.ledger.objects import PartitionLedger
from kbackup.catalog.listing import BackupFile, Catalog, FileSet
from kbackup.config import Settings
from kbackup.errors import Issue, KbackupError, RefusedError, StoppedError
from kbackup.events import NO_TOPIC
from kbackup.naming.renaming import select
from kbackup.records import TopicPartition
from kbackup.restore.inventory import Inventory
from kbackup.restore.job import RestoreUnit
from kbackup.restore.progress import BUCKET, Remarks, RestoreProgress, skipped
from kbackup.restore.resume import chained
from kbackup.restore.routing import (
    RoutedRecords,
    Shares,
    Surveyed,
    added,
    check,
    check_archived,
    to_survey,
    with_home,
)
from kbackup.runs import wiring
from kbackup.runs.known import BackupState
from kbackup.stores import Store

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
        known: BackupState,
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


FOREIGN_MOST: Final = 20
"""Foreign objects that are named; all are counted."""


class BucketWatch:
    """Lists the bucket, and reports what is odd about it.

    Args:
        settings: Which backup, and which of its topics.
        store: Where it is.
        remarks: Takes what is odd.
        passes_over: Takes each object that is not the backup's, once.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        remarks: Remarks,
        passes_over: Callable[[Issue], None],
    ) -> None:
        self._settings, self._store, self._remarks = settings, store, remarks
        self._passes_over = passes_over
        self._foreign: set[str] = set()  # what the last listing had

    def catalog(self, topics: Collection[str]) -> Catalog:
        """Return what is there of *topics*; all where there are none.

        Raises:
            StoreError: If the listing cannot be had whole.
        """
        settings = self._settings
        return listing.list_backup(
            self._store,
            wiring.layout(settings),
            wiring.format_options(settings),
            topics=topics,
            only_format=wiring.only_format(settings),
        )

    def names(self, there: Collection[str]) -> list[str]:
        """Return the topics to restore of those that are there; report which have yet to come."""
        settings = self._settings
        wanted = select(there, settings.topics, settings.topics_regex)
        missing = [name for name in wanted if name not in there]
        if missing or not wanted:
            what = ", ".join(missing) or f"a topic that matches {settings.topics_regex or '.*'}"
            place = f"{settings.url}/{settings.topics_dir}"
            self._remarks.odd((BUCKET, NO_TOPIC), [(NO_TOPIC, f"waiting for {what} in {place}")])
        else:
            self._remarks.odd((BUCKET, NO_TOPIC), [])
        return [name for name in wanted if name in there]

    def foreign(self, found: Catalog) -> None:
        """Report objects that are not the backup's, and those of another format."""
        keys = {f"{key} is ignored: {why}": key for key, why in found.foreign[:FOREIGN_MOST]}
        said = [("foreign_object", text) for text in keys]
        self._remarks.count("foreign_objects", found.foreign_count)
        self._remarks.odd((BUCKET, "foreign_object"), said, keys)
        self._remarks.odd((BUCKET, "left_out"), found.left_out())
        for key, why in found.foreign:
            if key not in self._foreign:
                self._passes_over(skipped(key, why))
        self._foreign = {key for key, _ in found.foreign}


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


@dataclass(slots=True)
class _Known:
    """What is known of one partition."""

    seen: dict[str, str] = field(default_factory=dict)
    shares: dict[str, RoutedRecords] = field(default_factory=dict)
    bad_records: int = 0
    bad_objects: int = 0


class FollowedRoutes:
    """Where the records of a backup go that is followed.

    Args:
        settings: The configuration.
        store: Where the backup is.
        read: Reads units for their topics, and reports where their records go.
        account: Counts what has no topic, as long as no task would.
        remarks: Takes what is odd.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        read: Callable[[Sequence[RestoreUnit]], Sequence[Surveyed]],
        account: RestoreProgress,
        remarks: Remarks,
    ) -> None:
        self._settings, self._store, self._read = settings, store, read
        self._account, self._remarks = account, remarks
        self._known: dict[TopicPartition, _Known] = {}

    @property
    def shares(self) -> Shares:
        """Where all that was read goes."""
        return Shares({where: known.shares for where, known in self._known.items()})

    def home(self, where: TopicPartition) -> str | None:
        """Return the topic whose restore reads all objects of a partition; None for none."""
        shares = self._known[where].shares if where in self._known else {}
        return next((name for name, share in shares.items() if share.counts_rest), None)

    def look(self, topics: Sequence[str], inventory: Inventory) -> dict[str, list[Issue]]:
        """Read what is new of *topics*.

        Returns:
            What is in the way of each; empty where nothing is.

        Raises:
            StoreError: If the store does not answer.
        """
        failures: dict[str, list[Issue]] = {name: [] for name in topics}
        units = list[RestoreUnit]()
        for name in topics:
            try:
                found = self._unread(name, inventory)
                check_archived(self._store, found)
            except KbackupError as error:
                if error.exit_code in (5, 6):
                    raise
                failures[name].append(error.issue())
            else:
                units += found
        new = {unit.source: unit for unit in units}
        for report in self._read(units) if units else ():
            if report.failure is None:
                self._take(new[report.where], report)
            elif report.failure.code != StoppedError.code:  # the caller sees a stop, too
                failures[report.where.topic].append(report.failure)
        for name in topics:
            if not failures[name]:
                try:
                    self._judge(name)
                except RefusedError as error:
                    failures[name].append(error.issue())
        return failures

    def _unread(self, name: str, inventory: Inventory) -> list[RestoreUnit]:
        """Return what of a topic was not read yet; what was may be archived by now."""
        whole = to_survey(self._settings, inventory, [name])
        wheres = {unit.source for unit in whole}
        for where in [at for at in self._known if at.topic == name and at not in wheres]:
            del self._known[where]  # nothing of it is left
        return list(filter(None, map(self._news, whole)))

    def _news(self, unit: RestoreUnit) -> RestoreUnit | None:
        """Return what of a partition was not read yet, and forget what is gone."""
        now = {files.part: chained("", [files]) for files in unit.sets}
        known = self._known.setdefault(unit.source, _Known())
        if any(now.get(one, stamp) != stamp for one, stamp in known.seen.items()):
            self._forget_counts(known)
            known = self._known[unit.source] = _Known()  # what it held, nothing says any more
        known.seen = {one: stamp for one, stamp in known.seen.items() if one in now}
        left = {
            name: replace(share, sets=share.sets & now.keys())
            for name, share in known.shares.items()
        }
        known.shares = with_home({name: share for name, share in left.items() if share.sets})
        new = tuple(files for files in unit.sets if files.part not in known.seen)
        return replace(unit, sets=new) if new else None

    def _take(self, unit: RestoreUnit, report: Surveyed) -> None:
        known = self._known[unit.source]
        known.seen |= {files.part: chained("", [files]) for files in unit.sets}
        shares = dict(known.shares)
        for name, share in report.shares.items():
            shares[name] = added(shares[name], share) if name in shares else share
        known.shares = with_home(shares)
        if known.shares:  # the task that restores its first topic counts all of it
            self._forget_counts(known)
            return
        known.bad_records += report.bad_records
        known.bad_objects += report.bad_objects
        self._account.foretell(unit.source, report.bad_records, report.bad_objects, report.skipped)

    def _forget_counts(self, known: _Known) -> None:
        self._account.counts_again(known.bad_records, known.bad_objects)
        known.bad_records = known.bad_objects = 0

    def _judge(self, name: str) -> None:
        """Report a topic none of whose records has another, and refuse one with too many.

        Raises:
            RefusedError: If its records go to too many topics.
        """
        targets = self.shares.targets(name)
        check(name, len(targets))
        text = f"{name}: there is no record, or its transforms leave none: no topic is chosen"
        self._remarks.odd((name, "no_topic"), [] if targets else [("no_topic", text)])
