"""When the connectors close files, case by case: the rules of `cut` against their own tests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from case_files import cases, generated
from flow_samples import offsets_by_directory, routed
from record_samples import batch_of

from tests.conformance.product import (
    Append,
    Compatibility,
    Cut,
    Rows,
    Rule,
    Schedule,
    Schema,
    TopicPartition,
    cut,
    joins,
    needs_version,
    partitioners,
)

LOS_ANGELES: Final = ZoneInfo("America/Los_Angeles")


class Hourly:
    """Hours of local time: as much of the connectors' partitioner as the cases need."""

    traits: ClassVar = partitioners.Traits()

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take nothing."""

    def encode(self, _where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return ``year=.../hour=...``."""
        times = [datetime.fromtimestamp(ms / 1000, LOS_ANGELES) for ms in batch["time"].to_pylist()]
        return pa.array([f"{at:year=%Y/month=%m/day=%d/hour=%H}" for at in times])


def rows_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a case, one a row, with the schema they name."""
    zone = ZoneInfo(case.get("timezone", "UTC"))
    found = []
    for record in generated(case["records"]):
        row: dict[str, Any] = {"offset": record["offset"], "schema": record.get("schema")}
        if "time" in record:
            local = datetime.fromisoformat(record["time"]).replace(tzinfo=zone)
            passed = timedelta(seconds=record["number"] * record.get("step_s", 0))
            row["timestamp"] = int((local + passed).timestamp() * 1000)
        found.append(row)
    return found


@dataclass
class Files:
    """What a run of `cut` leaves."""

    # for each cut, the offsets of each directory
    closed: list[dict[str, list[int]]] = field(default_factory=list)
    open: list[int] = field(default_factory=list)  # offsets in files that no rule closed


def files(stream: Iterable[Rows], rule: Rule) -> Files:
    """Cut, and return what came of it."""
    found, rows = Files(), []
    for step in cut(stream, rule):
        match step:
            case Append(some):
                rows.append(some)
            case Cut():
                found.closed.append(offsets_by_directory(rows))
                rows = []
    found.open = [offset for some in rows for offset in some.batch["offset"].to_pylist()]
    return found


@pytest.mark.parametrize("case", cases("rotation"))
def test_files_close_where_the_connectors_close_them(case: dict[str, Any]) -> None:
    """Start offsets, numbers of records, directories and what stays open are the connectors'."""
    is_timed = case["partitioner"] == "Hourly"
    props = case["props"]
    rows = rows_of(case)
    named = {row["offset"]: row.pop("schema") for row in rows}
    by_offset = {at: None if name is None else Schema(name, 1) for at, name in named.items()}
    changes = str(props.get("rotate.file.on.partition.change", "true")).lower() == "true"
    rule = Rule(
        records=props["flush.size"],
        span_ms=props.get("rotate.interval.ms") if is_timed else None,
        on_directory_change=changes,
    )

    found = files(
        routed(batch_of(rows), Hourly() if is_timed else None, lambda at: by_offset[at]), rule
    )
    each = [(name, offsets) for closed in found.closed for name, offsets in closed.items()]

    if "expect_files" in case:
        assert [tuple(file) for file in case["expect_files"]] == [
            (offsets[0], len(offsets)) for _, offsets in each
        ]
    for directory, expected in case.get("expect_dirs", {}).items():
        assert expected == [offsets[0] for name, offsets in each if directory in (f"{name}:", name)]
    for directory, expected in case.get("expect_files_by_dir", {}).items():
        mine = [offsets for name, offsets in each if name.endswith(directory)]
        wanted = [expected["offsets"]] if isinstance(expected, dict) else [[at] for at in expected]
        assert wanted == mine
    if "expect_open" in case:
        assert case["expect_open"] == found.open


@dataclass(frozen=True, slots=True)
class Toy(Schema):
    """A schema that says itself whether another can be brought under it."""

    is_projectable: bool = True

    def takes(self, _other: Schema) -> bool:
        """As it was made."""
        return self.is_projectable


def schemas(case: dict[str, Any]) -> tuple[Schema, Schema]:
    """Return the file's schema and the record's, as the case says it in words."""
    expected, kind = case["expected"], case["id"].partition("-")[2]
    if case["mode"] == "NONE":
        newer = {"same": "v1", "diff": "v2", "back": "v1"}[kind]
        return Schema("v2" if kind == "back" else "v1", 1), Schema(newer, 2)
    if kind == "no-version":
        return Schema("v1"), Schema("v2", 2)
    versions = {
        "older": (2, 1), "newer": (1, 2), "equal-version": (2, 2),
    }.get(kind, (2, 1) if case["mode"] != "FORWARD" else (1, 2))  # fmt: skip
    is_structural = expected.startswith("rotate (") and "same as" not in expected
    texts = (
        "equal" if kind == "equal-version" else "file",
        "equal" if kind == "equal-version" else "record",
    )
    return (
        Toy(texts[0], versions[0], is_projectable=not is_structural),
        Toy(texts[1], versions[1], is_projectable=not is_structural),
    )


@pytest.mark.parametrize("case", cases("schema_rotation"))
def test_schemas_share_a_file_where_the_connectors_let_them(case: dict[str, Any]) -> None:
    """It decides whether another schema is appended, projected, begins a file or is refused."""
    mode, (file, record) = Compatibility(case["mode"]), schemas(case)
    if case["id"] == "none-same":
        record = file

    if case["expected"].startswith("error"):
        assert needs_version(mode, file)
    else:
        joined = "append" if file == record else "project"
        verdict = joined if joins(mode, file, record) else "rotate"
        assert case["expected"].startswith(verdict)


@pytest.mark.parametrize("case", cases("schedule"))
def test_schedules_follow_the_local_day(case: dict[str, Any]) -> None:
    """Boundaries begin anew at local midnight, on days of any length."""
    now, expected = (
        int(datetime.fromisoformat(case[name]).timestamp() * 1000) for name in ("now", "expect")
    )

    assert expected == Schedule(case["interval_ms"], case["timezone"]).next(now)


def test_a_schedule_closes_files_by_the_clock() -> None:
    """A scheduled file closes on time without a record, and a boundary without a file has none."""
    minute = 60_000
    clock = iter([0, 11, 11, 22, 22, 23, 33, 44, 44])  # when it is asked, in minutes
    batch = batch_of([{}] * 6)
    empty = routed(batch)[0].slice(0, 0)
    stream = [*routed(batch.slice(0, 3)), empty, *routed(batch.slice(3)), empty]
    asked = []

    def now() -> int:
        asked.append(next(clock))
        return asked[-1] * minute

    rule = Rule(records=1000, schedule=Schedule(10 * minute, "UTC"))
    steps = [
        step.rows.batch["offset"].to_pylist() if isinstance(step, Append) else str(step.reason)
        for step in cut(stream, rule, now)
    ]

    schedule = "rotate.schedule.interval.ms"
    assert [[0, 1, 2], schedule, [3, 4, 5], schedule] == steps
