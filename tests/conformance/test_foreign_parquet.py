"""Parquet files of other projects, damaged ones among them: none is taken for full records."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_samples import OPTIONS

from tests.conformance.product import CorruptObjectError, ParquetFormat, View

INTEROP = Path(__file__).parents[2] / "../shared/interop"
FILES = sorted(INTEROP.rglob("*.parquet"))


def parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a file as pyarrow alone writes it."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


PLAIN = parquet(pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}))
LOOKALIKE = pa.table({"offset": ["0"], "timestamp": [1.5], "key": ["k"], "value": ["v"]})
OURS = {
    "another schema": PLAIN,
    "no rows": parquet(pa.table({"id": pa.array([], pa.int64())})),
    "our columns, other types": parquet(LOOKALIKE),
    "nested": parquet(pa.table({"a": [{"b": [1, 2], "c": None}]}), compression="zstd"),
    "cut short": PLAIN[: len(PLAIN) // 2],
    "end alone": PLAIN[-8:],
    "magic alone": b"PAR1PAR1",
    "nothing": b"",
    "text": b"offset,key,value\n0,k,v\n",
}
"""Files of other projects in small, damaged ones among them."""


@pytest.mark.parametrize("data", OURS.values(), ids=OURS)
def test_what_is_not_ours_is_refused_in_words(data: bytes) -> None:
    """Parquet of another schema, and what only claims to be Parquet, is never read as records."""
    with pytest.raises(CorruptObjectError) as caught:
        list(ParquetFormat().read(io.BytesIO(data), View.RECORD, ".parquet", OPTIONS))

    assert caught.value.why


@pytest.mark.skipif(not FILES, reason="the collection is not beside the checkout")
@pytest.mark.parametrize("path", FILES or [Path("none")], ids=lambda path: path.name)
def test_a_foreign_file_is_refused_in_words(path: Path) -> None:
    """A file that another program wrote or damaged is reported as foreign, and is not read."""
    with path.open("rb") as file, pytest.raises(CorruptObjectError) as caught:
        list(ParquetFormat().read(file, View.RECORD, ".parquet", OPTIONS))

    assert caught.value.why
