"""``restore verify --deep``: choose file sets, read them whole, and report what that shows."""

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import BinaryIO, Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import formats
from kbackup.batches.decoding import BatchesDigest
from kbackup.catalog.claims import Checked, Reading, sha256_of, splits
from kbackup.catalog.ledger.rows import Entry, PartitionLedger
from kbackup.catalog.listing import BackupFile, FileSet, Window, object_bytes
from kbackup.catalog.reading import read
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    IncompleteBackupError,
    Issue,
    KbackupError,
    NoKeyError,
    ObjectNotFoundError,
    UnsupportedObjectError,
    counted,
)
from kbackup.formats import StoresBatches
from kbackup.pipeline.rows import RecordsDigest
from kbackup.pipeline.views import ReadOptions
from kbackup.pipeline.write import siblings_of
from kbackup.records import (
    SCHEMA,
    UNKNOWN,
    ConflictError,
    Facts,
    TopicIdentity,
    TopicPartition,
    merge_by_offset,
)
from kbackup.spark.channel import TaskChannel
from kbackup.stores import ObjectHead, Store, StoreSettings, has_method, open_store, with_keyed

_BAD: Final = (CorruptObjectError, IncompleteBackupError)


@dataclass(frozen=True, slots=True)
class VerifyUnit:
    """One file set to read; plain data.

    Attributes:
        following: The next sets in its directory: as many as the ledger says that it reaches
            into, and one at the least, unless it is the last.
        across: Later sets of full records in other directories, of other cuts, that it may reach
            into.
        stored: What the ledger says of its records; None where it does not.
    """

    files: FileSet
    following: tuple[FileSet, ...] = ()
    across: tuple[FileSet, ...] = ()
    stored: Facts | None = None

    @property
    def size(self) -> int:
        """Bytes of its objects."""
        return object_bytes([self.files])


@dataclass(frozen=True, slots=True)
class Sample:
    """Decides by a hash of the key; nothing but the key of an object changes its part.

    Attributes:
        part: The part to read, from 1.
        parts: How many there are; together they hold every object once.
        percent: How much to read of that, above 0, at most 100.
        seed: Samples of another seed are of other objects.
    """

    part: int = 1
    parts: int = 1
    percent: float = 100.0
    seed: str = ""

    @classmethod
    def parse(cls, part: str | None, sample: str | None, seed: str) -> Self:
        """Read ``--part 1/7`` and ``--sample 5%``, or raise `ConfigurationError`."""
        number, numbers, percent = 1, 1, 100.0
        if part is not None:
            match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part.strip(), re.ASCII)
            number, numbers = map(int, match.groups()) if match else (0, 0)
            if not 1 <= number <= numbers:
                raise ConfigurationError(
                    f"--part {part} is not a part", do="write the first of seven as 1/7"
                )
        if sample is not None:
            match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*%?", sample.strip(), re.ASCII)
            percent = float(match.group(1)) if match else 0.0
            if not 0 < percent <= 100:
                raise ConfigurationError(
                    f"--sample {sample} is not a share", do="write one in twenty as 5%"
                )
        return cls(number, numbers, percent, seed)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.parts == 1 and self.percent >= 100

    def takes(self, key: str) -> bool:
        """Whether the object with *key* is to be read."""
        if _hash(key) % self.parts != self.part - 1:
            return False
        return self.percent >= 100 or self._drawn(key) / 2**64 < self.percent / 100

    def at_least_one(self, keys: Collection[str]) -> Self:
        """Return the share that has an object of *keys*: a sample of few would else be of none."""
        of_part = replace(self, percent=100.0)
        if any(map(self.takes, keys)) or not (left := [*filter(of_part.takes, keys)]):
            return self
        return replace(self, percent=100 * (min(map(self._drawn, left)) + _ABOVE) / 2**64)

    def _drawn(self, key: str) -> int:
        return _hash(f"{self.seed}\0{key}")


