import json
from typing import Any

import pyarrow as pa
import pytest

from kbackup.connect import json_schema, json_values
from kbackup.connect.json_schema import FORM, JsonSchemaStyle, from_json_schema, to_json_schema
from kbackup.connect.json_values import JsonStyle
from kbackup.connect.schema import DECIMAL, TIMESTAMP, ConnectSchema, Type

TEXT = ConnectSchema(Type.STRING)


def read(schema: Any, **style: bool) -> ConnectSchema:
    return from_json_schema(json.dumps(schema), style=JsonSchemaStyle(**style))


def value(schema: ConnectSchema, found: Any) -> Any:
    """Return a value of JSON as the column under *schema* has it."""
    return pa.array([json_values.reader(schema, FORM)(found)], schema.arrow())[0].as_py()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"type": "integer"}, ConnectSchema(Type.INT64), id="integer"),
        pytest.param({"type": "number"}, ConnectSchema(Type.FLOAT64), id="number"),
        pytest.param({"type": "boolean"}, ConnectSchema(Type.BOOLEAN), id="boolean"),
        pytest.param({"type": "string", "format": "date"}, TEXT, id="string"),
        pytest.param({"minLength": 3}, TEXT, id="a string by what it says"),
        pytest.param(
            {"type": "integer", "connect.type": "int8"}, ConnectSchema(Type.INT8), id="int8"
        ),
        pytest.param(
            {"type": "number", "connect.type": "float32"}, ConnectSchema(Type.FLOAT32), id="float32"
        ),
        pytest.param(
            {"type": "string", "connect.type": "bytes"}, ConnectSchema(Type.BYTES), id="bytes"
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}},
            ConnectSchema(Type.ARRAY, value=TEXT),
            id="array",
        ),
        pytest.param(
            {
                "type": "object",
                "connect.type": "map",
                "additionalProperties": {"type": "integer"},
            },
            ConnectSchema(Type.MAP, key=TEXT, value=ConnectSchema(Type.INT64)),
            id="map",
        ),
        pytest.param(
            {"oneOf": [{"type": "null"}, {"type": "string"}]},
            ConnectSchema(Type.STRING, optional=True),
            id="oneOf with null",
        ),
        pytest.param(
            {"type": ["string", "null"]}, ConnectSchema(Type.STRING, optional=True), id="two types"
        ),
        pytest.param(
            {"type": "string", "enum": ["a"]},
            ConnectSchema(
                Type.STRING, parameters=((json_schema.ENUM, ""), (f"{json_schema.ENUM}.a", "a"))
            ),
            id="enum",
        ),
        pytest.param(
            {"type": "integer", "enum": [1, 2]}, ConnectSchema(Type.INT64), id="enum of numbers"
        ),
        pytest.param(
            {
                "type": "number",
                "title": DECIMAL,
                "connect.type": "bytes",
                "connect.version": 1,
                "connect.parameters": {"scale": "2"},
                "description": "a price",
                "default": 1.25,
            },
            ConnectSchema(
                Type.BYTES,
                name=DECIMAL,
                version=1,
                parameters=(("scale", "2"),),
                doc="a price",
                default='"fQ=="',
            ),
            id="a Decimal with all that can be said",
        ),
        pytest.param({"type": "integer", "default": "x"}, ConnectSchema(Type.INT64), id="no value"),
        pytest.param(
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"$ref": "#/$defs/b"}],
             "$defs": {"b": {"properties": {"b": {"type": "boolean"}}}}},
            ConnectSchema(Type.STRUCT, fields=(("a", TEXT), ("b", ConnectSchema(Type.BOOLEAN)))),
            id="allOf of objects",
        ),
        pytest.param({"allOf": [{"type": "string"}, {"maxLength": 3}]}, TEXT, id="allOf of one"),
    ],
)  # fmt: skip
def test_a_schema_of_connect_stands_for_it(found: Any, expected: ConnectSchema) -> None:
    """Types, logical types, names and parameters are those that the connector takes."""
    assert expected == read(found)


def test_fields_stand_by_their_index_and_then_as_written() -> None:
    """``connect.index`` says where a field was before the schema became JSON."""
    kind = {"type": "string"}
    found = read({"properties": {"c": {**kind, "connect.index": 1}, "z": kind,
                                 "a": {**kind, "connect.index": 0}}})  # fmt: skip

    assert ["a", "c", "z"] == [name for name, _ in found.fields]


def test_what_is_not_required_is_optional_only_where_asked_for() -> None:
    """All properties are required unless use.optional.for.nonrequired is true."""
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    strict, lenient = read(schema), read(schema, optional_unless_required=True)

    assert [False, False] == [field.optional for _, field in strict.fields]
    assert [False, True] == [field.optional for _, field in lenient.fields]


