"""Compare an object's claims with its name, its siblings and its contents.

An object makes them in its user metadata and, where its format has room, in the file too.  Copies
under another name, another topic's object, or a name that was altered contradict themselves; that
is known before the first row is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final

from kbackup import formats
from kbackup.catalog.findings import Finding
from kbackup.catalog.listing import BackupFile, FileSet, earlier
from kbackup.errors import (
    CorruptObjectError,
    Issue,
    ObjectNotFoundError,
    StoreError,
    counted,
    form,
)
from kbackup.files import file_sha256
from kbackup.naming import Layout, ObjectKey, View
from kbackup.pipeline.views import ReadOptions, written_of
from kbackup.pipeline.write import siblings_of
from kbackup.records import UNKNOWN, Facts, TopicIdentity, TopicPartition
from kbackup.stores import Ranges, Store, at_versions, is_refused, metadata_of, side_by_side
from kbackup.stores.encrypted import Opened, check_open

_NUMBERS: Final = ("first-offset", "last-offset", "records")


@dataclass(frozen=True, slots=True)
class Reading:
    """How objects are read: from where, by which options, and of which topic they must be.

    *overwritten* has the keys of those that are not what the ledger knows, by what becomes of them.
    """

    store: Store
    options: ReadOptions
    identity: TopicIdentity = UNKNOWN
    overwritten: dict[str, list[str]] = field(default_factory=dict, compare=False)

    def by(self, **options: Any) -> "Reading":
        """Return it with other options."""
        return replace(self, options=replace(self.options, **options))


@dataclass(frozen=True, slots=True)
class Claim:
    """What one file says about itself; None, or not known, where it does not say.

    *facts*, *identity*, *partition*, *siblings* and *written* (what it was written with) are by the
    object's metadata; *where*, *numbers* (first offset, last offset, records) and *own_identity* by
    the file's own.
    """

    file: BackupFile
    facts: Facts | None = None
    identity: TopicIdentity = UNKNOWN
    where: TopicPartition | None = None
    numbers: tuple[int, int, int] | None = None
    own_identity: TopicIdentity = UNKNOWN
    partition: int | None = None
    siblings: frozenset[View] = frozenset()
    written: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stored(self) -> int | None:
        """How many records were stored: by its metadata, else by the ledger, whose sha256 it has.

        None where neither says.
        """
        if self.facts is not None:
            return self.facts.records
        return self.file.records if self.file.sha256 else None


def claims_of(file: BackupFile, metadata: Mapping[str, str], body: BinaryIO) -> Claim:
    """Return what *file* says about itself; leaves *body* at its start.

    A damaged file yields nothing here: reading its rows reports the damage.
    """
    facts, identity = Facts.from_metadata(metadata), TopicIdentity.from_metadata(metadata)
    own = _own(file, body)
    where = numbers = None
    try:
        if "topic" in own and "partition" in own:
            where = TopicPartition(own["topic"], int(own["partition"]))
        if all(name in own for name in _NUMBERS):
            first, last, records = (int(own[name]) for name in _NUMBERS)
            numbers = first, last, records
    except ValueError:
        pass  # reading the rows says so
    own_identity = TopicIdentity.from_metadata(own)
    return Claim(
        file, facts, identity, where, numbers, own_identity, partition_of(metadata),
        siblings_of(metadata), written_of(metadata),
    )  # fmt: skip


def partition_of(metadata: Mapping[str, str]) -> int | None:
    """Return which partition an object says it was written for; None where it does not."""
    said = metadata.get("partition", "")
    return int(said) if said.isdecimal() else None


def _own(file: BackupFile, body: BinaryIO) -> Mapping[str, str]:
    try:
        return formats.own_metadata(file.format, body)
    finally:
        body.seek(0)


def contradictions(
    files: FileSet, claims: Sequence[Claim], identity: TopicIdentity = UNKNOWN
) -> Iterator[Issue]:
    """Yield what the objects of a set claim that contradicts their names or each other."""
    for claim in claims:
        yield from _alone(files, claim)
        if identity.conflicts(claim.identity) or identity.conflicts(claim.own_identity):
            text = "it belongs to another topic, judging by the topic's id"
            yield Issue("wrong_topic", claim.file.key, text)
    said = [claim for claim in claims if claim.facts is not None]
    for claim in said[1:]:
        yield from _beside(said[0], claim)


def _alone(files: FileSet, claim: Claim) -> Iterator[Issue]:
    key, facts, start = claim.file.key, claim.facts, files.start_offset
    if claim.where is not None and claim.where != files.where:
        text = f"it was written as partition {claim.where.partition} of {claim.where.topic}"
        yield Issue("wrong_topic", key, text)
    elif claim.partition not in (None, files.where.partition):
        yield Issue("wrong_topic", key, f"it was written as partition {claim.partition}")
    if claim.identity.conflicts(claim.own_identity):
        yield Issue("wrong_topic", key, "the ids of its topic in file and metadata differ")
    if facts is not None and facts.first_offset != start:
        text = f"it was stored with first offset {facts.first_offset}, its name says {start}"
        yield Issue("corrupt", key, text)
    elif claim.numbers is not None and claim.numbers[0] != start:
        text = f"its first record has offset {claim.numbers[0]}, its name says {start}"
        yield Issue("corrupt", key, text)
    elif facts is not None and claim.numbers is not None:
        yield from _counts(key, facts, *claim.numbers[1:])


def _counts(key: str, facts: Facts, last: int, records: int) -> Iterator[Issue]:
    if records != facts.records:
        were = form(facts.records, "was", "were")
        text = f"it holds {counted(records, 'record')}; {facts.records} {were} stored"
        yield Issue("count_mismatch", key, text)
    elif last != facts.last_offset:
        text = f"its last record has offset {last}; it was stored with {facts.last_offset}"
        yield Issue("count_mismatch", key, text)


def is_left_over(value: Claim, sibling: Claim) -> bool:
    """Whether a run that was cut off left these keys or headers, and others stored the values.

    Those say that they have none, and of other records at that.
    """
    mine, its = value.facts, sibling.facts
    if mine is None or its is None or sibling.file.view in value.siblings:
        return False
    return (mine.records, mine.last_offset) != (its.records, its.last_offset)


def _beside(first: Claim, other: Claim) -> Iterator[Issue]:
    mine, its = first.facts, other.facts
    if mine is None or its is None:
        return
    key, beside = other.file.key, first.file.key
    if (mine.records, mine.last_offset) != (its.records, its.last_offset):
        text = (
            f"it was stored with {counted(its.records, 'record')} up to offset {its.last_offset}, "
            f"{beside} with {mine.records} up to {mine.last_offset}"
        )
        yield Issue("count_mismatch", key, text)
    if first.identity.conflicts(other.identity):
        yield Issue("wrong_topic", key, f"it belongs to another topic than {beside}")


VALUES_NOT_THERE: Final = "its values are not there: a run was interrupted, or they were removed"
VALUE_MISSING: Final = "the value object beside it is missing"
VALUE_MISSING_DO: Final = (
    "a run that was interrupted leaves this until the next run completes the set; a connector "
    "stores the keys of tombstones so, in the directory tombstone.encoded.partition"
)

_VIEWS: Final = ((View.KEY, "keys"), (View.HEADERS, "headers"))


def lacking_siblings(
    sets: Sequence[FileSet],
    layout: Layout,
    promised: Callable[[FileSet], frozenset[View]],
    left_over: Sequence[FileSet] = (),
    *,
    are_read: bool = False,
) -> Iterator[Finding]:
    """Name value objects whose sibling is missing, and siblings without their value object.

    Only an object itself says that it was stored with siblings (they can be switched on or off
    later): *promised* returns which, and is asked where it or others have some, of the first and
    the last, or all *are_read*.  Those *left_over* are siblings without values, and no loss.
    """
    values = [files for files in sets if not files.is_whole]
    complete = [files for files in values if files.main is not None]
    for view, name in _VIEWS:
        mains = [files for files in complete if view is View.HEADERS or not files.is_tombstones]
        having = [at for at, files in enumerate(mains) if _sibling(files, view) is not None]
        without = [at for at, files in enumerate(mains) if _sibling(files, view) is None]
        extension = _sibling(mains[having[0]], view) if having else None
        # where none is there, and neither first nor last had any, none was stored
        ends, is_asked = (without[:1] + without[-1:]), bool(having) or are_read
        asked = [at for at in without if is_asked or at in ends or mains[at].files[1:]]
        promises = side_by_side(promised, (mains[at] for at in asked))
        broken = [at for at, said in zip(asked, promises, strict=True) if view in said]
        for at in broken:
            yield _without_sibling(mains[at], layout, view, name, extension)
        quiet = len(without) - len(broken)
        if quiet and having:
            have = form(quiet, "has", "have")
            text = f"{counted(quiet, 'value object')} {have} no {name} object"
            yield Finding("missing_object", values[0].where, text=text, level="note")
    for files in values:
        if files.main is None:
            yield _without_value(files, values, layout, is_told=files in left_over)
    if layout.is_dated:
        yield from _without_index(complete)


def _without_index(sets: Sequence[FileSet]) -> Iterator[Finding]:
    """Count objects without their index: nothing is lost, but they can only be read whole."""
    lone = [files for files in sets if files.index is None]
    if lone:
        more = f", and {len(lone) - 1} more" if len(lone) > 1 else ""
        text = f"{lone[0].id}{more}: no index, so it is restored but can only be read whole"
        yield Finding("missing_object", lone[0].where, text=text, level="note")


def _sibling(files: FileSet, view: View) -> BackupFile | None:
    return files.keys if view is View.KEY else files.headers


def _without_sibling(
    files: FileSet, layout: Layout, view: View, name: str, pattern: BackupFile | None
) -> Finding:
    assert files.main is not None  # noqa: S101  (callers chose such sets)
    text = f"the {name} object of {files.main.key} is missing"
    key = files.main.key if pattern is None else key_of(files, layout, view, pattern.extension)
    offsets = (files.start_offset, files.start_offset)
    return Finding("missing_object", files.where, key, offsets, text)


def _without_value(
    files: FileSet, values: Sequence[FileSet], layout: Layout, *, is_told: bool
) -> Finding:
    """Judge siblings without their value: a run cut off, or a loss."""
    beside = [each for each in values if each.encoded_partition == files.encoded_partition]
    mains = [each for each in beside if each.main is not None]
    found = files.files[0].key
    if is_told:
        return Finding("missing_object", files.where, found, text=VALUES_NOT_THERE, level="note")
    offsets = (files.start_offset, files.start_offset)
    pattern = mains[0].main if mains else None
    if pattern is None:  # where it holds tombstones, the configuration names another directory
        return Finding(
            "missing_object", files.where, found, offsets, VALUE_MISSING, do=VALUE_MISSING_DO
        )
    key = key_of(files, layout, pattern.view, pattern.extension)
    text = f"{found} is there, its value object is missing"
    return Finding("missing_object", files.where, key, offsets, text)


def key_of(files: FileSet, layout: Layout, view: View, extension: str) -> str:
    """Return the key of an object of *files*' place."""
    where = files.where
    return layout.key(
        ObjectKey(
            where.topic,
            where.partition,
            files.start_offset,
            files.encoded_partition,
            extension,
            view,
        )
    )


