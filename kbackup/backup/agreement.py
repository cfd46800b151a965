"""What is read of an object, compared with what was stored and with what its name says."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

import pyarrow as pa

from kbackup import formats
from kbackup.backup import claims
from kbackup.backup.claims import Claim
from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.errors import CorruptObjectError
from kbackup.plurals import counted, form
from kbackup.records import TopicIdentity
from kbackup.stores import Store

_CHUNK: Final = 1 << 20


def claim_of(store: Store, file: BackupFile, body: BinaryIO) -> Claim:
    """Return what an object says about itself; leaves *body* at its start.

    Raises:
        CorruptObjectError: If it says nothing, and is not the object that the ledger knows.
    """
    metadata: Mapping[str, str] | None = getattr(body, "metadata", None)
    if metadata is None:  # this store learns it in another request
        head = store.head(file.key)
        metadata = {} if head is None else head.metadata
    claim = claims.of(file, metadata, body)
    if claim.facts is None and file.sha256 not in ("", sha256_of(body)):
        text = "it is not the object that was stored: its sha256 differs"
        raise contradiction("corrupt", file.key, text)
    return claim


def sha256_of(body: BinaryIO) -> str:
    """Return the sha256 of a whole file, in hexadecimal; leaves it at its start."""
    digest = hashlib.sha256(usedforsecurity=False)
    while chunk := body.read(_CHUNK):
        digest.update(chunk)
    body.seek(0)
    return digest.hexdigest()


def check_claims(files: FileSet, found: Sequence[Claim], identity: TopicIdentity) -> None:
    """Compare what the objects of a set say with their names, with each other and with *identity*.

    Raises:
        CorruptObjectError: If they contradict.
    """
    for problem in claims.problems(files, found, identity):
        raise contradiction(problem.code, problem.key, problem.text)


def check_offsets(batch: pa.RecordBatch, start: int, last: int | None, file: BackupFile) -> None:
    """Check that *batch* begins where the file's name says, or after *last*, the row before it.

    Raises:
        CorruptObjectError: If it does not.
    """
    first = batch["offset"][0].as_py()
    if last is None and first != start:
        text = f"its first record has offset {first}, its name says {start}"
        raise contradiction("corrupt", file.key, text)
    if last is not None and first <= last:
        text = f"offset {first} follows offset {last} in it"
        raise contradiction("corrupt", file.key, text)


def check_rows(
    claim: Claim,
    rows: int,
    last: int | None,
    *,
    may_be_empty: bool = False,
    is_alone: bool = False,
) -> None:
    """Compare what was read with what was stored; *last* is None where rows have no offsets.

    Args:
        claim: What the object says of itself.
        rows: How many were read.
        last: Offset of the last one.
        may_be_empty: No sink has written it, so it may hold none.
        is_alone: It is read beside no other, so rows are right though some are missing, unless two
            may have become one.

    Raises:
        CorruptObjectError: If rows are missing, or too many.
    """
    key, stored = claim.file.key, claim.facts
    if not rows and not may_be_empty:
        raise contradiction("corrupt", key, "it holds no records")
    if stored is None:
        return
    if rows != stored.records:
        text = f"it holds {counted(rows, 'record')}; {stored.records} "
        text += f"{form(stored.records, 'was', 'were')} stored{splits(claim.file)}"
        error = contradiction("count_mismatch", key, text)
        is_right = rows < stored.records and is_alone and not splits(claim.file)
        error.is_doubtful = not is_right
        raise error
    if last is not None and last != stored.last_offset:
        text = f"its last record has offset {last}; it was stored with {stored.last_offset}"
        raise contradiction("count_mismatch", key, text)


def check_most(claim: Claim, rows: int) -> None:
    """Compare what was read so far with what was stored: no more of it needs to be read then.

    Raises:
        CorruptObjectError: If there are too many rows already.
    """
    if claim.facts is not None and rows > claim.facts.records:
        check_rows(claim, rows, None)


def contradiction(code: str, key: str, why: str) -> CorruptObjectError:
    """Return the error of an object that is not what it should be: *code* as findings have it.

    Whatever was read of it may be anything.
    """
    do = (
        "it may be a copy under a wrong name: find the right object, or back these offsets up again"
    )
    return CorruptObjectError(key, why, do, key=key, problem=code).doubting()


def splits(file: BackupFile) -> str:
    """Return the likely cause if *file* has more rows than it should; empty without one."""
    name = formats.by_name(file.format).splits_at
    return f"; what contains the separator ({name}) comes back as several rows" if name else ""
