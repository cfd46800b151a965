"""List what a backup holds of the topics asked for, what is known to be gone, what it lacks."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import pyarrow.compute as pc

from kbackup.catalog import listing, merging
from kbackup.catalog.claims import Reading
from kbackup.catalog.covered import Covered, covered
from kbackup.catalog.findings import Finding
from kbackup.catalog.judged import JudgedPartition
from kbackup.catalog.ledger.rows import Entry, is_main
from kbackup.catalog.listing import BackupFile, Catalog, FileSet, Window, earlier_of, object_bytes
from kbackup.catalog.merging import StoredRows
from kbackup.catalog.reading import extent, facts
from kbackup.config import Settings
from kbackup.errors import StoreError
from kbackup.naming.renaming import LeftOut
from kbackup.records import UNKNOWN, Facts, Span, TopicIdentity, TopicPartition
from kbackup.runs import wiring
from kbackup.runs.backup_state import BackupState, Looked, as_of, list_as_stored, within
from kbackup.stores import (
    ObjectHead,
    RememberedHeads,
    Store,
    StoredObject,
    at_versions,
    side_by_side,
)

_NOT_ENTERED: Final = "not entered"
"""Stands for the cut of a run that was killed, or is at work."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def listed(
    settings: Settings,
    store: Store,
    topics: Collection[str],
    known: BackupState,
    looked: Looked | None = None,
) -> Catalog:
    """Return what is there of *topics*, all where there are none, as a restore reads it.

    It reads what was stored, where that was deleted or overwritten: `list_as_stored`.
    """
    asked = replace(settings.asked, names=tuple(topics))
    return list_as_stored(
        store, wiring.layout(settings), wiring.format_options(settings), known, asked,
        wiring.only_format(settings), looked,
    )  # fmt: skip


