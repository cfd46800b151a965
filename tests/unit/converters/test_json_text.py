import json

import pyarrow as pa
import pytest

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.converters.json_text import JsonConverter
from kbackup.testing import decoded, encoded


@pytest.mark.parametrize("text", ["false", "False", " false "])
def test_without_schemas(text: str) -> None:
    """Booleans are accepted in any case, as in Java; with schemas this is no value."""
    converter = JsonConverter()
    converter.configure({"schemas.enable": text})

    assert ["1"] == decoded(converter, pa.array([b"1"], pa.binary())).storage.to_pylist()


def test_json_is_kept_in_the_connectors_spelling() -> None:
    """JSON keeps the order of its keys and all digits of its integers."""
    column = pa.array([b'{ "z":1, "a":12345678901234567890123 }', b"1e10"], pa.binary())

    typed = decoded(JsonConverter(), column)

    assert ['{"z":1,"a":12345678901234567890123}', "1.0E10"] == typed.storage.to_pylist()


def test_the_json_null_is_null() -> None:
    """The JSON value null is read as null, as in Kafka Connect."""
    typed = decoded(JsonConverter(), pa.array([b" null ", None, b'"null"'], pa.binary()))

    assert [None, None, '"null"'] == typed.storage.to_pylist()


@pytest.mark.parametrize(
    "value",
    [pytest.param(b"", id="empty"), pytest.param(b"{", id="half"), b"\x00\x00\x00\x00\x01a"],
)
def test_what_is_not_json_is_named(value: bytes) -> None:
    """An empty value is reported as not JSON: it is not null."""
    [column] = JsonConverter().decode(pa.array([b"1", value, b"2", value], pa.binary()))

    assert [(1, "a value is not JSON"), (3, "a value is not JSON")] == [
        (bad.row, bad.what) for bad in column.bad
    ]
    assert ["1", None, "2", None] == column.values.storage.to_pylist()


def test_other_columns_go_out_as_their_bytes() -> None:
    """JSON that is stored as raw bytes is restored unchanged."""
    column = pa.array([b" {} ", None], pa.binary())

    assert column.equals(encoded(JsonConverter(), column))
    assert column.equals(encoded(JsonConverter(), column.cast(pa.string())))


def envelope(payload: str, kind: str = '{"type":"int32","optional":false}') -> bytes:
    return f'{{"schema":{kind},"payload":{payload}}}'.encode()


def with_schemas() -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": True})
    return converter


def test_each_run_of_a_schema_is_a_column() -> None:
    """A record without a value stays with the schema before it, and null of any kind is null."""
    text = '{"type":"string","optional":true}'
    values = [
        None, envelope("1"), b"null", envelope("2"), envelope('"a"', text), envelope("null", text),
        b'{"schema":null,"payload":{"b":1}}', b'{"payload":3,"schema":{"type":"int32"}}',
    ]  # fmt: skip

    columns = with_schemas().decode(pa.array(values, pa.binary()))

    assert [[None, 1, None, 2], ["a", None], ['{"b":1}'], [3]] == [
        column.values.to_pylist() for column in columns
    ]
    assert ["connect", "connect", None, "connect"] == [
        column.schema and column.schema.encoding for column in columns
    ]
    assert not [bad for column in columns for bad in column.bad]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(b"{", "unexpected end", id="no JSON"),
        pytest.param(b'{"payload":1}', "schema", id="no schema"),
        pytest.param(envelope("1")[:-1] + b',"more":1}', "nothing else", id="more than that"),
        pytest.param(envelope('"5"'), "is not an int32", id="text for a number"),
        pytest.param(envelope("2147483648"), "is not an int32", id="a number that is too large"),
        pytest.param(envelope("null"), "null for a required int32", id="null that must not be"),
        pytest.param(envelope("1", '{"type":"int33"}'), "no type", id="no type of Connect's"),
        pytest.param(envelope('"\\ud800"', '{"type":"string"}'), "surrogate", id="half a pair"),
        pytest.param(
            envelope("1.00005", '{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal",'
                     '"parameters":{"scale":"4"}}'),
            "more digits", id="a decimal that would be rounded",
        ),
    ],
)  # fmt: skip
def test_what_its_schema_does_not_say_is_bad(value: bytes, why: str) -> None:
    """A Connect worker reads text as 0 and truncates large numbers; here both are bad records."""
    column = pa.array([envelope("1"), value, envelope("2")], pa.binary())

    [found] = with_schemas().decode(column)

    [bad] = found.bad
    assert (1, [1, None, 2]) == (bad.row, found.values.to_pylist())
    assert why in bad.why


def map_of(optional: bool) -> str:
    key = f'{{"type":"string","optional":{str(optional).lower()}}}'
    return f'{{"type":"map","keys":{key},"values":{{"type":"int32"}}}}'


@pytest.mark.parametrize("optional", [False, True])
def test_a_map_with_text_for_keys_is_an_object(optional: bool) -> None:
    """Also where its keys may be null, as in Protobuf; an array is no such map, as for a worker."""
    rows = [envelope(text, map_of(optional)) for text in ('{"k":1}', '[["k",1]]')]

    [found] = with_schemas().decode(pa.array(rows, pa.binary()))

    assert [[("k", 1)], None] == found.values.to_pylist()
    assert ["is not an object"] == [bad.why[-16:] for bad in found.bad]
    schema = connect.of(found.schema)
    assert schema is not None
    assert '{"k":1}' == json_values.encode_json(found.values, schema)[0].as_py()


WITH_DEFAULT = '{"type":"string","optional":true,"default":"x"}'
IN_STRUCT = f'{{"type":"struct","optional":false,"fields":[{{"field":"a",{WITH_DEFAULT[1:]}]}}'


@pytest.mark.parametrize(("text", "expected"), [("true", "x"), ("false", None)])
def test_null_is_its_default_unless_the_configuration_says_otherwise(
    text: str, expected: str | None
) -> None:
    """``replace.null.with.default`` applies to a value and to a field, on both ways."""
    converter = JsonConverter()
    converter.configure({"schemas.enable": True, "replace.null.with.default": text == "true"})
    [alone] = converter.decode(pa.array([envelope("null", WITH_DEFAULT)], pa.binary()))
    rows = pa.array([envelope('{"a":null}', IN_STRUCT)], pa.binary())
    [inside] = converter.decode(rows)
    unfilled = pa.array([{"a": None}], inside.values.type)
    (back,) = converter.encode(unfilled, inside.schema).values.to_pylist()

    assert [expected] == alone.values.to_pylist()
    assert [{"a": expected}] == inside.values.to_pylist()
    assert {"a": expected} == json.loads(back)["payload"]
