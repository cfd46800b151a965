import pyarrow as pa
import pytest

from kbackup.converters.json_text import JsonConverter
from kbackup.testing import decoded


@pytest.mark.parametrize("text", ["false", "False", " false "])
def test_without_schemas(text: str) -> None:
    """
    Java reads a boolean in any case.
    """
    JsonConverter().configure({"schemas.enable": text})


def test_json_is_kept_in_the_connectors_spelling() -> None:
    """
    Order of keys and all digits of integers stay, which a worker would lose.
    """
    column = pa.array([b'{ "z":1, "a":12345678901234567890123 }', b"1e10"], pa.binary())

    typed = decoded(JsonConverter(), column)

    assert ['{"z":1,"a":12345678901234567890123}', "1.0E10"] == typed.storage.to_pylist()


def test_the_json_null_is_null() -> None:
    """
    As in Connect, where a tombstone and the text null are one.
    """
    typed = decoded(JsonConverter(), pa.array([b" null ", None, b'"null"'], pa.binary()))

    assert [None, None, '"null"'] == typed.storage.to_pylist()


@pytest.mark.parametrize(
    "value",
    [pytest.param(b"", id="empty"), pytest.param(b"{", id="half"), b"\x00\x00\x00\x00\x01a"],
)
def test_what_is_not_json_is_named(value: bytes) -> None:
    """
    An empty value is not null, and not JSON.
    """
    [column] = JsonConverter().decode(pa.array([b"1", value, b"2", value], pa.binary()))

    assert [(1, "a value is not JSON"), (3, "a value is not JSON")] == [
        (bad.row, bad.what) for bad in column.bad
    ]
    assert ["1", None, "2", None] == column.values.storage.to_pylist()


def test_other_columns_go_out_as_their_bytes() -> None:
    """
    JSON that lies in a file of raw bytes is restored as it is.
    """
    column = pa.array([b" {} ", None], pa.binary())

    assert column.equals(JsonConverter().encode(column))
    assert column.equals(JsonConverter().encode(column.cast(pa.string())))
