"""Directories by field against the connectors' own, on typed values and on plain JSON."""

import json
from typing import Any, Final

import pyarrow as pa
import pytest
from case_files import cases
from record_samples import batch_of

from tests.conformance.product import FieldPartitioner, TopicPartition

TYPES: Final = {"byte": pa.int8(), "short": pa.int16(), "int": pa.int32(), "float": pa.float32()}
"""Arrow types of the fields that are named for their type."""


def struct(value: Any) -> pa.Array:
    """Return a value as a converter with schemas gives it."""
    if not isinstance(value, dict):
        return pa.array([value])
    fields = {name: struct(each) for name, each in value.items()}
    typed = [each.cast(TYPES[name]) if name in TYPES else each for name, each in fields.items()]
    return pa.StructArray.from_arrays(typed, names=list(fields))


@pytest.mark.parametrize("case", cases("field_partitioner"))
@pytest.mark.parametrize("has_schema", [True, False], ids=["typed", "schemaless"])
def test_fields_name_the_connectors_directory(case: dict[str, Any], has_schema: bool) -> None:
    """The same text for the same field; what the connectors cannot place has no directory."""
    value = case["value"]
    column = struct(value) if has_schema else pa.array([json.dumps(value)]).cast(pa.json_())
    partitioner = FieldPartitioner()
    partitioner.configure({"partition.field.name": case["fields"]})

    batch = batch_of([{}]).append_column("decoded", column)

    assert [case.get("expected")] == partitioner.encode(TopicPartition("t", 0), batch).to_pylist()
