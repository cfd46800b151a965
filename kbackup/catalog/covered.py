"""Choose which file sets of a partition to read, by what ledger, listing and objects say."""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, islice
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.claims import VALUES_NOT_THERE, Reading
from kbackup.catalog.column import keeps_schemas
from kbackup.catalog.coverage import (
    Compared,
    Coverage,
    Dispute,
    Holding,
    Read,
    Undecided,
    as_entered,
    closed_together,
    cover,
    lanes,
    ledger_spans,
    unfinished,
)
from kbackup.catalog.findings import APART, Finding
from kbackup.catalog.ledger.rows import Entry, PartitionLedger, is_main
from kbackup.catalog.listing import BackupFile, FactsOf, FileSet, Window
from kbackup.catalog.merging import BAD, records, rows_alike
from kbackup.catalog.reading import facts
from kbackup.connect.registry.framing import unframed
from kbackup.errors import KbackupError, RefusedError, counted, form, some
from kbackup.naming import View
from kbackup.records import Facts, Rotation, Span, TopicIdentity, TopicPartition, joined
from kbackup.stores import Heads, Store, side_by_side

_NOTHING_DECIDED: Final = Coverage()


@dataclass(frozen=True, slots=True)
class Covered:
    """What to read of a partition: *sets*, in order, so that each record comes once.

    *coverage* decided it.  The values of keys and headers *left_over* are not there, nor missed.
    """

    where: TopicPartition
    sets: Sequence[FileSet]
    coverage: Coverage = _NOTHING_DECIDED
    left_over: Sequence[FileSet] = ()

    def stated(self) -> dict[str, Facts]:
        """Return what ledger or objects state of the values that are read, by key."""
        return {
            one.key: Facts(one.start, one.last, one.records, None, None, one.sha256)
            for one in (read.holding for read in self.coverage.reads)
            if one.last is not None and one.records is not None
        }

    def findings(self) -> Iterator[Finding]:
        """Yield what is disputed, as errors, and what is left out, as notes."""
        for dispute in self.coverage.disputes:
            others = f"{some(dispute.keys[:-1], 3)}: " if dispute.keys[1:] else ""
            offsets = dispute.span.start_offset, dispute.span.end_offset - 1
            text = f"{others}{dispute.why}"
            do = "" if dispute.from_on is None else _apart(dispute)
            yield Finding("overlap", self.where, dispute.keys[-1], offsets, text, do=do)
        number = sum(one.of is None for one in self.coverage.repeats)
        for one in self.coverage.repeats:
            if one.of is not None:
                text = f"what it holds is in {one.of}, which is read"
                yield Finding("overlap", self.where, one.holding.key, text=text, level="note")
        if number:
            text = f"{counted(number, 'value object')} {form(number, 'is', 'are')} beside full "
            text += "records, which are used instead"
            yield Finding("overlap", self.where, None, text=text, level="note")

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield codes and sentences about what is left out."""
        shadowed = sum(one.of is None for one in self.coverage.repeats)
        if shadowed:
            text = f"{self.where}: {counted(shadowed, 'value object')} "
            text += f"{form(shadowed, 'is', 'are')} in the full-record objects too"
            yield "shadowed", text
        copies = [one for one in self.coverage.repeats if one.of is not None]
        if copies:
            number, keys = len(copies), some([one.holding.key for one in copies], 3)
            text = f"{self.where}: {counted(number, 'object')} {form(number, 'is', 'are')} left "
            text += f"out, as others hold the same: {keys}"
            yield "copy_left_out", text
        lone = [files.files[0].key for files in self.left_over]
        if lone:
            text = f"{self.where}: {some(lone, 3)}: {VALUES_NOT_THERE}"
            yield "values_not_there", text

    def refusals(self) -> list[KbackupError]:
        """Return why it cannot be restored: what is disputed."""
        return [
            RefusedError(
                f"{self.where}: {some(one.keys, 3)}",
                f"{one.why} (offsets {one.span.start_offset} to {one.span.end_offset - 1}), so a "
                "restore would lose records or write them twice",
                _apart(one),
                **self.where.place,
            )
            for one in self.coverage.disputes
        ]


def _apart(dispute: Dispute) -> str:
    """Return what an operator can do where it is not known which records objects share."""
    said = f"{APART}; or, if one ends where the other begins, restore the earlier format alone "
    said += "with --only-format, and then the other"
    if dispute.from_on is None:
        return said
    return f"if the sink stores full records, set its group to {dispute.from_on} and run it; {said}"


def covered(
    reading: Reading,
    where: TopicPartition,
    sets: Sequence[FileSet],
    ledger: PartitionLedger,
    *,
    counts: Mapping[str, int] = {},
    heads: Heads | None = None,
) -> Covered:
    """Return what to read of a partition, each file with what the ledger says was stored in it.

    Full records alone are merged as they are read, and objects of any name have no offsets that
    mean anything: there nothing is asked.  Else it costs a HEAD for each set without a row in the
    ledger, and opens the few objects whose rows decide: at most one for each directory, as a rule.

    Args:
        reading: How objects are read; to be compared, by their formats alone.
        where: The partition.
        sets: All of its sets, by start offset.
        ledger: What is known of it.
        counts: How many rows sets have that were read already, by `FileSet.id`.
        heads: Asked what objects say of themselves; None for the store.
    """
    reading, heads = reading.by(topic=None, by_format=True), heads or reading.store
    lone = left_over(sets, ledger, heads)
    sets = _without_removed([files for files in sets if files not in lone], ledger)
    sets = [files.known_by(partial(_told, ledger)) for files in sets] if ledger.objects else sets
    values = [files for files in sets if not files.is_whole and files.main is not None]
    if not values or any(files.is_generic for files in values):
        return Covered(where, sets, left_over=lone)
    mains = [files for files in sets if files.main is not None]
    rotations = closed_together(ledger)
    by_key = {files.id: files for files in mains}

    def holding(files: FileSet) -> Holding | None:
        row = _row(files, ledger)
        found = None if row is None else as_entered(by_name(files), row, rotations)
        below = None if found is None else found.below
        if found is None or not found.is_told:
            found = _asked(heads, files)
        if found is None:
            return None
        below = below if found.last is None else None
        return replace(found, counted=counts.get(files.id), below=below)

    holdings = {one.key: one for one in side_by_side(holding, mains) if one is not None}
    alone = [files for files in sets if files.id not in holdings]  # refused as they are read
    said = ledger_spans(ledger)
    found = cover(holdings.values(), said, reading.identity)
    if found.alike:
        for group in found.alike:
            holdings |= _compared(reading, by_key, group)
        found = cover(holdings.values(), said, reading.identity)
    reader = _SetReader(reading.by(wants_siblings=False), by_key)
    asked: set[tuple[str, Span | None]] = set()
    while asks := [one for one in found.asks if (one.holding.key, one.beside) not in asked]:
        known = list(holdings.values())
        for answer in side_by_side(partial(_answered, reader, known), asks):  # it may ask again
            holdings[answer.key] = answer
        asked.update((ask.holding.key, ask.beside) for ask in asks)
        found = cover(holdings.values(), said, reading.identity)
    unread = tuple(
        Dispute((one.key,), one.span, "other objects begin near it, and its rows cannot be counted")
        for one in (ask.holding for ask in found.asks)
    )
    found = replace(found, disputes=(*found.disputes, *unread), asks=())
    kept = [*found.reads, *map(Read, found.foreign)]
    chosen = [
        (read.start, replace(by_key[read.holding.key], only=read.only, bound=read.bound))
        for read in kept
    ]
    chosen += [(files.start_offset, files) for files in alone]
    chosen.sort(key=lambda at: (at[0], at[1].encoded_partition))
    return Covered(where, [files for _, files in chosen], found, lone)


def left_over(sets: Sequence[FileSet], ledger: PartitionLedger, heads: Heads) -> Sequence[FileSet]:
    """Return those of a partition's sets that are keys or headers alone, and no loss.

    A run that was cut off left them, or the ledger knows their values, and says what became of
    these.  Without its word they are the last of their directory, and nothing was stored that
    comes after what they were closed with: a run stores that when the values are there.

    *sets* are by start offset; *heads* are asked what such keys and headers say of themselves.
    """
    lone = [files for files in sets if files.main is None]
    if not lone:
        return ()
    mains = [files for files in sets if files.main is not None]
    last = {one.encoded_partition: one.start_offset for one in mains if not one.is_whole}
    furthest = max((files.start_offset for files in mains), default=0)

    def is_no_loss(files: FileSet) -> bool:
        entries = [ledger.objects.get(file.key) for file in files.files]
        if any(entries):
            return not any(is_main(one) for one in entries if one is not None)
        head = heads.head(files.files[0].key)
        metadata = {} if head is None else head.metadata
        if ledger.objects and Facts.from_metadata(metadata) is not None:
            return True
        closed = Rotation.from_metadata(metadata)
        is_last = files.start_offset > last.get(files.encoded_partition, files.start_offset)
        return is_last and (closed is None or furthest < closed.span.end_offset)

    return [files for files in lone if is_no_loss(files)]


def _told(ledger: PartitionLedger, file: BackupFile) -> BackupFile:
    """Return a listed object with what the ledger knows was stored in its place."""
    row = ledger.objects.get(file.key)
    if row is None or not row.has_facts:
        return file
    # without it, how far the object can be read shows that it has changed
    sha256 = row.sha256 or "" if row.bytes == file.size else ""
    return replace(file, sha256=sha256, records=row.records)


def _without_removed(sets: list[FileSet], ledger: PartitionLedger) -> list[FileSet]:
    """Return sets that do not miss the keys and headers that were removed on purpose."""
    gone = [
        one.key or ""
        for one in ledger.removed({file.key for files in sets for file in files.files})
        if not is_main(one)
    ]
    if not gone:
        return sets
    return [
        replace(files, removed=frozenset(_beside(files.main, gone))) if files.main else files
        for files in sets
    ]


def _beside(main: BackupFile, keys: Collection[str]) -> Iterator[View]:
    """Yield which of *keys* are beside values."""
    stem = main.key.removesuffix(main.extension)
    for view in (View.KEY, View.HEADERS):
        if any(key.startswith(stem + view) for key in keys):
            yield view


def within(
    store: Store,
    sets: Sequence[FileSet],
    window: Window,
    facts_of: FactsOf,
) -> list[FileSet]:
    """Return those of the sets to read that may hold records of a window, in order.

    Values of which nothing is known end before the next ones of their directory.  Full records may
    reach further, so those that began before the window are asked: a HEAD for each.

    Args:
        store: Where they are.
        sets: What to read of a partition: `Covered.sets`.
        window: What is asked for.
        facts_of: What is known of the records of a set, without a request.
    """
    known = {files.id: facts_of(files) for files in sets}
    begins: dict[tuple[str, bool, bool], int] = {}
    for files in sets:
        if files.start_offset <= window.offset.low:
            lane = files.encoded_partition, files.is_whole, files.is_tombstones
            begins[lane] = max(files.start_offset, begins.get(lane, 0))
    early = [
        files
        for files in sets
        if known[files.id] is None
        and files.start_offset
        < begins.get((files.encoded_partition, files.is_whole, files.is_tombstones), 0)
    ]
    full = [files.main for files in early if files.is_whole and files.main is not None]
    said = side_by_side(partial(facts, store), full)
    known |= dict(zip((file.key for file in full), said, strict=True))
    ended = {files.id for files in early if not files.is_whole}
    return [
        files for files in sets if files.id not in ended and window.takes(files, known[files.id])
    ]


def _row(files: FileSet, ledger: PartitionLedger) -> Entry | None:
    """Return the row of a set's object; None where it is of another object."""
    assert files.main is not None  # noqa: S101  (the caller has chosen)
    entry = ledger.objects.get(files.main.key)
    return None if entry is None or entry.bytes != files.main.size else entry


