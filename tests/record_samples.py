"""Records and files for the tests: strategies, and files written and read in one call."""

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from kbackup.formats import Format, FormatOptions
from kbackup.naming import View
from kbackup.records import SCHEMA

COLUMNS: Final = {View.VALUE: "value", View.KEY: "key", View.HEADERS: "headers"}
OPTIONS: Final = FormatOptions()

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
parts = st.none() | st.binary(max_size=20)
headers = st.lists(st.fixed_dictionaries({"key": texts, "value": parts}), max_size=4)

_PARTS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "timestamp": st.none() | st.integers(-(2**63), 2**63 - 1),
    "timestamp_type": st.integers(0, 2),
    "key": parts,
    "value": parts,
    "headers": headers,
}
_DRAWN: Final = 6
"""So many rows of a batch are drawn, and the others mixed of their parts: to draw one takes longer
than most of what is done with it."""

_rows = st.fixed_dictionaries(dict(_PARTS))
_mixtures = st.integers(0, _DRAWN ** len(_PARTS) - 1)


@st.composite
def record_batches(draw: st.DrawFn, max_size: int = 40) -> pa.RecordBatch:
    """Return rows of ``records.SCHEMA`` with rising offsets, nulls and empties among them."""
    count = draw(st.integers(0, max_size))
    offset = draw(st.integers(0, 2**62))
    rows: list[dict[str, Any]] = []
    for at in range(count):
        row = draw(_rows) if at < _DRAWN else _mixed(rows, draw(_mixtures))
        rows.append({**row, "offset": offset})
        offset += draw(st.integers(1, 1000))
    return batch_of(rows)


def _mixed(rows: Sequence[Mapping[str, Any]], mixture: int) -> dict[str, Any]:
    """Return a row whose parts are those of the first ones, each as a digit says."""
    row = {}
    for name in _PARTS:
        mixture, at = divmod(mixture, _DRAWN)
        row[name] = rows[at][name]
    return row


def batch_of(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return *rows* of ``records.SCHEMA``; what a row does not name is the usual."""
    usual = {"timestamp": 1_700_000_000_000, "timestamp_type": 1, "key": None, "headers": []}
    return pa.RecordBatch.from_pylist(
        [{"offset": at, "value": b"", **usual, **row} for at, row in enumerate(rows)], SCHEMA
    )


def cut_up(batch: pa.RecordBatch, cuts: Iterable[int]) -> list[pa.RecordBatch]:
    """Return *batch* in parts, empty ones too, that end at *cuts*."""
    ends = [0, *sorted(min(cut, len(batch)) for cut in cuts), len(batch)]
    return [batch.slice(start, end - start) for start, end in pairwise(ends)]


def write(
    form: Format,
    view: View,
    batches: Iterable[pa.RecordBatch],
    options: FormatOptions = OPTIONS,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of a file."""
    file = io.BytesIO()
    writer = form.writer(file, view, options)
    for batch in batches:
        writer.write(batch)
    writer.close(metadata or {})
    return file.getvalue()


def read(
    form: Format, view: View, data: bytes, options: FormatOptions = OPTIONS
) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    batches = form.read(io.BytesIO(data), view, form.extension(options), options)
    return [row for batch in batches for row in batch.to_pylist()]
