"""Transforms that choose a topic for each record."""

from typing import Any

import pytest
from record_samples import batch_of
from transform_samples import STRUCT, T, applied, records, why

from kbackup import plugins
from kbackup.errors import ConfigurationError
from kbackup.records import NO_TIMESTAMP
from kbackup.transforms.data import Records

SCHEMA = STRUCT | {
    "fields": [
        {"field": "kind", "type": "string", "optional": True},
        {"field": "n", "type": "int64", "optional": True},
        {"field": "in", "type": "struct", "optional": True,
         "fields": [{"field": "a.b", "type": "string", "optional": True}]},
    ],
}  # fmt: skip
VALUES: list[Any] = [
    {"kind": "a", "n": 1, "in": {"a.b": "x"}}, {"kind": None, "n": None, "in": None}, None,
]  # fmt: skip
MISSING = "its value has no field {!r}, or a null one"


def topics(found: Records) -> list[str]:
    """Return the topic of each record."""
    names: list[str] = found.topics.to_pylist()
    return names


def test_a_time_is_part_of_the_name() -> None:
    """The default is the topic and the day, in UTC."""
    given = records([{}, {}], None)

    found = applied("timestamp_router", {}, given)
    other = applied(
        "timestamp_router",
        {"topic.format": "${timestamp}.${topic}", "timestamp.format": "yyyy-'W'"}, given,
    )  # fmt: skip

    assert ["orders-20231114"] * 2 == topics(found)
    assert ["2023-W.orders"] * 2 == topics(other)


def test_a_record_without_a_time_has_no_topic() -> None:
    """It is refused, as in Kafka, and so is one whose time no pattern can say."""
    times = [T, NO_TIMESTAMP, -(10**15), T + 86_400_000]
    given = Records.of(
        batch_of([{"offset": at, "timestamp": time} for at, time in enumerate(times)]), "o", 0
    )

    found = applied("timestamp_router", {}, given, "")

    assert ["o-20231114", "o-20231115"] == topics(found)
    assert [
        (1, "it has no timestamp"),
        (2, "its timestamp is before 15 October 1582 or after the year 9999"),
    ] == why(found)


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["without a schema", "with a schema"])
def test_a_field_names_the_topic(schema: dict[str, Any] | None) -> None:
    """A record whose field is missing or null is refused, or keeps its topic if asked for."""
    given = records(VALUES, schema)

    found = applied("extract_topic", {"field": "kind"}, given)
    kept = applied("extract_topic", {"field": "kind", "skip.missing.or.null": "true"}, given)
    path = {"field": "$.in['a.b']", "field.format": "JSON_PATH", "skip.missing.or.null": "true"}

    assert (["a"], [(at, MISSING.format("kind")) for at in (41, 42)]) == (topics(found), why(found))
    assert (["a", "orders", "orders"], []) == (topics(kept), why(kept))
    assert ["x", "orders", "orders"] == topics(applied("extract_topic", path, given))


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["without a schema", "with a schema"])
def test_what_is_not_text_names_no_topic(schema: dict[str, Any] | None) -> None:
    """A number is refused even where a missing name is not, as in Confluent's."""
    given = records(VALUES, schema)

    found = applied("extract_topic", {"field": "n", "skip.missing.or.null": "true"}, given)
    whole = applied("extract_topic", {"skip.missing.or.null": "true"}, given)

    assert (["orders"] * 2, [40]) == (topics(found), [at for at, _ in why(found)])
    assert (["orders"], [40, 41]) == (topics(whole), [at for at, _ in why(whole)])
    assert all("is not text" in text for _, text in (*why(found), *why(whole)))


def test_half_a_character_names_no_topic() -> None:
    """JSON's escapes can write what no text has; such a record is refused, others are not."""
    given = records([{"kind": "\ud800"}, {"kind": "a"}], None)

    found = applied("extract_topic", {"field": "kind"}, given)

    assert (["a"], [40]) == (topics(found), [at for at, _ in why(found)])


def test_a_whole_value_names_the_topic() -> None:
    """Text without a field is the name itself."""
    found = applied("extract_topic", {}, records(["b", None], None))

    assert (["b"], [(41, "its value is null")]) == (topics(found), why(found))


def test_a_header_names_the_topic() -> None:
    """The last header of the name counts; bytes that are not text are refused."""
    headers: list[list[tuple[str, bytes | None]]] = [
        [("t", b"x"), ("u", b"y"), ("t", b"z")], [("u", b"y")], [("t", None)], [("t", b"\xff")],
    ]  # fmt: skip
    rows = [
        {"offset": at, "headers": [{"key": key, "value": value} for key, value in each]}
        for at, each in enumerate(headers)
    ]
    given = Records.of(batch_of(rows), "orders", 0)

    found = applied("extract_topic", {"field": "t"}, given, "header")

    assert ["z"] == topics(found)
    assert [
        (1, "it has no header 't', or a null one"),
        (2, "it has no header 't', or a null one"),
        (3, "its header is not UTF-8"),
    ] == why(found)


@pytest.mark.parametrize(
    ("name", "options", "side"),
    [
        pytest.param("extract_topic", {}, "header", id="no header"),
        pytest.param("extract_topic", {"field": "a", "field.format": "JSON_PATH"}, "value",
                     id="no path"),
        pytest.param("extract_topic", {"field": "$.a[0]", "field.format": "JSON_PATH"}, "value",
                     id="an index"),
        pytest.param("extract_topic", {"field": "$.a", "field.format": "JSON_PATH"}, "header",
                     id="a path of a header"),
        pytest.param("timestamp_router", {"timestamp.format": "yyyy'"}, "", id="no pattern"),
    ],
)  # fmt: skip
def test_what_cannot_name_a_topic_is_refused(name: str, options: dict[str, Any], side: str) -> None:
    """It is refused at the start, by the option's name."""
    with pytest.raises(ConfigurationError) as caught:
        plugins.load("transforms", name)().configure(options, side)

    assert "property" in caught.value.place