def _asked(heads: Heads, files: FileSet) -> Holding | None:
    """Return what an object says of itself; None where its name is not its own."""
    assert files.main is not None  # noqa: S101  (the caller has chosen)
    head, unsaid = heads.head(files.main.key), by_name(files)
    if head is None:
        return unsaid
    facts = Facts.from_metadata(head.metadata)
    unsaid = replace(unsaid, identity=TopicIdentity.from_metadata(head.metadata))
    if facts is None:
        return unsaid
    if facts.first_offset != files.start_offset:
        return None
    return replace(
        unsaid, last=facts.last_offset, records=facts.records, sha256=facts.sha256,
        rotation=Rotation.from_metadata(head.metadata),
    )  # fmt: skip


def by_name(files: FileSet, last: int | None = None) -> Holding:
    """Return what the name says of a set, and where its records end if they were read."""
    return Holding(
        files.id, files.encoded_partition, files.start_offset, files.is_whole, last,
        is_tombstones=files.is_tombstones,
    )  # fmt: skip


def _compared(
    reading: Reading, sets: Mapping[str, FileSet], group: Sequence[Holding]
) -> Mapping[str, Holding]:
    """Return values that begin at one offset with what their rows show; none if these differ."""
    rows = rows_alike(reading, [sets[one.key] for one in group])
    if rows is None:
        return {}
    most = max(group, key=lambda one: (rows[one.key], one.last is not None)).key
    return {
        one.key: replace(one, counted=rows[one.key], within="" if one.key == most else most)
        for one in group
    }


