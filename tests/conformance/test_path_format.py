"""Directories by time against the connectors' own: Joda's patterns, zones and names."""

from typing import Any, Final

import pyarrow as pa
import pytest
from case_files import document

from tests.conformance.product import (
    Buckets,
    ConfigurationError,
    Pattern,
    TimeBasedPartitioner,
    joda,
)

CASES: Final = document("path_format").get("cases", [])


def expected_text(case: dict[str, Any]) -> str | None:
    """Return the directory, None where it is refused; a newer Joda's answer where it differs."""
    found: str | None = case.get("joda_2_14_1", case.get("expected"))
    return found


def printed(case: dict[str, Any]) -> str:
    """Return the directory of the case's moment."""
    pattern = Pattern(case["path_format"].removesuffix("/"), joda.names_of_locale(case["locale"]))
    buckets = Buckets(case["partition_duration_ms"], pattern, joda.zone_by_id(case["timezone"]))
    found: str = buckets.printed(pa.array([case["epoch_ms"]], pa.int64()))[0].as_py()
    return found


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in CASES if expected_text(case)]
)
def test_a_moment_has_the_connectors_directory(case: dict[str, Any]) -> None:
    """Pattern, span, zone and language give the text that the connectors' partitioner gives."""
    assert expected_text(case) == printed(case)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"])
        for case in CASES
        if not expected_text(case) and case["partition_duration_ms"]
    ],
)
def test_what_joda_refuses_is_refused(case: dict[str, Any]) -> None:
    """A pattern or zone that Joda-Time refuses is refused."""
    with pytest.raises(ValueError, match=r"illegal pattern component|expected a time zone"):
        printed(case)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case["id"]) for case in CASES if not case["partition_duration_ms"]],
)
def test_a_span_of_nothing_is_refused(case: dict[str, Any]) -> None:
    """What would kill the connectors' task at the first record is refused at startup, by name."""
    given = {
        "path.format": case["path_format"], "partition.duration.ms": case["partition_duration_ms"],
        "timezone": case["timezone"], "locale": case["locale"],
    }  # fmt: skip

    with pytest.raises(ConfigurationError, match=r"partition\.duration\.ms"):
        TimeBasedPartitioner().configure(given)