def opened(
    reading: Reading, file: BackupFile, part: tuple[int, int] | None = None
) -> tuple[BinaryIO, Claim]:
    """Open an object, or a *part* of it (start, length), and return what it says about itself.

    Where it is not what the ledger knows, and the store has kept that, that is opened.

    Raises:
        CorruptObjectError: If it is damaged, or says nothing and is not what the ledger knows.
        ObjectNotFoundError: If it is not there.
    """
    store = at_versions(reading.store, {file.key: file.version} if file.version else {})
    try:
        found = _opened(store, file, part)
    except (CorruptObjectError, ObjectNotFoundError):
        if (kept := _kept(reading, file, part)) is None:
            raise
        return kept
    facts = found[1].facts
    if facts is None or file.sha256 in ("", facts.sha256):
        return found
    if (kept := _kept(reading, file, part)) is None:
        return found
    found[0].close()
    return kept


def _kept(
    reading: Reading, file: BackupFile, part: tuple[int, int] | None
) -> tuple[BinaryIO, Claim] | None:
    """Open a version that the ledger knows; None where none is left, or none may be read."""
    if not file.sha256:
        return None
    store = reading.store
    try:
        for one in earlier(store, {file.key: (file.size, file.sha256)}).get(file.key, ()):
            with suppress(CorruptObjectError, ObjectNotFoundError):  # that one was forged
                found = _opened(at_versions(store, {file.key: one.version}), file, part)
                reading.overwritten.setdefault("what was stored is read", []).append(file.key)
                return found
    except StoreError as error:
        if not is_refused(error):
            raise
        reading.overwritten.setdefault(f"no version is read: {error.why}", []).append(file.key)
    return None


