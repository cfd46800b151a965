import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.connect.registry.framing import alike, framed, unframed


@given(st.lists(st.none() | st.binary(max_size=8)), st.integers(0, 2**31 - 1))
def test_heads_come_off_as_they_went_on(values: list[bytes | None], schema_id: int) -> None:
    """Removing schema ids from values restores the values, null as null and empty as empty."""
    column = pa.array(values, pa.binary())

    frames = unframed(framed(schema_id, column))

    assert values == frames.bodies.to_pylist()
    assert [None if each is None else schema_id for each in values] == frames.ids.to_pylist()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\0\0\1", id="cut short"),
        pytest.param(b"\1\0\0\0\1a", id="another magic byte"),
        pytest.param(b'{"a":1}', id="JSON"),
    ],
)
def test_what_has_no_head_has_no_id(value: bytes) -> None:
    """Nothing is guessed about bytes that no serializer of a registry wrote."""
    frames = unframed(pa.array([value, b"\0\0\0\0\1", None], pa.binary()))

    assert ([None, 1, None], [None, b"", None]) == (
        frames.ids.to_pylist(),
        frames.bodies.to_pylist(),
    )


def test_a_part_of_a_column_is_like_a_column() -> None:
    """A slice of a column is read like a whole column."""
    column = pa.array([b"\0\0\0\0\1a", b"\0\0\0\0\2b", b"\0\0\0\0\3c"], pa.binary()).slice(1)

    assert ([2, 3], [b"b", b"c"]) == (
        unframed(column).ids.to_pylist(),
        unframed(column).bodies.to_pylist(),
    )


@pytest.mark.parametrize(
    ("values", "schema_id"),
    [
        pytest.param([b"\0\0\0\0\1a", b"\0\0\0\0\1", b"\0\0\0\0\1bc"], 1, id="one schema"),
        pytest.param([b"\0\0\0\0\1a", b"\0\0\0\0\2a"], None, id="two schemas"),
        pytest.param([b"\0\0\0\0\1a", None], None, id="null"),
        pytest.param([b"\0\0\0\0\1a", b"\0\0\0\0"], None, id="cut short"),
        pytest.param([b"{}", b"{}"], None, id="no head"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_rows_of_one_schema_are_seen_at_once(
    values: list[bytes | None], schema_id: int | None
) -> None:
    """What is found at once is what is found row by row, in a part of a column too."""
    for column in (pa.array(values, pa.binary()), pa.array([b"x", *values], pa.binary()).slice(1)):
        found = alike(column)

        assert (schema_id is not None) == (found is not None)
        if found is not None:
            frames = unframed(column)
            assert schema_id == found[0]
            assert frames.bodies.equals(found[1])
