"""Lay out tables and maps of events and summaries, each with its line of counts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from rich.box import ROUNDED, Box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from kbackup.cli.terminal import UNKNOWN, OutputStream, count, digits, duration, escape, size
from kbackup.clock import shown_ms
from kbackup.events import Ended, PartitionRow, RestoreTopic, TopicPlanned
from kbackup.inspect import NOTHING_KNOWN, PART, Days, MapRange, MapState, cells

if TYPE_CHECKING:  # what finds these imports clients that help does not need
    from kbackup.catalog.drills import DrillChecked
    from kbackup.inspect.topics import CapturedPosition, PartitionCoverage, StoredPartition
    from kbackup.restore.access import AclPlanned
    from kbackup.restore.groups import GroupTranslated
    from kbackup.restore.schemas import SchemasPlanned
    from kbackup.runs.compare import PartitionCompared


def title(command: str) -> str:
    """Return the command's short name: ``sink`` for ``sink run``."""
    return command.removesuffix(" run")


def is_run(command: str) -> bool:
    """Return whether *command* copies records, rather than looks at what is there."""
    return title(command) in {"sink", "sink repair", "restore"}


def rows_of(summary: Ended) -> list[PartitionRow]:
    """Return the partitions of a sink or a restore."""
    return [row for row in summary.partitions if isinstance(row, PartitionRow)]


def by_topic(summary: Ended) -> dict[tuple[str, str | None], list[PartitionRow]]:
    """Return the partitions by their topic, and by the one that they are restored to."""
    found: dict[tuple[str, str | None], list[PartitionRow]] = {}
    for row in rows_of(summary):
        found.setdefault((row.where.topic, row.target), []).append(row)
    return found


def left_out(rows: Collection[PartitionRow]) -> dict[str, int]:
    """Return how many records of *rows* the configuration left out, by reason."""
    counts = {
        "filtered": sum(row.filtered or 0 for row in rows),
        "null values": sum(row.nulls_left_out or 0 for row in rows),
    }
    return {name: number for name, number in counts.items() if number}


def skips(skipped: Mapping[str, int]) -> str:
    """Return counts by name as in the column of a table: ``3 bad, 2 foreign objects``."""
    named = [
        f"{digits(number)} {name.removesuffix('_records')}"
        if name.endswith("_records")
        else counted_by_name(number, name)
        for name, number in skipped.items()
        if number
    ]
    return ", ".join(named) or "0"


def counted_by_name(number: int, name: str) -> str:
    """Return a count by its name: ``1 bad object``, ``1 filtered``, ``1 topic with gaps``."""
    words = name.replace("_", " ")
    if says_state(name):
        noun, _, state = words.partition(" ")
        return f"{count(number, noun.removesuffix('s'))} {state}"
    if words.endswith("s"):
        return count(number, words.removesuffix("s"))
    return f"{digits(number)} {words}"


def says_state(name: str) -> bool:
    """Return whether a count's name says behind its noun what is the case: ``topics_with_gaps``."""
    noun, _, state = name.partition("_")
    return noun.endswith("s") and state != ""


RULED: Final = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
"""A line below the head and nothing else."""

_STYLES: Final = {"REFUSED": "bold red", "CORRUPT": "bold red", "MISSING": "bold red"}

