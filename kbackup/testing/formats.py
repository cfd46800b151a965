"""What `kbackup.formats.Format` promises, as tests."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kbackup import converters, plugins
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import COLUMNS, Format, FormatOptions
from kbackup.naming import View
from kbackup.pipeline.views import HEADERS_AS_TEXT
from kbackup.records import SCHEMA
from kbackup.testing.converters import decoded

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
        pairs = [[{"key": "a", "value": "1"}] * 2, [{"key": "", "value": ""}]] * 2
        yield pa.record_batch([pa.array(pairs, HEADERS_AS_TEXT)], ["headers"])
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
    batches = form.read(io.BytesIO(data), view, form.extension(OPTIONS), OPTIONS)
    return pa.Table.from_batches([*batches])


@pytest.mark.parametrize("view", list(View), ids=lambda view: view.name)
class FormatContract:
    """A subclass provides a fixture ``form``."""

    def test_what_is_written_is_read(self, form: Format, view: View) -> None:
        """
        A file has the rows that were written, in order.
        """
        for batch in samples(form, view) if view in form.traits.views else ():
            found = rows(form, view, written(form, view, batch))

            assert len(batch) == len(found)
            if view is View.RECORD:
                assert batch.to_pylist() == found.to_pylist()
            else:
                again = pa.Table.from_batches([*found.to_batches()])
                assert found.equals(again)

    def test_batches_leave_no_trace(self, form: Format, view: View) -> None:
        """
        A retry gets the same records in other batches, and must write the same bytes.
        """
        for batch in samples(form, view) if view in form.traits.views else ():
            whole = written(form, view, batch)

            assert whole == written(form, view, *(batch.slice(row, 1) for row in range(len(batch))))
            assert whole == written(form, view, batch.slice(0, 0), batch)

    def test_a_file_that_was_cut_short_is_no_shorter_backup(self, form: Format, view: View) -> None:
        """
        A file truncated anywhere but after a row is an error, and so is an empty file.
        """
        for batch in samples(form, view) if view in form.traits.views else ():
            data = written(form, view, batch)

            with pytest.raises(CorruptObjectError):
                rows(form, view, b"")
            with pytest.raises(CorruptObjectError):
                rows(form, view, data[:-1])

    def test_a_view_it_cannot_hold_is_refused_at_once(self, form: Format, view: View) -> None:
        """
        What a format cannot hold is known before any record is read.
        """
        if view in form.traits.views:
            return
        with pytest.raises(ConfigurationError):
            form.writer(io.BytesIO(), view, OPTIONS)
        with pytest.raises(ConfigurationError):
            form.read(io.BytesIO(b"x"), view, form.extension(OPTIONS), OPTIONS)

    def test_a_row_that_it_cannot_hold_is_named(self, form: Format, view: View) -> None:
        """
        A bad row is numbered in the given column, even if that is a slice of another.
        """
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
        """
        A restore finds the format of a file by its extension.
        """
        extension = form.extension(OPTIONS)

        assert extension.startswith(".")
        assert form.reads(extension, OPTIONS)
        assert not form.reads(".txt", OPTIONS)
