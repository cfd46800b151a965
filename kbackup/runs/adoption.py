"""Objects into the ledger that are not in it: those of earlier versions and other tools."""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from kbackup.backup.catalog import Catalog
from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.judged import JudgedPartition
from kbackup.backup.ledger import objects
from kbackup.backup.ledger.rows import OBJECT, TOMBSTONES, Entry, named, stored
from kbackup.flow.write import CutFacts
from kbackup.naming import Layout
from kbackup.records import Facts, Span, TopicPartition
from kbackup.runs.known import Known
from kbackup.stores import ObjectHead, Store

_THREADS: Final = 32


def adopt(store: Store, layout: Layout, topic: str, found: Catalog, known: Known) -> list[Entry]:
    """Return the rows of a topic that has no ledger yet.

    Its objects with what is stored beside them; what run records say of objects that are gone;
    and its known gaps.  Costs a HEAD an object.

    Args:
        store: Where the backup is.
        layout: How objects are named.
        topic: The topic.
        found: A listing of it.
        known: What run records say.

    Raises:
        StoreError: If the store does not answer.
    """
    rows = listed(store, found, topic)
    wheres = {*found.partitions(topic), *(at for at in known.recorded if at.topic == topic)}
    pattern = next((found.sets[where][0] for where in found.partitions(topic)), None)
    for where in sorted(wheres):
        sets = found.sets.get(where, [])
        part = JudgedPartition(where, sets, known.recorded.get(where, ()), (), {}, is_deep=False)
        for finding in part.findings(store, layout, pattern):
            if finding.is_error and finding.code == "missing_object" and finding.offsets:
                run = str((finding.more or {}).get("by") or "")
                rows.append(objects.missing(where, *finding.offsets, run, 0))
    for where, spans in known.known_gaps.items():
        if where.topic == topic:
            rows += (objects.gap(where, span, "", 0) for span in spans)
    return rows


def listed(
    store: Store, found: Catalog, topic: str, only: Container[str] | None = None
) -> list[Entry]:
    """Return a row for each listed object of *topic*, with what is stored beside it.

    Objects of a cut of which others are not there, as after a crash, get none: a row would say that
    the cut was stored.

    Args:
        store: Where they are.
        found: A listing of the topic.
        topic: The topic.
        only: The keys of those that are wanted; None for all.

    Raises:
        StoreError: If the store does not answer.
    """
    pairs = [
        (where, files, file)
        for where in found.partitions(topic)
        for files in found.sets[where]
        for file in files.files
        if only is None or file.key in only
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        heads = list(pool.map(lambda pair: store.head(pair[2].key), pairs))
    are_cuts = {where: _are_cuts(found.sets[where]) for where in found.partitions(topic)}
    there = [
        (pair, head, CutFacts.from_metadata(head.metadata))
        for pair, head in zip(pairs, heads, strict=True)
        if head is not None
    ]
    counts = Counter((where, cut) for (where, files, file), _, cut in there if file is files.main)
    return [
        _row(where, files, file, head, are_cuts[where])
        for (where, files, file), head, cut in there
        if cut is None or counts[where, cut] >= cut.files
    ]


def _are_cuts(sets: Sequence[FileSet]) -> bool:
    """Whether each object of the partition is a cut of its own: there is but one directory."""
    return len({files.encoded_partition for files in sets}) <= 1


def _row(
    where: TopicPartition, files: FileSet, file: BackupFile, head: ObjectHead, is_cut: bool
) -> Entry:
    facts = Facts.from_metadata(head.metadata)
    view = TOMBSTONES if files.is_tombstones and file is files.main else file.view
    time_ms = int(head.modified.timestamp() * 1000)
    if facts is None:
        return Entry(
            OBJECT, where.partition, files.start_offset, None, file.key, named(view),
            bytes=head.size, time=time_ms,
        )  # fmt: skip
    said = CutFacts.from_metadata(head.metadata)
    cut = Span(facts.first_offset, facts.last_offset + 1) if said is None else said.span
    row = stored(where, file.key, view, facts, head.size, cut, "", time_ms)
    return row if is_cut or said is not None else replace(row, cut_start=None, next_offset=None)


def keys(found: Catalog, where: TopicPartition) -> Iterator[str]:
    """Yield the keys of a partition's objects."""
    for files in found.sets.get(where, ()):
        for file in files.files:
            yield file.key