_LEAST: Final = 8
"""Cells that text is folded to at least; where there are fewer, a list reads better."""


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column of a `Listing`.

    Attributes:
        head: Its title, which may have several lines.
        cell: Makes its text of a row.
        is_number: Not folded, and at the right.
        is_right: At the right, and folded where it must be.
        is_spared: Left out where the screen is too narrow for all columns, the last one first.
        is_whole: A name or a time, which people copy: folded only where there is no room for it
            though all columns are left out that can be spared.
        has_lines: Its text may have several lines; in another's, a line's end is escaped.
    """

    head: str
    cell: Callable[[Any], str]
    is_number: bool = False
    is_right: bool = False
    is_spared: bool = False
    is_whole: bool = False
    has_lines: bool = False

    def text(self, row: Any) -> str:
        """Return the cell of a row, safe for a screen."""
        text = self.cell(row)
        return "\n".join(map(escape, text.split("\n"))) if self.has_lines else escape(text)


def _numbers(*names: str, **heads: str) -> list[ListColumn]:
    """Return columns of the numbers of these names; *heads* gives those with another title."""
    return [
        ListColumn(head, lambda row, name=name: digits(getattr(row, name)), is_number=True)  # type: ignore[misc]
        for name, head in ({name: name for name in names} | heads).items()
    ]


def _texts(*names: str, is_whole: bool = False) -> list[ListColumn]:
    """Return columns of text, with a dash for what is not known."""
    return [
        ListColumn(name, lambda row, name=name: _text(getattr(row, name)), is_whole=is_whole)  # type: ignore[misc]
        for name in names
    ]


def of_texts(heads: Mapping[str, bool]) -> list[ListColumn]:
    """Return columns of rows that are texts already; *heads* says which are of numbers."""
    return [
        ListColumn(escape(head), itemgetter(at), is_number)
        for at, (head, is_number) in enumerate(heads.items())
    ]


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


_PLACE: Final = (
    ListColumn("topic", lambda row: row.where.topic, is_whole=True),
    ListColumn("p", lambda row: str(row.where.partition), is_number=True),
)
_STATE: Final = ListColumn("state", lambda row: row.state or "-")


@dataclass(frozen=True, slots=True)
class Listing:
    """A table whose width is not yet decided.

    Attributes:
        total: The last row, a text for each column by its title; None where there is none.
    """

    columns: Sequence[ListColumn]
    rows: Sequence[Any]
    total: Mapping[str, str] | None = None
    is_boxed: bool = False

    def draw(self, stream: OutputStream) -> None:
        """Write the table as wide as it needs, at most as wide as *stream*.

        Where that is too narrow, prose is folded, columns that can be spared are left out, names
        are folded, and in the end each row becomes a list of ``name value``: no number is ever
        folded.
        """
        columns = [*self.columns]
        choices = [(columns, True)]
        for spared in [column for column in reversed(columns) if column.is_spared]:
            columns = [column for column in columns if column is not spared]
            choices.append((columns, True))
        for shown, is_whole in [*choices, (columns, False)]:
            texts = self._texts(shown)
            fixed = [each.is_number or (is_whole and each.is_whole) for each in shown]
            if self._least(shown, fixed, texts) <= stream.width:
                stream.draw(self._table(shown, fixed, texts))
                return
        for row in self._texts(self.columns):
            stream.draw(self._list(row))

    def _texts(self, columns: Sequence[ListColumn]) -> list[list[str]]:
        rows = [[column.text(row) for column in columns] for row in self.rows]
        if self.total is not None:
            rows.append([self.total.get(column.head, "") for column in columns])
        return rows

    def _least(
        self, columns: Sequence[ListColumn], fixed: Sequence[bool], texts: Sequence[Sequence[str]]
    ) -> int:
        """Return how many cells the table needs at least; *fixed* columns are not folded."""
        widths = []
        for column, is_fixed, *parts in zip(columns, fixed, *texts, strict=True):
            head = column.head.split("\n")
            lines = [line for part in parts for line in part.split("\n")]
            natural = max(map(cell_len, [*head, *lines]))
            word = max(map(cell_len, column.head.split()))
            widths.append(natural if is_fixed else min(natural, max(word, _LEAST)))
        return sum(widths) + (3 if self.is_boxed else 2) * len(widths) + self.is_boxed

    def _table(
        self, columns: Sequence[ListColumn], fixed: Sequence[bool], texts: Sequence[Sequence[str]]
    ) -> Table:
        table = Table(
            box=ROUNDED if self.is_boxed else RULED,
            show_edge=self.is_boxed,
            pad_edge=self.is_boxed,
            padding=(0, 1) if self.is_boxed else (0, 1, 0, 0),
            header_style="",
        )
        for column, is_fixed in zip(columns, fixed, strict=True):
            table.add_column(
                Text(column.head),
                justify="right" if column.is_number or column.is_right else "left",
                vertical="top",
                overflow="fold",
                no_wrap=is_fixed,
            )
        for index, row in enumerate(texts):
            table.add_row(
                *map(_styled, row),
                end_section=self.total is not None and index == len(texts) - 2,
            )
        return table

    def _list(self, row: Sequence[str]) -> Table:
        grid = Table.grid("", "", padding=(0, 1, 0, 0))
        grid.columns[0].no_wrap = True
        grid.columns[1].overflow = "fold"
        for column, text in zip(self.columns, row, strict=True):
            if text:
                grid.add_row(column.head.split("\n")[0], _styled(text))
        grid.add_row("")
        return grid


def _styled(text: str) -> Text:
    styled = Text(text)
    for word, style in _STYLES.items():
        styled.highlight_words([word], style)
    return styled


def run_table(summary: Ended) -> Listing:
    """Return what a sink or a restore has done, a row a topic."""
    is_restore = title(summary.command) == "restore"
    found = by_topic(summary)
    rows = {topic: found.get((topic.topic, topic.target), []) for topic in summary.topics}
    by_rule = {topic: skips(left_out(of_topic)) for topic, of_topic in rows.items()}
    offsets = {topic: _offsets(of_topic) for topic, of_topic in rows.items()}
    states = {}
    if not is_restore:
        states = {one: without_records(summary, one.topic, of) for one, of in rows.items()}
    columns = _texts("topic", is_whole=True)
    if is_restore:
        columns.append(
            ListColumn("target", lambda topic: topic.target or topic.topic, is_whole=True)
        )
    columns += [replace(each, is_spared=True) for each in _numbers("partitions")]
    columns += _numbers("records")
    if any(text != "-" for text in offsets.values()):
        columns.append(
            ListColumn(
                "offsets",
                lambda topic: offsets[topic],
                is_number=True,
                is_spared=True,
                has_lines=True,
            )
        )
    columns += _numbers("objects")
    stored = "read" if is_restore else "stored"
    columns.append(_bytes(stored))
    columns.append(ListColumn("skipped", lambda topic: digits(topic.skipped), is_right=True))
    if any(text != "0" for text in by_rule.values()):
        columns.append(ListColumn("left out", lambda topic: by_rule[topic], is_right=True))
    if any(states.values()):
        columns.append(ListColumn("no records", lambda topic: states[topic] or "-"))
    sums = {
        "topic": "total",
        "partitions": digits(total(topic.partitions for topic in rows)),
        "records": digits(summary.records),
        "objects": digits(summary.objects),
        stored: size(summary.bytes_read if is_restore else summary.bytes_stored),
        "skipped": skips(summary.skipped),
        "left out": skips(left_out(rows_of(summary))),
    }
    return Listing(columns, summary.topics, sums, is_boxed=True)


_NOTHING_READ: Final = "no records"
"""The state of a partition with offsets that none of its records has any more."""

_WITHOUT: Final = {"empty", "emptied", "up to date", "aborted", "compacted"}
"""Why a partition had nothing to store although nothing was wrong."""


def without_records(summary: Ended, topic: str, rows: Collection[PartitionRow]) -> str:
    """Return why a sink found no record of a topic, by its *rows*; empty where it found some.

    Offsets without a record are those of aborted transactions, or of a topic that is compacted.
    """
    if left_out(rows) or any(row.records or row.skipped for row in rows):
        return ""
    settings = summary.facts.get("topic_settings", {}).get(topic, {})
    is_compacted = "compact" in ((settings.get("config") or {}).get("cleanup.policy") or "")
    nothing = "compacted" if is_compacted else "aborted"
    states = {nothing if row.state == _NOTHING_READ else row.state for row in rows}
    return ", ".join(sorted(states)) if states <= _WITHOUT else ""


_RANGES_MAX: Final = 8
"""Partitions of a topic whose offsets its row shows."""


def _offsets(rows: Sequence[PartitionRow]) -> str:
    """Return the offsets that were copied, of several partitions a line for each."""
    ranges = {
        row.where.partition: f"{row.first}-{UNKNOWN if row.last is None else row.last}"
        for row in rows
        if row.first is not None
    }
    if len(rows) <= 1:
        return next(iter(ranges.values()), "-")
    shown = [f"{partition}: {ranges[partition]}" for partition in sorted(ranges)][:_RANGES_MAX]
    more = len(ranges) - len(shown)
    return "\n".join([*shown, f"{more} more"] if more else shown) or "-"


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of a column, None where a part of it is unknown."""
    known = list(numbers)
    return None if None in known else sum(filter(None, known))