def _opened(store: Store, file: BackupFile, part: tuple[int, int] | None) -> tuple[BinaryIO, Claim]:
    if part is None:
        body = store.open(file.key)
    else:
        assert isinstance(store, Ranges)  # noqa: S101  (whoever asks for a part has looked)
        body = store.open_range(file.key, *part)
    try:
        return body, _claim_of(store, file, body, is_whole=part is None)
    except BaseException:
        body.close()
        raise


def _claim_of(store: Store, file: BackupFile, body: BinaryIO, *, is_whole: bool) -> Claim:
    """Return what an object says about itself; leaves *body* at its start."""
    metadata = metadata_of(body)
    if metadata is None:  # this store learns it in another request
        head = store.head(file.key)
        metadata = {} if head is None else head.metadata
    check_open(file.key, body)
    claim = claims_of(file, metadata, body)
    # only the ledger knows what it was; of a part that cannot be told
    if is_whole and claim.facts is None and file.sha256 not in ("", sha256_of(body)):
        text = "it is not the object that was stored: its sha256 differs"
        raise contradiction("corrupt", file.key, text)
    return claim


def sha256_of(body: BinaryIO) -> str:
    """Return an object's sha256 as it is stored, in hexadecimal; leaves *body* at its start."""
    if isinstance(body, Opened):
        with body.stored() as stored:
            return sha256_of(stored)
    found = file_sha256(body).hex()
    body.seek(0)
    return found