@dataclass(frozen=True, slots=True)
class _SetReader:
    """Reads the sets of a partition, without siblings."""

    reading: Reading
    sets: Mapping[str, FileSet]
    _first: dict[tuple[Span, tuple[str, ...]], list[bytes | None]] = field(default_factory=dict)

    def read(self, holdings: Sequence[Holding], offset: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the records of sets from an offset on, each once."""
        ordered = sorted(holdings, key=lambda one: one.start)
        lone = [replace(self.sets[one.key], keys=None, headers=None) for one in ordered]
        return records(self.reading, lone, offset=offset)

    def rows(self, one: Holding) -> list[bytes | None]:
        """Return the contents of values as a restore writes them."""
        return [content for batch in self.read([one]) for content in _contents(batch)]

    def like(
        self, others: Sequence[bytes | None], one: Holding, rows: list[bytes | None]
    ) -> list[bytes | None]:
        """Return the *rows* of values in the form of the records beside them, if they have it."""
        main = self.sets[one.key].main
        if are_alike(rows, others) or main is None or not keeps_schemas(main.format):
            return rows
        # where their file keeps the schema, a registry's converter has made Avro of them
        framed = replace(self, reading=self.reading.by(in_frames=True)).rows(one)
        return rows if None in framed else framed  # Avro cannot express them

    def are_near_alike(
        self,
        holdings: Sequence[Holding],
        ask: Undecided,
        lane: Sequence[Holding],
        first: Sequence[bytes | None],
    ) -> bool:
        """Whether earlier values of the writer asked about are like *lane*, or what follows it."""
        one, last = ask.holding, lane[-1]
        before = [at for at in holdings if at.start < one.start and _writer(at) == _writer(one)]
        behind = [at for at in holdings if at.start > last.start and _writer(at) == _writer(last)]
        theirs = [*first]
        for at in behind[:NEAR]:
            theirs += islice(self.contents([at], at.span), COMPARED_RECORDS)
        # then its rows are records as they were, of a log that has several forms
        return any(are_alike(self.like(theirs, at, self.rows(at)), theirs) for at in before[-NEAR:])

    def are_changed(self, holdings: Sequence[Holding], one: Holding) -> bool:
        """Whether the writer of values changes records, as a transform does."""

        def writer(at: Holding) -> tuple[bool, bool, str]:
            main = self.sets[at.key].main
            return at.last is None, at.is_tombstones, "" if main is None else main.extension

        # their first row is at the offset of their name: full records that hold it show what it was
        full = [at for at in holdings if at.is_full]
        held = joined(at.span for at in full)
        theirs = [
            at
            for at in holdings
            if not at.is_full and writer(at) == writer(one)
            if (by := bisect_right(held, at.start, key=lambda span: span.start_offset))
            if at.start < held[by - 1].end_offset
        ]
        for at in sorted(theirs, key=lambda at: abs(at.start - one.start))[:NEAR]:
            beside = [by for by in full if by.start <= at.start <= by.least]
            place = Span(at.start, at.start + 1)
            mine, first = ([*self.contents(each, place)] for each in ([at], beside))
            if first and self.like(first, at, mine)[:1] != first:
                return True
        return False

    def contents(self, holdings: Sequence[Holding], beside: Span) -> Iterator[bytes | None]:
        """Yield the contents of the records that values are compared with."""
        for batch in self.read(holdings, beside.start_offset):
            for offset, content in zip(batch["offset"].to_pylist(), _contents(batch), strict=True):
                if offset >= beside.end_offset:
                    return
                yield content

    def first(self, holdings: Sequence[Holding], beside: Span) -> Sequence[bytes | None]:
        """Return the contents of the first `COMPARED_RECORDS` of them, read once for all values."""
        key = beside, tuple(one.key for one in holdings)
        if key not in self._first:
            self._first[key] = [*islice(self.contents(holdings, beside), COMPARED_RECORDS)]
        return self._first[key]


def _answered(reader: _SetReader, holdings: Sequence[Holding], ask: Undecided) -> Holding:
    """Return what is asked for with what its rows show; as it is where they cannot be read."""
    one, beside = ask.holding, ask.beside
    try:
        if beside is None:
            last, count = None, 0
            for batch in reader.read([one]):
                last, count = batch["offset"][-1].as_py(), count + len(batch)
            return replace(one, last=last, records=count)
        rows = reader.rows(one)
        number = len(rows)
        others = [other for other in holdings if _is_beside(other, one, beside)]
        whole = [other for other in others if other.is_full]
        if beside.start_offset == one.start:
            contents = reader.contents(whole, beside)
            first = [*islice(contents, 1)]
            reaches = goes_beyond(reader.like(first, one, rows), chain(first, contents))
        elif number > beside.start_offset - one.start:
            reaches = True
        else:
            told = [other for other in others if not other.is_full]
            apart = [*lanes(told, lambda one: (False, one.directory))]
            is_share = len(apart) > 1 or bool(unfinished(others))
            reaches = number > 1 and (  # the first row is before the others
                any(
                    goes_on_in(mine, first, is_share=is_share)
                    or not (
                        are_alike(mine, first) or reader.are_near_alike(holdings, ask, lane, first)
                    )
                    for lane, first in (
                        (lane, reader.first(lane, beside)) for lane in (whole, *apart)
                    )
                    for mine in (reader.like(first, one, rows),)
                )
                or reader.are_changed(holdings, one)
            )
    except BAD:
        return one
    return replace(one, counted=number, compared=Compared(beside, reaches))


def _is_beside(other: Holding, one: Holding, beside: Span) -> bool:
    """Whether a holding may have the records that values are compared with."""
    is_known = other.is_full or (
        other.last is not None and other.is_tombstones == one.is_tombstones
    )
    return is_known and other.start < beside.end_offset and other.least >= beside.start_offset


def _writer(one: Holding) -> tuple[str, bool, bool, bool]:
    return one.directory, one.is_full, one.is_tombstones, one.last is None


NEAR: Final = 8
"""As many objects before and behind show whether a writer changes the form of records."""

COMPARED_RECORDS: Final = 100_000
"""Among so many is the first record that values go on with, if they do."""


# Record by record, for the last objects of another tool, whose texts have no form of their own.


FORM_BYTES: Final = 4
"""As many of a content stand for its form: the kind of its JSON, and the names in an object."""


def _contents(batch: pa.RecordBatch) -> Iterator[bytes | None]:
    """Yield what stands for each value: two texts of the same JSON are the same."""
    # without what a converter puts around it, and files may not keep: a schema, or its id
    values, bodies = batch["value"], unframed(batch["value"]).bodies
    framed = bodies.is_valid().to_pylist()
    for value, is_framed in zip(pc.coalesce(bodies, values).to_pylist(), framed, strict=True):
        yield None if value is None else _content(value, is_framed=is_framed)


def _content(value: bytes, *, is_framed: bool) -> bytes:
    try:
        said, same = _of_json(value)
    except ValueError:  # a frame has what a registry's converter has made, else it is a text
        said, same = value if is_framed else _text(value), value
    parts = (_form(said), FORM_BYTES), (same, 16)
    return b"".join(hashlib.blake2b(part, digest_size=size).digest() for part, size in parts)


def _of_json(value: bytes) -> tuple[Any, bytes]:
    """Return what JSON says without its schema, and the same bytes for each way to write that."""
    said = orjson.loads(value)
    while isinstance(said, dict) and said.keys() == {"schema", "payload"}:
        said = said["payload"]
    if isinstance(said, str):  # it is itself for a converter of texts, which JSON puts in quotes
        return said, said.encode()
    try:
        return said, orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # too deep
        return said, value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except ValueError:
        return value


def _form(said: Any) -> bytes:
    """Return the names in an object, or of which kind anything else is."""
    kind = float if isinstance(said, int) else type(said)  # JSON has numbers of one kind
    return repr(sorted(said) if isinstance(said, dict) else kind).encode()


def are_alike(rows: Sequence[bytes | None], others: Sequence[bytes | None]) -> bool:
    """Whether some have one form, so that a comparison shows which of them are the same."""
    mine, theirs = ({one and one[:FORM_BYTES] for one in each} - {None} for each in (rows, others))
    return not (mine and theirs and mine.isdisjoint(theirs))


def goes_beyond(rows: Sequence[bytes | None], others: Iterable[bytes | None]) -> bool:
    """Whether values may reach behind all of the records that others hold from their start on.

    Values have each of these records that their directory takes, those that are equal to one of
    theirs among them.  Where not even the first row is like the first record, as of a converter
    that writes others, no number of rows shows where they end: a connector may have dropped some.
    """
    known, found = set(rows), 0
    if not rows:
        return False
    for content in others:
        if (not found or content in known) and content != rows[found]:
            return True
        found += content in known
        if found == len(rows):
            return False
    return True


def goes_on_in(
    rows: Sequence[bytes | None], others: Iterable[bytes | None], *, is_share: bool = False
) -> bool:
    """Whether values have the first of the records that others hold behind their start.

    They do if their last rows are, of these records, the first that are equal to any of theirs, and
    one of those rows is like no other: what repeats itself shows nothing.  Where the others have
    but a share of what there is, rows that are like none of them lie between.
    """
    found = Counter(rows)
    first = list(islice((content for content in others if content in found), len(rows)))
    if is_share:
        wanted = set(first)
        rows = [row for at, row in enumerate(rows) if not at or row in wanted]
    lone = [0, *accumulate(found[row] == 1 for row in rows)]
    if not first or not lone[-1]:
        return False
    sought: list[object] = [*first, object(), *rows[1:]]  # the first row is before the others
    back = [0]  # the search of Knuth, Morris and Pratt for *first* in the rows
    for at, row in enumerate(sought[1:], 1 - len(first)):
        length = back[-1]
        while length and row != sought[length]:
            length = back[length - 1]
        length += row == sought[length]
        back.append(length)
        if length == len(first) and lone[at + 1] > lone[at + 1 - length]:
            return True  # and go on behind the last of them
    return lone[-1] > lone[len(rows) - back[-1]]
