"""Decide which objects cover the offsets of a partition: pure functions of what is known.

`cover` says what is to be read, or cannot be decided; `Offsets` what became of each, which is what
a sink starts by, a map shows and verify notes.

A *holding* is what one listed object, with its siblings, has of the partition: full records, which
know their offsets, or values as the connectors write them, which do not.  Full records may overlap:
they are merged by offset as they are read.  Values cannot be: where two of them may hold the same
record, or full records hold a part of one, it has to be known exactly which offsets each has.

A stated end is exact.  One that is not stated is at least the start, and at most what the next name
without one leaves in its directory: a connector writes the objects there one after the other.  A
count of rows gives a lower bound alone: markers, and records that a connector drops or files in
another directory, leave fewer rows than offsets.  What then tells whether they reach others is a
comparison of their rows.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final

from kbackup.catalog.ledger.rows import Entry, PartitionLedger, is_main
from kbackup.records import UNKNOWN, Rotation, Span, TopicIdentity, joined, without


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison of values with what others hold has shown.

    Attributes:
        beside: The offsets that others hold, from the first on that the values may have too.
        reaches: If that is the values' own start, whether they may go on behind the end of it, else
            whether they may go on to its start.
    """

    beside: Span
    reaches: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """What one file set has of a partition.

    Attributes:
        key: The object that stands for it.
        directory: Where it is.
        start: Offset of the first record, from its name.
        is_full: Whether it holds full records.
        last: Offset of the last record, if that is stated.
        records: How many there are, if that is stated.
        sha256: Of the object, in hexadecimal; empty where it is not stated.
        rotation: What it was closed with; None where it does not say.
        identity: Which topic it is of, as far as it says.
        counted: How many rows were counted in it, where nothing states that.
        is_tombstones: Whether it holds records without a value, which lie between those with one.
        within: The key of values that begin with all of its rows, by a comparison of them.
        compared: Of values that do not state their end, what was asked for last.
        below: An offset that its records are below, if the ledger knows one.
    """

    key: str
    directory: str
    start: int
    is_full: bool
    last: int | None = None
    records: int | None = None
    sha256: str = ""
    rotation: Rotation | None = None
    identity: TopicIdentity = UNKNOWN
    counted: int | None = None
    is_tombstones: bool = False
    within: str = ""
    compared: Compared | None = None
    below: int | None = None

    @property
    def is_dense(self) -> bool:
        """Whether each of its offsets has a record, so that rows can be counted from the first."""
        return self.last is not None and self.records == self.last - self.start + 1

    @property
    def is_told(self) -> bool:
        """Whether its end is stated, and how many files it was closed with, if it was with any."""
        return self.last is not None and (self.rotation is None or self.rotation.files > 0)

    @property
    def least(self) -> int:
        """The offset that its last record has at least."""
        return self.start + max(self.counted or 1, 1) - 1 if self.last is None else self.last

    @property
    def span(self) -> Span:
        """From its first offset to the lowest that its end can be."""
        return Span(self.start, self.least + 1)

    @property
    def accounted(self) -> Span:
        """The offsets that it was closed with, or its own."""
        return self.span if self.rotation is None else _hull(self.span, self.rotation.span)


@dataclass(frozen=True, slots=True)
class Read:
    """A holding that is to be read, or *only* some of its offsets: full records hold the others.

    Its rows must end before *bound*, as the next name in its directory says; None where its end is
    stated, or nothing bounds it.
    """

    holding: Holding
    only: Span | None = None
    bound: int | None = None

    @property
    def start(self) -> int:
        """The first offset that is read."""
        return self.holding.start if self.only is None else self.only.start_offset


