"""What a query needs, by its plan, without Spark."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from kbackup.inspect.query import Used, needs, stand_in


@dataclass
class Seq:
    """A sequence of Scala's."""

    items: Sequence[Any]

    def size(self) -> int:
        """How many it holds."""
        return len(self.items)

    def apply(self, at: int) -> Any:
        """Return one of them."""
        return self.items[at]

    def isEmpty(self) -> bool:  # noqa: N802  (Scala's name)
        """Whether it holds none."""
        return not self.items


def names(*found: str) -> Seq:
    """Return attributes."""
    return Seq([SimpleNamespace(name=lambda one=one: one) for one in found])


Json = dict[str, Any]


def expression(kind: str, *below: list[Json], **said: Any) -> list[Json]:
    """Return a part of a condition as Spark writes it: each before its operands."""
    top = {"class": f"org.apache.spark.sql.catalyst.expressions.{kind}", "num-children": len(below)}
    return [top | said, *(each for one in below for each in one)]


OFFSET = expression("AttributeReference", name="0:offset", dataType="long")
KEY = expression("AttributeReference", name="0:key", dataType="binary")


def number(value: int | None, kind: str = "long") -> list[Json]:
    """Return a literal."""
    return expression("Literal", value=None if value is None else str(value), dataType=kind)


def uses(condition: list[Json]) -> Iterator[str]:
    """Yield what a condition refers to."""
    return (each["name"] for each in condition if "name" in each)


@dataclass
class Plan:
    """A node of a plan of Spark's."""

    kind: str
    used: Sequence[str] = ()
    below: "Sequence[Plan]" = ()
    inner: "Sequence[Plan]" = ()
    made: Sequence[str] = ()
    tested: Sequence[Json] = ()

    def children(self) -> Seq:
        """What it gets its rows from."""
        return Seq(self.below)

    def subqueries(self) -> Seq:
        """Plans in its expressions."""
        return Seq(self.inner)

    def references(self) -> Any:
        """What its expressions refer to."""
        return SimpleNamespace(toSeq=lambda: names(*self.used))

    def output(self) -> Seq:
        """Its columns."""
        return names(*self.made)

    def nodeName(self) -> str:  # noqa: N802  (Spark's name)
        """What kind it is."""
        return self.kind

    def condition(self) -> Any:
        """What a filter tests."""
        return SimpleNamespace(toJSON=lambda: json.dumps(self.tested))


def table(number: int) -> Plan:
    """Return a table: it refers to its own columns, as Spark's do."""
    columns = [*stand_in(number).values()]
    return Plan("LogicalRDD", columns, made=columns)


def filtered(condition: list[Json], *projected: str) -> Plan:
    """Return a plan over a condition."""
    rows = Plan("Filter", [*uses(condition)], [table(0)], tested=condition)
    return Plan("Aggregate", (), [Plan("Project", projected, [rows])])


def test_columns_are_those_that_anything_above_a_table_refers_to() -> None:
    """Those of subqueries count; a table that the optimizer has dropped is not needed."""
    inner = Plan("Aggregate", ["1:value"], [Plan("Project", ["1:value"], [table(1)])])
    rows = Plan("Filter", ["0:key"], [table(0)], [inner], tested=KEY)
    plan = Plan("Project", ["o#1"], [Plan("Project", ["0:offset"], [rows])])

    found = needs(plan, ["orders", "pay", "audit"])

    assert {"orders": Used(("offset", "key")), "pay": Used(("value",))} == found


def test_rows_are_alike_to_a_query_that_uses_only_what_an_object_is_named_by() -> None:
    """Counts of all, by topic or partition; of any other column they are not."""
    assert {"o": Used((), ())} == needs(Plan("Project", (), [table(0)]), ["o"])
    by = Plan("Aggregate", ["0:topic", "0:partition"], [table(0)])
    assert {"o": Used(("topic", "partition"), ())} == needs(by, ["o"])
    assert {"o": Used(("key",))} == needs(Plan("Aggregate", ["0:key"], [table(0)]), ["o"])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param(expression("LessThan", OFFSET, number(5)), (("<", 5),), id="below"),
        pytest.param(expression("LessThan", number(5), OFFSET), ((">", 5),), id="turned"),
        pytest.param(
            expression(
                "Or",
                expression("IsNotNull", OFFSET),
                expression("Not", expression("GreaterThanOrEqual", OFFSET, number(7))),
            ),
            ((">=", 7),),
            id="in others",
        ),
        pytest.param(
            expression("In", OFFSET, number(1), number(4)), (("=", 1), ("=", 4)), id="several"
        ),
        pytest.param(expression("In", number(1), OFFSET, number(4)), None, id="among numbers"),
        pytest.param(expression("EqualTo", OFFSET, OFFSET), None, id="itself"),
        pytest.param(expression("EqualTo", OFFSET, number(None)), None, id="null"),
        pytest.param(expression("EqualTo", OFFSET, number(1, "double")), None, id="no long"),
        pytest.param(expression("EqualTo", OFFSET, expression("Rand")), None, id="no number"),
        pytest.param(
            expression("And", expression("LessThan", OFFSET, number(5)), expression("Odd", OFFSET)),
            None,
            id="a function of it",
        ),
        pytest.param(expression("InSet", OFFSET, hset=None), None, id="a set that is not shown"),
    ],
)
def test_comparisons_with_numbers_may_be_true_of_whole_objects(
    condition: list[Json], expected: tuple[tuple[str, int], ...] | None
) -> None:
    """Any other use of the offset needs every offset."""
    assert {"o": Used(("offset",), expected)} == needs(filtered(condition), ["o"])
    assert {"o": Used(("offset",))} == needs(filtered(condition, "0:offset"), ["o"])
