"""Judge one partition of a backup, and its objects beside what the ledger says was stored.

The listing says which of them are worth a request: those of another size, and those stored long
after their rows.  A run may have put more of the same records in an object's place, so growth alone
is no damage; but then the object agrees with itself, and a row of the ledger follows.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from kbackup.catalog import claims
from kbackup.catalog.claims import Checked
from kbackup.catalog.coverage import entered
from kbackup.catalog.covered import by_name, covered, left_over
from kbackup.catalog.findings import (
    EXTENSIONS,
    LAYOUTS,
    TEMPLATES,
    Extent,
    Finding,
    PartitionVerdict,
    empty_objects,
    gaps_and_overlaps,
    left_out,
    repeated,
)
from kbackup.catalog.ledger.rows import NOTHING, Entry, PartitionLedger, is_main
from kbackup.catalog.listing import BackupFile, FileSet, object_bytes, object_count
from kbackup.errors import CorruptObjectError, Issue, ObjectNotFoundError, counted, form
from kbackup.formats import FormatOptions, by_extension
from kbackup.naming import NOT_OF_LAYOUT, NOT_OF_TEMPLATE, Layout, TemplateLayout, View
from kbackup.pipeline.views import ReadOptions
from kbackup.pipeline.write import siblings_of
from kbackup.records import UNKNOWN, Facts, Span, TopicIdentity, TopicPartition, without
from kbackup.stores import Heads, ObjectHead, Store, side_by_side

_LATER_MS: Final = 3_600_000
"""How much younger than its row an object may be before it must have been stored again."""

_DO: Final = "if it is right, enter it with kbackup sink reindex"


@dataclass(frozen=True, slots=True)
class _Doubt:
    """An object to ask about, its set, and the ledger's row of it."""

    files: FileSet
    file: BackupFile
    row: Entry


def _was_passed(row: Entry, end: int, ledger: PartitionLedger) -> bool:
    """Whether cuts from *end* on were entered after *row*, in whose order they come."""
    return any(
        later.cut != row.cut
        and (later.first if later.cut_start is None else later.cut_start) >= end
        and (later.counter or 0) >= (row.counter or 0)
        for later in ledger.objects.values()
    )


def _by_head(doubt: _Doubt, head: ObjectHead, identity: TopicIdentity) -> Issue | None:
    """Return how an object's metadata differs from the stored object, or that one grown."""
    key, row, stored = doubt.file.key, doubt.row, doubt.row.facts
    there = Facts.from_metadata(head.metadata)
    if identity.conflicts(TopicIdentity.from_metadata(head.metadata)):
        return Issue("wrong_topic", key, "it belongs to another topic, judging by the topic's id")
    partition = claims.partition_of(head.metadata)
    if partition not in (None, doubt.files.where.partition):
        return Issue("wrong_topic", key, f"it was written as partition {partition}")
    if there is not None and stored is not None and there != stored:
        return _by_facts(key, there, stored)
    if head.size == row.bytes:
        return None
    code = "count_mismatch" if there is None else "corrupt"
    were = form(row.bytes, "was", "were")
    return Issue(code, key, f"it has {counted(head.size, 'byte')}; {row.bytes} {were} stored")


def _by_facts(key: str, there: Facts, stored: Facts) -> Issue | None:
    if there.first_offset != stored.first_offset:
        text = f"it starts at offset {there.first_offset}; it was stored with {stored.first_offset}"
        return Issue("corrupt", key, text)
    if not there.covers(stored):
        text = f"it holds {_counted(there)}; {_counted(stored)} were stored"
        return Issue("count_mismatch", key, text)
    if (there.records, there.last_offset) == (stored.records, stored.last_offset):
        text = "it is not the object that was stored: its sha256 differs"
        return Issue("corrupt", key, text)
    return None


