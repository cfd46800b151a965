"""Every file of cases has a test that runs it, in the copies and in ``KBACKUP_CASES``."""

import re
from pathlib import Path
from typing import Any, Final

import case_files
import pytest
import scenario_files

RUN_BY: Final = {
    "connect_cases": "test_connect_cases.py",
    "field_partitioner": "test_field_partitioner.py",
    "java_regex": "test_regex_router.py",
    "murmur2": "../unit/restore/test_partition_map.py",
    "object_names": "test_object_names.py",
    "path_format": "test_path_format.py",
    "regex_router": "test_regex_router.py",
    "registry_compatibility": "../integration/test_schema_registry.py",
    "rotation": "test_rotation.py",
    "schedule": "test_rotation.py",
    "schema_rotation": "test_rotation.py",
}


PAGE: Final = Path(__file__).parent / "README.md"


@pytest.mark.parametrize("name", sorted(path.stem for path in case_files.FOLDER.glob("*.yaml")))
def test_a_file_of_cases_is_run(name: str) -> None:
    """Every file of cases is run by a test."""
    assert name in RUN_BY


EACH: Final = [
    pytest.param(path.stem, case, id=f"{path.stem}-{case.get('id', number)}")
    for path in sorted(case_files.FOLDER.glob("*.yaml"))
    for number, case in enumerate(case_files.document(path.stem).get("cases", []))
]


@pytest.mark.parametrize(("name", "case"), EACH)
def test_a_case_says_what_it_gives_in_fields(name: str, case: dict[str, Any]) -> None:
    """A case has known fields, and its records are data: it can be replayed as it stands."""
    assert case_files.problem(name, case) is None


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"props": {}, "record": 3}, "a case of rotation has no field record"),
        ({"records": "3 schemaless"}, "records are a number or a list of records, not '3 schem"),
        ({"records": [{"offset": 0, "text": 1}]}, "a record has no field text"),
    ],
)
def test_what_no_runner_reads_is_refused_by_name(case: dict[str, Any], why: str) -> None:
    """A field or a word that would be passed over is named."""
    found = case_files.problem("rotation", case)

    assert found is not None
    assert found.startswith(why)


def test_the_page_lists_the_fields() -> None:
    """Whoever keeps cases elsewhere can look up their fields."""
    page = PAGE.read_text("utf-8")
    fields = {*case_files.STEP, *case_files.RECORD}.union(*case_files.FIELDS.values())

    assert set() == {field for field in fields if f"`{field}`" not in page}


def test_what_differs_is_listed() -> None:
    """Each deliberate difference is explained on the conformance page."""
    text = (Path(__file__).parent / "test_connect_cases.py").read_text("utf-8")
    reasons = {*re.findall(r'^[A-Z_]+: Final = "([^"]+ [^"]+)"$', text, re.MULTILINE)}

    listed = {line.removeprefix("- ") for line in PAGE.read_text("utf-8").splitlines()}

    assert reasons <= listed


def test_where_the_connector_failed_is_listed() -> None:
    """Each run in which the connector failed is on the conformance page, with our exit code."""
    failed = {
        path.parent.name
        for path in scenario_files.COPIES.glob("*/scenario.json")
        if scenario_files.Scenario.read(path.parent).result != "ok"
    }

    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| ([0-9]) \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert failed == scenario_files.ENDS.keys()
    assert scenario_files.ENDS == {name: int(code) for name, code in rows}
