"""Each promise of the guarantees has a number, and tests that show it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

CHECKOUT: Final = Path(__file__).parents[2]
PAGE: Final = (CHECKOUT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
SHOWN: Final = yaml.safe_load(
    (CHECKOUT / "tests" / "docs" / "guarantees.yaml").read_text(encoding="utf-8")
)
"""The tests of each promise, and the beginning of each paragraph that promises nothing."""

NAMED: Final = re.compile(r"(tests/[\w/]+\.py|kbackup/testing/\w+\.py)::([\w:]+)")
NUMBER: Final = re.compile(r"(?:\*\*|^\| )([A-Z]\d+)\b")
ITEM: Final = re.compile(r"(?:[-*]|\d+\.) ")
RULE: Final = re.compile(r"\|[\s|:-]+\|")


def blocks(page: str) -> Iterator[str]:
    """Yield each paragraph, each item of a list and each row of a table's body."""
    for chunk in re.split(
        r"\n\s*\n", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    ):
        lines = [line for line in chunk.splitlines() if not line.startswith("#")]
        if len(lines) > 1 and RULE.fullmatch(lines[1]):
            yield from lines[2:]
            continue
        block: list[str] = []
        for line in lines:
            if ITEM.match(line) and block:
                yield "\n".join(block)
                block = []
            block.append(line)
        if block:
            yield "\n".join(block)


@cache
def found_in(path: str) -> frozenset[str]:
    """The tests of a file, those in classes with the name of their class before them."""
    found = set()
    for node in ast.parse((CHECKOUT / path).read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {before + one.name for one in inside if isinstance(one, ast.FunctionDef)}
    return frozenset(name for name in found if name.split("::")[-1].startswith("test_"))


BLOCKS: Final = list(blocks(PAGE))


NUMBERS: Final = [number for block in BLOCKS for number in NUMBER.findall(block)]
TESTS: Final = sorted({test for tests in SHOWN["promises"].values() for test in tests})


@pytest.mark.parametrize("block", BLOCKS, ids=[" ".join(each.split())[:60] for each in BLOCKS])
def test_each_promise_has_a_number(block: str) -> None:
    """Every promise has a number, and a paragraph without one is known to promise nothing."""
    starts = [text for text in SHOWN["context"] if block.startswith(text)]

    assert 1 == len(starts) + len(NUMBER.findall(block))


@pytest.mark.parametrize("number", [*SHOWN["promises"]])
def test_each_promise_has_tests(number: str) -> None:
    """Every promise is on the page once, and tests show it."""
    assert 1 == NUMBERS.count(number)
    assert SHOWN["promises"][number]


def test_each_number_is_a_promise_with_tests() -> None:
    """Every number on the page has tests."""
    assert set() == {*NUMBERS} - {*SHOWN["promises"]}


@pytest.mark.parametrize("name", TESTS, ids=lambda text: str(text)[-60:])
def test_each_named_test_exists(name: str) -> None:
    """Every test that a promise names exists."""
    found = NAMED.fullmatch(name)

    assert found is not None
    assert found[2] in found_in(found[1])


def test_each_context_is_on_the_page() -> None:
    """What is said to promise nothing is on the page."""
    found = [text for text in SHOWN["context"] if sum(b.startswith(text) for b in BLOCKS) == 1]

    assert SHOWN["context"] == found


def test_most_of_the_page_promises_something() -> None:
    """Most of the page's sentences are promises, so the checks above check something."""
    assert len(NUMBERS) > 60
    assert len(NUMBERS) > 2 * (len(BLOCKS) - len(NUMBERS))
