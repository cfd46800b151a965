"""What Spark asks of a backup."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from backup_samples import Backup

from kbackup.config.loading import load
from kbackup.inspect.source import Found, QueryReader
from kbackup.records import Facts

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""All columns of its table, as Spark names their types."""


def found(backup: Backup, known: Sequence[str] = ()) -> Found:
    """Return what a backup holds, with facts about the objects *known*."""
    options = {"store_url": backup.settings.url}
    listed = Found.read(load("query", options=options, files=(), environ={}).settings)
    return replace(listed, facts={key: facts(backup, key) for key in known})


def facts(backup: Backup, key: str) -> Facts:
    """Return what an object says of its records."""
    head = backup.store.head(key)
    assert head is not None
    stored = Facts.from_metadata(head.metadata)
    assert stored is not None
    return stored


def read(of: Found, *columns: str) -> pa.Table:
    """Return the rows of a source, or some columns of them."""
    schema = pa.schema([SCHEMA.field(name) for name in columns or SCHEMA.names])
    reader = QueryReader(of, schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, schema)
