"""What a query needs of its tables, by the plan that Spark makes of it.

A data source in Python is never told which columns are wanted.  So a query is planned before it is
run, over tables without rows, and then run over tables in which what it does not need is null.
Which result it has cannot depend on that, for Spark's optimizer has removed every use of it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kbackup.inspect.source import COLUMNS, OPERATORS

_ALIKE: Final = frozenset({"topic", "partition", "offset"})
"""Columns that name and facts of an object say enough of."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a query needs of a table.

    Attributes:
        columns: The columns that it uses, in the table's order.
        comparisons: Operators and numbers with which it compares the offset, if rows of one object
            differ in nothing else that it uses; None where they do.
    """

    columns: tuple[str, ...]
    comparisons: tuple[tuple[str, int], ...] | None = None


def needs(plan: Any, tables: Sequence[str]) -> dict[str, Need]:
    """Return what a query needs of each table that it needs at all.

    Args:
        plan: Spark's optimized plan of it, over tables with the columns that `stand_in` gives them.
        tables: Their names.
    """
    nodes, leaves = list[_Node](), set[str]()
    for one in _all(plan):
        if one.children().isEmpty():
            leaves |= _names(one.output())
        else:
            nodes.append(_Node(one, _names(one.references().toSeq())))
    return {
        name: _need(nodes, stand_in(number))
        for number, name in enumerate(tables)
        if leaves.issuperset(stand_in(number).values())
    }


def stand_in(table: int) -> dict[str, str]:
    """Return the name of each column in a plan: one that no other table has, nor any query."""
    return {name: f"{table}:{name}" for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class _Node:
    """One of a plan's nodes, and the names of all that it refers to."""

    node: Any
    uses: frozenset[str]


def _all(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan and of its subqueries."""
    yield plan
    for each in (*_items(plan.children()), *_items(plan.subqueries())):
        yield from _all(each)


def _names(attributes: Any) -> frozenset[str]:
    return frozenset(each.name() for each in _items(attributes))


def _items(seq: Any) -> Iterator[Any]:
    """Yield what a sequence of Scala's holds."""
    return (seq.apply(at) for at in range(seq.size()))


def _need(nodes: Sequence[_Node], names: Mapping[str, str]) -> Need:
    used = frozenset[str]().union(*(each.uses for each in nodes))
    columns = tuple(name for name, stands in names.items() if stands in used)
    comparisons: list[tuple[str, int]] = []
    for each in nodes:
        if names["offset"] not in each.uses:
            continue
        if each.node.nodeName() != "Filter":
            return Need(columns)
        condition = _tree(iter(json.loads(each.node.condition().toJSON())))
        found = _comparisons(condition, names["offset"])
        if found is None:
            return Need(columns)
        comparisons += found
    return Need(columns, tuple(dict.fromkeys(comparisons)) if _ALIKE.issuperset(columns) else None)


@dataclass(frozen=True, slots=True)
class _Expression:
    """A part of a condition.

    Attributes:
        kind: Spark's name of it.
        said: Its own fields.
        below: Its operands.
    """

    kind: str
    said: Mapping[str, Any]
    below: Sequence["_Expression"]

    @property
    def number(self) -> int | None:
        """Which offset it stands for; None where it is something else."""
        is_one = self.kind == "Literal" and self.said["dataType"] == "long"
        return int(self.said["value"]) if is_one and self.said["value"] is not None else None


def _tree(nodes: Iterator[Mapping[str, Any]]) -> _Expression:
    """Return an expression that Spark has written as JSON, each before its operands."""
    said = next(nodes)
    below = [_tree(nodes) for _ in range(said["num-children"])]
    return _Expression(said["class"].rpartition(".")[2], said, below)


_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _comparisons(condition: _Expression, offset: str) -> list[tuple[str, int]] | None:
    """Return with what a condition compares the offset; None where it does more with it."""
    places = [at for at, each in enumerate(condition.below) if each.said.get("name") == offset]
    if not places:
        parts = [_comparisons(each, offset) for each in condition.below]
        return None if None in parts else [one for part in parts for one in part or ()]
    if condition.kind in ("IsNull", "IsNotNull"):  # every record has one
        return []
    numbers = [each.number for at, each in enumerate(condition.below) if at not in places]
    operator = "=" if condition.kind == "In" else OPERATORS.get(condition.kind)
    if operator is None or len(places) > 1 or None in numbers or (numbers[1:] and places != [0]):
        return None
    if places == [1]:
        operator = _TURNED[operator]
    return [(operator, number) for number in numbers if number is not None]