EVERYTHING: Final = Sample()
_ABOVE: Final = 2**20
"""More than a share of 2**64 loses as a float."""


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def units_of(
    sets: Mapping[TopicPartition, Sequence[FileSet]],
    wheres: Collection[TopicPartition],
    sample: Sample,
    ledger: Callable[[TopicPartition], PartitionLedger],
) -> Iterator[VerifyUnit]:
    """Yield what to read, the largest first, each with the next sets of its directory."""
    sample = sample.at_least_one([files.id for where in wheres for files in sets.get(where, ())])
    units = []
    for where in wheres:
        after: defaultdict[tuple[str, bool], deque[FileSet]] = defaultdict(deque)
        objects = ledger(where).objects
        of_partition = sets.get(where, ())
        for number, files in reversed([*enumerate(of_partition)]):
            place = files.encoded_partition, files.is_whole
            if sample.takes(files.id):
                row = None if files.main is None else objects.get(files.main.key)
                stored = None if row is None else row.facts
                later = (of_partition[at] for at in range(number + 1, len(of_partition)))
                across = tuple(_across(files, later, objects))
                units.append(VerifyUnit(files, _reached(after[place], stored), across, stored))
            after[place].appendleft(files)
    yield from sorted(units, key=lambda unit: unit.size, reverse=True)


def _reached(after: Iterable[FileSet], stored: Facts | None) -> tuple[FileSet, ...]:
    """Return the sets of *after* that one before them may reach into: the first, or more."""
    if stored is None:
        return tuple(islice(after, 1))
    found: list[FileSet] = []
    for files in after:
        if found and files.start_offset > stored.last_offset:
            break
        found.append(files)
    return tuple(found)


def _across(
    files: FileSet, later: Iterable[FileSet], rows: Mapping[str, Entry]
) -> Iterator[FileSet]:
    """Yield sets of *later* in other directories that may have records of *files* too."""
    # the ledger says where it ends, and which sets are of its cut
    row = rows.get(files.id)
    if row is None or row.cut is None or not files.is_whole:
        return
    for one in later:
        if one.start_offset >= row.span.end_offset:
            return
        other = rows.get(one.id)
        is_beside = one.encoded_partition == files.encoded_partition
        if one.is_whole and not is_beside and (other is None or other.cut != row.cut):
            yield one


def verify_task(
    place: StoreSettings, reading: ReadOptions, units: Sequence[VerifyUnit], channel: TaskChannel
) -> Iterator[Checked]:
    """Read *units* one after the other and report on each; bad ones raise no exception.

    Memory: one object and a batch of it; where full records overlap, the overlap, a few times.
    """
    store = open_store(place)
    for unit in units:
        try:
            yield _Check(store, unit, reading).run()
        except KbackupError as error:
            yield Checked(unit.files.id, failure=error.issue())
        if channel.is_stopped():
            return


