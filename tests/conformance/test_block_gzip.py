"""Objects of the block-gzip sink, an older S3 sink for Kafka: read by name, index and content."""

import hashlib
import io
import json
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from record_samples import OPTIONS

from tests.conformance.product import (
    BlockGzipFormat,
    DatedLayout,
    JsonFormat,
    Reading,
    ReadOptions,
    Store,
    StoreSettings,
    TopicPartition,
    View,
    listing,
    open_store,
    peek,
    records,
)

FOLDER: Final = Path(__file__).parent / "block_gzip"
FILES: Final = sorted(FOLDER.glob("*.gz"))
LAYOUT: Final = DatedLayout("systest", file_delim="-", offset_width=12)


@pytest.fixture
def store() -> Store:
    """The bucket as the sink left it: no object carries facts."""
    found = open_store(StoreSettings(f"memory://{uuid4()}"))
    bodies = {f"systest/2016-02-24/{path.name}": path.read_bytes() for path in FOLDER.iterdir()}
    newest = "systest/2016-02-24/system-test-00000-000000000200.index.json"
    bodies["systest/last_chunk_index.system-test-00000.txt"] = newest.encode()
    for key, body in bodies.items():
        digest = hashlib.sha256(body).hexdigest()
        found.put(key, io.BytesIO(body), sha256=digest, metadata={})
    return found


@pytest.mark.parametrize("form", [JsonFormat(), BlockGzipFormat()], ids=["json", "block_gzip"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_member_is_read(path: Path, form: JsonFormat | BlockGzipFormat) -> None:
    """A file has the records of all its members, as many as its index says."""
    chunks = json.loads(path.with_suffix(".index.json").read_bytes())["chunks"]
    file = io.BytesIO(path.read_bytes())

    batches = form.read(file, View.VALUE, ".json.gz", OPTIONS)
    values = [json.loads(row["value"]) for batch in batches for row in batch.to_pylist()]

    assert sum(chunk["num_records"] for chunk in chunks) == len(values)
    assert {"bar"} == {value["foo"] for value in values}


def test_a_bucket_of_the_sink_is_a_backup(store: Store) -> None:
    """Each partition from first record to last, at the offsets that names and indexes say."""
    found = listing.list_backup(store, LAYOUT, OPTIONS)

    assert (0, ["system-test"]) == (found.foreign_count, found.topics())
    ends = {}
    for where, sets in found.sets.items():
        read = records(Reading(store, ReadOptions()), sets)
        rows = [row for each in read for row in each.to_pylist()]
        assert list(range(len(rows))) == [row["offset"] for row in rows]
        assert {"bar"} == {json.loads(row["value"])["foo"] for row in rows}
        ends[where.partition] = len(rows)
    assert {0: 233, 1: 33, 2: 34} == ends


def test_a_record_in_the_middle_is_the_one_at_its_offset(store: Store) -> None:
    """The values of partition 0 count from 0 to 99 and on, as their offsets do."""
    found = listing.list_backup(store, LAYOUT, OPTIONS).sets[TopicPartition("system-test", 0)]
    assert all(files.index is not None for files in found)

    (record,) = peek(store, LAYOUT, ReadOptions(), "system-test:0@142", count=1)

    assert (142, 142) == (record["offset"], json.loads(str(record["payload"]))["counter"])
