"""The tables: from events and summaries to a `Grid` and the sentence that counts it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kbackup.cli.grid import Grid, GridColumn, number, words
from kbackup.cli.quantities import UNKNOWN, count, digits, duration, size
from kbackup.cli.reasons import left_out, skips, title

Event = Mapping[str, Any]


def run_table(summary: Event) -> Grid:
    """Return what a sink or a restore has done, a row a topic."""
    is_restore = title(summary["command"]) == "restore"
    topics = summary.get("topics") or ()
    offsets = [_offsets(summary, row) for row in topics]
    has_offsets = any(text != _SEE_JSON for text in offsets)
    states = ["" if is_restore else without_records(summary, row["topic"]) for row in topics]
    has_states = any(states)
    by_rule = [skips(left_out(_of_topic(summary, row))) for row in topics]
    has_left_out = any(text != "0" for text in by_rule)
    columns = [words("topic"), *([words("target")] if is_restore else [])]
    columns += [
        number("partitions", "parts"),
        number("records"),
        *([GridColumn("offsets", keeps="nothing")] if has_offsets else []),
        number("objects"),
        number("read" if is_restore else "stored"),
        GridColumn("skipped", "right", least=8),
        *([GridColumn("left out", "right", least=8)] if has_left_out else []),
        *([words("no records")] if has_states else []),
    ]
    rows = [
        [
            row["topic"],
            *([row.get("target") or row["topic"]] if is_restore else []),
            digits(row.get("partitions")),
            digits(row.get("records")),
            *([text] if has_offsets else []),
            digits(row.get("objects")),
            size(row.get("bytes")),
            _skipped(row.get("skipped")),
            *([rule] if has_left_out else []),
            *([state or "-"] if has_states else []),
        ]
        for row, text, state, rule in zip(topics, offsets, states, by_rule, strict=True)
    ]
    sums = [
        "total",
        *([""] if is_restore else []),
        digits(total(topics, "partitions")),
        digits(summary.get("records")),
        *([""] if has_offsets else []),
        digits(summary.get("objects")),
        size(summary.get("bytes_read" if is_restore else "bytes_stored")),
        _skipped(summary.get("skipped")),
        *([skips(left_out(summary.get("partitions") or ()))] if has_left_out else []),
        *([""] if has_states else []),
    ]
    return Grid(columns, rows, sums, is_boxed=True)


_NOTHING_READ: Final = "no records"
"""The state of a partition with offsets that none of its records has any more."""


_WITHOUT: Final = {"empty", "emptied", "up to date", "aborted", "compacted"}
"""Why a partition had nothing to store although nothing was wrong."""


def without_records(summary: Event, topic: str) -> str:
    """Return why a sink found no record of a topic; empty where it found some.

    Offsets without a record are those of aborted transactions, or of a topic that is compacted.
    """
    rows = _of_topic(summary, {"topic": topic})
    if left_out(rows) or any(row.get("records") or row.get("skipped") for row in rows):
        return ""
    settings = (summary.get("topic_settings") or {}).get(topic) or {}
    is_compacted = "compact" in ((settings.get("config") or {}).get("cleanup.policy") or "")
    nothing = "compacted" if is_compacted else "aborted"
    found = {str(row.get("state")) for row in rows}
    states = {nothing if state == _NOTHING_READ else state for state in found}
    return ", ".join(sorted(states & _WITHOUT)) if states <= _WITHOUT else ""


_SEE_JSON: Final = "see --json"
"""Stands for the offsets of several partitions."""


def _of_topic(summary: Event, topic: Event) -> list[Event]:
    """Return the partitions that are summed in the row *topic*."""

    def place(row: Event) -> tuple[Any, Any]:
        return row["topic"], row.get("target")

    return [row for row in summary.get("partitions") or () if place(row) == place(topic)]


def _offsets(summary: Event, topic: Event) -> str:
    rows = _of_topic(summary, topic)
    if len(rows) > 1:
        return _SEE_JSON
    if not rows or rows[0].get("first") is None:
        return "-"
    return f"{rows[0]['first']}-{rows[0].get('last', UNKNOWN)}"


def _skipped(skipped: Mapping[str, int] | int | None) -> str:
    return skips(skipped) if isinstance(skipped, Mapping) else digits(skipped or 0)


def total(rows: Iterable[Event], name: str) -> int | None:
    """Return the sum of a column, None where a part of it is unknown."""
    values = [row.get(name) for row in rows]
    return None if None in values else sum(value for value in values if value is not None)


def plan_table(topics: Sequence[Event]) -> Grid:
    """Return what a restore would do, a row a topic."""
    rows = [
        [
            row["source"],
            row.get("target") or "-",
            _partitions(row.get("partitions") or {}),
            digits(row.get("objects")),
            digits(row.get("records")),
            size(row.get("bytes")),
            _action(row),
        ]
        for row in topics
    ]
    columns = [
        words("source topic"),
        words("target topic"),
        GridColumn("partitions\nbackup -> target", "right"),
        number("objects"),
        number("records"),
        number("bytes"),
        words("action"),
    ]
    return Grid(columns, rows)


def _partitions(partitions: Mapping[str, int | None]) -> str:
    backup, target = partitions.get("backup"), partitions.get("target")
    there = f"(new) {digits(backup)}" if target is None else digits(target)
    return f"{digits(backup)} -> {there}"


def _action(row: Event) -> str:
    if row["action"] == "refuse":
        return "REFUSED"
    return f"{row['action']}, {row['reason']}" if row.get("reason") else str(row["action"])


def plan_count(topics: Sequence[Event]) -> str:
    """Return the line below a restore plan."""
    return (
        f"{count(len(topics), 'topic')}, {count(total(topics, 'objects'), 'object')}, "
        f"{size(total(topics, 'bytes'))}"
    )


def schemas_count(plans: Sequence[Event]) -> str:
    """Return the line on the schemas that a restore registers."""
    schemas = [each for plan in plans for each in plan["schemas"]]
    return f"{count(len(schemas), 'schema')} to register at {plans[0]['registry']}"


def sink_plan_table(partitions: Sequence[Event]) -> Grid:
    """Return what a sink would read, a row a partition."""
    rows = [
        [
            row["topic"],
            str(row["partition"]),
            digits(row.get("group_offset")),
            digits(row.get("start")),
            digits(row.get("end")),
            digits(_to_read(row)),
            row.get("state") or "-",
        ]
        for row in partitions
    ]
    columns = [words("topic"), number("p"), number("group at", "group"), number("from")]
    columns += [number("end"), number("to read")]
    return Grid([*columns, words("state")], rows, headings=2)


def _to_read(row: Event) -> int | None:
    start, end = row.get("start"), row.get("end")
    return None if start is None or end is None else max(0, end - start)


def sink_plan_count(partitions: Sequence[Event]) -> str:
    """Return the line below a sink's plan; offsets, for not each of them need be a record."""
    lefts = [_to_read(row) for row in partitions]
    known = sum(left for left in lefts if left is not None)
    offsets = count(None if None in lefts else known, "offset")
    return f"{count(len(partitions), 'partition')}, {offsets} to read"


