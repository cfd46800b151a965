"""What the backup holds of the topics to restore, what is known to be gone, and what it lacks."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Final

from kbackup import converters, formats
from kbackup.catalog import listing
from kbackup.catalog.column import given_converter, reads
from kbackup.catalog.covered import Covered, covered
from kbackup.catalog.findings import Finding
from kbackup.catalog.judged import JudgedPartition
from kbackup.catalog.listing import Catalog, FileSet, nothing_there
from kbackup.catalog.reading import Window, extent, facts
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    IncompleteBackupError,
    KbackupError,
    RefusedError,
    counted,
    some,
)
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions
from kbackup.records import UNKNOWN, Facts, TopicIdentity, TopicPartition
from kbackup.restore.planning.safety import Intent
from kbackup.runs import wiring
from kbackup.runs.known import BackupState
from kbackup.runs.selection import select
from kbackup.stores import Heads, ObjectHead, RememberedHeads, Store, StoredObject

_THREADS: Final = 16
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Inventory:
    """A bucket's catalog beside what the backup says about itself.

    What the ledger knows is taken from there; only what it does not know costs a request.
    """

    def __init__(
        self, settings: Settings, store: Store, catalog: Catalog, known: BackupState
    ) -> None:
        """Take stock.

        Args:
            settings: The configuration: which topics and partitions are asked for.
            store: Where the backup is.
            catalog: What is there.
            known: What the backup says about itself, read before it was listed.
        """
        self._settings, self._store, self._catalog, self._known = settings, store, catalog, known
        self.heads = RememberedHeads(store)
        self._heads: dict[TopicPartition, ObjectHead | None] = {}
        self._covered: dict[TopicPartition, Covered] = {}
        self._places: dict[TopicPartition, dict[str, int]] = {}
        self._stored = _by_topic(catalog.sets)
        self._there = _by_topic({*known.partitions(), *catalog.sets})

    def topics(self) -> list[str]:
        """Return the topics that are asked for.

        Raises:
            IncompleteBackupError: If one of them is not in the backup.
        """
        settings = self._settings
        there = {*self._catalog.topics(), *self._there}
        names = select(there, settings.topics, settings.topics_regex)
        place = f"{settings.url}/{settings.topics_dir}"
        if not names:
            raise nothing_there(place)
        for name in names:
            if name not in there:
                raise IncompleteBackupError(
                    f"topic {name} is not in the backup",
                    f"it has no object under {place}",
                    "see what is there: kbackup restore topics",
                    topic=name,
                )
        return names

    def stored(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of *topic* that have objects, by number."""
        return self._stored.get(topic, [])

    def wanted(self, topic: str) -> list[TopicPartition]:
        """Return the partitions that have objects and are asked for, by number."""
        return [where for where in self.stored(topic) if self._is_wanted(where)]

    def once_stored(self, topic: str) -> list[TopicPartition]:
        """Return the partitions that had objects, whatever became of them, and are asked for."""
        wheres = (where for where in self._there.get(topic, []) if self._is_wanted(where))
        return [where for where in wheres if self._known.ledger(where).objects]

    def removed(self, where: TopicPartition) -> list[FileSet]:
        """Return the sets of values that were removed on purpose, as the ledger knows them.

        A restore that passed them counts rows from there on.
        """
        layout, topics = wiring.layout(self._settings), [where.topic]
        gone = self._known.ledger(where).removed(self._catalog.keys)
        if not gone or layout.is_generic:
            return []
        entries = (StoredObject(one.key or "", one.bytes or 0, _EPOCH, "") for one in gone)
        found = listing.sorted_out(
            entries, layout, wiring.format_options(self._settings), topics=topics,
            only_format=wiring.only_format(self._settings),
        ).sets  # fmt: skip
        return [files for files in found.get(where, ()) if files.main and not files.is_whole]

    def sets(self, topic: str) -> Iterable[FileSet]:
        """Yield every set of *topic*, in order."""
        return (files for where in self.stored(topic) for files in self._catalog.sets[where])

    def covered(self, where: TopicPartition) -> Covered:
        """Return the sets to restore, what is left out, and what cannot be decided."""
        if where not in self._covered:
            self._covered[where] = covered(
                self._store, where, self._catalog.sets[where], self._known.ledger(where),
                wiring.reading(self._settings), identity=self._known.identity(where.topic),
                heads=self.heads,
            )  # fmt: skip
        return self._covered[where]

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
            and (self._first(where) is None or self._known.identity(topic) == UNKNOWN)
        ]

        def head(where: TopicPartition) -> ObjectHead | None:
            return self.heads.head(self._catalog.sets[where][0].files[0].key)

        with ThreadPoolExecutor(_THREADS) as pool:
            self._heads.update(zip(wheres, pool.map(head, wheres), strict=True))

    def oldest(self, topic: str) -> int | None:
        """Return the lowest timestamp of each partition's first object, ms since the epoch.

        It is old enough to judge retention by. None if no object gives one; what the ledger does
        not say counts only once `look_at` has asked for it.
        """
        known = [self._first(where) or self._said(where) for where in self.stored(topic)]
        times = [each.min_timestamp for each in known if each is not None]
        return min((time for time in times if time is not None), default=None)

    def _first(self, where: TopicPartition) -> Facts | None:
        """Return what the ledger knows of the records in a partition's first object."""
        return self._known.facts(where, self._catalog.sets[where][0].files[0])

    def _said(self, where: TopicPartition) -> Facts | None:
        """Return what a partition's first object says of its records, if it was asked."""
        head = self._heads.get(where)
        return None if head is None else Facts.from_metadata(head.metadata)

    def identity(self, where: TopicPartition) -> TopicIdentity:
        """Return which topic was backed up, by the ledger, else by what `look_at` has read."""
        head = self._heads.get(where)
        identity = self._known.identity(where.topic)
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
        return extent(self._store, files.main) if said is None and files.main else said

    def entered(self, files: FileSet) -> Facts | None:
        """Return what the ledger knows of a set's records: no request is made for it."""
        return None if files.main is None else self._known.facts(files.where, files.main)

    def digested(self, files: FileSet) -> FileSet:
        """Return a set whose files carry what the ledger knows of them."""
        return files.known_by(partial(self._known.told, files.where))

    def cut_of(self, files: FileSet) -> Hashable:
        """Return which cut of which run a set is of, by the ledger; else a cut of its own."""
        entry = self._known.ledger(files.where).objects.get(files.id)
        return files.id if entry is None or entry.cut is None else entry.cut

    def had_objects(self, topic: str) -> bool:
        """Whether the ledger knows of objects of *topic*, wherever they are now."""
        wheres = self._there.get(topic, [])
        return any(self._known.ledger(where).objects for where in wheres)

    def records(self, where: TopicPartition, sets: Sequence[FileSet]) -> int | None:
        """Return the number of records in *sets*; None if it is not known before they are read."""
        return self._judged(where, sets).records()

    def findings(self, topic: str) -> Iterable[tuple[TopicPartition, Iterable[Finding]]]:
        """Yield what is wrong with each partition that is asked for, known to have been stored."""
        sets = self._catalog.sets
        pattern = next((sets[where][0] for where in self.stored(topic)), None)
        layout = wiring.layout(self._settings)
        for where in self._there.get(topic, []):
            if self._is_wanted(where):
                judged = self._judged(where, sets.get(where, []))
                yield where, judged.findings(self._store, layout, pattern)

    def _judged(self, where: TopicPartition, sets: Sequence[FileSet]) -> JudgedPartition:
        entries = self._known.recorded.get(where, [])
        return JudgedPartition(
            where, sets, entries, (), {}, is_deep=False, ledger=self._known.ledger(where),
            identity=self._known.identity(where.topic), present=self._catalog.keys,
            heads=self.heads,
        )  # fmt: skip

    def _is_wanted(self, where: TopicPartition) -> bool:
        return self._settings.partitions is None or where.partition in self._settings.partitions


