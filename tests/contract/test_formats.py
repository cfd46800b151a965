"""Every format that is registered keeps the promises of `kbackup.formats.Format`."""

import io
from collections.abc import Iterator
from random import Random
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from record_samples import OPTIONS, batch_of

from tests.contract.product import (
    Files,
    Format,
    FormatContract,
    FormatOptions,
    View,
    columns,
    formats,
    plugins,
)

FORMATS = [plugin.name for plugin in plugins.installed("formats")]
COMPRESSED = FormatOptions({"parquet.codec": "gzip", "s3.compression.type": "gzip"})

_ROWS = pa.array([{"n": 7, "s": "é😀", "in": {"b": b""}}, {"n": None, "s": "", "in": None}])
_WORDS = pa.array([b"four", b"\n\xff\0 ", None, b"five5"], pa.binary())
VALUES = {"avro": [_ROWS], "parquet": [_ROWS], "fixed": [_WORDS]}
"""Columns that a format takes beside those of the converters, by its name."""
GIVEN: dict[str, dict[str, Any]] = {"fixed": {"fixed.width": 4}}
"""Options that a format cannot do without, by its name."""

every_format = pytest.mark.parametrize("name", FORMATS)


class TestFormats(FormatContract):
    @pytest.fixture(params=FORMATS)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def form(self, name: str) -> Format:
        return formats.by_name(name)

    @pytest.fixture
    def options(self, name: str) -> FormatOptions:
        return FormatOptions(GIVEN.get(name, {}))

    @pytest.fixture
    def values(self, name: str, form: Format) -> list[pa.Array]:
        return [*columns(form), *VALUES.get(name, ())]

    def test_what_is_read_is_written_again_as_it_was(self, files: Files) -> None:
        """A backup of what was restored gives the same file."""
        for batch in files.samples():
            data = files.written(batch)

            again = read(files, io.BytesIO(data))

            assert data == files.written(*again) or "binary" in str(batch.schema)

    def test_a_file_is_read_as_it_is_asked_for(self, files: Files) -> None:
        """The first rows are available before the rest of a long file has been read."""
        for batch in files.samples():
            is_records = files.view is View.RECORD
            many = _many() if is_records else pa.concat_batches([batch] * (2**21 // batch.nbytes))
            file = Counted(files.written(many))

            first = next(read(files, file))

            assert 0 < len(first) < len(many)
            size = len(file.getvalue())
            assert file.taken < size or size < 2**16  # a small Parquet file comes with its footer


@every_format
def test_its_extension_leads_back_to_it(name: str) -> None:
    """A restore finds the format of a file by its extension, compressed or not."""
    for options in (OPTIONS, COMPRESSED):
        assert name == formats.by_extension(formats.by_name(name).extension(options), options)


@every_format
def test_a_connectors_class_name_stands_for_it(name: str) -> None:
    """A connector's configuration names formats by their Java classes."""
    for simple in formats.by_name(name).traits.class_names:
        assert name == plugins.by_class_name("formats", f"io.confluent.connect.s3.{simple}")


@pytest.mark.parametrize(
    "name", [name for name in FORMATS if View.KEY in formats.by_name(name).traits.views]
)
def test_a_key_that_is_null_is_named(name: str) -> None:
    """A key that no file of the format can hold is refused before any part of it is written."""
    form = formats.by_name(name)
    keys = pa.array([b"a", b"b", None, b"c"], pa.binary())

    assert [2] == [bad.row for bad in form.refuses(View.KEY, keys, OPTIONS)]
    assert [1] == [bad.row for bad in form.refuses(View.KEY, keys.slice(1), OPTIONS)]
    assert not form.refuses(View.KEY, keys.drop_null(), OPTIONS)


def read(files: Files, file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Read a file of the format."""
    extension = files.form.extension(files.options)
    return files.form.read(file, files.view, extension, files.options)


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