def topics_table(partitions: Sequence[Event]) -> Grid:
    """Return what is in the bucket, a row a partition."""
    rows = [
        [
            row["topic"],
            str(row["partition"]),
            row.get("format") or UNKNOWN,
            digits(row.get("objects")),
            digits(row.get("first")),
            digits(row.get("last")),
            digits(row.get("records")),
            size(row.get("bytes")),
            _moment(row.get("newest")),
        ]
        for row in partitions
    ]
    columns = [
        words("topic"),
        number("p"),
        words("format"),
        number("objects", "objs"),
        number("first"),
    ]
    columns += [
        number("last"),
        number("records"),
        number("stored"),
        GridColumn("newest", least=len("2026-11-21 02:00"), keeps="first word"),
    ]
    return Grid(columns, rows, headings=2)


def _moment(value: int | str | None) -> str:
    """Return a time as it reads here: of milliseconds since the epoch, or of RFC 3339."""
    if value is None:
        return UNKNOWN
    try:
        if isinstance(value, int):
            moment = datetime.fromtimestamp(value / 1000)  # local, as TZ says
        else:
            moment = datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return str(value)
    return f"{moment:%Y-%m-%d %H:%M}"


def topics_count(partitions: Sequence[Event]) -> str:
    """Return the line below the topics, with what its question marks mean."""
    text = (
        f"{count(len(partitions), 'partition')}, {count(total(partitions, 'objects'), 'object')}, "
        f"{size(total(partitions, 'bytes'))}"
    )
    names = ("first", "last", "records", "newest")
    if any(row.get(name) is None for row in partitions for name in names):
        text += ".  ? = not known from names and run records, use --deep"
    return text


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def status_table(partitions: Sequence[Event]) -> Grid:
    """Return how far a sink is, a row a partition."""
    rows = [
        [
            row["topic"],
            str(row["partition"]),
            digits(row["committed"]) if row.get("committed") is not None else "none",
            digits(row.get("lag")),
            row.get("state") or "-",
        ]
        for row in partitions
    ]
    columns = [words("topic"), number("p"), number("committed"), number("lag"), words("state")]
    return Grid(columns, rows, headings=2)


def named_schemas_table(schemas: Sequence[Event]) -> Grid:
    """Return the registry schemas that records name, a row a schema."""
    rows = [
        [
            row["topic"], row["part"], str(row["id"]), row["kind"] or row["state"],
            ", ".join(row["subjects"]) or UNKNOWN,
        ]
        for row in schemas
    ]  # fmt: skip
    columns = [GridColumn("topic"), GridColumn("part"), number("schema"), GridColumn("kind")]
    return Grid([*columns, GridColumn("subjects")], rows)


def runs_table(runs: Sequence[Event]) -> Grid:
    """Return how past runs ended, a row a run."""
    rows = [
        [
            row.get("run") or UNKNOWN,
            row.get("result") or UNKNOWN,
            _text(row.get("exit_code")),
            digits(row.get("records")),
            digits(row.get("objects")),
            size(row.get("bytes_stored")),
            duration(row.get("seconds")),
        ]
        for row in runs
    ]
    columns = [GridColumn("run"), GridColumn("result"), number("exit"), number("records")]
    return Grid([*columns, number("objects"), number("stored"), number("took")], rows)


def settings_table(settings: Sequence[Event]) -> Grid:
    """Return the effective configuration, a row a setting."""
    rows = [[row["name"], _text(row.get("value")), row.get("origin") or "-"] for row in settings]
    return Grid([words("setting"), words("value"), words("origin")], rows)


def plugins_table(plugins: Sequence[Event]) -> Grid:
    """Return what is installed, a row an implementation."""
    names = ("seam", "name", "class", "package", "version")
    rows = [[_text(row.get(name)) for name in names] for row in plugins]
    return Grid([words(name) for name in names], rows, headings=2)
