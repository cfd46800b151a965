"""Renaming steps out of a connector's file, and out of ``--rename``."""

import pytest

from kbackup.config import transforms
from kbackup.config.doubts import Origin, Value
from kbackup.renaming import rename

TYPE = "org.apache.kafka.connect.transforms.RegexRouter"


def _given(properties: dict[str, str]) -> dict[str, Value]:
    return {name: Value(text, Origin("file", "f:1")) for name, text in properties.items()}


ROUTER = {
    "transforms": "a, b",
    "transforms.a.type": TYPE,
    "transforms.a.regex": "(.*)",
    "transforms.a.replacement": "x_$1",
    "transforms.b.type": TYPE,
    "transforms.b.regex": "x_(.*)",
    "transforms.b.replacement": "y_$1",
}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        pytest.param({}, "orders", id="nothing"),
        pytest.param({"rename": "copy_of_$0"}, "copy_of_orders", id="rename"),
        pytest.param({"rename": "$1", "rename.regex": "o(.*)"}, "rders", id="with a pattern"),
        pytest.param({"rename": "$1", "rename.regex": "p(.*)"}, "orders", id="no match"),
        pytest.param(ROUTER, "y_orders", id="one after the other"),
        pytest.param(ROUTER | {"transforms": "b,a"}, "x_orders", id="in the order of transforms"),
        pytest.param(ROUTER | {"transforms": ""}, "orders", id="none is listed"),
        pytest.param(ROUTER | {"rename": "z"}, "z", id="rename takes their place"),
    ],
)
def test_a_topic_gets_the_name_the_file_says(properties: dict[str, str], expected: str) -> None:
    """
    Each way of asking for another name gives the same steps.
    """
    steps = transforms.chain(_given(properties)).steps

    assert expected == rename("orders", steps)


def test_a_replaced_chain_is_said() -> None:
    """
    A file's transforms do not vanish in silence behind an option.
    """
    doubts = transforms.chain(_given(ROUTER | {"rename": "z"})).doubts

    assert [("warning", "transforms")] == [(doubt.level, doubt.name) for doubt in doubts]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        pytest.param({"rename": "$x"}, "rename", id="no group"),
        pytest.param({"rename": "x", "rename.regex": "("}, "rename", id="no pattern"),
        pytest.param({"rename.regex": "x"}, "rename.regex", id="pattern alone"),
        pytest.param({"transforms": "a"}, "transforms.a.type", id="no type"),
        pytest.param(
            {"transforms": "a", "transforms.a.type": "x.InsertField$Value"},
            "transforms.a.type",
            id="another transform",
        ),
        pytest.param(
            {"transforms": "a", "transforms.a.type": TYPE}, "transforms.a", id="no replacement"
        ),
        pytest.param(
            ROUTER | {"transforms.a.predicate": "p"}, "transforms.a.predicate", id="condition"
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(properties: dict[str, str], name: str) -> None:
    """
    A topic is never restored under a name nobody asked for.
    """
    found = transforms.chain(_given(properties))

    assert [("error", name)] == [(doubt.level, doubt.name) for doubt in found.doubts]


def test_a_sinks_transforms_are_refused_each() -> None:
    """
    A connector that changes records on their way is not one that backs them up.
    """
    doubts = list(transforms.refuse(_given(ROUTER)))

    assert ["transforms.a.type", "transforms.b.type"] == [doubt.name for doubt in doubts]