@dataclass(slots=True)
class _Check:
    """The check of one set, and what it has found so far."""

    store: Store
    unit: VerifyUnit
    reading: ReadOptions
    problems: list[Issue] = field(default_factory=list)
    first: int | None = None
    last: int | None = None
    records: int = 0

    def run(self) -> Checked:
        files = self.unit.files
        heads = {file.key: self.store.head(file.key) for file in files.files}
        watched = _Watched(self.store, files, heads, self.unit.stored)
        head = None if files.main is None else heads[files.main.key]
        known = None if head is None else Facts.from_metadata(head.metadata)
        told = self._with_digest(known)
        own = RecordsDigest.METHOD
        digest = RecordsDigest() if any(has_method(one.digest, own) for one in told) else None
        if any(has_method(one.digest, BatchesDigest.METHOD) for one in told):
            watched.digests(self.reading)
        self._read(watched, digest)
        said = None if head is None else head.metadata.get("sha256")
        sha256 = watched.sha256 if said is None else said
        is_unread = any(one.code == UnsupportedObjectError.code for one in self.problems)
        if is_unread or not self.problems:
            self._check_ledger(sha256)
        taken = None if digest is None else digest.text, watched.of_batches
        texts = with_keyed(self.store, (text for text in taken if text is not None))
        is_compared = self._compare(told, texts)
        end = self._end(known)
        known_of = {watched.hashed}
        if not is_unread:
            known_of |= {problem.what for problem in self.problems}
        unchecked = (
            file.key
            for file in files.files
            if file.key not in known_of
            and not _is_checkable(file, heads[file.key], is_read=not is_unread)
        )
        is_same, repeated = self._shared(end)
        return Checked(
            files.id,
            objects=len(files.files),
            bytes_read=watched.bytes,
            records=self.records,
            first=self.first,
            last=end,
            unchecked=tuple(unchecked),
            sha256=sha256,
            problems=tuple(self.problems),
            is_same=is_same,
            repeated=repeated,
            identity=UNKNOWN if head is None else TopicIdentity.from_metadata(head.metadata),
            says_what=known is not None,
            is_compared=is_compared,
            siblings=frozenset() if head is None else siblings_of(head.metadata),
        )

    def _read(self, watched: "_Watched", digest: RecordsDigest | None) -> None:
        """Read all rows; a sibling that is missing is not this task's to report."""
        files = self.unit.files
        reading = Reading(cast(Store, watched), self.reading).by(wants_siblings=False)
        try:
            if files.main is None:
                for file in files.files:
                    watched.open(file.key).close()
                return
            for batch in read(reading, files):
                if self.first is None:
                    self.first = batch["offset"][0].as_py()
                self.last = batch["offset"][-1].as_py()
                self.records += len(batch)
                if digest is not None:
                    digest.add(batch)
        except ObjectNotFoundError:
            self._problem("missing_object", watched.at, "it has disappeared since it was listed")
        except UnsupportedObjectError as error:
            self._problem(error.code, error.place.get("key") or watched.at, error.why or error.what)
        except _BAD as error:
            key = error.place.get("key") or watched.at
            self._problem(error.place.get("problem", "corrupt"), key, error.why or error.what)
        except ConfigurationError as error:
            if not files.is_whole or isinstance(error, NoKeyError):
                raise
            self._problem("corrupt", watched.at, f"its name is wrong: {error}")

    def _check_ledger(self, sha256: str | None) -> None:
        """Compare what was read, and its checksum, with what the ledger says was stored."""
        files, stored = self.unit.files, self.unit.stored
        if files.main is None or stored is None:
            return
        text = "it is not the object that was stored: its sha256 differs"
        is_other = sha256 not in (None, stored.sha256)
        if self.problems:  # it is not supported, so its checksum is all there is to compare
            if is_other:
                self.problems[:] = [Issue("corrupt", files.main.key, text)]
        elif self.records < stored.records:
            held = counted(self.records, "record")
            text = f"it holds {held}, the ledger says {stored.records}"
            self._problem("count_mismatch", files.main.key, text)
        elif files.is_whole and (self.last or 0) < stored.last_offset:
            text = f"its last record has offset {self.last}, the ledger says {stored.last_offset}"
            self._problem("count_mismatch", files.main.key, text)
        elif self.records == stored.records and is_other:
            self._problem("corrupt", files.main.key, text)
        elif self.records > stored.records and sha256 == stored.sha256:  # it has not grown
            held = f"it holds {counted(self.records, 'record')}, the ledger says {stored.records}"
            held += splits(files.main)
            self._problem("count_mismatch", files.main.key, held)

    def _with_digest(self, known: Facts | None) -> list[Facts]:
        """Return what ledger and object say of the records, if that can be compared with them."""
        # rows of values do not give back all that was in Kafka
        told = (self.unit.stored, known) if self.unit.files.is_whole else ()
        methods = RecordsDigest.METHOD, BatchesDigest.METHOD
        return [one for one in told if one is not None and has_method(one.digest, methods)]

    def _compare(self, told: Sequence[Facts], digests: Collection[str]) -> bool:
        """Compare what was read with what was stored; return whether that is known."""
        # of an object that has grown, the ledger may know less than it says itself
        said = next((one for one in told if one.records == self.records), None)
        if self.problems or said is None or not digests:
            return False
        if said.digest not in digests:
            text = "its records are not those that were stored: their digest differs"
            self._problem("corrupt", self.unit.files.id, text)
        return True

    def _problem(self, code: str, key: str, text: str) -> None:
        self.problems.append(Issue(code, key, text))

    def _end(self, known: Facts | None) -> int | None:
        """Return the last offset: as read, or as stored beside rows that do not say theirs."""
        if known is not None and (self.problems or not self.unit.files.is_whole):
            return known.last_offset
        return None if self.problems else self.last

    def _shared(self, end: int | None) -> tuple[bool | None, int]:
        """Return whether its records agree with those of sets that follow, and how many recur."""
        # None where it reaches into no other set
        files, nothing = self.unit.files, (None, 0)
        if end is None or not files.is_whole or self.problems:
            return nothing
        beside = [one for one in self.unit.following if one.start_offset <= end]
        across = [one for one in self.unit.across if one.start_offset <= end]
        others = [*beside, *across]
        if not others:
            return nothing
        first = min(one.start_offset for one in others)
        shared = Window.between(first, end + 1, None, None)
        try:
            mine, *rows = [self._rows(one, shared) for one in (files, *others)]
        except (*_BAD, ObjectNotFoundError):
            return nothing  # the other set's own check names it
        theirs = pa.chunked_array([each["offset"] for each in rows], pa.int64())
        repeated = pc.sum(pc.is_in(mine["offset"], theirs)).as_py() or 0
        for one, table in zip(across, rows[len(beside) :], strict=True):
            if not _agree(mine, table):
                text = f"it holds other records than {files.id} at the same offsets"
                self._problem("overlap", one.id, text)
        return (_agree(mine, *rows[: len(beside)]) if beside else None), repeated

    def _rows(self, files: FileSet, shared: Window) -> pa.Table:
        batches = (shared.rows(batch) for batch in read(Reading(self.store, self.reading), files))
        return pa.Table.from_batches(batches, SCHEMA)


