"""Renames against Kafka Connect's RegexRouter, case by case.

The cases of ``regex_router.yaml`` were run through the real class; those of
``java_regex_vectors.yaml`` were computed with the ``java.util.regex`` of a JDK.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kbackup.errors import ConfigurationError
from kbackup.renaming import Rename

CASES = Path(__file__).parent / "cases"


def load(name: str, *, refused: bool) -> list[Any]:
    """Return the cases of a file that must end in a new name, or those that must be refused."""
    cases = yaml.safe_load((CASES / name).read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if refused == is_refused(case)]


def is_refused(case: dict[str, Any]) -> bool:
    return (
        "expect_config_error" in case
        or "expect_record_error" in case
        or case.get("kbackup_must", "").startswith("refuse at start-up")
    )


@pytest.mark.parametrize("case", load("regex_router.yaml", refused=False))
def test_renames_as_the_router_does(case: dict[str, Any]) -> None:
    """
    A connector's RegexRouter and ours give a topic the same new name.
    """
    step = Rename(regex=case["regex"], replacement=case["replacement"])

    assert case["expected"] == step(case["topic"])


@pytest.mark.parametrize("case", load("java_regex_vectors.yaml", refused=False))
def test_reads_patterns_as_java_does(case: dict[str, Any]) -> None:
    """
    A pattern that is accepted means what it means in Java.
    """
    step = Rename(regex=case["regex"], replacement=case["replacement"])

    assert case["expected"] == step(case["topic"])


@pytest.mark.parametrize(
    "case",
    load("regex_router.yaml", refused=True) + load("java_regex_vectors.yaml", refused=True),
)
def test_refuses_at_start_up(case: dict[str, Any]) -> None:
    """
    What Java refuses, even if only at the first record, is refused before anything is restored.
    """
    with pytest.raises(ConfigurationError) as caught:
        Rename(regex=case["regex"], replacement=case["replacement"])

    assert (2, True, True) == (
        caught.value.exit_code,
        bool(caught.value.why),
        bool(caught.value.do),
    )