def _by_topic(wheres: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each topic, by number."""
    found: dict[str, list[TopicPartition]] = {}
    for where in sorted(wheres):
        found.setdefault(where.topic, []).append(where)
    return found


PARTITIONS_BELIEVED: Final = 10_000
"""A backup without run records may name partitions below this without a question."""


def unbelievable(intent: Intent, highest: int, known: int) -> list[KbackupError]:
    """Refuse a partition number that only a planted or mistaken name can have.

    Args:
        intent: From where to where.
        highest: The highest partition that an object names.
        known: How many run records say there were; 0 where none does.
    """
    if highest < known or (not known and highest < PARTITIONS_BELIEVED):
        return []
    says = f"run records say {known}" if known else "no run record says so"
    return [
        RefusedError(
            f"{intent.source}: an object's name claims that there is a partition {highest}",
            f"{says}; the target would get {counted(highest + 1, 'partition')}",
            "check that object; move it away, or restore with --partitions",
            topic=intent.target,
        )
    ]


def untimed(where: TopicPartition, sets: Sequence[FileSet], window: Window) -> list[KbackupError]:
    """Refuse to choose by time among records whose layout does not store timestamps."""
    values = next((files for files in sets if not (files.is_whole or files.is_generic)), None)
    if values is None or not window.has_times:
        return []
    return [
        RefusedError(
            f"{where}: {values.id} does not say when its records were written",
            "objects of values alone store no timestamps",
            "choose by --from-offset and --to-offset",
            topic=where.topic,
        )
    ]


def indivisible(
    where: TopicPartition,
    sets: Sequence[FileSet],
    window: Window,
    facts_of: Callable[[FileSet], Facts | None],
) -> list[KbackupError]:
    """Refuse a window for which objects of values say too little: `untimed`, `unplaced`."""
    return [*untimed(where, sets, window), *unplaced(where, sets, window, facts_of)]


def unplaced(
    where: TopicPartition,
    sets: Sequence[FileSet],
    window: Window,
    facts_of: Callable[[FileSet], Facts | None],
) -> list[KbackupError]:
    """Refuse to cut an object of values at an offset when its rows do not know theirs.

    They are counted from the first one.  That is right where no offset was left out: not in a
    partition that is spread over directories, nor where compaction, an aborted transaction or a
    tombstone left a hole.

    Args:
        where: Their partition.
        sets: Its objects.
        window: What is asked for.
        facts_of: What is known of the records of a set.
    """
    values = [files for files in sets if not files.is_whole]
    is_spread = len({files.encoded_partition for files in values}) > 1
    for files in values:
        known, first = facts_of(files), files.start_offset
        if known is None and not is_spread:
            continue  # another tool's: nothing says that an offset was left out
        last = None if known is None else known.last_offset
        if (known is None or not known.is_dense) and window.offset.divides(first, last):
            return [
                RefusedError(
                    f"{where}: {files.id} does not say which offsets its records have",
                    "objects of values alone store the first one only, and here some were left out",
                    "choose offsets at which objects begin, as their names say",
                    topic=where.topic,
                )
            ]
    return []


def unconvertible(
    topic: str, sets: Iterable[FileSet], options: ReadOptions
) -> tuple[list[tuple[str, str]], list[KbackupError]]:
    """Find out which objects the configured converters cannot read.

    The format of what a sink writes, or its converter, may have changed since they were stored.

    Args:
        topic: Their topic.
        sets: What is restored of it.
        options: How objects are read.

    Returns:
        Warnings of those that their format's own converter reads, and the errors of the others.
    """
    found: defaultdict[tuple[View, str], list[str]] = defaultdict(list)
    for files in sets:
        if not (files.is_whole or files.is_generic):
            for file in files.files:
                if file.view is not View.HEADERS:
                    found[file.view, file.format].append(file.key)
    warnings, errors = [], list[KbackupError]()
    for (view, form), keys in sorted(found.items()):
        given = given_converter(options, view)
        if given is None or reads(given, form):
            continue
        name = "key.converter" if view is View.KEY else "value.converter"
        what = f"{topic}: {counted(len(keys), f'{form} object')}"
        own = formats.by_name(form).assumed.get(view)
        if own is None or converters.registers(given):
            do = f"restore them with the {name} that their records were written with, or choose "
            do += "other objects with --only-format"
            why = f"{name}={given} cannot make records of {form} files again"
            if converters.registers(given):
                why += ": they keep no schemas"
            errors.append(ConfigurationError(f"{what} cannot be read: {some(keys, 3)}", why, do))
        else:
            text = f"{what} that {name}={given} cannot read: {name}={own} is used, {form}'s own"
            warnings.append(("own_converter", text))
    return warnings, errors


def splittable(heads: Heads, where: TopicPartition, sets: Sequence[FileSet]) -> list[KbackupError]:
    """Refuse to split byte-array files of another tool unless the operator agreed."""
    asked = set()
    for files in sets:
        for file in files.files if files.index is None else ():  # an index knows how many
            if not formats.by_name(file.format).splits_at or file.view in asked:
                continue
            asked.add(file.view)  # who wrote one of them wrote all
            if facts(heads, file) is None:
                what = "keys" if file.view is View.KEY else "values"
                return [
                    RefusedError(
                        f"{where}: {file.key} may hold {what} that contain the separator",
                        "another tool wrote it, and nothing says how many records it has",
                        f"--yes-split-on-newline, if none of the {what} contains it",
                        topic=where.topic,
                    )
                ]
    return []


def known_gone(
    where: TopicPartition, target: str, findings: Iterable[Finding], window: Window
) -> list[KbackupError]:
    """Return the errors of objects and records of a partition that are known to be gone.

    Args:
        where: The partition.
        target: The topic it is restored to.
        findings: What is wrong with it.
        window: What of it is asked for.
    """
    found: list[KbackupError] = []
    for finding in findings:
        if not finding.is_error or (finding.offsets and not window.offset.meets(*finding.offsets)):
            continue
        if finding.do:
            found.append(finding.error())
        elif finding.code == "missing_object":
            first, last = finding.offsets or (None, None)
            found.append(
                IncompleteBackupError(
                    f"{where}: {finding.key or 'an object'} is missing",
                    f"a run stored it; it holds offsets {first} to {last}",
                    "kbackup restore verify says how to back these offsets up again; to "
                    "restore the others: --behavior-on-error log",
                    topic=target,
                    offsets=list(finding.offsets or ()),
                )
            )
        elif finding.code == "count_mismatch":
            found.append(finding.error())  # less than the ledger says was stored
    return found


def not_stored(
    source: str,
    sets: Iterable[FileSet],
    facts_of: Callable[[FileSet], Facts | None],
    *,
    had_objects: bool = False,
) -> list[tuple[str, str]]:
    """Report once what is not stored of a topic: all of it, or what the connectors' layout lacks.

    Args:
        source: The topic.
        sets: All of its file sets.
        facts_of: What is known of the records of a set.
        had_objects: Objects of it were stored once; those that are gone are missed elsewhere.
    """
    stored = list(sets)
    if not stored and had_objects:
        return []
    if not stored:
        text = "no record of it is stored: either it was empty, or no run has got that far"
        return [("nothing_stored", f"{source}: {text}")]
    values = [files for files in stored if not (files.is_whole or files.is_generic)]
    if not values:
        return []
    lacking = []
    keyless = [files for files in values if files.keys is None and not files.is_tombstones]
    if len(keyless) == len(values):
        lacking.append(("no_keys", "keys were not stored: records will have no key"))
    elif keyless:
        text = f"{counted(len(keyless), 'object')} without keys: their records will have none"
        lacking.append(("some_keys", text))
    bare = [files for files in values if files.headers is None]
    if len(bare) == len(values):
        lacking.append(("no_headers", "headers were not stored: records will have none"))
    elif bare:
        text = f"{counted(len(bare), 'object')} without headers: their records will have none"
        lacking.append(("some_headers", text))
    lacking.append(("no_timestamps", "timestamps were not stored: records get the current time"))
    folders: dict[TopicPartition, set[str]] = {}
    for files in values:
        if files.is_tombstones and facts_of(files) is not None:
            continue  # a sink of ours keeps the order of each key's records
        folders.setdefault(files.where, set()).add(files.encoded_partition)
    if any(len(names) > 1 for names in folders.values()):
        text = "offsets were not stored: records keep their order within a directory only"
        lacking.append(("order", text))
    return [(code, f"{source}: {text}") for code, text in lacking]