def _agree(*tables: pa.Table) -> bool:
    """Whether tables hold the same record wherever they have the same offset."""
    # any may lack rows of the others: compaction may have come in between
    try:
        merge_by_offset([batch for table in tables for batch in table.to_batches()])
    except ConflictError:
        return False
    return True


def _is_checkable(file: BackupFile, head: ObjectHead | None, *, is_read: bool) -> bool:
    """Whether a flipped bit in the object would be noticed."""
    if head is not None and "sha256" in head.metadata:
        return True
    return is_read and formats.checks_itself(file.format, file.extension)


class _Watched:
    """What reading sees of a store, remembering what was opened."""

    def __init__(
        self,
        store: Store,
        files: FileSet,
        heads: Mapping[str, ObjectHead | None],
        stored: Facts | None,
    ) -> None:
        self._store, self._heads = store, heads
        self._files = {file.key: file for file in files.files}
        head = None if files.main is None else heads[files.main.key]
        # then only the ledger can tell whether the object is right
        is_unsaid = head is not None and "sha256" not in head.metadata and stored is not None
        self.hashed = files.main.key if files.main is not None and is_unsaid else None
        self.at = files.files[0].key
        self.bytes = 0
        self.sha256: str | None = None
        self.of_batches: str | None = None
        self._main = files.main
        self._reading: ReadOptions | None = None

    def digests(self, reading: ReadOptions) -> None:
        """Take the digest of the main object's batches when it is opened."""
        self._reading = reading

    def open(self, key: str) -> BinaryIO:
        self.at = key
        body = self._store.open(key)
        if key in self._files:  # what is not is an index
            self.bytes += self._files[key].size
        if key == self.hashed:
            self.sha256 = sha256_of(body)
        if self._reading is not None and self._main is not None and key == self._main.key:
            self._digest(self._main, body, self._reading)
        return body

    def _digest(self, main: BackupFile, body: BinaryIO, reading: ReadOptions) -> None:
        form = formats.by_name(main.format)
        if not isinstance(form, StoresBatches):
            return
        digest = BatchesDigest()
        with suppress(CorruptObjectError):  # reading the rows says so
            for batches in form.batches(body, reading.formats):
                digest.add(batches)
            self.of_batches = digest.text
        body.seek(0)

    def head(self, key: str) -> ObjectHead | None:
        return self._heads[key]
