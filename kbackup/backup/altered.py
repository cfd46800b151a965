"""Objects that are not what the ledger says was stored.

The listing says which of them are worth a request: those of another size, and those stored long
after their rows.  A run may have put more of the same records in an object's place, so growth alone
is no damage; but then the object agrees with itself, and a row of the ledger follows.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kbackup.backup import claims
from kbackup.backup.claims import Problem
from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.findings import Finding
from kbackup.backup.ledger.objects import PartitionLedger
from kbackup.backup.ledger.rows import Entry
from kbackup.errors import CorruptObjectError, ObjectNotFoundError
from kbackup.plurals import counted, form
from kbackup.records import UNKNOWN, Facts, TopicIdentity
from kbackup.stores import ObjectHead, Store

_THREADS: Final = 16

_LATER_MS: Final = 3_600_000
"""How much younger than its row an object may be before it must have been stored again."""

_SKEW_MS: Final = 900_000
"""S3 refuses requests whose clock is further off."""

_DO: Final = "if it is right, enter it with kbackup restore verify --rebuild"


@dataclass(frozen=True, slots=True)
class _Doubt:
    """An object to ask about.

    Attributes:
        files: Its set.
        file: The object.
        row: The ledger's row.
    """

    files: FileSet
    file: BackupFile
    row: Entry


def altered(
    store: Store,
    sets: Sequence[FileSet],
    ledger: PartitionLedger,
    identity: TopicIdentity = UNKNOWN,
) -> Iterator[Finding]:
    """Name objects that are not what was stored.

    Costs a request for each object whose size or time differs from its row, and reads those that
    have grown.

    Args:
        store: Where they are.
        sets: Of one partition.
        ledger: What was stored of it.
        identity: Which topic it is of, as far as that is known.
    """
    doubts = [
        _Doubt(files, file, row)
        for files in sets
        for file in files.files
        if (row := ledger.objects.get(file.key)) is not None
        and row.bytes is not None
        and (file.size != row.bytes or file.modified * 1000 > row.time + _LATER_MS)
    ]
    if not doubts:
        return
    newest = max(row.time for row in ledger.objects.values())
    rows = {row.sha256: key for key, row in ledger.objects.items() if row.sha256 is not None}

    def judged(doubt: _Doubt) -> Finding | None:
        head = store.head(doubt.file.key)
        return None if head is None else _judged(store, doubt, head, identity, newest, rows)

    with ThreadPoolExecutor(_THREADS) as pool:
        yield from (found for found in pool.map(judged, doubts) if found is not None)


def _judged(
    store: Store,
    doubt: _Doubt,
    head: ObjectHead,
    identity: TopicIdentity,
    newest: int,
    rows: dict[str, str],
) -> Finding | None:
    problem = _by_head(doubt, head, identity)
    if problem is not None:
        return _finding(doubt, problem)
    there, stored = Facts.from_metadata(head.metadata), doubt.row.facts
    if there is None or stored is None or there == stored:
        return None
    key = doubt.file.key
    if (other := rows.get(there.sha256, key)) != key:
        return _finding(doubt, Problem("corrupt", key, f"it is a copy of {other}"))
    problem = next(_by_itself(store, doubt, head, identity), None)
    if problem is not None:
        return _finding(doubt, problem)
    text = f"it holds {_counted(there)}; {_counted(stored)} were stored"
    if head.modified.timestamp() * 1000 + _SKEW_MS < newest:
        text += f"; runs since then have not entered it: {_DO}"
        return _finding(doubt, Problem("count_mismatch", key, text))
    text += "; the run that stored it, or the next one, enters it"
    return _finding(doubt, Problem("count_mismatch", key, text), is_error=False)


def _by_head(doubt: _Doubt, head: ObjectHead, identity: TopicIdentity) -> Problem | None:
    """Return how an object's metadata differs from the stored object, or that one grown."""
    key, row, stored = doubt.file.key, doubt.row, doubt.row.facts
    there = Facts.from_metadata(head.metadata)
    if identity.conflicts(TopicIdentity.from_metadata(head.metadata)):
        return Problem("wrong_topic", key, "it belongs to another topic, judging by the topic's id")
    partition = claims.partition_of(head.metadata)
    if partition not in (None, doubt.files.where.partition):
        return Problem("wrong_topic", key, f"it was written as partition {partition}")
    if there is not None and stored is not None and there != stored:
        return _by_facts(key, there, stored)
    if head.size == row.bytes:
        return None
    code = "count_mismatch" if there is None else "corrupt"
    were = form(row.bytes, "was", "were")
    return Problem(code, key, f"it has {counted(head.size, 'byte')}; {row.bytes} {were} stored")


def _by_facts(key: str, there: Facts, stored: Facts) -> Problem | None:
    if there.first_offset != stored.first_offset:
        text = f"it starts at offset {there.first_offset}; it was stored with {stored.first_offset}"
        return Problem("corrupt", key, text)
    if not there.covers(stored):
        text = f"it holds {_counted(there)}; {_counted(stored)} were stored"
        return Problem("count_mismatch", key, text)
    if (there.records, there.last_offset) == (stored.records, stored.last_offset):
        text = "it is not the object that was stored: its sha256 differs"
        return Problem("corrupt", key, text)
    return None


def _by_itself(
    store: Store, doubt: _Doubt, head: ObjectHead, identity: TopicIdentity
) -> Iterator[Problem]:
    """Yield what a grown object claims about itself that is not true."""
    try:
        with store.open(doubt.file.key) as body:
            claim = claims.of(doubt.file, head.metadata, body)
    except ObjectNotFoundError:
        return  # gone since it was asked about: the next listing misses it
    except CorruptObjectError as error:
        yield Problem("corrupt", doubt.file.key, error.why or error.what)
    else:
        yield from claims.problems(doubt.files, [claim], identity)


def _counted(facts: Facts) -> str:
    return f"{counted(facts.records, 'record')} up to offset {facts.last_offset}"


def _finding(doubt: _Doubt, problem: Problem, *, is_error: bool = True) -> Finding:
    offsets = (doubt.row.first, doubt.row.span.end_offset - 1)
    where = doubt.files.where
    return Finding(problem.code, where, problem.key, offsets, problem.text, is_error)
