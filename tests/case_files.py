"""The connectors' behaviour, case by case: the files of cases, and another folder of such files.

`FIELDS` names the fields of a case; one that is not there is refused by name, so that no case is
read as less than it says.  Inputs are data: `generated` makes the records of a case from runs.

``KBACKUP_CASES`` names a folder with files of the same names and forms; without it the copies
beside the conformance tests are run.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same in C, where it was built: the largest file is read for each of its kinds."""

FOLDER: Final = Path(
    os.environ.get("KBACKUP_CASES", Path(__file__).parent / "conformance" / "cases")
)


_ALL: Final = {"id", "source", "note", "why", "kind", "origin", "title"}
"""What any case may have: its name, and what its readers are told."""

FIELDS: Final[Mapping[str, set[str]]] = {
    "connect_cases sink": {
        "config", "steps", "reporter", "clock_start_ms", "contents", "level", "faults", "sim",
        "assignment", "topic", "expect_tags", "preexisting",
    },
    "connect_cases partition": {"config", "record", "expect"},
    "connect_cases timestamp_string": {"input", "jvm_zone", "expect"},
    "connect_cases schedule": {"timezone", "now", "interval_ms", "expect"},
    "connect_cases schema_compat": {"record_schema", "file_schema", "expect"},
    "connect_cases config": {"config", "expect", "stage"},
    "connect_cases filename": {"view", "extension", "table"},
    "connect_cases s3_protocol": {"config", "expect"},
    "connect_cases content": {"config", "record", "expect"},
    "field_partitioner": {"fields", "value", "expected", "expect_error", "kbackup_note"},
    "murmur2": {"key_hex", "murmur2", "to_positive", "partition"},
    "path_format": {
        "path_format", "epoch_ms", "partition_duration_ms", "timezone", "locale", "expected",
        "wrong_java_time_answer", "jdk8_or_compat_locale_data", "expect_error",
        "real_class_error", "joda_2_14_1",
    },
    "regex_router": {
        "regex", "replacement", "topic", "matched", "expected", "naive_python_gives",
        "kbackup_must", "expect_record_error", "real_class_error", "expect_config_error",
    },
    "registry_compatibility": {"mode", "new", "previous", "compatible"},
    "rotation": {
        "partitioner", "props", "records", "timezone", "extractor", "expect_files", "expect_dirs",
        "expect_open", "expect_files_by_dir", "expect_records_per_file",
    },
    "schedule": {"now", "interval_ms", "timezone", "expect"},
    "schema_rotation": {"mode", "file_schema", "record_schema", "expected"},
}  # fmt: skip
"""The fields of a case, by its file and kind."""

STEP: Final = {
    "put", "clock_advance_ms", "precommit", "raises", "expect_objects", "expect_uncommitted",
    "expect_reported", "expect_rewind", "close_and_open",
}  # fmt: skip
"""The fields of a step of a case of kind ``sink``; *put* is a list of records."""

RECORD: Final = {
    "offset", "partition", "topic", "key", "schema", "value", "rec", "ts", "headers", "string",
    "timestamp", "time",
    "from", "count", "rec_seq", "rec_cycle", "value_cycle", "ts_start", "ts_step", "step_s",
}  # fmt: skip
"""The fields of a record, or with *from* of *count* records at consecutive offsets."""