def _bytes(head: str, name: str = "bytes") -> ListColumn:
    return ListColumn(head, lambda row: size(getattr(row, name)), is_number=True)


def _partitions(row: TopicPlanned) -> str:
    target = row.partitions.target
    there = f"(new) {digits(row.partitions.backup)}" if target is None else digits(target)
    return f"{digits(row.partitions.backup)} -> {there}"


def _action(row: TopicPlanned) -> str:
    if row.action == "refuse":
        return "REFUSED"
    return f"{row.action}, {row.reason}" if row.reason else row.action


PLAN: Final = (
    ListColumn("source\ntopic", lambda row: row.source, is_whole=True),
    ListColumn("target\ntopic", lambda row: row.target or "-", is_whole=True),
    ListColumn("partitions\nbackup -> target", _partitions, is_number=True),
    ListColumn("objects", lambda row: digits(row.own.objects), is_number=True, is_spared=True),
    ListColumn("records", lambda row: digits(row.own.records), is_number=True),
    ListColumn("bytes", lambda row: size(row.own.bytes), is_number=True),
    ListColumn("action", _action),
)
"""What a restore would do, a row a topic."""


def plan_count(topics: Sequence[TopicPlanned]) -> str:
    """Return the line below a restore plan."""
    plans = [topic.own for topic in topics if isinstance(topic.own, RestoreTopic)]
    return (
        f"{count(len(topics), 'topic')}, {count(sum(one.objects for one in plans), 'object')}, "
        f"{size(sum(one.bytes for one in plans))}"
    )


