"""Numbers as Kafka's serializers write them."""

import pyarrow as pa
import pytest

from kbackup import converters
from kbackup.testing import decoded, encoded


@pytest.mark.parametrize(
    ("name", "data", "number"),
    [
        pytest.param("short", b"\x01\x02", 258, id="short"),
        pytest.param("integer", b"\x00\x00\x01\x02", 258, id="integer"),
        pytest.param("long", bytes(6) + b"\x01\x02", 258, id="long"),
        pytest.param("double", b"\x3f\xf8" + bytes(6), 1.5, id="double"),
        pytest.param("boolean", b"\x01", True, id="boolean"),
    ],
)
def test_the_first_byte_of_a_number_is_its_highest(name: str, data: bytes, number: float) -> None:
    """Numbers have the byte order of Kafka's own serializers."""
    converter = converters.by_name(name)
    column = pa.array([data, None], pa.binary())

    typed = decoded(converter, column)

    assert [number, None] == typed.to_pylist()
    assert column.equals(encoded(converter, typed))


def test_bytes_of_another_length_are_no_number() -> None:
    """A value of a byte too many is named, and the others are read."""
    column = pa.array([bytes(4), bytes(5), bytes(3)], pa.binary())

    [found] = converters.by_name("integer").decode(column)

    assert ([0, None, None], [1, 2]) == (found.values.to_pylist(), [bad.row for bad in found.bad])
