"""A query's result, written in the requested form."""

import json
from collections.abc import Iterator
from datetime import datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kbackup import moments
from kbackup.backup.shown import shown_bytes


def columns(answer: pa.Table) -> dict[str, bool]:
    """Return whether each column holds numbers; repeated names are numbered."""
    kinds = (field.type for field in answer.schema)
    return dict(zip(_distinct(answer.column_names), map(_is_number, kinds), strict=True))


def text_rows(answer: pa.Table) -> Iterator[list[str | None]]:
    """Yield the cells of each row as text; None is null."""
    for row in _rows(answer):
        yield [_text(value) for value in row.values()]


def as_bytes(answer: pa.Table, form: str) -> bytes:
    """Return a result as the contents of a file.

    Args:
        answer: The rows.
        form: ``json`` for an object per line, with bytes as ``restore peek`` shows them and times
            in RFC 3339; ``parquet``; or CSV, where null is an empty field and an empty text is
            ``""``, so that they stay distinct.
    """
    if form == "json":
        return b"".join(line.encode() + b"\n" for line in _json_lines(answer))
    out = BytesIO()
    if form == "parquet":
        pq.write_table(answer.rename_columns(list(columns(answer))), out, compression="zstd")
    else:
        pa_csv.write_csv(_as_text(answer), out)
    return out.getvalue()


def _json_lines(answer: pa.Table) -> Iterator[str]:
    for row in _rows(answer):
        yield json.dumps({name: _json(value) for name, value in row.items()})


def _as_text(answer: pa.Table) -> pa.Table:
    """Return a result with everything but numbers as text."""
    texts = list(zip(*text_rows(answer), strict=True)) or [()] * answer.num_columns
    return pa.table(
        {
            name: found if is_number else pa.array(text, pa.string())
            for (name, is_number), found, text in zip(
                columns(answer).items(), answer.columns, texts, strict=True
            )
        }
    )


def _rows(answer: pa.Table) -> Iterator[dict[str, Any]]:
    names = answer.column_names  # two columns may have the same name
    for batch in answer.to_batches(max_chunksize=1024):
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(_distinct(names), values, strict=True))


def _distinct(names: list[str]) -> list[str]:
    """Return *names*, with repeated ones numbered."""
    found: list[str] = []
    for name in names:
        number, one = 2, name
        while one in found:
            number, one = number + 1, f"{name}_{number}"
        found.append(one)
    return found


def _json(value: Any) -> Any:
    match value:
        case bytes():
            return shown_bytes(value)
        case datetime():
            return value.isoformat() if value.tzinfo is None else moments.in_its_zone(value)
        case dict():
            return {name: _json(one) for name, one in value.items()}
        case list() | tuple():
            return [_json(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)  # a decimal, a date


def _text(value: Any) -> str | None:
    shown = _json(value)
    if shown is None or isinstance(shown, str):
        return shown
    return json.dumps(shown, ensure_ascii=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
