"""Renames against Kafka Connect's RegexRouter, case by case.

The cases of ``regex_router.yaml`` were run through the real class; those of
``java_regex.yaml`` were computed with the ``java.util.regex`` of a JDK.
"""

from typing import Any

import pytest
from case_files import document

from tests.conformance.product import ConfigurationError, Rename

ROUTER = document("regex_router").get("cases", [])
VECTORS = {"accepted": [], "refused": {}} | document("java_regex")
REFUSED = [(*row, who) for who, rows in VECTORS["refused"].items() for row in rows]


def router_cases(*, refused: bool) -> list[Any]:
    """Return the cases that must end in a new name, or those that must be refused."""
    return [pytest.param(case, id=case["id"]) for case in ROUTER if refused == is_refused(case)]


def is_refused(case: dict[str, Any]) -> bool:
    return "expect_config_error" in case or "expect_record_error" in case


@pytest.mark.parametrize("case", router_cases(refused=False))
def test_renames_as_the_router_does(case: dict[str, Any]) -> None:
    """A connector's RegexRouter and ours give a topic the same new name."""
    step = Rename(regex=case["regex"], replacement=case["replacement"])

    assert case["expected"] == step(case["topic"])


@pytest.mark.parametrize(("pattern", "replacement", "topic", "expected"), VECTORS["accepted"])
def test_reads_patterns_as_java_does(
    pattern: str, replacement: str, topic: str, expected: str
) -> None:
    """A pattern that is accepted means what it means in Java."""
    assert expected == Rename(regex=pattern, replacement=replacement)(topic)


@pytest.mark.parametrize("case", router_cases(refused=True))
def test_refuses_what_the_router_refuses(case: dict[str, Any]) -> None:
    """What Java refuses, even if only at the first record, is refused before a restore begins."""
    assert_refused(case["regex"], case["replacement"])


@pytest.mark.parametrize(("pattern", "replacement", "who"), REFUSED)
def test_refuses_what_may_differ(pattern: str, replacement: str, who: str) -> None:
    """What Java refuses, and what may mean something else here, is refused with its reason."""
    assert_refused(pattern, replacement)


def assert_refused(pattern: str, replacement: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rename(regex=pattern, replacement=replacement)

    assert (2, True, True) == (
        caught.value.exit_code,
        bool(caught.value.why),
        bool(caught.value.do),
    )
