"""Contract tests of `kbackup.formats.Format`, `Partitioner` and its extractors."""

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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

_TEXTS = pa.array([b"1", b'"two words"', b"true", '"é😀"'.encode()], pa.binary())


def columns(form: Format) -> Iterator[pa.Array]:
    """Yield four values as each installed converter gives them that goes with *form*."""
    for found in plugins.installed("converters"):
        if not form.traits.takes.isdisjoint(plugins.load("converters", found.name).traits.gives):
            with suppress(AssertionError, ConfigurationError):  # not its values, needs a registry
                yield decoded(converters.by_name(found.name), _TEXTS)


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one view, of a format with its options, for columns of values."""

    form: Format
    view: View
    options: FormatOptions
    values: Sequence[pa.Array]

    def samples(self) -> list[pa.RecordBatch]:
        """Return batches to write if it writes the view; some values then, or the test fails."""
        if self.form.traits.reads_only or self.view not in self.form.traits.views:
            return []
        if self.view is View.RECORD:
            rows = [
                (7, 1, 1, b"", None, [("n", None), ("n", b"")]),
                (2**53 + 1, -1, 2, None, b"\n\xff", []),
                (2**53 + 2, 0, 0, b"k", b"v", []),
            ]
            arrays = map(pa.array, zip(*rows, strict=True), SCHEMA.types)
            return [pa.RecordBatch.from_arrays([*arrays], schema=SCHEMA)]
        name, found, whys = COLUMNS[self.view], [], set()
        if self.view is View.HEADERS:
            pairs = [[{"key": "a", "value": "1"}] * 2, [], [{"key": "", "value": ""}]] * 2
            return [pa.record_batch([pa.array(pairs, HEADERS)], [name])]
        for column in self.values:
            bad = {each.row: each for each in self.form.refuses(self.view, column, self.options)}
            whys |= {f"{each.what}: {each.why}" for each in bad.values()}
            taken = column.filter(pa.array([row not in bad for row in range(len(column))], "bool"))
            found += [pa.record_batch([taken], [name])] if len(taken) else []
        if not found:  # nothing would be tested
            why = "; ".join(sorted(whys)) or "no installed converter goes with it"
            do = "give columns that it takes as the fixture `values`, what it needs as `options`"
            pytest.fail(f"{self.form} takes no {name} of the samples: {why}; {do}")
        return found

    def written(self, *batches: pa.RecordBatch) -> bytes:
        """Return the bytes of a file."""
        file = io.BytesIO()
        writer = self.form.writer(file, self.view, self.options)
        for batch in batches:
            writer.write(batch)
        writer.close({})
        assert not file.closed
        return file.getvalue()

    def rows(self, data: bytes) -> pa.Table:
        """Return the contents of a file."""
        file = io.BytesIO(data)
        extension = self.form.extension(self.options)
        found = pa.Table.from_batches(self.form.read(file, self.view, extension, self.options))
        assert not file.closed
        return found


class FormatContract:
    """A subclass provides a fixture ``form``.

    If it needs options, or takes none of the samples, it overrides ``options`` or ``values``.
    """

    @pytest.fixture
    def options(self) -> FormatOptions:
        """The configuration of its files."""
        return FormatOptions()

    @pytest.fixture
    def values(self, form: Format) -> Sequence[pa.Array]:
        """Columns as converters give them; it may refuse some of their rows."""
        return [*columns(form)]

    @pytest.fixture(params=list(View), ids=lambda view: view.name)
    def files(self, request: Any, form: Format, options: FormatOptions, values: Any) -> Files:
        """Its files of each view."""
        return Files(form, request.param, options, values)

    @pytest.fixture
    def view(self, files: Files) -> View:
        """The view of the files."""
        return files.view

    def test_what_is_written_is_read(self, files: Files) -> None:
        """A file has the rows that were written, in order; text may come back as another type."""
        for batch in files.samples():
            found = files.rows(files.written(batch))

            assert len(batch) == len(found)
            if batch.schema.types == found.schema.types or pa.types.is_nested(batch[0].type):
                assert batch.to_pylist() == found.to_pylist()

    def test_batches_leave_no_trace(self, files: Files) -> None:
        """A retry gets the same records in other batches, and must write the same bytes."""
        for batch in files.samples():
            whole = files.written(batch)

            assert whole == files.written(*(batch.slice(row, 1) for row in range(len(batch))))
            assert whole == files.written(batch.slice(0, 0), batch)

    def test_a_file_that_was_cut_short_is_no_shorter_backup(self, files: Files) -> None:
        """A file truncated anywhere but after a row is an error, and so is an empty file."""
        for batch in files.samples():
            data = files.written(batch)

            with pytest.raises(CorruptObjectError):
                files.rows(b"")
            with pytest.raises(CorruptObjectError):
                files.rows(data[:-1])

    def test_a_view_it_cannot_hold_is_refused_at_once(self, files: Files) -> None:
        """What a format cannot hold is known before any record is read."""
        if files.view in files.form.traits.views:
            return
        with pytest.raises(ConfigurationError):
            files.form.writer(io.BytesIO(), files.view, files.options)
        extension = files.form.extension(files.options)
        with pytest.raises(ConfigurationError):  # and not when the first rows are asked for
            files.form.read(io.BytesIO(b"x"), files.view, extension, files.options)

    def test_a_row_that_it_cannot_hold_is_named(self, files: Files) -> None:
        """A bad row is numbered in the given column, even if that is a slice of another."""
        form, view, options = files.form, files.view, files.options
        for batch in files.samples() if view in (View.KEY, View.VALUE) else ():
            column = pa.concat_arrays([batch.column(0), pa.nulls(1, batch.column(0).type)])

            bad = [found.row for found in form.refuses(view, column, options)]
            assert bad in ([], [len(batch)])
            assert [row - 1 for row in bad] == [
                found.row for found in form.refuses(view, column.slice(1), options)
            ]

    def test_its_extension_is_its_own(self, form: Format, options: FormatOptions) -> None:
        """A restore finds the format of a file by its extension."""
        extension = form.extension(options)

        assert extension.startswith(".")
        assert form.reads(extension, options)
        assert not form.reads(".txt", options)


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
