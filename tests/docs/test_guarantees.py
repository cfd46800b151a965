"""Each sentence of the guarantees names the test that shows it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

CHECKOUT: Final = Path(__file__).parents[2]
PAGE: Final = (CHECKOUT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
CONTEXT: Final = "<!-- context -->"
"""Marks what promises nothing: an introduction, an advice, a limit."""

NAMED: Final = re.compile(r"(tests/[\w/]+\.py|kbackup/testing/\w+\.py)::([\w:]+)")
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


@pytest.mark.parametrize("block", BLOCKS, ids=[" ".join(each.split())[:60] for each in BLOCKS])
def test_each_promise_names_a_test(block: str) -> None:
    """Every promise names a test, and a sentence without one promises nothing."""
    assert (CONTEXT in block) != (NAMED.search(block) is not None)


@pytest.mark.parametrize(
    ("path", "test"), sorted(set(NAMED.findall(PAGE))), ids=lambda text: str(text)[-60:]
)
def test_each_named_test_exists(path: str, test: str) -> None:
    """Every test that the page names exists."""
    assert test in found_in(path)


def test_everything_in_a_comment_is_understood() -> None:
    """Every word in the page's comments is a test's name or known syntax."""
    for comment in re.findall(r"<!--(.*?)-->", PAGE, re.DOTALL):
        assert comment.strip() == "context" or all(
            NAMED.fullmatch(word) for word in comment.split()
        )


def test_most_of_the_page_promises_something() -> None:
    """Most of the page's sentences are promises, so the checks above check something."""
    shown = [block for block in BLOCKS if CONTEXT not in block]

    assert len(shown) > 60
    assert len(shown) > 2 * (len(BLOCKS) - len(shown))
