"""What `Partitioner` and `kbackup.partitioners.extractors` promise, as tests."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kbackup.naming import Layout, ObjectKey
from kbackup.partitioners import Partitioner
from kbackup.partitioners.extractors import TimestampExtractor
from kbackup.records import NO_TIMESTAMP, SCHEMA, TopicPartition

WHERE = TopicPartition("orders", 3)


def records(count: int = 12) -> pa.RecordBatch:
    """Return records of every kind: with and without key, value, headers and timestamp."""
    rows = [
        {
            "offset": 100 + 3 * at,
            "timestamp": NO_TIMESTAMP if at % 5 == 4 else 1_700_000_000_000 + 977_000 * at,
            "timestamp_type": 1,
            "key": None if at % 4 == 3 else b"k%d" % (at % 3),
            "value": None if at % 6 == 5 else b'{"n":%d}' % at,
            "headers": [{"key": "trace", "value": b"%d" % at}] * (at % 3),
        }
        for at in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


class PartitionerContract:
    """A subclass provides a fixture ``partitioner``.

    If it needs the value as it is in a file, it overrides the fixture ``batch``.
    """

    @pytest.fixture
    def batch(self) -> pa.RecordBatch:
        """What `route` hands over."""
        rows = records()
        with_values = rows.append_column("decoded", rows["value"].cast(pa.string()))
        times = rows["timestamp"]
        times = pc.if_else(pc.equal(times, NO_TIMESTAMP), pa.scalar(None, pa.int64()), times)
        return with_values.append_column("time", times)

    def test_each_row_has_one_directory(
        self, partitioner: Partitioner, batch: pa.RecordBatch
    ) -> None:
        """
        Each record has one row: text, or null if it has no directory, with a reason.
        """
        found = partitioner.encode(WHERE, batch)

        assert len(batch) == len(found)
        assert pa.types.is_string(found.cast(pa.string()).type)
        if found.null_count:
            assert partitioner.traits.no_directory[0]

    def test_it_depends_on_the_records_alone(
        self, partitioner: Partitioner, batch: pa.RecordBatch
    ) -> None:
        """
        Records go to the same directories, however and however often they arrive in batches.
        """
        whole = partitioner.encode(WHERE, batch).cast(pa.string()).to_pylist()
        each = [
            partitioner.encode(WHERE, batch.slice(row, 1)).cast(pa.string())[0].as_py()
            for row in range(len(batch))
        ]

        assert whole == each
        assert whole[3:9] == partitioner.encode(WHERE, batch.slice(3, 6)).to_pylist()
        assert [] == partitioner.encode(WHERE, batch.slice(0, 0)).to_pylist()

    def test_a_directory_can_be_part_of_a_key(
        self, partitioner: Partitioner, batch: pa.RecordBatch
    ) -> None:
        """
        What is written to a directory is found there again.
        """
        layout = Layout()
        for name in {*partitioner.encode(WHERE, batch).cast(pa.string()).to_pylist()} - {None}:
            key = layout.key(ObjectKey("orders", 3, 100, name, ".bin"))
            assert name == layout.parse(key).encoded_partition


class ExtractorContract:
    """A subclass provides a configured fixture ``extractor``."""

    @pytest.fixture
    def batch(self) -> pa.RecordBatch:
        """What `route` hands over."""
        rows = records()
        return rows.append_column("decoded", rows["value"].cast(pa.string()))

    def test_each_row_has_one_time(
        self, extractor: TimestampExtractor, batch: pa.RecordBatch
    ) -> None:
        """
        A time is in ms since the epoch, or null if there is none; never Kafka's -1.
        """
        found = extractor.extract(batch, 1_700_000_000_000)

        assert (len(batch), pa.int64()) == (len(found), found.type)
        assert NO_TIMESTAMP not in found.to_pylist()

    def test_no_other_clock_is_read(
        self, extractor: TimestampExtractor, batch: pa.RecordBatch
    ) -> None:
        """
        The same records and the same "now" give the same times, in batches of any size.
        """
        whole = extractor.extract(batch, 1_600_000_000_000).to_pylist()

        assert whole == [
            extractor.extract(batch.slice(row, 1), 1_600_000_000_000)[0].as_py()
            for row in range(len(batch))
        ]
        assert [] == extractor.extract(batch.slice(0, 0), 0).to_pylist()