def _by_itself(
    store: Store, doubt: _Doubt, head: ObjectHead, identity: TopicIdentity
) -> Iterator[Issue]:
    """Yield what a grown object claims about itself that is not true."""
    try:
        with store.open(doubt.file.key) as body:
            claim = claims.claims_of(doubt.file, head.metadata, body)
    except ObjectNotFoundError:
        return  # gone since it was asked about: the next listing misses it
    except CorruptObjectError as error:
        yield Issue("corrupt", doubt.file.key, error.why or error.what)
    else:
        yield from claims.contradictions(doubt.files, [claim], identity)


def _counted(facts: Facts) -> str:
    return f"{counted(facts.records, 'record')} up to offset {facts.last_offset}"


def _finding(
    doubt: _Doubt, problem: Issue, *, level: Literal["error", "note"] = "error"
) -> Finding:
    offsets = (doubt.row.first, doubt.row.span.end_offset - 1)
    where = doubt.files.where
    return Finding(problem.code, where, problem.what, offsets, problem.why, level=level)


@dataclass(slots=True)
class JudgedPartition:
    """All that is known about one partition.

    *sets* are by start offset, *reports* what tasks say of those they read, by `FileSet.id`.
    *present* are keys of the listing, also of objects that are not judged here.  *heads* is asked
    what objects say of themselves; None: the store.
    """

    where: TopicPartition
    sets: Sequence[FileSet]
    reports: Mapping[str, Checked]
    is_deep: bool
    ledger: PartitionLedger = NOTHING
    identity: TopicIdentity = UNKNOWN
    present: Container[str] = ()
    heads: Heads | None = None

    def findings(self, store: Store, layout: Layout, options: FormatOptions) -> Iterator[Finding]:
        """Yield what is wrong, and what is worth knowing; *options* tell whose extension it is."""
        heads = self.heads or store
        rows = self.ledger.objects.items()
        beside = ((key, f".{one.view}") for key, one in rows if not is_main(one))
        told = {(key.rpartition(view)[0], view) for key, view in beside}
        lone = list(
            claims.lacking_siblings(
                self.sets, layout, partial(self._siblings, heads, told),
                left_over(self.sets, self.ledger, heads), are_read=self.is_deep,
            )
        )  # fmt: skip
        yield from lone
        extents = [self._extent(files) for files in self.sets]
        named = {finding.key for finding in lone}
        missed = [
            one for one in self._missing(layout, options) if one.key is None or one.key not in named
        ]
        yield from missed
        changed = list(self._altered(store, heads))
        yield from changed
        known_of = {(finding.code, finding.key) for finding in changed}
        for extent in extents:
            report = self._report(extent.files)
            if report is None:
                empty = empty_objects(extent.files)
                yield from (one for one in empty if (one.code, one.key) not in known_of)
            for problem in () if report is None else report.problems:
                if (problem.code, problem.what) in known_of:
                    continue
                yield Finding(problem.code, self.where, problem.what, extent.offsets, problem.why)
        yield from self._of_others(extents, known_of)
        yield from left_out(self.where, self.ledger.skipped)
        there = [by_name(extent.files, extent.last) for extent in extents]
        yield from gaps_and_overlaps(extents, entered(there, self.ledger, self.present))

    def _altered(self, store: Store, heads: Heads) -> Iterator[Finding]:
        """Name objects that are not what was stored."""
        doubts = [  # a request for each; those that have grown are read
            _Doubt(files, file, row)
            for files in self.sets
            for file in files.files
            if (row := self.ledger.objects.get(file.key)) is not None
            and row.bytes is not None
            and (file.size != row.bytes or file.modified * 1000 > row.time + _LATER_MS)
        ]
        if not doubts:
            return
        known = self.ledger.objects.items()
        rows = {row.sha256: key for key, row in known if row.sha256 is not None}

        def judged(doubt: _Doubt) -> Finding | None:
            head = heads.head(doubt.file.key)
            return None if head is None else self._judged(store, doubt, head, rows)

        yield from (found for found in side_by_side(judged, doubts) if found is not None)

    def _judged(
        self, store: Store, doubt: _Doubt, head: ObjectHead, rows: Mapping[str, str]
    ) -> Finding | None:
        problem = _by_head(doubt, head, self.identity)
        if problem is not None:
            return _finding(doubt, problem)
        there, stored = Facts.from_metadata(head.metadata), doubt.row.facts
        if there is None or stored is None or there == stored:
            return None
        key = doubt.file.key
        if (other := rows.get(there.sha256, key)) != key:
            return _finding(doubt, Issue("corrupt", key, f"it is a copy of {other}"))
        problem = next(_by_itself(store, doubt, head, self.identity), None)
        if problem is not None:
            return _finding(doubt, problem)
        text = f"it holds {_counted(there)}; {_counted(stored)} were stored"
        end = there.last_offset + 1
        # a restore compares what two objects of full records hold, and reads it once
        more = Span(stored.last_offset + 1, end)
        spans = (row.span for row in self.ledger.objects.values() if row.last is not None)
        is_known = doubt.files.is_whole and not without(more, spans)
        if not is_known and _was_passed(doubt.row, end, self.ledger):
            text += f"; runs have gone on behind it and not entered it: {_DO}"
            return _finding(doubt, Issue("count_mismatch", key, text))
        text += "; the run that stored it, or the next one, enters it"
        return _finding(doubt, Issue("count_mismatch", key, text), level="note")

    def _of_others(
        self, extents: Sequence[Extent], named: Container[tuple[str, str | None]]
    ) -> Iterator[Finding]:
        """Name objects of another topic than the first that says its own."""
        # a restore stops at them; without a ledger nothing else says which topic it is
        first = self.identity
        for extent in extents:
            report, main = self._report(extent.files), extent.files.main
            if report is None or main is None or report.problems:
                continue
            if first == UNKNOWN:
                first = report.identity
            elif first.conflicts(report.identity) and ("wrong_topic", main.key) not in named:
                text = "it belongs to another topic than those before it, judging by the topic's id"
                yield Finding("wrong_topic", self.where, main.key, extent.offsets, text)

    def _siblings(
        self, heads: Heads, told: Container[tuple[str, str]], files: FileSet
    ) -> frozenset[View]:
        """Return which siblings an object of values says it has; the ledger names its own."""
        if files.main is None:
            return frozenset()
        row = self.ledger.objects.get(files.main.key)
        if (report := self.reports.get(files.id)) is not None:
            said = report.siblings
        elif (row is not None and row.run) or (head := heads.head(files.main.key)) is None:
            return frozenset()  # what was made anew, by no run, has not what was gone by then
        else:
            said = siblings_of(head.metadata)
        stem = files.main.key.removesuffix(files.main.extension)
        return frozenset(view for view in said if (stem, view) not in told)

    def overlaps(
        self, store: Store, options: ReadOptions, findings: Sequence[Finding]
    ) -> Iterator[Finding]:
        """Yield where objects hold the same offsets, but for those that *findings* call bad."""
        told = {one.key for one in findings if one.is_error or one.text == claims.VALUES_NOT_THERE}
        yield from covered(
            claims.Reading(store, options, self.identity),
            self.where,
            [files for files in self.sets if files.id not in told],
            self.ledger,
            counts={key: report.records for key, report in self.reports.items()},
            heads=self.heads,
        ).findings()

    def _missing(self, layout: Layout, options: FormatOptions) -> Iterator[Finding]:
        """Name what the ledger says was stored and is not there."""
        # of what was stored in another layout, or what no format reads, nobody knows: it was not
        # looked for
        for entry in self.ledger.missing(self.present):
            offsets = (entry.first, entry.span.end_offset - 1)
            more = {"by": entry.run}
            text, do = None, ""
            if entry.key and not layout.knows(entry.key):
                is_templated = isinstance(layout, TemplateLayout)
                why, do = (NOT_OF_TEMPLATE, TEMPLATES) if is_templated else (NOT_OF_LAYOUT, LAYOUTS)
                text = f"not looked for: {why}"
            elif entry.key:
                extension = layout.parse(entry.key).extension
                if by_extension(extension, options) is None:
                    text, do = f"not looked for: no format reads {extension}", EXTENSIONS
            yield Finding("missing_object", self.where, entry.key, offsets, text, more=more, do=do)

    def failures(self) -> Iterator[Issue]:
        """Yield why sets could not be read that are not known to be damaged."""
        for files in self.sets:
            report = self.reports.get(files.id)
            if report is not None and report.failure is not None:
                yield report.failure

    def verdict(self, findings: Sequence[Finding]) -> PartitionVerdict:
        """Return what to conclude from *findings*, which are all that `findings` yielded."""
        reports = [report for files in self.sets if (report := self._report(files)) is not None]
        listed = object_count(self.sets)
        objects = sum(report.objects for report in reports) if self.is_deep else listed
        unchecked = [key for report in reports for key in report.unchecked]
        records: int | None
        if self.is_deep:
            state = _deep_state(objects, listed, len(unchecked)) if listed else "nothing stored"
            records = sum(report.records - report.repeated for report in self._once())
        else:
            state = self._shallow_state(listed)
            records = self.records()
        if any(finding.is_error for finding in findings):
            is_damaged = any(finding.is_damage for finding in findings)
            state = "damaged" if is_damaged else "not supported"
        return PartitionVerdict(
            where=self.where,
            objects=objects,
            listed=listed,
            first=self.sets[0].start_offset if self.sets else None,
            last=self.last(),
            records=records,
            bytes=object_bytes(self.sets),
            bytes_read=sum(report.bytes_read for report in reports),
            not_checkable=len(unchecked),
            state=state,
            not_compared=sum(report.objects for report in reports if not report.is_compared),
        )

    def records(self) -> int | None:
        """Return the number of records, None where the ledger does not tell.

        Records that two objects hold are counted once; where it is not known how many they are,
        the number is not known either.
        """
        mains = [files.main for files in self.sets if files.main is not None]
        entries = [entry for main in mains if (entry := self.ledger.objects.get(main.key))]
        counts = [entry.records for entry in entries if entry.records is not None]
        if len(counts) < len(self.sets):
            return None
        twice = repeated(self.sets, entries)
        return None if twice is None else sum(counts) - twice

    def last(self) -> int | None:
        """Return the offset of the last record, by what was read, else by the ledger."""
        ends = [self._extent(files).last for files in self.sets]
        known = [end for end in ends if end is not None]
        if ends and len(known) == len(ends):
            return max(known)
        return ends[-1] if ends else None

    def _once(self) -> Iterator[Checked]:
        """Yield what was read; of copies of values, which a restore reads once, the first."""
        seen = set[tuple[int, str]]()
        for files in self.sets:
            report = self._report(files)
            if report is None:
                continue
            if not files.is_whole and report.sha256:
                place = files.start_offset, report.sha256
                if place in seen:
                    continue
                seen.add(place)
            yield report

    def _report(self, files: FileSet) -> Checked | None:
        report = self.reports.get(files.id)
        return None if report is None or report.failure is not None else report

    def _extent(self, files: FileSet) -> Extent:
        report = self._report(files)
        if report is not None:
            return Extent(files, report.last, report.is_same)
        entry = None if files.main is None else self.ledger.objects.get(files.main.key)
        return Extent(files) if entry is None else Extent(files, entry.last)

    def _shallow_state(self, listed: int) -> str:
        vouched = sum(
            file.key in self.ledger.objects for files in self.sets for file in files.files
        )
        if vouched == listed:
            return "all there" if listed else "nothing stored"
        if vouched:
            return f"all there, {counted(listed - vouched, 'object')} not checkable"
        return "not checkable"


def _deep_state(read: int, listed: int, unchecked: int) -> str:
    if not read:
        return "not read"
    if unchecked == read:
        return "not checkable"
    parts = ["ok"]
    if read < listed:
        parts.append(f"{read} of {counted(listed, 'object')} read")
    if unchecked:
        parts.append(f"{unchecked} not checkable")
    return ", ".join(parts)
