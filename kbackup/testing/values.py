"""Contract tests of `kbackup.converters.Converter` and `kbackup.transforms.Transform`."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from kbackup.converters import Converter
from kbackup.records import SCHEMA, Column, Schema
from kbackup.transforms import Transform
from kbackup.transforms.data import Records

VALUES = pa.array([b'"a"', None, b"12", b'{"a":[1,null]}', '"é"'.encode()], pa.binary())
"""JSON texts, which converters of bytes, text and JSON all accept."""

FOREIGN = [
    pytest.param(
        pa.array(
            ['"a"', None, "12", '{"a":[1,null]}', "null", '"AP8K"', '"\\uD800"', "1e999", "true"],
            pa.json_(),
        ),
        id="JSON",
    ),
    pytest.param(pa.array([70_000, None, 7, -(2**40)], pa.int64()), id="int64"),
    pytest.param(pa.array([1.5, None, 2.0], pa.float64()), id="double"),
    pytest.param(pa.array([{"a": 1}, None, {"a": None}]), id="struct"),
    pytest.param(pa.array([(1, 2, 3), None], pa.month_day_nano_interval()), id="interval"),
]
"""Columns of files that something else has written: hardly any converter accepts all values."""


def decoded(converter: Converter, column: pa.Array) -> pa.Array:
    """Return the values of *column* as in a file; none of them may be bad."""
    columns = converter.decode(column)
    assert not [bad for each in columns for bad in each.bad]
    return pa.concat_arrays([each.values for each in columns])


def encoded(converter: Converter, column: pa.Array, schema: Schema | None = None) -> pa.Array:
    """Return the bytes of *column*; none of its values may be bad."""
    made = converter.encode(column, *(() if schema is None else (schema,)))
    assert made.bad == ()
    return made.values


def _back(converter: Converter, column: pa.Array) -> pa.Array:
    """Return the bytes of what *converter* makes of *column*; no value may be bad."""
    return pa.concat_arrays(
        [encoded(converter, each.values, each.schema) for each in converter.decode(column)]
    )


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
        """What was read from Kafka goes back to Kafka unchanged, null as null."""
        assert values.equals(_back(converter, values))

    def test_null_stays_null(self, converter: Converter) -> None:
        """A tombstone is a tombstone in every form."""
        typed = decoded(converter, pa.nulls(3, pa.binary()))

        assert (3, 3) == (typed.null_count, encoded(converter, typed).null_count)

    def test_a_part_of_a_column_is_like_a_column(
        self, converter: Converter, values: pa.Array
    ) -> None:
        """Batches are sliced without copying; each part can be converted by itself."""
        part, whole = values.slice(2, 3), converter.decode(values)[0]
        typed = whole.values.slice(2, 3)

        assert part.equals(_back(converter, part))
        assert part.slice(0, len(typed)).equals(encoded(converter, typed, whole.schema))

    def test_a_column_of_no_rows_converts(self, converter: Converter) -> None:
        """A batch may be empty, and even then has one column."""
        none = pa.array([], pa.binary())

        assert none.equals(encoded(converter, decoded(converter, none)))

    @pytest.mark.parametrize("column", FOREIGN)
    def test_a_value_that_cannot_be_written_is_named_and_the_others_are_written(
        self, converter: Converter, column: pa.Array
    ) -> None:
        """Each value of a foreign file becomes bytes or is bad, whatever the values beside it."""
        made = converter.encode(column)
        alone = [converter.encode(column.slice(row, 1)) for row in range(len(column))]
        bad = [each.row for each in made.bad]

        assert [row for row, each in enumerate(alone) if each.bad] == bad
        assert made.values.equals(pa.concat_arrays([each.values for each in alone]))
        assert pa.binary() == made.values.type
        for row in bad:
            assert (True, False) == (column[row].is_valid, made.values[row].is_valid)
        for row, value in enumerate(made.values):
            assert value.is_valid or row in bad or column[row].as_py() in (None, "null")

    def test_columns_together_have_the_rows(self, converter: Converter, values: pa.Array) -> None:
        """
        Each run of rows with the same schema is a column; a schema crosses processes as plain data.
        """
        columns = converter.decode(values)

        assert columns
        assert len(values) == sum(len(each.values) for each in columns)
        for each in columns:
            assert each.schema == pickle.loads(pickle.dumps(each.schema))  # noqa: S301
            assert each.kind in converter.traits.gives or each.values.null_count == len(each.values)
            if each.schema is None:
                assert each.values.type in (pa.binary(), pa.string(), pa.json_())

    def test_it_says_what_holds_without_properties(self, converter: Converter) -> None:
        """If a converter is assumed, its defaults are sufficient."""
        type(converter)().configure(converter.traits.defaults)


_TEXTS = ['{"a":1,"b":"x"}', None, '{"b":null,"c":{"d":1700000000000}}', "{}", "7", '{"a":2}']


def sample(rows: int = len(_TEXTS)) -> Records:
    """Return records of JSON objects without a schema, including null and a number."""
    header = {"key": "h", "value": b"1"}
    columns = {
        "offset": [10 + 2 * at for at in range(rows)],
        "timestamp": [1_700_000_000_000 + at for at in range(rows)],
        "timestamp_type": [1] * rows,
        "key": [b'{"k":%d}' % at for at in range(rows)],
        "value": [None if text is None else text.encode() for text in _TEXTS[:rows]],
        "headers": [[header] * (at % 3) for at in range(rows)],
    }
    batch = pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )
    json = {
        name: pa.ExtensionArray.from_storage(pa.json_(), batch[name].cast(pa.string()))
        for name in ("key", "value")
    }
    return Records.of(batch, "orders", 3, Column(json["key"]), Column(json["value"]))


def _rows(records: Records) -> list[Any]:
    """Return the records as rows, offsets first."""
    parts = [records.batch["offset"], records.topics.cast(pa.string()), records.headers]
    for data in (records.key, records.value):
        assert data is not None
        values = data.values
        parts.append(values.storage if isinstance(values, pa.ExtensionArray) else values)
    return list(zip(*(part.to_pylist() for part in parts), strict=True))


class TransformContract:
    """A subclass provides a configured fixture ``transform``."""

    @pytest.fixture
    def records(self) -> Records:
        """Records that it may be applied to."""
        return sample()

    def test_each_record_stays_is_refused_or_is_counted(
        self, transform: Transform, records: Records
    ) -> None:
        """No record is lost or repeated, and offsets stay in order."""
        found = transform.apply(records)

        given, kept = records.batch["offset"].to_pylist(), found.batch["offset"].to_pylist()
        refused = [offset for offset, _ in found.refused]
        assert sorted({*kept, *refused}) == sorted([*kept, *refused])
        assert kept == [offset for offset in given if offset in kept]
        assert set(refused) <= set(given)
        assert len(given) == len(kept) + len(refused) + len(found.left_out)

    def test_columns_stay_together(self, transform: Transform, records: Records) -> None:
        """Each record keeps a topic, headers, and a valid key and value."""
        found = transform.apply(records)

        assert len(found) == len(found.topics) == len(found.headers)
        assert 0 == found.topics.null_count
        assert all(
            data is None or len(data.values) == len(found) for data in (found.key, found.value)
        )
        assert SCHEMA.equals(found.batch.schema)

    def test_a_part_of_the_records_is_like_all_of_them(
        self, transform: Transform, records: Records
    ) -> None:
        """Batches may be cut anywhere; the result for a record depends on that record alone."""
        whole = _rows(transform.apply(records))
        halves = []
        for start, end in ((0, 2), (2, len(records))):
            rows = pa.array(range(start, end), pa.int64())
            halves += _rows(transform.apply(records.take(rows)))

        assert whole == halves

    def test_no_records_are_no_records(self, transform: Transform, records: Records) -> None:
        """No records in means no records out."""
        none = records.take(pa.array([], pa.int64()))

        assert 0 == len(transform.apply(none))

    def test_its_options_have_names_of_their_own(self, transform: Transform) -> None:
        """Each option is one property of a file."""
        names = [
            name for option in transform.traits.options for name in (option.name, *option.aliases)
        ]

        assert len(set(names)) == len(names)
        assert not {"type", "predicate", "negate"} & set(names)
