"""What `kbackup.converters.Converter` promises, as tests."""

import pickle

import pyarrow as pa
import pytest

from kbackup.converters import Converter

VALUES = pa.array([b'"a"', None, b"12", b'{"a":[1,null]}', '"é"'.encode()], pa.binary())
"""JSON texts, which converters of bytes, text and JSON all accept."""


def decoded(converter: Converter, column: pa.Array) -> pa.Array:
    """Return the values of *column* as in a file; none of them may be bad."""
    columns = converter.decode(column)
    assert not [bad for each in columns for bad in each.bad]
    return pa.concat_arrays([each.values for each in columns])


class ConverterContract:
    """A subclass provides a configured fixture ``converter``.

    If the samples are not values of the converter, it also overrides the fixture ``values``:
    five binary values, the second one null.
    """

    @pytest.fixture
    def values(self) -> pa.Array:
        """Five values as they are in Kafka, the second one null."""
        return VALUES

    def test_bytes_come_back(self, converter: Converter, values: pa.Array) -> None:
        """
        What was read from Kafka goes back to Kafka unchanged, null as null.
        """
        assert values.equals(converter.encode(decoded(converter, values)))

    def test_null_stays_null(self, converter: Converter) -> None:
        """
        A tombstone is a tombstone in every form.
        """
        typed = decoded(converter, pa.nulls(3, pa.binary()))

        assert (3, 3) == (typed.null_count, converter.encode(typed).null_count)

    def test_a_part_of_a_column_is_like_a_column(
        self, converter: Converter, values: pa.Array
    ) -> None:
        """
        Batches are sliced without copying; each part can be converted by itself.
        """
        part = values.slice(2, 3)

        assert part.equals(converter.encode(decoded(converter, part)))
        assert part.equals(converter.encode(decoded(converter, values).slice(2, 3)))

    def test_a_column_of_no_rows_converts(self, converter: Converter) -> None:
        """
        A batch may be empty, and even then has one column.
        """
        none = pa.array([], pa.binary())

        assert none.equals(converter.encode(decoded(converter, none)))

    def test_columns_together_have_the_rows(self, converter: Converter, values: pa.Array) -> None:
        """
        Each run of rows with the same schema is a column; a schema crosses processes as plain data.
        """
        columns = converter.decode(values)

        assert columns
        assert len(values) == sum(len(each.values) for each in columns)
        for each in columns:
            assert each.schema == pickle.loads(pickle.dumps(each.schema))  # noqa: S301
            if each.schema is None:
                assert each.values.type in (pa.binary(), pa.string(), pa.json_())

    def test_it_says_what_holds_without_properties(self, converter: Converter) -> None:
        """
        If a converter is assumed, its defaults are sufficient.
        """
        type(converter)().configure(converter.defaults)
