import pyarrow as pa
import pytest

from kbackup.converters.byte_array import ByteArrayConverter
from kbackup.errors import BadRecordError
from kbackup.testing import decoded


def test_bytes_are_bytes() -> None:
    """
    Nothing is done to them.
    """
    column = pa.array([b"\x00\xff", b"", None], pa.binary())

    assert column.equals(decoded(ByteArrayConverter(), column))
    assert column.equals(ByteArrayConverter().encode(column))


def test_a_json_file_has_them_as_base64() -> None:
    """
    What the JSON format made of bytes becomes bytes again.
    """
    column = pa.array(['"AP8K"', '""', "null", None, '"+\\/8="'], pa.json_())

    assert [b"\x00\xff\n", b"", None, None, b"\xfb\xff"] == ByteArrayConverter().encode(
        column
    ).to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"a"', id="length"),
        pytest.param('"a b="', id="blank"),
        pytest.param('"é==="', id="not ASCII"),
        pytest.param("12", id="number"),
        pytest.param('{"a":1}', id="object"),
        pytest.param('"\\uD800"', id="half a pair"),
    ],
)
def test_what_is_not_base64_is_named(text: str) -> None:
    """
    A backup of another converter is not turned into bytes by guess.
    """
    with pytest.raises(BadRecordError, match="base64") as caught:
        ByteArrayConverter().encode(pa.array(['"AP8K"', text], pa.json_()))

    assert 1 == caught.value.row
