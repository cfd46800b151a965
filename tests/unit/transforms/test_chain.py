"""Chains of transforms: predicates, headers, records left out, and schemas that part."""

from typing import Any

import pytest
from record_samples import batch_of

from kbackup import converters
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.pipeline.convert import Conversion, convert
from kbackup.pipeline.rows import Nulls, Rows
from kbackup.pipeline.views import ViewSpec
from kbackup.plugins import Condition, Step
from kbackup.records import TopicPartition
from kbackup.transforms import Chain
from kbackup.transforms.data import Records

WHERE = TopicPartition("orders", 3)
T = 1_700_000_000_000
FILTER = Step("drop", "filter")
OFFSET = Step("at", "insert_field", "value", {"offset.field": "o"})


def row(at: int, value: bytes | None, *headers: str) -> dict[str, Any]:
    """Return a record with these headers, each of which has its own name as value."""
    named = [{"key": name, "value": name.encode()} for name in headers]
    return {"offset": at, "timestamp": T + at, "value": value, "headers": named}


def when(step: Step, plugin: str, *, negate: bool = False, **options: str) -> Step:
    """Return the step for the records that a predicate is true for."""
    return Step(
        step.alias, step.plugin, step.side, step.options, Condition("p", plugin, options, negate)
    )


def whole(rows: list[dict[str, Any]], *steps: Step) -> Records:
    """Return what becomes of full records."""
    (found,) = Chain(steps)(Records.of(batch_of(rows), "orders", 3))
    return found


def stored(
    rows: list[dict[str, Any]], *steps: Step, schemas: bool = False, **more: Any
) -> list[Rows]:
    """Return the rows of JSON files."""
    spec = ViewSpec(View.VALUE, "json", FormatOptions(), "json", {"schemas.enable": schemas})
    chain = (Chain(steps), WHERE)
    return list(convert(batch_of(rows), [Conversion.of(spec)], transforms=chain, **more))


def offsets(found: Records | Rows) -> list[int]:
    """Return the offsets of the records that are left."""
    return list(found.batch["offset"].to_pylist())


SOME = [row(4, b"a", "x"), row(5, None), row(7, b"", "y", "x"), row(8, b"b", "y")]


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        pytest.param(FILTER, [], id="all"),
        pytest.param(when(FILTER, "has_header_key", name="x"), [5, 8], id="those with a header"),
        pytest.param(
            when(FILTER, "has_header_key", name="x", negate=True), [4, 7], id="those without"
        ),
        pytest.param(when(FILTER, "record_is_tombstone"), [4, 7, 8], id="tombstones"),
        pytest.param(
            when(FILTER, "topic_name_matches", pattern="ord.*"), [], id="of a topic that matches"
        ),
        pytest.param(
            when(FILTER, "topic_name_matches", pattern="ord"), [4, 5, 7, 8], id="of no such topic"
        ),
    ],
)
def test_a_filter_leaves_out_what_its_predicate_says(step: Step, kept: list[int]) -> None:
    """A filter drops and counts the records that match; the others keep their offsets."""
    found = whole(SOME, step)

    assert kept == offsets(found)
    assert {4, 5, 7, 8} == {*kept, *found.left_out}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(
            Step("h", "insert_header", "", {"header": "new", "value.literal": "1"}),
            [["x", "new"], ["new"], ["y", "x", "new"], ["y", "new"]], id="one more",
        ),
        pytest.param(
            when(
                Step("h", "insert_header", "", {"header": "x", "value.literal": "1"}),
                "record_is_tombstone",
            ),
            [["x"], ["x"], ["y", "x"], ["y"]], id="one more for some",
        ),
        pytest.param(
            Step("h", "drop_headers", "", {"headers": ("x", "z")}),
            [[], [], ["y"], ["y"]], id="one less",
        ),
        pytest.param(
            Step("h", "drop_headers", "", {"headers": ("x", "y")}), [[], [], [], []], id="none"
        ),
    ],
)  # fmt: skip
def test_headers_change_in_full_records(step: Step, expected: list[list[str]]) -> None:
    """Order is kept, a new one comes last, and nothing else of the record changes."""
    given = batch_of(SOME)
    sliced = batch_of([row(1, b"before", "x", "q"), *SOME]).slice(1)

    for batch in (given, sliced):
        (found,) = Chain([step])(Records.of(batch, "orders", 3))
        names = [[one["key"] for one in each] for each in found.headers.to_pylist()]
        assert expected == names
        assert given.drop_columns(["headers"]).equals(found.batch.drop_columns(["headers"]))
        assert given.schema.equals(found.batch.schema)


