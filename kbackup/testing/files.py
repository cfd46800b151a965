"""Contract tests of `kbackup.formats.Format`, `Partitioner` and its extractors."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kbackup import converters, plugins
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import COLUMNS, HEADERS, Format, FormatOptions
from kbackup.naming import Layout, ObjectKey, View
from kbackup.partitioners import Partitioner
from kbackup.partitioners.extractors import TimestampExtractor
from kbackup.records import NO_TIMESTAMP, SCHEMA, TopicPartition
from kbackup.testing.values import decoded

OPTIONS = FormatOptions()
_TEXTS = pa.array([b"1", b'"two words"', b"true", '"é😀"'.encode()], pa.binary())


def samples(form: Format, view: View) -> Iterator[pa.RecordBatch]:
    """Yield a batch of each kind that *form* accepts for *view*."""
    if form.traits.reads_only:
        return
    if view is View.RECORD:
        rows = [
            {"offset": 7, "timestamp": 1, "timestamp_type": 1, "key": b"", "value": None,
             "headers": [{"key": "n", "value": None}, {"key": "n", "value": b""}]},
            {"offset": 2**53 + 1, "timestamp": -1, "timestamp_type": 2, "key": None,
             "value": b"\n\xff", "headers": []},
            {"offset": 2**53 + 2, "timestamp": 0, "timestamp_type": 0, "key": b"k",
             "value": b"v", "headers": []},
        ]  # fmt: skip
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)
    elif view is View.HEADERS:
        pairs = [[{"key": "a", "value": "1"}] * 2, [], [{"key": "", "value": ""}]] * 2
        yield pa.record_batch([pa.array(pairs, HEADERS)], ["headers"])
    else:
        installed = [found.name for found in plugins.installed("converters")]
        for name in installed:
            if form.traits.takes.isdisjoint(plugins.load("converters", name).traits.gives):
                continue
            try:
                typed = decoded(converters.by_name(name), _TEXTS)
            except (AssertionError, ConfigurationError):  # not its values, or it needs a registry
                continue
            batch = pa.record_batch([taken(form, view, typed)], [COLUMNS[view]])
            if len(batch):  # none is, such as JSON, if a file needs a schema
                yield batch


def taken(form: Format, view: View, values: pa.Array) -> pa.Array:
    """Return those of *values* that a file of *form* can hold."""
    refused = pa.array([bad.row for bad in form.refuses(view, values, OPTIONS)], pa.int64())
    return values.filter(pc.invert(pc.is_in(pa.array(range(len(values))), refused)))


def written(form: Format, view: View, *batches: pa.RecordBatch) -> bytes:
    """Return the bytes of a file."""
    file = io.BytesIO()
    writer = form.writer(file, view, OPTIONS)
    for batch in batches:
        writer.write(batch)
    writer.close({})
    assert not file.closed
    return file.getvalue()


def rows(form: Format, view: View, data: bytes) -> pa.Table:
    """Return the contents of a file."""
    file = io.BytesIO(data)
    batches = [*form.read(file, view, form.extension(OPTIONS), OPTIONS)]
    assert not file.closed
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("view", list(View), ids=lambda view: view.name)
class FormatContract:
    """A subclass provides a fixture ``form``."""

    def test_what_is_written_is_read(self, form: Format, view: View) -> None:
        """A file has the rows that were written, in order."""
        for batch in samples(form, view) if view in form.traits.views else ():
            found = rows(form, view, written(form, view, batch))

            assert len(batch) == len(found)
            if batch.schema.types == found.schema.types:
                assert batch.to_pylist() == found.to_pylist()

    def test_batches_leave_no_trace(self, form: Format, view: View) -> None:
        """A retry gets the same records in other batches, and must write the same bytes."""
        for batch in samples(form, view) if view in form.traits.views else ():
            whole = written(form, view, batch)

            assert whole == written(form, view, *(batch.slice(row, 1) for row in range(len(batch))))
            assert whole == written(form, view, batch.slice(0, 0), batch)

    def test_a_file_that_was_cut_short_is_no_shorter_backup(self, form: Format, view: View) -> None:
        """A file truncated anywhere but after a row is an error, and so is an empty file."""
        for batch in samples(form, view) if view in form.traits.views else ():
            data = written(form, view, batch)

            with pytest.raises(CorruptObjectError):
                rows(form, view, b"")
            with pytest.raises(CorruptObjectError):
                rows(form, view, data[:-1])

    def test_a_view_it_cannot_hold_is_refused_at_once(self, form: Format, view: View) -> None:
        """What a format cannot hold is known before any record is read."""
        if view in form.traits.views:
            return
        with pytest.raises(ConfigurationError):
            form.writer(io.BytesIO(), view, OPTIONS)
        with pytest.raises(ConfigurationError):
            form.read(io.BytesIO(b"x"), view, form.extension(OPTIONS), OPTIONS)

    def test_a_row_that_it_cannot_hold_is_named(self, form: Format, view: View) -> None:
        """A bad row is numbered in the given column, even if that is a slice of another."""
        if view not in form.traits.views or view not in (View.KEY, View.VALUE):
            return
        for batch in samples(form, view):
            column = pa.concat_arrays([batch.column(0), pa.nulls(1, batch.column(0).type)])

            bad = [found.row for found in form.refuses(view, column, OPTIONS)]
            assert bad in ([], [len(batch)])
            assert [row - 1 for row in bad] == [
                found.row for found in form.refuses(view, column.slice(1), OPTIONS)
            ]

    def test_its_extension_is_its_own(self, form: Format, view: View) -> None:  # noqa: ARG002
        """A restore finds the format of a file by its extension."""
        extension = form.extension(OPTIONS)

        assert extension.startswith(".")
        assert form.reads(extension, OPTIONS)
        assert not form.reads(".txt", OPTIONS)


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
        """Each record has one row: text, or null if it has no directory, with a reason."""
        found = partitioner.encode(WHERE, batch)

        assert len(batch) == len(found)
        assert pa.types.is_string(found.cast(pa.string()).type)
        if found.null_count:
            assert partitioner.traits.no_directory[0]

    def test_it_depends_on_the_records_alone(
        self, partitioner: Partitioner, batch: pa.RecordBatch
    ) -> None:
        """Records go to the same directories, however and however often they arrive in batches."""
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
        """What is written to a directory is found there again."""
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
        """A time is in ms since the epoch, or null if there is none; never Kafka's -1."""
        found = extractor.extract(batch, 1_700_000_000_000)

        assert (len(batch), pa.int64()) == (len(found), found.type)
        assert NO_TIMESTAMP not in found.to_pylist()

    def test_no_other_clock_is_read(
        self, extractor: TimestampExtractor, batch: pa.RecordBatch
    ) -> None:
        """The same records and the same "now" give the same times, in batches of any size."""
        whole = extractor.extract(batch, 1_600_000_000_000).to_pylist()

        assert whole == [
            extractor.extract(batch.slice(row, 1), 1_600_000_000_000)[0].as_py()
            for row in range(len(batch))
        ]
        assert [] == extractor.extract(batch.slice(0, 0), 0).to_pylist()