def check_claims(files: FileSet, found: Sequence[Claim], identity: TopicIdentity) -> None:
    """Raise the first of `contradictions` as a `CorruptObjectError`."""
    for problem in contradictions(files, found, identity):
        raise contradiction(problem.code, problem.what, problem.why)


def check_offsets(first: int, start: int, last: int | None, file: BackupFile) -> None:
    """Raise `CorruptObjectError` unless rows begin where a name says, or after *last*."""
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
    """Raise `CorruptObjectError` if rows are missing, or too many; *last* is None without offsets.

    No sink has written what *may_be_empty*.  Of what *is_alone*, read beside no other, rows are
    right though some are missing, unless two may have become one.
    """
    key, facts, stored = claim.file.key, claim.facts, claim.stored
    if not rows and not may_be_empty:
        raise contradiction("corrupt", key, "it holds no records")
    if stored is None:
        return
    if rows != stored:
        text = f"it holds {counted(rows, 'record')}; {stored} "
        text += f"{form(stored, 'was', 'were')} stored{splits(claim.file)}"
        error = contradiction("count_mismatch", key, text)
        is_right = rows < stored and is_alone and not splits(claim.file)
        error.is_doubtful = not is_right
        raise error
    if last is not None and facts is not None and last != facts.last_offset:
        text = f"its last record has offset {last}; it was stored with {facts.last_offset}"
        raise contradiction("count_mismatch", key, text)


def check_most(claim: Claim, rows: int) -> None:
    """Raise `CorruptObjectError` if more was read already than was stored."""
    if claim.stored is not None and rows > claim.stored:
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
    name = formats.by_name(file.format).traits.splits_at
    return f"; what contains the separator ({name}) comes back as several rows" if name else ""


@dataclass(frozen=True, slots=True)
class Checked:
    """One set that was read to its end, or that could not be.

    Attributes:
        id: The set's `FileSet.id`.
        first: Offset of the first record, None where none was read.
        last: That of the last one; None where it is not known.
        unchecked: Keys of objects in which a flipped bit would go unnoticed.
        sha256: Of the main object, as far as it is known.
        is_same: The records that it has in common with the sets that follow agree; None where it
            reaches into no other set.
        repeated: How many of its records are in one of those sets too.
        failure: Why it could not be read; nothing else is known then.
        identity: Of which topic its main object says it is.
        says_what: Whether the main object's metadata says which records it holds.
        is_compared: Whether its records were compared with what they were when they were stored.
        siblings: What its main object says was stored beside it.
    """

    id: str
    objects: int = 0
    bytes_read: int = 0
    records: int = 0
    first: int | None = None
    last: int | None = None
    unchecked: tuple[str, ...] = ()
    sha256: str | None = None
    problems: tuple[Issue, ...] = ()
    is_same: bool | None = None
    repeated: int = 0
    failure: Issue | None = None
    identity: TopicIdentity = UNKNOWN
    says_what: bool = False
    is_compared: bool = False
    siblings: frozenset[View] = frozenset()
