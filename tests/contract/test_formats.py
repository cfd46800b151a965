"""Every format that is registered keeps the promises of `kbackup.formats.Format`."""

import io
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from record_samples import COLUMNS, OPTIONS, batch_of, cut_up, read, write

from tests.contract.product import (
    HEADERS,
    ConfigurationError,
    CorruptObjectError,
    Format,
    FormatOptions,
    View,
    converters,
    decoded,
    formats,
    plugins,
    taken,
)

FORMATS = [plugin.name for plugin in plugins.installed("formats")]
COMPRESSED = FormatOptions({"parquet.codec": "gzip", "s3.compression.type": "gzip"})

RECORDS = batch_of(
    [
        {"key": b"a", "value": b"1", "headers": [{"key": "n", "value": b"0"}] * 2},
        {"key": None, "value": None, "headers": [{"key": "", "value": None}]},
        {"key": b"", "value": b"", "headers": [{"key": "n", "value": b""}], "timestamp": -1},
        {"offset": 2**53 + 1, "key": b"\x00\n\xff", "value": b"\n", "timestamp_type": 2},
    ]
)
TEXTS = pa.array([b"1", b"", b"two words", "é😀".encode()], pa.binary())
JSON = pa.array([b'{"a":1}', b'""', b"[1.5,true]", b'"x"'], pa.binary())
PAIRS = pa.array([[{"key": "a", "value": "1"}] * 2, [], [{"key": "", "value": ""}]], HEADERS)


def holds(form: Format, view: View) -> bool:
    try:
        form.writer(io.BytesIO(), view, OPTIONS)
    except ConfigurationError:
        return False
    return True


def samples() -> Iterator[Any]:
    """Yield each format with each view it holds, and a batch of every type it takes for it."""
    converted = [
        ("bytes", {}, TEXTS),
        ("string", {}, TEXTS),
        ("json", {"schemas.enable": "false"}, JSON),
    ]
    for name in FORMATS:
        form = formats.by_name(name)
        if holds(form, View.RECORD):
            yield pytest.param(form, View.RECORD, RECORDS, id=f"{name} records")
        if holds(form, View.HEADERS):
            batch = pa.record_batch([PAIRS], ["headers"])
            yield pytest.param(form, View.HEADERS, batch, id=f"{name} headers")
        for view in (View.VALUE, View.KEY):
            for converter, properties, column in converted if holds(form, view) else ():
                typed = decoded(converters.by_name(converter, properties), column)
                batch = pa.record_batch([typed], [COLUMNS[view]])
                if not takes(form, view, batch):
                    continue
                batch = pa.record_batch([taken(form, view, typed)], [COLUMNS[view]])
                if len(batch):
                    title = f"{name} {COLUMNS[view]} {converter}"
                    yield pytest.param(form, view, batch, id=title)


def takes(form: Format, view: View, batch: pa.RecordBatch) -> bool:
    try:
        form.writer(io.BytesIO(), view, OPTIONS).write(batch)
    except ConfigurationError:
        return False
    return True


every_sample = pytest.mark.parametrize(("form", "view", "batch"), list(samples()))
every_format = pytest.mark.parametrize("name", FORMATS)


@every_sample
@pytest.mark.parametrize(
    "options", [pytest.param(OPTIONS, id="plain"), pytest.param(COMPRESSED, id="gzip")]
)
def test_what_is_written_is_read(
    form: Format, view: View, batch: pa.RecordBatch, options: FormatOptions
) -> None:
    """A file has the rows that were written, in order, and written again gives the same file."""
    data = write(form, view, [batch], options)

    batches = [*form.read(io.BytesIO(data), view, form.extension(options), options)]

    assert len(batch) == sum(len(each) for each in batches)
    assert data == write(form, view, batches, options) or "binary" in str(batch.schema)


@every_sample
def test_batches_leave_no_trace(form: Format, view: View, batch: pa.RecordBatch) -> None:
    """A retry gets the same records in other batches, and must write the same bytes."""
    whole = write(form, view, [batch])

    assert whole == write(form, view, cut_up(batch, [0, 1, 1, 3]))
    assert whole == write(form, view, [batch.slice(row, 1) for row in range(len(batch))])


@every_sample
def test_the_file_stays_open(form: Format, view: View, batch: pa.RecordBatch) -> None:
    """A format never closes the file it was given, neither after writing nor after reading."""
    file = io.BytesIO()
    writer = form.writer(file, view, OPTIONS)
    writer.write(batch)
    writer.close({})
    del writer
    after_writing = file.closed
    file.seek(0)
    rows = form.read(file, view, form.extension(OPTIONS), OPTIONS)
    count = sum(len(each) for each in rows)
    del rows

    assert (False, False, len(batch)) == (after_writing, file.closed, count)


@every_sample
def test_an_empty_file_is_no_backup(form: Format, view: View, batch: pa.RecordBatch) -> None:
    """An empty file is damaged: it is not a backup of zero records."""
    with pytest.raises(CorruptObjectError):
        read(form, view, b"")


@every_sample
def test_a_file_is_read_as_it_is_asked_for(form: Format, view: View, batch: pa.RecordBatch) -> None:
    """The first rows are available before the rest of a long file has been read."""
    is_records = view is View.RECORD
    many = _many() if is_records else pa.concat_batches([batch] * (2**21 // batch.nbytes))
    file = Counted(write(form, view, [many]))

    rows = form.read(file, view, form.extension(OPTIONS), OPTIONS)
    first = next(rows)

    assert 0 < len(first) < len(many)
    size = len(file.getvalue())
    assert file.taken < size or size < 2**16  # a small Parquet file comes with its footer


@every_format
def test_its_extension_leads_back_to_it(name: str) -> None:
    """A restore finds the format of a file by its extension, compressed or not."""
    form = formats.by_name(name)

    for options in (OPTIONS, COMPRESSED):
        extension = form.extension(options)
        assert extension.startswith(".")
        assert name == formats.by_extension(extension, options)
    assert not form.reads(".txt", OPTIONS)


@every_format
def test_a_connectors_class_name_stands_for_it(name: str) -> None:
    """A connector's configuration names formats by their Java classes."""
    for simple in formats.by_name(name).traits.class_names:
        assert name == plugins.by_class_name("formats", f"io.confluent.connect.s3.{simple}")


@every_format
def test_a_view_it_cannot_hold_is_refused_at_once(name: str) -> None:
    """A view that a format cannot hold is refused before any record is read."""
    form = formats.by_name(name)
    refused = [view for view in View if view not in form.traits.views]

    for view in refused:
        with pytest.raises(ConfigurationError, match=name):
            form.writer(io.BytesIO(), view, OPTIONS)
        with pytest.raises(ConfigurationError, match=name):
            form.read(io.BytesIO(b"x"), view, form.extension(OPTIONS), OPTIONS)
    assert len(refused) < len(View)


@every_format
def test_a_row_that_it_cannot_hold_is_named(name: str) -> None:
    """A record that no file of the format can hold is refused before any part of it is written."""
    form = formats.by_name(name)
    if not holds(form, View.KEY):
        pytest.skip("holds no keys of their own")
    keys = pa.array([b"a", b"b", None, b"c"], pa.binary())

    assert [2] == [bad.row for bad in form.refuses(View.KEY, keys, OPTIONS)]
    assert [1] == [bad.row for bad in form.refuses(View.KEY, keys.slice(1), OPTIONS)]
    assert not form.refuses(View.KEY, keys.drop_null(), OPTIONS)


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def _many() -> pa.RecordBatch:
    random = Random(1)
    return batch_of([{"value": random.randbytes(60)} for _ in range(40_000)])