class Inventory:
    """A bucket's catalog beside what the backup says about itself.

    What the ledger knows is taken from there; only what it does not know costs a request.

    Args:
        known: Read before the bucket was listed.
        tails: Of a drill: which objects of each partition to take, by the offsets at which they
            begin.  None: all, of all partitions.

    Attributes:
        catalog: What is there, without what is not taken.
        is_of_drill: Whether it is of a drill, whose topics no sink backs up.

    Raises:
        IncompleteBackupError: If only what was stored before a time is asked for, and that is
            nothing: `as_of`.
        RefusedError: Likewise, if that cannot be told.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        catalog: Catalog,
        known: BackupState,
        tails: Mapping[TopicPartition, Span] | None = None,
    ) -> None:
        catalog = known.left(catalog)
        self._names = {*catalog.topics(), *known.names}
        if settings.as_of is not None:
            catalog, known = as_of(catalog, known, settings.as_of, settings.asked)
        if tails is not None:
            catalog, known = within(catalog, known, tails)
        self.settings, self.catalog, self.known = settings, catalog, known
        self.store = at_versions(store, catalog.versions)
        self.is_of_drill = tails is not None
        self.heads = RememberedHeads(self.store)
        self._heads: dict[TopicPartition, ObjectHead | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._covered: dict[TopicPartition, Covered] = {}
        self._places: dict[TopicPartition, dict[str, int]] = {}
        self._stored = _by_topic(catalog.sets)
        self._there = _by_topic({*known.partitions(), *catalog.sets})

    def topics(self) -> list[str]:
        """Return the topics that are asked for.

        Raises:
            ConfigurationError: If all of them were to be left out.
            IncompleteBackupError: If one of them is not in the backup.
        """
        there = {*self.catalog.topics(), *self._there}
        place = wiring.layout(self.settings).place
        return listing.chosen(self.settings.asked, there, place)

    def left_out(self) -> LeftOut:
        """Return the topics of the backup that are not taken."""
        return replace(self.settings.asked.left_out(self._names), not_yet=self.known.later)

    def stored(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of *topic* that have objects, by number."""
        return self._stored.get(topic, [])

    def there(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of *topic* that are known, those without any object too."""
        return self._there.get(topic, [])

    def wanted(self, topic: str) -> list[TopicPartition]:
        """Return the partitions that have objects and are asked for, by number."""
        return [where for where in self.stored(topic) if self.settings.asked.has(where.partition)]

    def once_stored(self, topic: str) -> list[TopicPartition]:
        """Return the partitions that had objects, whatever became of them, and are asked for."""
        has = self.settings.asked.has
        wheres = (where for where in self.there(topic) if has(where.partition))
        return [where for where in wheres if self.known.ledger(where).objects]

    def removed(self, where: TopicPartition) -> list[FileSet]:
        """Return the sets that were removed on purpose, of which a restore would have read some.

        They are as the ledger knows them.  A restore that passed them has counted their records.
        """
        layout, topics = wiring.layout(self.settings), [where.topic]
        gone = self.known.ledger(where).removed(self.catalog.keys)
        if not gone or layout.is_generic:
            return []
        entries = (StoredObject(one.key or "", one.bytes or 0, _EPOCH, "") for one in gone)
        found = listing.sorted_out(
            entries, layout, wiring.format_options(self.settings), topics=topics,
            only_format=wiring.only_format(self.settings),
        ).sets  # fmt: skip
        sets = (files for files in found.get(where, ()) if files.main)
        return [files for files in sets if self.window.takes(files, self.entered(files))]

    def missing(self, where: TopicPartition) -> list[Entry]:
        """Return the objects asked for that runs stored and that are not there, no siblings."""
        return [
            entry
            for entry in self.known.ledger(where).missing(self.catalog.keys)
            if is_main(entry)
            and self.window.asks(entry.first, entry.span.end_offset - 1, entry.facts)
        ]

    def absent(self, where: TopicPartition) -> list[Span]:
        """Return the offsets of objects that are not there, whatever became of them."""
        gone = self.known.ledger(where).absent(self.catalog.keys)
        return [entry.span for entry in gone if is_main(entry)]

    def sets(self, topic: str) -> Iterable[FileSet]:
        """Yield every set of *topic*, in order."""
        return (files for where in self.stored(topic) for files in self.catalog.sets[where])

    def covered(self, where: TopicPartition) -> Covered:
        """Return the sets to restore, what is left out, and what cannot be decided."""
        if where not in self._covered:
            options, identity = wiring.reading(self.settings), self.known.identity(where.topic)
            self._covered[where] = covered(
                Reading(self.store, options, identity), where, self.catalog.sets.get(where, []),
                self.known.ledger(where), heads=self.heads,
            )  # fmt: skip
        return self._covered[where]

    @cached_property
    def window(self) -> Window:
        """Which records are asked for."""
        return wiring.window(self.settings)

    def asked_for(self, sets: Sequence[FileSet]) -> Sequence[FileSet]:
        """Return those that may hold a record that is asked for."""
        if self.window.is_everything:
            return sets
        return [files for files in sets if self.window.takes(files, self.facts(files))]

    def among(self, where: TopicPartition, ids: Collection[str]) -> list[FileSet]:
        """Return those of the sets to restore that have a `FileSet.part` of *ids*, in order."""
        kept = self.covered(where).sets
        if where not in self._places:
            self._places[where] = {files.part: place for place, files in enumerate(kept)}
        places = self._places[where]
        return [kept[place] for place in sorted(places[name] for name in ids if name in places)]

    def look_at(self, topics: Iterable[str]) -> None:
        """Ask each partition's first object, once, for what the ledger does not say of it."""
        wheres = [
            where
            for topic in topics
            for where in self.stored(topic)
            if where not in self._heads
            and (self._first(where) is None or self.known.identity(topic) == UNKNOWN)
        ]

        def head(where: TopicPartition) -> ObjectHead | None:
            return self.heads.head(self.catalog.sets[where][0].files[0].key)

        self._heads.update(zip(wheres, side_by_side(head, wheres), strict=True))

    def oldest(self, sets: Sequence[FileSet]) -> int | None:
        """Return the lowest timestamp of the records in *sets*, ms since the epoch.

        Where the ledger knows none of these, the first one is asked, which is old enough to judge
        retention by.  None if nothing says it.
        """
        known = [one for files in sets if (one := self.entered(files)) is not None]
        if not known:
            known = [one for files in sets[:1] if (one := self.facts(files)) is not None]
        times = (one.min_timestamp for one in known)
        return min((time for time in times if time is not None), default=None)

    def _first(self, where: TopicPartition) -> Facts | None:
        """Return what the ledger knows of the records in a partition's first object."""
        return self.known.facts(where, self.catalog.sets[where][0].files[0])

    def identity(self, where: TopicPartition) -> TopicIdentity:
        """Return which topic was backed up, by the ledger, else by what `look_at` has read."""
        head = self._heads.get(where)
        identity = self.known.identity(where.topic)
        if identity == UNKNOWN and head is not None:
            identity = TopicIdentity.from_metadata(head.metadata)
        return identity

    def facts(self, files: FileSet) -> Facts | None:
        """Return what is known of a set's records: by the ledger, else by its object."""
        if files.main is None:
            return None
        known = self.entered(files)
        return facts(self.heads, files.main) if known is None else known

    def facts_of_begun(self, files: FileSet) -> Facts | None:
        """Return what is known of the records of a set from which some may have been restored."""
        said = self.facts(files)
        return extent(self.store, files.main) if said is None and files.main else said

    def entered(self, files: FileSet) -> Facts | None:
        """Return what the ledger knows of a set's records: no request is made for it."""
        return None if files.main is None else self.known.facts(files.where, files.main)

    def cut_of(self, files: FileSet) -> Hashable:
        """Return which cut of which run a set is of, by the ledger; else a cut of its own.

        What is behind all that was entered is of one cut: a run enters a cut before the next one.
        """
        entry = self.known.ledger(files.where).objects.get(files.id)
        if entry is not None:
            return entry.cut or files.id
        end = self._entered_to(files.where)
        return files.id if end is None or files.begin < end else _NOT_ENTERED

    def _entered_to(self, where: TopicPartition) -> int | None:
        """Return the end of what runs have entered; None where the ledger knows no such topic."""
        if where.topic not in self.known.topics:
            return None
        if where not in self._ends:
            self._ends[where] = self.known.ledger(where).reached() or 0
        return self._ends[where]

    def records_below(self, files: FileSet, offset: int) -> int:
        """Read how many records of a set of full records are below *offset*."""
        count = 0
        for step in merging.steps(Reading(self.store, wiring.reading(self.settings)), [files]):
            if isinstance(step, StoredRows):
                below = pc.sum(pc.less(step.batch["offset"], offset)).as_py() or 0
                count += below
                if below < len(step.batch):
                    break
        return count

    def had_objects(self, topic: str) -> bool:
        """Whether the ledger knows of objects of *topic*, wherever they are now."""
        wheres = self.there(topic)
        return any(self.known.ledger(where).objects for where in wheres)

    def records(self, where: TopicPartition, sets: Sequence[FileSet]) -> int | None:
        """Return the number of records in *sets*; None if it is not known before they are read."""
        return self._judged(where, sets).records()

    def findings(self, topic: str) -> Iterable[tuple[TopicPartition, Iterable[Finding]]]:
        """Yield what is wrong with each partition that is asked for, known to have been stored."""
        sets = self.catalog.sets
        layout, options = wiring.layout(self.settings), wiring.format_options(self.settings)
        for where in self.there(topic):
            if self.settings.asked.has(where.partition):
                judged = self._judged(where, sets.get(where, []))
                found = [*judged.findings(self.store, layout, options)]
                others = {one.key for one in found if one.is_of_other and one.key}
                stored = self._look_for_stored(where, others) if others else ()
                yield where, [one for one in found if not (one.is_of_other and one.key in stored)]

    def _look_for_stored(self, where: TopicPartition, others: Collection[str]) -> Collection[str]:
        """Read what was stored in place of others of the same size; return which it is found of."""
        rows = self.known.ledger(where).objects
        there = (file for files in self.catalog.sets.get(where, ()) for file in files.files)
        sizes = {file.key: file.size for file in there if file.key in others}
        # what is not there, or has another size, `list_as_stored` has found
        alike = (row for key, row in rows.items() if key in sizes and row.bytes == sizes[key])
        found = dict[str, StoredObject]()
        with suppress(StoreError):  # then it is as the findings say
            found = earlier_of(self.store, alike)
        if found:
            versions = {key: one.version for key, one in found.items()}

            def told(file: BackupFile) -> BackupFile:
                one = found.get(file.key)
                if one is None:
                    return file
                return replace(file, version=one.version, storage_class=one.storage_class)

            self.catalog.sets[where] = [one.known_by(told) for one in self.catalog.sets[where]]
            self.catalog.versions |= versions
            self.store = at_versions(self.store, versions)
            self.heads = RememberedHeads(self.store)
            self._covered.pop(where, None)
            self._places.pop(where, None)
        return found.keys()

    def _judged(self, where: TopicPartition, sets: Sequence[FileSet]) -> JudgedPartition:
        return JudgedPartition(
            where, sets, {}, is_deep=False, ledger=self.known.ledger(where),
            identity=self.known.identity(where.topic), present=self.catalog.keys,
            heads=self.heads,
        )  # fmt: skip


def _by_topic(wheres: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for where in sorted(wheres):
        found.setdefault(where.topic, []).append(where)
    return found


def newest(topic: str, inventory: Inventory, most: int | None) -> dict[TopicPartition, Span]:
    """Return where the newest objects of a topic begin, of about so many bytes; None for all.

    An object that is gone is one of them, where the ledger knows of it: it will be missed.
    """
    by_partition: defaultdict[TopicPartition, list[FileSet]] = defaultdict(list)
    for files in inventory.sets(topic):
        by_partition[files.where].append(files)
    total = sum(map(object_bytes, by_partition.values()))
    found = {}
    for where in inventory.there(topic):
        own, entered = by_partition[where], inventory.known.ledger(where).objects.values()
        last = max([*(one.start_offset for one in own[-1:]), *(one.first for one in entered)],
                   default=0)  # fmt: skip
        first = 0
        if most is not None and most < total and own:
            first = _first(own, inventory, most * object_bytes(own) // total)
        found[where] = Span(own[first].start_offset if first else 0, last + 1)
    return found


def _first(sets: Sequence[FileSet], inventory: Inventory, share: int) -> int:
    """Return the first of the objects at the end of a partition that have a share of bytes."""
    ends, end = [0], 0
    for files in sets:
        facts = inventory.entered(files)
        end = max(end, files.start_offset if facts is None else facts.last_offset)
        ends.append(end)
    taken = 0
    for at in range(len(sets) - 1, 0, -1):
        taken += object_bytes(sets[at : at + 1])
        # with several directories, one before it may have offsets behind its beginning
        if taken >= share and ends[at] < sets[at].start_offset:
            return at
    return 0