def schemas_count(plans: Sequence["SchemasPlanned"]) -> str:
    """Return the line on the schemas that a restore registers."""
    schemas = sum(len(plan.schemas) for plan in plans)
    return f"{count(schemas, 'schema')} to register at {plans[0].registry}"


SINK_PLAN: Final = (
    *_PLACE,
    *_numbers(group_offset="group at", start="from", end="end"),
    ListColumn("to read", lambda row: digits(_to_read(row)), is_number=True),
    _STATE,
)
"""What a sink would read, a row a partition."""


def _to_read(row: PartitionRow) -> int | None:
    return None if row.start is None or row.end is None else max(0, row.end - row.start)


def sink_plan_count(partitions: Sequence[PartitionRow]) -> str:
    """Return the line below a sink's plan; offsets, for not each of them need be a record."""
    offsets = count(total(map(_to_read, partitions)), "offset")
    return f"{count(len(partitions), 'partition')}, {offsets} to read"


TOPICS: Final = (
    *_PLACE,
    ListColumn("format", lambda row: row.format or UNKNOWN, is_whole=True),
    *(replace(each, is_spared=True) for each in _numbers("objects")),
    *_numbers("first", "last", "records"),
    _bytes("stored"),
    ListColumn("oldest record", lambda row: _moment(row.oldest), is_spared=True, is_whole=True),
    ListColumn("newest record", lambda row: _end(row.newest), is_whole=True),
    ListColumn("last stored", lambda row: _moment(row.last_stored), is_spared=True, is_whole=True),
)
"""What is in the bucket, a row a partition."""


def _moment(time: datetime | None) -> str:
    """Return a time in UTC, which ``--to-time`` takes as it is."""
    return UNKNOWN if time is None else f"{time.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _end(time: datetime | None) -> str:
    """Return the minute that a time is before: with it, ``--to-time`` leaves out no record."""
    return _moment(None if time is None else time + timedelta(minutes=1))


def topics_count(partitions: Sequence["StoredPartition"]) -> str:
    """Return the line below the topics, with what its question marks mean."""
    text = (
        f"{count(len(partitions), 'partition')}, "
        f"{count(sum(row.objects for row in partitions), 'object')}, "
        f"{size(sum(row.bytes for row in partitions))}"
    )
    if any(None in (row.first, row.last, row.records, row.newest) for row in partitions):
        text += ".  ? = not known: open objects (--deep), or rebuild the ledger (sink reindex)"
    return text


STATUS: Final = (
    *_PLACE,
    ListColumn(
        "committed",
        lambda row: "none" if row.committed is None else digits(row.committed),
        is_number=True,
    ),
    *_numbers("lag"),
    _STATE,
)
"""How far a sink is, a row a partition."""

NAMED_SCHEMAS: Final = (
    ListColumn("topic", lambda row: row.use.topic, is_whole=True),
    ListColumn("part", lambda row: row.use.part),
    ListColumn("schema", lambda row: str(row.use.id), is_number=True),
    ListColumn("kind", lambda row: row.kind or row.state),
    ListColumn("subjects", lambda row: ", ".join(row.subjects) or UNKNOWN),
)
"""The registry schemas that records name, a row a schema."""


def _note(row: "CapturedPosition") -> str:
    beyond = "" if row.beyond is None else f"{digits(row.beyond)} beyond the backup"
    return ", ".join(filter(None, [beyond, row.unsettled]))


GROUPS: Final = (
    ListColumn("group", lambda row: row.group, is_whole=True),
    *_PLACE,
    *_numbers(offset="offset", lag="unread"),
    ListColumn("captured", lambda row: _moment(row.taken), is_whole=True),
    ListColumn("note", _note),
)
"""Where consumer groups stood, a row a group and partition."""


