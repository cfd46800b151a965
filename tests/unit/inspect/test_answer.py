"""How an answer is written."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from kbackup.inspect import query

ROWS = pa.table(
    {
        "offset": pa.array([7, 8, 9], pa.int64()),
        "value": pa.array([b"text", None, b"\xff"], pa.binary()),
        "at": pa.array([datetime(2026, 11, 1, 2, 3, 4, 5000, UTC)] * 3, pa.timestamp("us", "UTC")),
        "note": pa.array(["", None, 'say "x", y\n'], pa.string()),
    }
)


def test_a_name_that_wants_backquotes_is_told() -> None:
    """What Spark does not understand is one line, with what to do where a topic's name needs it."""
    text = (
        "[TABLE_OR_VIEW_NOT_FOUND] The table `orders`.`eu` is not there. SQLSTATE: 42P01\n'Project"
    )

    found = query.misunderstood("select * from orders.eu", text, ["orders.eu", "pay"])

    assert "write `orders.eu` in backquotes" == found.do
    assert found.why.endswith("The table `orders`.`eu` is not there.")
    assert "see Spark's SQL reference" == query.misunderstood("select", text, ["pay"]).do


def test_json_is_an_object_a_line() -> None:
    """Bytes are text where they are UTF-8, else base64; null is null."""
    lines = [json.loads(line) for line in query.as_bytes(ROWS, "json").splitlines()]

    assert ["text", None, {"$base64": "/w=="}] == [line["value"] for line in lines]
    assert "2026-11-01T02:03:04.005Z" == lines[0]["at"]


def test_csv_keeps_null_and_empty_apart() -> None:
    """Null is an empty field, an empty text is quoted."""
    lines = query.as_bytes(ROWS, "csv").decode().split("\n", 3)

    assert '"offset","value","at","note"' == lines[0]
    assert '7,"text","2026-11-01T02:03:04.005Z",""' == lines[1]
    assert '8,,"2026-11-01T02:03:04.005Z",' == lines[2]
    assert lines[3].endswith(',"say ""x"", y\n"\n')


def test_parquet_keeps_the_types() -> None:
    """A Parquet answer holds the columns as they are."""
    read = pq.read_table(BytesIO(query.as_bytes(ROWS, "parquet")))

    assert ROWS["value"].to_pylist() == read["value"].to_pylist()
    assert ROWS["at"].to_pylist() == read["at"].to_pylist()


def test_columns_of_one_name_stay_apart() -> None:
    """A name that comes again is numbered, in every form."""
    twice = pa.table([pa.array([1]), pa.array([2])], names=["n", "n"])

    assert {"n": 1, "n_2": 2} == json.loads(query.as_bytes(twice, "json"))
    assert b'"n","n_2"\n1,2\n' == query.as_bytes(twice, "csv")
    assert ["n", "n_2"] == pq.read_schema(BytesIO(query.as_bytes(twice, "parquet"))).names


def test_an_answer_without_rows_has_its_names() -> None:
    """A result without rows still has its header."""
    assert b'"offset","value","at","note"\n' == query.as_bytes(ROWS.slice(0, 0), "csv")
    assert b"" == query.as_bytes(ROWS.slice(0, 0), "json")


def test_what_json_has_no_word_for_is_text() -> None:
    """A decimal keeps its digits; nested values are shown inside out."""
    rows = pa.table(
        {
            "price": pa.array([Decimal("1.10")]),
            "headers": pa.array([[{"key": "a", "value": b"\xff"}]]),
        }
    )

    (line,) = query.as_bytes(rows, "json").splitlines()

    expected = {"price": "1.10", "headers": [{"key": "a", "value": {"$base64": "/w=="}}]}
    assert expected == json.loads(line)
