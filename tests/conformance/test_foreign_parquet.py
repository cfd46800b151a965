"""Parquet files of other projects, damaged ones among them: none is taken for whole records."""

from pathlib import Path

import pytest
from record_samples import OPTIONS

from kbackup.errors import CorruptObjectError
from kbackup.formats.parquet import ParquetFormat
from kbackup.naming import View

INTEROP = Path(__file__).parents[2] / "../shared/interop"
FILES = sorted(INTEROP.rglob("*.parquet"))


@pytest.mark.skipif(not FILES, reason="no files of other projects here")
@pytest.mark.parametrize("path", FILES or [Path("none")], ids=lambda path: path.name)
def test_a_foreign_file_is_refused_in_words(path: Path) -> None:
    """
    What another program wrote, or broke, is named as not ours, and nothing of it is read.
    """
    with path.open("rb") as file, pytest.raises(CorruptObjectError) as caught:
        list(ParquetFormat().read(file, View.RECORD, ".parquet", OPTIONS))

    assert caught.value.why