_DAY: Final = "2017-03-02T"
_OUT_OF_ORDER: Final = [
    {"offset": at, "time": f"{_DAY}{time}"}
    for at, time in enumerate(("10:00", "09:58", "10:09", "09:55", "10:10"))
]
_IN_WORDS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "offset 0 schemaless, 1-9 with schema": [
        {"offset": 0}, {"from": 1, "count": 9, "schema": "v1"},
    ],
    "offsets 0,1,5,6,7,100 (compacted topic / aborted transactions)": [
        {"from": 0, "count": 2}, {"from": 5, "count": 3}, {"offset": 100},
    ],
    "offset 0 10:00, 1 09:58, 2 10:09, 3 09:55, 4 10:10 (2017-03-02 local)": _OUT_OF_ORDER,
    "0: 03-01T10:00, 1: 03-01T08:00, 2: 03-02T07:00, 3: 03-02T05:00, 4: 03-02T10:00": [
        {"offset": at, "time": f"2017-{time}"}
        for at, time in enumerate(
            ("03-01T10:00", "03-01T08:00", "03-02T07:00", "03-02T05:00", "03-02T10:00")
        )
    ],
    "offsets 0-8 from 2017-03-02T10:00 local every 20 s; offsets 9-17 from 12:00 local every 20 s":
    [
        {"from": at, "count": 9, "time": f"{_DAY}{time}", "step_s": 20}
        for at, time in ((0, "10:00"), (9, "12:00"))
    ],
}  # fmt: skip
"""The records that the first edition of the cases gave in words, which other folders still hold."""


def _in_fields(case: dict[str, Any]) -> dict[str, Any]:
    words = case.get("record_times", case.get("records"))
    if not isinstance(words, str) or words not in _IN_WORDS:
        return case
    rest = {name: given for name, given in case.items() if name != "record_times"}
    return {**rest, "records": _IN_WORDS[words]}


def problem(name: str, case: Mapping[str, Any]) -> str | None:
    """Why a case cannot be replayed as it stands; None if it can."""
    kind = f"{name} {case['kind']}" if "kind" in case else name
    if kind not in FIELDS:
        return f"no kind of case is called {kind}"
    if unknown := case.keys() - FIELDS[kind] - _ALL:
        return f"a case of {kind} has no field {', '.join(sorted(unknown))}"
    steps = case.get("steps", [])
    if unknown := {field for step in steps for field in step} - STEP:
        return f"a step has no field {', '.join(sorted(unknown))}"
    for records in [case.get("records") or [], *(step.get("put") or [] for step in steps)]:
        if isinstance(records, str) or not all(isinstance(one, dict) for one in _listed(records)):
            return f"records are a number or a list of records, not {records!r}"
        if unknown := {field for one in _listed(records) for field in one} - RECORD:
            return f"a record has no field {', '.join(sorted(unknown))}"
    return None


def _listed(records: int | list[Any]) -> list[Any]:
    return [{"from": 0, "count": records}] if isinstance(records, int) else records


def generated(records: int | list[Any]) -> Iterator[dict[str, Any]]:
    """Yield each record of a case, runs expanded; *number* is its place in its run."""
    for entry in _listed(records):
        if "from" not in entry:
            yield {**entry, "number": 0}
            continue
        for at in range(entry["count"]):
            record = {**entry, "offset": entry["from"] + at, "number": at}
            if entry.get("rec_seq") is not None:
                record["rec"] = entry["rec_seq"] + at
            if entry.get("rec_cycle"):
                record["rec"] = entry["rec_cycle"][at % len(entry["rec_cycle"])]
            if "value_cycle" in entry:
                record["value"] = entry["value_cycle"][at % len(entry["value_cycle"])]
            if "ts_start" in entry:
                record["ts"] = entry["ts_start"] + at * entry.get("ts_step", 0)
            yield record


def document(name: str) -> dict[str, Any]:
    """Return a file of cases, empty where the folder has none of that name."""
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        return {}
    found: dict[str, Any] = yaml.load(path.read_bytes(), LOADER)
    if "cases" in found:
        found["cases"] = [_in_fields(case) for case in found["cases"]]
    return found


def cases(name: str, kind: str | None = None, part: str = "cases") -> list[Any]:
    """Return the cases of a file, one parameter each; of one *kind* only where it is given."""
    return [
        pytest.param(case, id=str(case.get("id", number)))
        for number, case in enumerate(document(name).get(part, []))
        if kind is None or case["kind"] == kind
    ]
