"""Columns as their files will hold them."""

import pyarrow as pa
from record_samples import batch_of

from kbackup.pipeline.views import headers_as_text


def headers(*rows: list[tuple[str, bytes | None]]) -> pa.Array:
    """A column of headers."""
    named = [[{"key": key, "value": value} for key, value in row] for row in rows]
    return batch_of([{"headers": row} for row in named])["headers"]


def test_headers_become_text() -> None:
    """Header values that are not UTF-8 are stored as base64, as in a connector's file."""
    found = headers_as_text(headers([("a", b"1"), ("a", b"\xff")], [("b", "é".encode())]))

    assert () == found.bad
    assert [[("a", "1"), ("a", "/w==")], [("b", "é")]] == [
        [(one["key"], one["value"]) for one in row] for row in found.values.to_pylist()
    ]


def test_records_whose_headers_cannot_be_stored_are_bad() -> None:
    """A record without headers, or with a null one, is bad in a connector's file."""
    found = headers_as_text(headers([("a", b"1")], [], [("b", None)], [("c", b"")]))

    assert [1, 2] == [bad.row for bad in found.bad]
    one, other = found.bad
    assert ("a record has no headers", "a header of a record has a null value") == (
        one.what, other.what,
    )  # fmt: skip
    assert "it is 'b', and" in other.why