def _copy(row: "GroupTranslated") -> str:
    is_same = row.target_partition == row.where.partition
    return row.target if is_same else f"{row.target}-{row.target_partition}"


TRANSLATED: Final = (
    ListColumn("group", lambda row: row.group or UNKNOWN, is_whole=True),
    *_PLACE,
    ListColumn("copy", _copy, is_spared=True, is_whole=True),
    *_numbers(was="was", becomes="becomes", unread="unread"),
    ListColumn("captured", lambda row: _moment(row.taken), is_spared=True, is_whole=True),
    *_texts("note"),
)
"""Where groups go on in restored topics, a row a group and partition."""

VERIFIED: Final = (
    ListColumn("topic", itemgetter(0), is_whole=True),
    ListColumn("p", itemgetter(1), is_number=True),
    ListColumn("objects", itemgetter(2), is_number=True),
    ListColumn("records", itemgetter(3), is_number=True),
    ListColumn("result", itemgetter(4)),
)
"""What verifying objects has shown, in texts."""

COMPARED: Final = (
    *_PLACE,
    ListColumn("copy", lambda row: row.target or "", is_spared=True),
    *_numbers(records="equal"),
    *_texts("result"),
)
"""What comparing records has shown, a row a partition."""


def compared_count(rows: Sequence["PartitionCompared"], seconds: float | None) -> str:
    """Return the line below: how much was compared, and what it has shown."""
    parts = [count(len(rows), "partition"), f"{digits(sum(row.records for row in rows))} equal"]
    if seconds is not None:
        parts.append(f"in {duration(seconds)}")
    wrong = sum(row.has_differences for row in rows)
    unclear = sum(not row.is_compared for row in rows)
    results = [f"{digits(wrong)} {'differs' if wrong == 1 else 'differ'}"] if wrong else []
    results += [f"{digits(unclear)} not comparable"] if unclear else []
    return f"{', '.join(parts)}: {', '.join(results) or 'no difference'}"


def _resource(row: "AclPlanned") -> str:
    prefixed = " (prefix)" if row.acl.pattern == "PREFIXED" else ""
    return f"{row.acl.resource_type.lower()} {row.acl.name}{prefixed}"


ACLS: Final = (
    ListColumn("ACL", lambda row: row.action),
    ListColumn("permission", lambda row: row.acl.permission),
    ListColumn("principal", lambda row: row.acl.principal),
    ListColumn("operation", lambda row: row.acl.operation),
    ListColumn("on", _resource),
    ListColumn("host", lambda row: row.acl.host, is_spared=True),
    *_texts("note"),
)
"""The ACLs of a backup, and what is done with each."""

USERS: Final = (
    ListColumn("user", lambda row: row.action),
    ListColumn("name", lambda row: row.user.name),
    ListColumn("mechanism", lambda row: row.user.mechanism),
    ListColumn("iterations", lambda row: digits(row.user.iterations), is_number=True),
    *_texts("note"),
)
"""The SCRAM users of a backup, and what is done with each."""

BROKER_SETTINGS: Final = (
    ListColumn("broker setting", lambda row: row.setting),
    ListColumn("captured", lambda row: row.captured or UNKNOWN),
    ListColumn("here", lambda row: row.here or UNKNOWN),
)
"""The settings of brokers that differ from the captured ones."""

RUNS: Final = (
    ListColumn("run", lambda row: row.run, is_whole=True),
    ListColumn("result", lambda row: row.result or UNKNOWN),
    ListColumn("exit", lambda row: _text(row.exit_code), is_number=True),
    *_numbers("records", "objects"),
    _bytes("stored", "bytes_stored"),
    ListColumn("took", lambda row: duration(row.seconds), is_number=True),
)
"""How past runs ended, a row a run."""


def _result(row: "DrillChecked") -> str:
    if row.report is None:
        return "cannot be read"
    return "passed" if row.report.has_passed else f"failed (exit {row.report.exit_code})"


def _ended(row: "DrillChecked") -> str:
    return UNKNOWN if row.report is None else shown_ms(row.report.ended_ms)


REPORTS: Final = (
    ListColumn("report", lambda row: digits(row.number), is_number=True),
    ListColumn("drill", lambda row: row.report.id if row.report else UNKNOWN, is_whole=True),
    ListColumn("ended", _ended, is_whole=True),
    ListColumn("result", _result),
    ListColumn("RTO", lambda row: duration(row.report and row.report.rto_s), is_number=True),
    ListColumn("RPO", lambda row: duration(row.report and row.report.rpo_s), is_number=True),
    *_texts("signature"),
)
"""The reports of drills, a row a report."""

