"""Gzip of many members, as an older S3 sink for Kafka wrote it beside an index of its members."""

import io
import json
from pathlib import Path

import pytest
from record_samples import OPTIONS

from kbackup.formats.json_lines import JsonFormat
from kbackup.naming import View

FILES = sorted((Path(__file__).parent / "block_gzip").glob("*.gz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_member_is_read(path: Path) -> None:
    """
    A file has the records of all its members, as many as its index says.
    """
    chunks = json.loads(path.with_suffix(".index.json").read_bytes())["chunks"]
    file = io.BytesIO(path.read_bytes())

    batches = JsonFormat().read(file, View.VALUE, ".json.gz", OPTIONS)
    values = [json.loads(row["value"]) for batch in batches for row in batch.to_pylist()]

    assert sum(chunk["num_records"] for chunk in chunks) == len(values)
    assert {"bar"} == {value["foo"] for value in values}
