"""Every converter that is registered keeps the promises of `kbackup.converters.Converter`."""

import json

import pyarrow as pa
import pytest

from kbackup import converters, plugins
from kbackup.converters import Converter
from kbackup.testing import decoded

PROPERTIES = {"json": {"schemas.enable": "false"}}
CONVERTERS = [plugin.name for plugin in plugins.installed("converters")]


@pytest.fixture(params=CONVERTERS)
def converter(request: pytest.FixtureRequest) -> Converter:
    return converters.by_name(request.param, PROPERTIES.get(request.param, {}))


VALUES = pa.array([b'"a"', None, b"12", b'{"a":[1,null]}', '"é"'.encode()], pa.binary())


def test_bytes_come_back(converter: Converter) -> None:
    """
    What was read from Kafka goes back to Kafka, null as null.
    """
    assert VALUES.equals(converter.encode(decoded(converter, VALUES)))


def test_null_stays_null(converter: Converter) -> None:
    """
    A tombstone is a tombstone in every form.
    """
    nulls = pa.nulls(3, pa.binary())
    typed = decoded(converter, nulls)

    assert (3, 3) == (typed.null_count, converter.encode(typed).null_count)


def test_a_part_of_a_column_is_like_a_column(converter: Converter) -> None:
    """
    Batches are cut without copying; each part converts by itself.
    """
    part = VALUES.slice(2, 3)

    assert part.equals(converter.encode(decoded(converter, part)))
    assert part.equals(converter.encode(decoded(converter, VALUES).slice(2, 3)))


def test_a_column_of_no_rows_converts(converter: Converter) -> None:
    """
    A batch may be empty.
    """
    none = pa.array([], pa.binary())

    assert none.equals(converter.encode(decoded(converter, none)))


def test_only_types_that_formats_take(converter: Converter) -> None:
    """
    A converter gives what every format knows.
    """
    assert decoded(converter, VALUES).type in (pa.binary(), pa.string(), pa.json_())


def test_json_null_of_a_file_is_a_tombstone(converter: Converter) -> None:
    """
    A JSON file has ``null`` where the record had no value.
    """
    column = pa.array(["null", None], pa.json_())

    assert [None, None] == converter.encode(column).to_pylist()


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_workers_class_name_stands_for_it(name: str) -> None:
    """
    A worker's configuration names converters by their Java classes.
    """
    simple = plugins.load("converters", name).class_names

    assert simple
    for each in simple:
        assert name == plugins.by_class_name("converters", f"org.apache.kafka.connect.{each}")


def test_what_a_json_file_holds_of_it_comes_back(converter: Converter) -> None:
    """
    Each converter reads the JSON that stands for what it gave.
    """
    typed = decoded(converter, VALUES)
    if typed.type == pa.string():
        lines = [None if text is None else json.dumps(text) for text in typed.to_pylist()]
    elif typed.type == pa.binary():
        lines = [None, "null", '""', '"AP8K"']
        assert [None, None, b"", b"\x00\xff\n"] == converter.encode(
            pa.array(lines, pa.json_())
        ).to_pylist()
        return
    else:
        lines = typed.storage.to_pylist()

    assert VALUES.equals(converter.encode(pa.array(lines, pa.json_())))
