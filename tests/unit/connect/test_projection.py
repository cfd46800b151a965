"""Values of one schema under another: what is widened, left out, filled in, and refused."""

from typing import Any

import pyarrow as pa
import pytest

from kbackup.connect.fields import is_projectable, projected
from kbackup.connect.schema import ConnectSchema, Type


def struct(*fields: tuple[str, ConnectSchema], optional: bool = False) -> ConnectSchema:
    """Return a struct of one name."""
    return ConnectSchema(Type.STRUCT, optional, "record", fields=fields)


INT = ConnectSchema(Type.INT32)
LONG = ConnectSchema(Type.INT64)
TEXT = ConnectSchema(Type.STRING)
MAYBE = ConnectSchema(Type.STRING, optional=True)
DEFAULT = ConnectSchema(Type.STRING, default='"abc"')


def array(items: ConnectSchema) -> ConnectSchema:
    """Return an array that may be null."""
    return ConnectSchema(Type.ARRAY, optional=True, value=items)


def mapping(value: ConnectSchema) -> ConnectSchema:
    """Return a map that may be null."""
    return ConnectSchema(Type.MAP, optional=True, key=TEXT, value=value)


@pytest.mark.parametrize(
    ("record", "file", "values", "expected"),
    [
        pytest.param(INT, LONG, [1, -(2**31)], [1, -(2**31)], id="widened"),
        pytest.param(
            INT, ConnectSchema(Type.FLOAT64), [1, 2**31 - 1], [1.0, 2.0**31 - 1], id="to a fraction"
        ),
        pytest.param(
            struct(("a", INT), ("b", TEXT)), struct(("b", TEXT)),
            [{"a": 1, "b": "x"}], [{"b": "x"}], id="left out",
        ),
        pytest.param(
            struct(("a", INT)), struct(("a", LONG), ("b", DEFAULT), ("c", MAYBE)),
            [{"a": 1}, {"a": 2}],
            [{"a": 1, "b": "abc", "c": None}, {"a": 2, "b": "abc", "c": None}], id="filled in",
        ),
        pytest.param(
            struct(("a", MAYBE)), struct(("a", DEFAULT)),
            [{"a": None}, {"a": "x"}], [{"a": "abc"}, {"a": "x"}], id="a default for null",
        ),
        pytest.param(
            struct(("a", INT), optional=True), struct(("a", LONG), optional=True),
            [None, {"a": 1}], [None, {"a": 1}], id="null stays",
        ),
        pytest.param(
            array(struct(("a", INT))), array(struct(("a", LONG), ("c", MAYBE))),
            [[{"a": 1}, {"a": 2}], None, []],
            [[{"a": 1, "c": None}, {"a": 2, "c": None}], None, []], id="in an array",
        ),
        pytest.param(
            mapping(INT), mapping(LONG),
            [[("k", 1)], None, []], [[("k", 1)], None, []], id="in a map",
        ),
    ],
)  # fmt: skip
def test_values_are_brought_under_the_files_schema(
    record: ConnectSchema, file: ConnectSchema, values: list[Any], expected: list[Any]
) -> None:
    """Row for row, without a loss but for fields that the file does not have."""
    column = pa.array([values[0], *values], record.arrow()).slice(1)

    found = projected(column, record, file)

    assert is_projectable(record, file)
    assert (file.arrow(), expected) == (found.type, found.to_pylist())


@pytest.mark.parametrize(
    ("record", "file"),
    [
        pytest.param(LONG, INT, id="narrowed"),
        pytest.param(TEXT, INT, id="another type"),
        pytest.param(MAYBE, TEXT, id="null for a required one"),
        pytest.param(struct(("a", INT)), struct(("a", INT), ("b", TEXT)), id="a field is missing"),
        pytest.param(array(LONG), array(INT), id="in an array"),
        pytest.param(mapping(LONG), mapping(INT), id="in a map"),
        pytest.param(ConnectSchema(Type.STRUCT, name="other"), struct(), id="another name"),
    ],
)
def test_what_would_lose_something_closes_the_file(
    record: ConnectSchema, file: ConnectSchema
) -> None:
    """A record that projection would damage goes into a file under its own schema."""
    assert not is_projectable(record, file)