def test_a_choice_is_a_struct_of_which_one_field_is_there() -> None:
    """The first alternative that takes a value has it, and it goes back as what it was."""
    schema = read(
        {
            "oneOf": [
                {"type": "null"},
                {"type": "integer"},
                {"type": "object", "properties": {"a": {"type": "integer"}}},
                {"type": "object", "properties": {"b": {"type": "string"}}},
            ]
        }
    )
    values = [1, {"a": 2}, {"b": "x"}]
    name = f"{json_schema.UNION}.field"

    rows = [json_values.reader(schema, FORM)(each) for each in values]
    assert [{f"{name}.0": 1}, {f"{name}.1": {"a": 2}}, {f"{name}.2": {"b": "x"}}] == rows
    column = pa.array([*rows, None], schema.arrow())
    assert [*values, None] == [
        json.loads(text)
        for text in json_values.encode_json(column, schema, JsonStyle(form=FORM)).to_pylist()
    ]
    with pytest.raises(ValueError, match="alternatives"):
        value(schema, {"c": 1})


def test_maps_with_other_keys_than_text_are_lists_of_entries() -> None:
    """A map whose keys are not text becomes a list of entries, as the converter writes it."""
    schema = ConnectSchema(Type.MAP, key=ConnectSchema(Type.INT32), value=TEXT)
    column = pa.array([[(1, "a")]], schema.arrow())

    [text] = json_values.encode_json(column, schema, JsonStyle(form=FORM)).to_pylist()

    assert '[{"key":1,"value":"a"}]' == text
    assert [(1, "a")] == value(schema, json.loads(text))
    with pytest.raises(ValueError, match="objects with key and value"):
        value(schema, [[1, "a"]])


@pytest.mark.parametrize(
    "reference",
    ["address.json", "https://x.org/address.json", "#/definitions/Home", "#/properties/own"],
)
def test_references_are_followed(reference: str) -> None:
    """References within a schema are followed, by path, by name and by ``$id``."""
    address = {"$id": "https://x.org/address.json", "type": "object", "title": "Address",
               "properties": {"street": {"$ref": "#/$defs/text"}},
               "$defs": {"text": {"type": "string"}}}  # fmt: skip
    street = {"street": {"type": "string"}}
    schema = {
        "$id": "https://x.org/person.json",
        "properties": {
            "home": {"$ref": reference},
            "own": {"type": "object", "title": "Address", "properties": street},
        },
        "definitions": {"Home": {"$ref": "address.json"}},
    }  # fmt: skip

    found = from_json_schema(json.dumps(schema), [("address.json", json.dumps(address))])

    expected = ConnectSchema(Type.STRUCT, name="Address", fields=(("street", TEXT),))
    assert expected == dict(found.fields)["home"]


_TREE: dict[str, Any] = {"title": "Tree", "properties": {"left": {"$ref": "#"}}}
_WIDE = {
    "properties": {"a": {"$ref": "#/$defs/0"}},
    "$defs": {
        str(at): {"properties": {name: {"$ref": f"#/$defs/{at + 1}"} for name in "ab"}}
        for at in range(40)
    }
    | {"40": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(json.dumps(_TREE), "Tree contains itself", id="recursive"),
        pytest.param(json.dumps(_WIDE), "more than", id="a text that grows"),
        pytest.param('{"items":' * 200 + '{"type":"string"}' + "}" * 200, "deeply", id="deep"),
        pytest.param("[" * 100_000, "nested", id="deeper than a parser goes"),
        pytest.param("{}", "any value", id="any value"),
        pytest.param("true", "any value", id="true"),
        pytest.param('{"type":"array"}', "no one schema", id="array of anything"),
        pytest.param('{"type":"null"}', "no column", id="null only"),
        pytest.param('{"const":1}', "no column", id="a constant"),
        pytest.param('{"properties":{"a":{"$ref":"b.json"}}}', "registered", id="unknown"),
        pytest.param('{"$ref":"#/$defs/a/0"}', "nothing in its", id="to nothing"),
        pytest.param('{"type":"integer","connect.type":"int9"}', "int9", id="no such type"),
        pytest.param('{"properties":[]}', "not a JSON Schema", id="no schema"),
        pytest.param('{"type":"object","connect.type":"map"}', "any value", id="map of anything"),
        pytest.param('{"type":{}}', "no column", id="a type that is none"),
        pytest.param("{", "Expecting", id="no JSON"),
    ],
)  # fmt: skip
def test_what_has_no_column_says_why(text: str, why: str) -> None:
    """A schema from a registry that cannot be used is refused with a reason, never a traceback."""
    with pytest.raises(ValueError, match=why):
        from_json_schema(text)


def test_what_is_written_is_read_as_the_same() -> None:
    """A restore registers a schema under which the next backup has the same columns."""
    number = ConnectSchema(Type.INT16, optional=True, default="7")
    fields = (
        ("number", number),
        ("when", ConnectSchema(Type.INT64, name=TIMESTAMP, version=1)),
        ("by key", ConnectSchema(Type.MAP, key=ConnectSchema(Type.INT32), value=TEXT)),
        ("by name", ConnectSchema(Type.MAP, key=TEXT, value=number.as_optional())),
    )
    schema = ConnectSchema(Type.STRUCT, name="x.Order", version=3, doc="an order", fields=fields)

    found = to_json_schema(schema, JsonSchemaStyle(additional=False))

    assert schema == from_json_schema(json.dumps(found))
    assert found["additionalProperties"] is False