def test_what_was_refused_and_what_was_left_out_is_told_with_the_rows() -> None:
    """A record that cannot be converted is bad, and no filter hides it."""
    rows = [row(1, b"{}"), row(2, b"no JSON"), row(3, b"7"), row(4, None), row(5, b'{"a":1}')]
    drop = when(FILTER, "record_is_tombstone")

    (found,) = stored(rows, drop, OFFSET)

    assert [1, 5] == offsets(found)
    assert ['{"o":1}', '{"a":1,"o":5}'] == found.parts[0].batch.column(0).to_pylist()
    assert [2, 3] == [bad.offset for bad in found.bad]
    assert "the transform at cannot be applied to a record" == found.bad[1].what
    assert (4,) == found.filtered
    assert ["VALUE_CONVERTER", "TRANSFORMATION"] == [bad.stage for bad in found.bad]
    assert "org.apache.kafka.connect.transforms.InsertField$Value" == found.bad[1].by
    assert [1] == offsets(found.before_bad())


def test_a_batch_that_is_filtered_wholly_leaves_no_rows() -> None:
    """The count goes on, and so can the position."""
    (found,) = stored([row(1, b"{}"), row(2, b"[]")], FILTER, nulls=Nulls.IGNORE)

    assert (0, (1, 2), ()) == (len(found), found.filtered, found.left_out)


def test_records_of_two_schemas_stay_in_order() -> None:
    """A transform of some records gives these another schema, and no file mixes the two."""
    text = (
        b'{"schema":{"type":"struct","optional":false,"fields":'
        b'[{"field":"n","type":"int32","optional":false}]},"payload":{"n":%d}}'
    )
    rows = [row(at, text % at, *(["x"] if at in (3, 4, 8) else [])) for at in range(1, 9)]
    some = when(OFFSET, "has_header_key", name="x")

    found = stored(rows, some, schemas=True)

    assert [[1, 2], [3, 4], [5, 6, 7], [8]] == [offsets(each) for each in found]
    assert {"n": 4, "o": 4} == found[1].parts[0].batch.column(0)[1].as_py()
    assert found[0].schemas == found[2].schemas != found[1].schemas == found[3].schemas


def test_a_run_that_is_left_out_wholly_is_no_run() -> None:
    """A stretch of records that is left out whole is counted with the one before or after it."""
    text = (
        b'{"schema":{"type":"struct","optional":false,"fields":'
        b'[{"field":"n","type":"int32","optional":false}]},"payload":{"n":%d}}'
    )
    rows = [row(at, text % at, *(["x"] if at in (3, 4) else [])) for at in range(1, 7)]
    some = when(OFFSET, "has_header_key", name="x")
    drop = when(FILTER, "has_header_key", name="x")

    found = stored(rows, some, drop, schemas=True)

    assert [[1, 2], [5, 6]] == [offsets(each) for each in found]
    assert [3, 4] == [at for each in found for at in each.filtered]


def test_maps_of_two_kinds_stay_in_one_file() -> None:
    """Maps without a schema stay in one file, whatever is in them."""
    rows = [row(at, b'{"n":%d}' % at, *(["x"] if at == 2 else [])) for at in range(1, 4)]

    (found,) = stored(rows, when(OFFSET, "has_header_key", name="x"))

    texts = found.parts[0].batch.column(0).to_pylist()
    assert ['{"n":1}', '{"n":2,"o":2}', '{"n":3}'] == texts


def test_a_value_that_nothing_changes_keeps_its_schema() -> None:
    """A chain that does not touch values leaves their files as they were."""
    batch = batch_of([row(1, b"a"), row(2, b"b", "x")])
    (column,) = converters.by_name("string").decode(batch["value"])
    (found,) = Chain([when(FILTER, "has_header_key", name="x")])(
        Records.of(batch, "orders", 3, None, column)
    )

    assert column.schema == found.side("value").column().schema
    assert column.values.type == found.side("value").column().values.type
