"""Columns that come in runs of one schema each, seen together and row by row."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kbackup.columns import Bad, Column
from kbackup.naming import View

_STAGES: Final = {View.KEY: "KEY_CONVERTER", View.VALUE: "VALUE_CONVERTER"}


def sliced(columns: Sequence[Column], start: int, end: int) -> Column:
    """Return the rows from *start* to *end* of columns, which are under one schema there."""
    column, row = column_at(columns, start)
    return Column(column.values.slice(row, end - start), column.schema)


def by_row(runs: Sequence[Sequence[Column]]) -> dict[int, Bad]:
    """Return the first complaint about each row of the batch."""
    found: dict[int, Bad] = {}
    for columns in runs:
        start = 0
        for column in columns:
            for bad in column.bad:
                found.setdefault(start + bad.row, bad)
            start += len(column.values)
    return found


def stages_of(runs: Mapping[View, Sequence[Column]]) -> dict[int, str]:
    """Return for each row that a converter could not convert, whose converter that was."""
    found: dict[int, str] = {}
    for view, columns in runs.items():
        stage = _STAGES.get(view)
        if stage is not None:
            found = dict.fromkeys(by_row([columns]), stage) | found
    return found


def stretches(runs: Sequence[Sequence[Column]], rows: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where all views stay under their schemas; once where there is no row."""
    ends = {0, rows}
    for columns in runs:
        ends.update(itertools.accumulate(len(column.values) for column in columns))
    yield from itertools.pairwise(sorted(ends)) if rows else [(0, 0)]


def column_at(columns: Sequence[Column], row: int) -> tuple[Column, int]:
    """Return the column that has *row* of the batch, and its row there."""
    for column in columns:
        if row < len(column.values):
            return column, row
        row -= len(column.values)
    return columns[-1], 0  # of no rows
