"""What a backup lacks, as far as a plan can see."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kbackup import converters, formats
from kbackup.backup.column import given_converter, reads
from kbackup.backup.file_sets import FileSet
from kbackup.backup.findings import Finding
from kbackup.backup.reading import facts
from kbackup.backup.window import Window
from kbackup.errors import (
    ConfigurationError,
    IncompleteBackupError,
    KbackupError,
    RefusedError,
)
from kbackup.flow.views import ReadOptions
from kbackup.naming import View
from kbackup.plurals import counted
from kbackup.records import Facts, TopicPartition
from kbackup.restore.planning.safety import Intent
from kbackup.stores import Store

_NAMED: Final = 3

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


def converted(
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
            errors.append(ConfigurationError(f"{what} cannot be read: {_few(keys)}", why, do))
        else:
            text = f"{what} that {name}={given} cannot read: {name}={own} is used, {form}'s own"
            warnings.append(("own_converter", text))
    return warnings, errors


def _few(keys: Sequence[str]) -> str:
    rest = len(keys) - _NAMED
    return ", ".join(keys[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def splittable(store: Store, where: TopicPartition, sets: Sequence[FileSet]) -> list[KbackupError]:
    """Refuse to split byte-array files of another tool unless the operator agreed."""
    asked = set()
    for files in sets:
        for file in files.files if files.index is None else ():  # an index knows how many
            if not formats.by_name(file.format).splits_at or file.view in asked:
                continue
            asked.add(file.view)  # who wrote one of them wrote all
            if facts(store, file) is None:
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


def gone(
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


def lacks(
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