@dataclass(frozen=True, slots=True)
class Undecided:
    """A holding that has to be read before all is decided: full records, to see where they end.

    Or values, whose rows are to be compared with the offsets of others *beside* them.
    """

    holding: Holding
    beside: Span | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """A holding that need not be read: the object *of* has all of its rows.

    None where full records hold its offsets.
    """

    holding: Holding
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Dispute:
    """Objects of which it is not known how to restore each record in *span* once, and *why*.

    Stored from the offset *from_on* on, full records have all of them; None where they may not.
    """

    keys: tuple[str, ...]
    span: Span
    why: str
    from_on: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerSpans:
    """What the ledger says of offsets that are in no object.

    Attributes:
        gone: Expired before they were backed up.
        rejected: Of records that were left out.
        empty: Where there was nothing to store.
        missing: Of objects that are not there.
        removed: Of objects that are not there either, which was accepted.
        broken: Of the rotations that lack one of those, all they were closed with.
    """

    gone: Sequence[Span] = ()
    rejected: Sequence[Span] = ()
    empty: Sequence[Span] = ()
    missing: Sequence[Span] = ()
    removed: Sequence[Span] = ()
    broken: Sequence[Span] = ()


NOTHING_SAID: Final = LedgerSpans()


@dataclass(frozen=True, slots=True)
class Offsets:
    """What became of a partition's offsets.  Several things may be true of one.

    What is *there* is known without a request; *said* is of offsets that are in none of that.
    """

    there: Sequence[Holding]
    said: LedgerSpans = NOTHING_SAID

    @property
    def stored(self) -> tuple[Span, ...]:
        """The offsets that are in objects whose end is known, with what lies between them."""
        return joined(one.accounted for one in self.there if one.last is not None)

    @property
    def named(self) -> tuple[Span, ...]:
        """The offsets of objects whose end is not known, each up to the next name at most."""
        starts = sorted({one.start for one in self.there})
        following = dict(pairwise(starts))
        return joined(
            Span(one.start, following.get(one.start, one.span.end_offset))
            for one in self.there
            if one.last is None
        )

    @property
    def untold(self) -> tuple[Span, ...]:
        """The offsets below the highest known end of which nobody says anything."""
        said = self.said
        known = joined([
            *self.stored, *self.named, *said.gone, *said.rejected, *said.empty, *said.missing,
            *said.removed,
        ])  # fmt: skip
        return without(Span(0, known[-1].end_offset), known) if known else ()

    @property
    def whole(self) -> tuple[Span, ...]:
        """The offsets of which nothing is lacking that was ever there, in order."""
        known = joined([*self._closed(), *(one.span for one in self.there if one.is_dense)])
        return tuple(part for span in known for part in without(span, self.said.broken))

    @property
    def end(self) -> int | None:
        """Where a backup continues whose position is lost; None where nothing says it.

        That is behind the last of what was closed together and lacks no object, and of what holds
        nothing: what had expired, and what a run had come to without anything to store.
        """
        return max((span.end_offset for span in self._closed()), default=None)

    @property
    def disputes(self) -> Sequence[Dispute]:
        """What cannot be restored, as far as stated ends show it."""
        told = [one for one in self.there if one.is_told]
        found = cover(told) if any(not one.is_full for one in told) else Coverage()
        alike = [{one.key for one in group} for group in found.alike]
        return [
            one for one in found.disputes if not any(group.issuperset(one.keys) for group in alike)
        ]

    def _closed(self) -> Iterator[Span]:
        """Yield the offsets of what was closed together and lacks no object, and of nothing."""
        broken = {*self.said.broken}
        told = {one.rotation.span for one in self.there if one.rotation is not None}
        yield from told - broken
        yield from (*self.said.gone, *self.said.empty)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What covers a partition's offsets.

    Attributes:
        reads: What to read, in order, so that each record comes once.
        repeats: What is left out since something else that is read holds the same.
        disputes: What cannot be decided; while there are any, *reads* restores nothing soundly.
        asks: What has to be read before all is decided.  Then ask again.
        alike: Values that begin at one offset of one directory, whose rows are to be compared: a
            tool that stores records again which it has not committed leaves them.  Then ask again.
        foreign: Of another topic: no part of this log.
    """

    reads: tuple[Read, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    disputes: tuple[Dispute, ...] = ()
    asks: tuple[Undecided, ...] = ()
    alike: tuple[tuple[Holding, ...], ...] = ()
    foreign: tuple[Holding, ...] = ()


def cover(
    holdings: Iterable[Holding], said: LedgerSpans = NOTHING_SAID, identity: TopicIdentity = UNKNOWN
) -> Coverage:
    """Return what covers the offsets of a partition, of which *holdings* are all that is there.

    The ledger *said* what it knows of what is not.  What is of another topic than *identity*, as
    far as that is known, has nothing to do with these offsets: it is in `Coverage.foreign` alone.
    """
    everything = sorted(
        holdings, key=lambda one: (one.start, not one.is_full, one.directory, one.key)
    )
    foreign = tuple(one for one in everything if identity.conflicts(one.identity))
    ordered = [one for one in everything if one not in foreign] if foreign else everything
    values, copies = _without_copies([one for one in ordered if not one.is_full])
    full = [one for one in ordered if one.is_full]
    whole = joined(of.span for of, files in _by_rotation(values).items() if len(files) == of.files)
    partial = unfinished(full) if values else []
    redone = {one.key: one for one in partial if _is_within(one.accounted, whole)}
    full = [one for one in full if one.key not in redone]
    begun = {one.start for one in values if one.last is None and not one.is_tombstones}
    found = _Decisions([*copies, *map(Repeat, redone.values())], list(_crowded(values)), begun)
    known = [one for one in values if one.last is not None]
    found.disputes += _overlapping(known)
    upper = _bounds(values, said)
    found.disputes += _begun_inside(known, [one for one in values if one.last is None], upper)
    reads = [Read(one) for one in full]
    furthest = max((one.least for one in values), default=-1)
    found.asks += [Undecided(one) for one in full if one.last is None and one.start <= furthest]
    vague = {one.key: one for one in partial if one.key not in redone and not one.is_dense}
    found.disputes += _beside_unfinished(values, [*vague.values()])
    told_of = [one for one in full if one.key not in vague]
    accounted = _accounted(told_of, said) if told_of else []
    beside = [*known, *vague.values()]
    told = [
        sorted(one.span for one in beside if one.is_full or one.is_tombstones is kind)
        for kind in (False, True)
    ]
    for one in values:
        reads += found.beside(one, accounted, told[one.is_tombstones], upper.get(one.key))
    if not found.disputes:
        unknown = [one for one in values if one.last is None]
        found.disputes += _too_many(unknown, accounted)
    reads.sort(key=lambda read: (read.start, not read.holding.is_full, read.holding.directory))
    return Coverage(
        tuple(reads), tuple(found.repeats), tuple(dict.fromkeys(found.disputes)), tuple(found.asks),
        tuple(_alike(values)), foreign,
    )  # fmt: skip


@dataclass(slots=True)
class _Decisions:
    """What `cover` has come to so far."""

    repeats: list[Repeat]
    disputes: list[Dispute]
    begun: Container[int]  # where values without a stated end begin: no other has that record
    asks: list[Undecided] = field(default_factory=list)

    def beside(
        self, one: Holding, accounted: Sequence[Span], told: Sequence[Span], bound: int | None
    ) -> Iterator[Read]:
        """Yield what is to be read of values beside what others *accounted* for, before *bound*."""
        place = _place(accounted, one.start)
        around = next(iter(accounted[place : place + 1]), None)
        if around is not None and around.start_offset > one.start:
            around = None
        later = place if around is None else place + 1
        begun = bisect_right(told, one.start, key=lambda span: span.start_offset)
        following = min([*accounted[later : later + 1], *told[begun : begun + 1]], default=None)
        if one.last is not None:
            yield from self._stated(one, accounted)
        elif around is not None:
            reaches = self.reaches(one, Span(one.start, around.end_offset), bound)
            if reaches:
                why = "it begins among full records and is unlike them, or reaches beyond their end"
                self.disputes.append(Dispute((one.key,), one.span, why, one.start))
            elif reaches is not None:
                self.repeats.append(Repeat(one))
        elif following is None or self.ends_before(
            one, following, bound, is_full=following in accounted[later : later + 1]
        ):
            yield Read(one, bound=bound)

    def ends_before(
        self, one: Holding, following: Span, bound: int | None, *, is_full: bool
    ) -> bool:
        """Whether values whose end is not stated end before others; where not, it is disputed."""
        start = following.start_offset
        # what lies between is in the objects that begin there
        is_apart = bound is not None and all(at in self.begun for at in range(start, bound))
        reaches = False if is_apart else self.reaches(one, following)
        if reaches:
            why = f"it reaches beyond offset {start}, where another begins that holds the same, or "
            why += "is so unlike that one that nothing tells where it ends"
            from_on = one.start if is_full else None
            self.disputes.append(Dispute((one.key,), one.span, why, from_on))
        return reaches is False

    def reaches(self, one: Holding, beside: Span, bound: int | None = None) -> bool | None:
        """Return what `Compared.reaches` says of values beside others; None where it is asked."""
        if bound is not None and bound <= beside.end_offset:
            return False
        if one.compared is None or one.compared.beside != beside:
            self.asks.append(Undecided(one, beside))
            return None
        return one.compared.reaches

    def _stated(self, one: Holding, accounted: Sequence[Span]) -> Iterator[Read]:
        first = _place(accounted, one.start)
        end = bisect_right(accounted, one.least, key=lambda span: span.start_offset)
        left = without(one.span, accounted[first:end])
        if left == (one.span,):
            yield Read(one)
        elif not left:
            self.repeats.append(Repeat(one))
        elif one.is_dense:
            yield from (Read(one, only) for only in left)
        else:
            why = "full records hold a part of it, and it does not say which offsets its rows have"
            self.disputes.append(Dispute((one.key,), one.span, why))


def _without_copies(values: Sequence[Holding]) -> tuple[list[Holding], list[Repeat]]:
    """Return *values* without those that are the same file as an earlier one, or within one."""
    first: dict[tuple[int, str], Holding] = {}
    kept, copies = [], []
    for one in values:
        if one.within:
            copies.append(Repeat(one, one.within))
            continue
        same = first.setdefault((one.start, one.sha256), one) if one.sha256 else one
        if same is one:
            kept.append(one)
        else:
            copies.append(Repeat(one, same.key))
    return kept, copies


def _alike(values: Sequence[Holding]) -> Iterator[tuple[Holding, ...]]:
    """Yield values that begin at one offset of one directory."""
    for lane in lanes(values, lambda one: (one.is_tombstones, one.directory)):
        for _, same in groupby(lane, key=lambda one: one.start):
            group = tuple(same)
            if len(group) > 1:
                yield group


def _crowded(values: Sequence[Holding]) -> Iterator[Dispute]:
    """Name the rotations of which there are more files than were closed together."""
    for rotation, files in _by_rotation(values).items():
        if len(files) > rotation.files:
            why = f"they say that they are of one rotation, of {rotation.files}"
            yield Dispute(tuple(one.key for one in files), rotation.span, why)


def unfinished(full: Sequence[Holding]) -> list[Holding]:
    """Return full records of rotations of which there are fewer files than were to be."""
    return [
        one
        for rotation, files in _by_rotation(full).items()
        if len(files) < rotation.files
        for one in files
    ]


def _is_within(span: Span, wholes: Sequence[Span]) -> bool:
    """Whether one of *wholes*, disjoint and in order, has all of a span."""
    place = _place(wholes, span.start_offset)
    return place < len(wholes) and not without(span, wholes[place : place + 1])


def _beside_unfinished(values: Sequence[Holding], vague: Sequence[Holding]) -> Iterator[Dispute]:
    """Name values beside full records of a rotation that was not finished, and has holes."""
    for one in vague:
        for other in values:
            if other.start < one.span.end_offset and one.start <= other.least:
                why = "full records that a run has left unfinished hold a part of these offsets"
                yield Dispute((one.key, other.key), one.span, why)


def _by_rotation(values: Iterable[Holding]) -> Mapping[Rotation, Sequence[Holding]]:
    found: defaultdict[Rotation, list[Holding]] = defaultdict(list)
    for one in values:
        if one.rotation is not None:
            found[one.rotation].append(one)
    return found


def _overlapping(known: Sequence[Holding]) -> Iterator[Dispute]:
    """Name values with stated ends that overlap and were not closed together."""
    # where one does not say what it was closed with, they may lie side by side in two directories
    for lane in lanes(known, lambda one: (one.is_tombstones, one.directory)):
        yield from _reaching(lane, lambda one: one.key)
    told = [one for one in known if one.rotation is not None]
    for lane in lanes(told, lambda one: (one.is_tombstones, "")):
        yield from _reaching(lane, lambda one: one.rotation)


def _reaching(lane: Iterable[Holding], of: Callable[[Holding], Hashable]) -> Iterator[Dispute]:
    """Name the holdings of a lane that begin before an earlier one of another kind ends."""
    furthest: list[Holding] = []  # of all kinds, then of those of another kind than that one
    for one in lane:
        earlier = next((far for far in furthest if of(far) != of(one)), None)
        if earlier is not None and one.start <= earlier.least:
            last = min(earlier.least, one.least)
            why = "both hold these offsets, and nothing shows that they hold the same records"
            yield Dispute((earlier.key, one.key), Span(one.start, last + 1), why)
        ranked = sorted([*furthest, one], key=lambda far: far.least, reverse=True)
        furthest = ranked[:1] + [far for far in ranked if of(far) != of(ranked[0])][:1]


def lanes(
    holdings: Iterable[Holding], place: Callable[[Holding], tuple[bool, str]]
) -> Iterable[list[Holding]]:
    """Return *holdings* by *place*, each lane in their order."""
    found: defaultdict[tuple[bool, str], list[Holding]] = defaultdict(list)
    for one in holdings:
        found[place(one)].append(one)
    return found.values()


def _bounds(values: Sequence[Holding], said: LedgerSpans) -> dict[str, int]:
    """Return, of values whose end is not stated, the offset before which each must end."""
    # what had expired is nowhere else: full records around it say nothing of such values
    told = {
        one.key: one.below
        for one in values
        if one.last is None
        and one.below is not None
        and without(Span(one.start, one.below), said.gone) == (Span(one.start, one.below),)
    }
    # one writer gives it: a name whose end is stated is another writer's, and says nothing of it
    return told | {
        one.key: following.start
        for lane in lanes(
            [one for one in values if one.last is None],
            lambda one: (one.is_tombstones, one.directory),
        )
        for one, following in pairwise(lane)
        if following.start > one.start
    }


def _begun_inside(
    known: Sequence[Holding], unknown: Sequence[Holding], upper: Mapping[str, int]
) -> Iterator[Dispute]:
    """Name values without a stated end that begin where others are, or reach into the next."""
    spans = joined(one.span for one in known)
    for one in unknown:
        place = _place(spans, one.start)
        if place < len(spans) and spans[place].start_offset <= one.start and not one.is_tombstones:
            keys = [at.key for at in known if at.start <= one.start <= at.least]
            why = "it begins among the offsets of another object"
            yield Dispute((*keys, one.key), one.span, why)
    for earlier, later in pairwise(unknown):
        if earlier.start == later.start and earlier.is_tombstones == later.is_tombstones:
            why = "both begin at this offset, and nothing shows that they hold the same records"
            yield Dispute((earlier.key, later.key), later.span, why)
    for one in unknown:
        if one.least >= upper.get(one.key, one.least + 1):
            why = "it has more rows than offsets up to the next object, or to the end of the log"
            yield Dispute((one.key,), one.span, why)


def _too_many(unknown: Sequence[Holding], accounted: Sequence[Span]) -> Iterator[Dispute]:
    """Name values of several directories that together do not end before full records."""
    for previous, later in pairwise([Span(0, 0), *accounted]):
        edge, rows, keys = later.start_offset, 0, []
        end = bisect_left(unknown, edge, key=lambda one: one.start)
        begin = bisect_left(unknown, previous.end_offset, hi=end, key=lambda one: one.start)
        for one in reversed(unknown[begin:end]):  # the nearest first
            rows += one.least - one.start + 1
            keys.append(one.key)
            if keys[1:] and rows > edge - one.start:
                why = f"together they have more rows than offsets up to {edge}, where full records "
                why += "begin"
                yield Dispute((*reversed(keys),), Span(one.start, edge), why, one.start)
                break


def _accounted(full: Sequence[Holding], said: LedgerSpans) -> list[Span]:
    """Return the offsets of which *full* records, or the ledger's word, have all there was."""
    # what was before the first of them is not believed: values that begin there say otherwise
    own = [one.accounted for one in full]
    nothing = [*said.gone, *said.empty]
    starts = sorted(one.start_offset for one in own)
    found = []
    for span in joined([*own, *nothing]):
        first = bisect_left(starts, span.start_offset)
        if first < len(starts) and starts[first] < span.end_offset:
            found.append(Span(starts[first], span.end_offset))
    return found


