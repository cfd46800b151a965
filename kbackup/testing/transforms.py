"""What `kbackup.transforms.Transform` promises, as tests."""

from typing import Any

import pyarrow as pa
import pytest

from kbackup.records import SCHEMA, Column
from kbackup.transforms import Transform
from kbackup.transforms.data import Records

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
        """
        No record is lost or repeated, and offsets stay in order.
        """
        found = transform.apply(records)

        given, kept = records.batch["offset"].to_pylist(), found.batch["offset"].to_pylist()
        refused = [offset for offset, _ in found.refused]
        assert sorted({*kept, *refused}) == sorted([*kept, *refused])
        assert kept == [offset for offset in given if offset in kept]
        assert set(refused) <= set(given)
        assert len(given) == len(kept) + len(refused) + len(found.left_out)

    def test_columns_stay_together(self, transform: Transform, records: Records) -> None:
        """
        Each record keeps a topic, headers, and a valid key and value.
        """
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
        """
        Batches may be cut anywhere; the result for a record depends on that record alone.
        """
        whole = _rows(transform.apply(records))
        halves = []
        for start, end in ((0, 2), (2, len(records))):
            rows = pa.array(range(start, end), pa.int64())
            halves += _rows(transform.apply(records.take(rows)))

        assert whole == halves

    def test_no_records_are_no_records(self, transform: Transform, records: Records) -> None:
        """
        No records in means no records out.
        """
        none = records.take(pa.array([], pa.int64()))

        assert 0 == len(transform.apply(none))

    def test_its_options_have_names_of_their_own(self, transform: Transform) -> None:
        """
        Each option is one property of a file.
        """
        names = [
            name for option in transform.traits.options for name in (option.name, *option.aliases)
        ]

        assert len(set(names)) == len(names)
        assert not {"type", "predicate", "negate"} & set(names)