SETTINGS: Final = (
    ListColumn("setting", lambda row: row.name, is_whole=True),
    *_texts("value", "origin"),
)
"""The effective configuration, a row a setting."""

PLUGINS: Final = (
    ListColumn("kind", lambda row: row.extension_point, is_whole=True),
    *_texts("name", is_whole=True),
    ListColumn("class", lambda row: row.target, is_spared=True, is_whole=True),
    *_texts("package", "version"),
)
"""What is installed, a row an implementation."""

_WIDEST: Final = 100
"""Cells of a bar at most, also where nothing limits the width."""

_MARGIN: Final = 6

_SIGNS: Final = {
    MapState.STORED: "\u2588", MapState.NAMED: "\u2593", PART: "\u2592", MapState.EXPIRED: "\u2591",
    MapState.REMOVED: "-", MapState.MISSING: "X", MapState.DISPUTED: "?", NOTHING_KNOWN: "\u00b7",
}  # fmt: skip

MEANINGS: Final = {
    MapState.STORED: "stored",
    MapState.NAMED: "stored, judging by names alone",
    PART: "stored in part",
    MapState.EXPIRED: "expired before it was backed up",
    MapState.REMOVED: "removed on purpose",
    MapState.MISSING: "MISSING",
    MapState.DISPUTED: "in several objects: a restore is refused",
    NOTHING_KNOWN: "nothing known",
}
"""What each kind of cell is called."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a map, from the number *low*: an offset, or a day since year 1."""

    partition: int
    ranges: tuple[MapRange, ...]
    low: int
    high: int

    def cells(self, width: int) -> list[str]:
        """Return the line in at most *width* cells."""
        return cells(self.ranges, self.low, self.high, width)


def by_offset(maps: Iterable["PartitionCoverage"]) -> list[Bar]:
    """Return a line for each partition that has something, from its first offset to its last."""
    return [
        Bar(one.where.partition, one.offsets, one.offsets[0].first, one.offsets[-1].last)
        for one in maps
        if one.offsets
    ]


def by_day(maps: Iterable["PartitionCoverage"]) -> list[Bar]:
    """Return a line for each partition that has timestamps, all over the same days."""
    found = [(one.where.partition, tuple(map(_range, one.days))) for one in maps if one.days]
    low = min((ranges[0].first for _, ranges in found), default=0)
    high = max((ranges[-1].last for _, ranges in found), default=0)
    return [Bar(partition, ranges, low, high) for partition, ranges in found]


def _range(days: Days) -> MapRange:
    first, last = (date.fromisoformat(day).toordinal() for day in (days.first, days.last))
    return MapRange(days.state, first, last)


def draw_map(maps: Sequence["PartitionCoverage"], stream: OutputStream) -> None:
    """Write the maps of all topics, and a legend."""
    width = min(_WIDEST, max(stream.width - _MARGIN - 30, 10))
    seen: set[str] = set()
    for topic, among in groupby(maps, key=lambda one: one.where.topic):
        mine = list(among)
        offsets, days = by_offset(mine), by_day(mine)
        if not offsets:
            continue
        stream.text("")
        stream.line(topic)
        for bar in offsets:
            seen |= _line(bar, width, stream, named_range(bar.low, bar.high, digits))
        if days:
            between = named_range(days[0].low, days[0].high, iso_day)
            stream.line(f"{topic}, by day of the records, {between}")
            for bar in days:
                seen |= _line(bar, width, stream, "")
    if seen:
        stream.text("")
        named = (f"{sign} {MEANINGS[state]}" for state, sign in _SIGNS.items() if state in seen)
        stream.text("   ".join(named))


def _line(bar: Bar, width: int, stream: OutputStream, ends: str) -> set[str]:
    found = bar.cells(width)
    text = Text(f"{bar.partition:>{_MARGIN - 2}}  ")
    for state in found:
        text.append(_SIGNS[state], "bold red" if state is MapState.MISSING else "")
    text.append(f"  {ends}".rstrip())
    stream.text(text)
    return set(found)


def iso_day(number: int) -> str:
    """Return a day since year 1 as text."""
    return date.fromordinal(number).isoformat()


def named_range(first: int, last: int, named: Callable[[int], str]) -> str:
    """Return a range of offsets or days as text, its ends as *named* has them."""
    return named(first) if first == last else f"{named(first)} to {named(last)}"