def _place(spans: Sequence[Span], offset: int) -> int:
    """Return the place of the first of *spans* that ends behind *offset*."""
    return bisect_right(spans, offset, key=lambda span: span.end_offset)


def _hull(one: Span, other: Span) -> Span:
    return Span(min(one.start_offset, other.start_offset), max(one.end_offset, other.end_offset))


def entered(named: Iterable[Holding], ledger: PartitionLedger, present: Container[str]) -> Offsets:
    """Return what became of a partition's offsets, by listing and ledger: no request is made.

    By names, *named* is there of it; *present* are the keys of the listing, of other objects too.
    """
    there = [*named]
    rotations = closed_together(ledger) if there else {}
    told = [
        one if (row := ledger.objects.get(one.key)) is None else as_entered(one, row, rotations)
        for one in there
    ]
    return Offsets(told, ledger_spans(ledger, present))


def ledger_spans(ledger: PartitionLedger, present: Container[str] | None = None) -> LedgerSpans:
    """Return what a ledger says of offsets; of objects that are not there, if it is asked."""
    said = LedgerSpans(gone=ledger.gaps, rejected=ledger.skipped, empty=ledger.passed)
    if present is None or not (absent := ledger.absent(present)):
        return said
    agreed = {one.key for one in ledger.removed(present)}
    return replace(
        said,
        missing=[one.span for one in absent if one.key not in agreed],
        removed=[one.span for one in absent if one.key in agreed],
        broken=sorted({Span(*one.cut[:2]) for one in absent if one.cut is not None}),
    )


def closed_together(ledger: PartitionLedger) -> Mapping[Span, Rotation]:
    """Return what the ledger knows to have been closed together, by the offsets.

    Of offsets that several runs closed only the objects say how many files belong together: 0.
    """
    runs: defaultdict[Span, set[str | None]] = defaultdict(set)
    files: Counter[Span] = Counter()
    for entry in ledger.objects.values():
        if entry.cut_start is not None and entry.next_offset is not None and is_main(entry):
            span = Span(entry.cut_start, entry.next_offset)
            runs[span].add(entry.run)
            files[span] += 1
    return {span: Rotation(span, files[span] if len(of) == 1 else 0) for span, of in runs.items()}


def as_entered(one: Holding, row: Entry, rotations: Mapping[Span, Rotation]) -> Holding:
    """Return a holding with what its row says, but for an end that it states itself."""
    last = row.last if one.last is None else one.last
    rotation = row.cut and rotations.get(Span(*row.cut[:2]))
    return Holding(
        one.key, one.directory, one.start, one.is_full, last, row.records, row.sha256 or "",
        rotation, is_tombstones=one.is_tombstones, below=row.below,
    )  # fmt: skip
