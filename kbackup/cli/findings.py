"""What ``restore verify`` found: the table of results, and the line that counts them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kbackup.cli.grid import Grid, number, words
from kbackup.cli.quantities import count, digits, duration, size
from kbackup.cli.tables import total

Event = Mapping[str, Any]

_RESULTS: Final = {
    "missing_object": "MISSING",
    "corrupt": "CORRUPT",
    "overlap": "OVERLAP",
    "gap": "GAP",
    "wrong_topic": "WRONG TOPIC",
    "count_mismatch": "COUNT MISMATCH",
    "unsupported_object": "NOT SUPPORTED",
}
"""The words of a finding in the column of results; other codes are written as they are."""

_ABSENT: Final = frozenset({"missing_object", "gap"})
"""Findings about what is not there, so that no object read is bad."""


def verify_table(partitions: Sequence[Event], findings: Sequence[Event]) -> Grid:
    """Return what was found, a row a partition and further lines for further findings."""
    rows: list[list[str]] = []
    for row in partitions:
        results = _results(row, findings)
        numbers = [digits(row.get("objects")), digits(row.get("records"))]
        rows.append([row["topic"], str(row["partition"]), *numbers, results[0]])
        rows += [["", "", "", "", result] for result in results[1:]]
    placed = {(row["topic"], row["partition"]) for row in partitions}
    rows += [
        [str(finding.get("topic") or "-"), _partition(finding), "", "", _found(finding)]
        for finding in findings
        if (finding.get("topic"), finding.get("partition")) not in placed
    ]
    columns = [words("topic"), number("p"), number("objects"), number("records"), words("result")]
    return Grid(columns, rows, headings=2)


def _partition(finding: Event) -> str:
    return "-" if finding.get("partition") is None else str(finding["partition"])


def _results(row: Event, findings: Sequence[Event]) -> list[str]:
    """Return the errors of a partition, or its state with what is to be noted."""
    place = row["topic"], row["partition"]
    here = [found for found in findings if (found.get("topic"), found.get("partition")) == place]
    if errors := [_found(found) for found in here if found["level"] == "error"]:
        return errors
    notes = [_found(found) for found in here]
    return [", ".join([row.get("state") or "not checkable", *notes])]


def _found(finding: Event) -> str:
    """Return a finding: its kind, the object's name, what is wrong, the offsets."""
    name = str(finding.get("key") or "").rsplit("/", 1)[-1]
    text = finding.get("text")
    if finding["level"] != "error":
        said = str(text or finding["code"].replace("_", " "))
        return f"{name}: {said}" if name and name not in said else said
    kind = _kind(finding["code"])
    head = f"{kind} {name}" if name else kind
    offsets = finding.get("offsets")
    where = f" (offsets {offsets[0]}-{offsets[1]})" if offsets and not text else ""
    return f"{head}: {text}" if text else f"{head}{where}"


def _kind(code: str) -> str:
    return _RESULTS.get(code, code.replace("_", " ").upper())


def verify_count(summary: Event, partitions: Sequence[Event], findings: Sequence[Event]) -> str:
    """Return the line below the findings: what was read, what is good, what is not."""
    errors = [finding for finding in findings if finding["level"] == "error"]
    objects = summary.get("objects")
    if objects is None:
        objects = total(partitions, "objects")
    parts, results = [count(objects, "object")], []
    if summary.get("bytes_read"):
        parts = [f"{parts[0]} read", size(summary["bytes_read"])]
        damaged = {error.get("key") for error in errors if error["code"] not in _ABSENT}
        results = [f"{digits(objects - len(damaged))} good"] if objects is not None else []
    results += [
        f"{digits(number)} {_kind(code).lower()}"
        for code, number in Counter(error["code"] for error in errors).items()
    ]
    if not errors and summary.get("errors"):
        results.append("not all of it could be checked")
    parts.append(duration(summary.get("seconds")))
    return f"{', '.join(parts)}: {', '.join(results) or 'nothing wrong'}"
