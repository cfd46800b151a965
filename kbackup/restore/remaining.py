"""What is left of a partition's backup for a restore that continues."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from kbackup.backup.file_sets import FileSet
from kbackup.backup.reading import extent, facts
from kbackup.errors import IncompleteBackupError, KbackupError, RefusedError
from kbackup.plurals import counted
from kbackup.records import Facts, TopicPartition
from kbackup.reports import Mark, Place, digest
from kbackup.restore.chain import chain
from kbackup.stores import Store

_THREADS: Final = 16
"""Objects asked for their facts side by side."""

FactsOf = Callable[[FileSet], Facts | None]
"""Returns what is known of the records in a set; None where nothing is."""

CutOf = Callable[[FileSet], Hashable]
"""Returns what stands for the cut of a set: sets of one cut have no record in common."""

_DO: Final = "restore into a new topic with --rename"


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left to restore.

    Attributes:
        sets: In order, without those that are done.
        before: `chain` of the value sets that are done.
        refusal: Why what is left cannot be restored in order any more; None where it can.
    """

    sets: tuple[FileSet, ...]
    before: str = ""
    refusal: KbackupError | None = None


def remaining(
    facts_of: FactsOf,
    sets: Sequence[FileSet],
    mark: Mark | None,
    cut_of: CutOf | None = None,
    own: Collection[str] | None = None,
) -> Remaining:
    """Return what is left of *sets*, in their order.

    Args:
        facts_of: Asked about each set that may have grown since: of whole records those that begin
            below the position, of values the one at hand.
        sets: Of one partition, by start offset.
        mark: Where the restore stands; None where it begins.
        cut_of: Tells which sets are of one cut; without, each may be of its own.
        own: The sets that hold records of the target, where a topic is chosen for each record.
    """
    if mark is None:
        return Remaining(tuple(sets))
    where = mark.source.where
    done, before, refusal = _done_values(facts_of, where, sets, mark.place)
    known = _begun(facts_of, sets, mark.place.offset)
    done |= _ended(known, mark.place.offset)
    if refusal is None and mark.total is not None:
        cuts = {files.id: files.id if cut_of is None else cut_of(files) for files in sets}
        counted = known if mark.is_all or own is None else known.keys() & own
        entered = [(cuts[key], said) for key, said in known.items() if key in counted]
        refusal = _gained(where, entered, mark.place.offset, mark.total)
    return Remaining(tuple(files for files in sets if files.id not in done), before, refusal)


def unfinished(store: Store, sets: Sequence[FileSet], offset: int) -> list[FileSet]:
    """Return *sets* without those of whole records that end below *offset*."""
    ended = _ended(_begun(partial(facts_of_begun, store), sets, offset), offset)
    return [files for files in sets if files.id not in ended]


def _begun(facts_of: FactsOf, sets: Sequence[FileSet], offset: int) -> dict[str, Facts | None]:
    """Return what is known of the whole-record sets that begin below *offset*, in order."""
    begun = [files for files in sets if files.is_whole and files.start_offset < offset]
    with ThreadPoolExecutor(_THREADS) as pool:
        known = pool.map(facts_of, begun)
        return {files.id: said for files, said in zip(begun, known, strict=True)}


def _ended(known: Mapping[str, Facts | None], offset: int) -> set[str]:
    """Return the sets that end below *offset*.

    The last one is read again if no checksum vouches for what it says of its end.  The others are
    followed by one that begins below *offset* too, so theirs can hardly be wrong.
    """
    ended = {key for key, said in known.items() if said is not None and said.last_offset < offset}
    for key, said in list(known.items())[-1:]:
        if said is not None and not said.sha256:
            ended.discard(key)
    return ended


def facts_of_begun(store: Store, files: FileSet) -> Facts | None:
    """Return what an object says of itself, by its metadata or at its beginning."""
    if files.main is None:
        return None
    return facts(store, files.main) or extent(store, files.main)


def _done_values(
    facts_of: FactsOf, where: TopicPartition, sets: Sequence[FileSet], place: Place
) -> tuple[set[str], str, KbackupError | None]:
    """Return the value sets that are done, their chain, and what is wrong with them."""
    has_values = any(not files.is_whole for files in sets)
    if not place.values or not has_values:
        return set(), "", None
    at = next((n for n, files in enumerate(sets) if digest(files.id) == place.values), None)
    if at is None:
        why = "its rows carry no offsets, so where to continue is unknown"
        what = f"{where}: the object in which this restore stopped is missing"
        return set(), "", IncompleteBackupError(what, why, _DO, **_place(where))
    done = [files for files in sets[:at] if not files.is_whole]
    before = chain("", done)
    if place.before not in (None, before):
        why = "their rows carry no offsets, so what is new in them is unknown"
        what = f"{where}: objects that this restore has passed were added, changed or removed"
        return set(), "", RefusedError(what, why, _DO, **_place(where))
    is_named = not (sets[at].is_whole or sets[at].is_generic)
    known = facts_of(sets[at]) if is_named else None
    if known is not None and known.records <= place.rows:
        done, before = [*done, sets[at]], chain(before, [sets[at]])
    return {files.id for files in done}, before, None


def _gained(
    where: TopicPartition,
    known: Iterable[tuple[Hashable, Facts | None]],
    offset: int,
    total: int,
) -> KbackupError | None:
    """Refuse a backup that holds more records below the position than were restored from it.

    Objects that overlap, or reach beyond it, count for what they have there at least.  Those of
    one cut, in several directories, count in full: a sink that was at work when this restore began
    may have stored one of them only since.
    """
    least, other = 0, 0
    highest: tuple[Hashable, int] = (None, 0)  # which cut reaches furthest; the others to *other*
    for cut, said in known:
        if said is None:
            continue
        reach = other if cut == highest[0] else highest[1]
        twice = max(0, reach - said.first_offset)
        beyond = max(0, said.last_offset + 1 - offset)
        least += max(0, said.records - twice - beyond)
        end = said.last_offset + 1
        if cut == highest[0]:
            highest = cut, max(highest[1], end)
        elif end > highest[1]:
            highest, other = (cut, end), highest[1]
        else:
            other = max(other, end)
    if least <= total:
        return None
    return RefusedError(
        f"{where}: the backup has gained {counted(least - total, 'record')} below offset {offset}",
        "this restore has passed them, and restores records in the order of their offsets",
        _DO,
        **_place(where),
    )


def _place(where: TopicPartition) -> dict[str, str | int]:
    return {"topic": where.topic, "partition": where.partition}
