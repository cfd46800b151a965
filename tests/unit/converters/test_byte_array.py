import pyarrow as pa
import pytest

from kbackup.converters.primitives import ByteArrayConverter
from kbackup.testing import encoded


def test_a_json_file_has_them_as_base64() -> None:
    """Base64 that the JSON format wrote is decoded to the original bytes."""
    column = pa.array(['"AP8K"', '""', "null", None, '"+\\/8="'], pa.json_())

    assert [b"\x00\xff\n", b"", None, None, b"\xfb\xff"] == encoded(
        ByteArrayConverter(), column
    ).to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"a"', id="length"),
        pytest.param('"a b="', id="blank"),
        pytest.param('"AP 8K"', id="blank within"),
        pytest.param('"é==="', id="not ASCII"),
        pytest.param("12", id="number"),
        pytest.param('{"a":1}', id="object"),
        pytest.param('"\\uD800"', id="half a pair"),
    ],
)
def test_what_is_not_base64_is_named(text: str) -> None:
    """A backup of another converter is not turned into bytes by guess."""
    made = ByteArrayConverter().encode(pa.array([text, '"AP8K"', None, text], pa.json_()))

    assert [None, b"\x00\xff\n", None, None] == made.values.to_pylist()
    assert [(0, "it is not a string of base64"), (3, "it is not a string of base64")] == [
        (bad.row, bad.why) for bad in made.bad
    ]
