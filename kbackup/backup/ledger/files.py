"""The files of a stream of the ledger: their names, and the rows in them.

::

    8204999999999-5f3a9c1e2b7d4a60.parquet                          a part: rows of one append
    8204999999000-0c11d2aa93e8b754.1795000001000.snapshot.parquet   all that was there before

A name begins with the time it was made, counted downwards, so that the newest file is listed
first.  A snapshot's name carries its *watermark*: `stream` says what that means.
"""

import io
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kbackup import __version__
from kbackup.errors import CorruptObjectError, NewerVersionError

VERSION: Final = 1
"""Of the files; a reader refuses a later one."""

_TOP: Final = 9_999_999_999_999
_NAME: Final = re.compile(
    r"(?P<down>\d{13})-[0-9a-f]{16}(?:\.(?P<watermark>\d{13})\.snapshot)?\.parquet", re.ASCII
)
_PART_CODEC: Final = "snappy"
_SNAPSHOT_CODEC: Final = "zstd"
"""In a column of a few rows, zstd's frames cost more bytes than it saves, and half the time."""

_VERSION_KEY: Final = b"kbackup.ledger"
_WRITER_KEY: Final = b"kbackup.version"


@dataclass(frozen=True, slots=True)
class Name:
    """A file's name, in parts; *watermark* is None for a part."""

    text: str
    time_ms: int
    watermark: int | None

    @classmethod
    def parse(cls, text: str) -> "Name | None":
        """Return the parts of a file's name; None if it is foreign."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        watermark = match["watermark"]
        return cls(text, _TOP - int(match["down"]), None if watermark is None else int(watermark))


def stamped(rows: pa.Table, counter: int) -> pa.Table:
    """Return *rows* with *counter*."""
    at = rows.schema.get_field_index("counter")
    return rows.set_column(
        at, rows.schema.field(at), pa.repeat(pa.scalar(counter, pa.int64()), len(rows))
    )


def new_name(time_ms: int, watermark: int | None = None) -> str:
    """Return a name that no other file has: of a snapshot with a watermark, of a part without."""
    snapshot = "" if watermark is None else f".{watermark:013d}.snapshot"
    return f"{_TOP - time_ms:013d}-{secrets.token_hex(8)}{snapshot}.parquet"


def encoded(
    rows: pa.Table,
    schema: pa.Schema,
    metadata: Mapping[bytes, str],
    *,
    is_snapshot: bool = False,
) -> bytes:
    """Return the bytes of a file that holds *rows*, cast to *schema*, and *metadata*."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression=_SNAPSHOT_CODEC if is_snapshot else _PART_CODEC,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    ) as writer:  # fmt: skip  (half the bytes of a part would be what is left out)
        writer.write_table(_as(rows, schema))
        writer.add_key_value_metadata(
            {_VERSION_KEY: str(VERSION), _WRITER_KEY: __version__, **metadata}
        )
    return sink.getvalue()


def parsed(key: str, body: bytes, schema: pa.Schema) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Return the rows of a file, and its metadata.

    Args:
        key: For errors.
        body: The whole file.
        schema: Of the rows to return; other columns are left out.

    Raises:
        NewerVersionError: If it is of a later version.
        ArrowException: If it is damaged; or `OSError`, `KeyError` or `ValueError`.
    """
    file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False)
    metadata = file.metadata.metadata or {}
    if (found := int(metadata[_VERSION_KEY])) > VERSION:
        writer = metadata.get(_WRITER_KEY, b"").decode(errors="replace")
        raise NewerVersionError.of(key, found, VERSION, writer, key=key)
    if file.schema_arrow.equals(schema):
        return file.read(use_threads=False), metadata
    rows = file.read(columns=schema.names, use_threads=False)
    for later in schema:
        if later.nullable and later.name not in rows.column_names:  # an earlier version wrote it
            rows = rows.append_column(later, pa.nulls(len(rows), later.type))
    return _as(rows.select(schema.names), schema), metadata


def damaged(key: str, error: Exception) -> CorruptObjectError:
    """Return the error of a file that cannot be read, with the first line of why."""
    why = str(error).splitlines() or [repr(error)]
    return CorruptObjectError(key, f"it is damaged: {why[0]}", key=key)


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return *rows* as they are where they fit already: a cast looks at each column."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)
