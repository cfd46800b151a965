"""Rows of other tools that hold whole records: which field is the key, the value, the time.

Such a row is a JSON object, one for each record; ``record.fields`` names its fields::

    {"key": "azE=", "value": "djE=", "timestamp": "2026-11-22T17:00:00Z", "headers": []}
    {"key": "k1", "value": {"n": 1}, "headers": {"a": "b"}, "metadata": {"timestamp": 17953}}
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pyarrow as pa

from kbackup.errors import CorruptObjectError
from kbackup.records import SCHEMA, TimestampType

PARTS: Final = ("key", "value", "timestamp", "headers")
"""What a row may hold of a record.  Offsets are counted from the object's name instead."""

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Envelope:
    """How rows hold records; plain data.

    Attributes:
        fields: The field of each part of `PARTS`, dots between the names of nested fields; a part
            that is not there is not stored.
        encoding: How key, value and headers are written: ``text`` as it is, and what is no text as
            JSON; ``json``: all of it JSON; ``base64``.
    """

    fields: Mapping[str, str]
    encoding: str = "text"

    def opened(self, rows: pa.BinaryArray, start: int) -> pa.RecordBatch:
        """Return the records that *rows*, JSON objects, hold; their offsets begin at *start*.

        Returns:
            ``records.SCHEMA``.

        Raises:
            CorruptObjectError: If a row is no object, has no field of the value's name, or has a
                part that is not of its kind.
        """
        paths = {part: tuple(path.split(".")) for part, path in self.fields.items()}
        records = []
        for row, text in enumerate(rows.to_pylist()):
            try:
                records.append({**self._record(orjson.loads(text or b"null"), paths)})
            except (ValueError, binascii.Error) as error:
                what = f"row {start + row} cannot be read by record.fields"
                raise CorruptObjectError(what, str(error), "correct record.fields") from None
        for row, record in enumerate(records):
            record["offset"] = start + row
        return pa.RecordBatch.from_pylist(records, SCHEMA)

    def _record(self, row: Any, paths: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
        parts = {part: _at(row, path) for part, path in paths.items()}
        if parts.get("value", _ABSENT) is _ABSENT:
            raise ValueError(f"it has no field {self.fields.get('value', 'value')}")
        moment = _moment(parts.get("timestamp", _ABSENT))
        kind = TimestampType.NONE if moment is None else TimestampType.CREATE
        return {
            "timestamp": moment,
            "timestamp_type": int(kind),
            "key": self._bytes(parts.get("key", _ABSENT)),
            "value": self._bytes(parts["value"]),
            "headers": list(self._headers(parts.get("headers", _ABSENT))),
        }

    def _bytes(self, value: Any) -> bytes | None:
        if value is None or value is _ABSENT:
            return None
        if self.encoding == "base64":
            if not isinstance(value, str):
                raise ValueError("it is not base64, but no text at all")
            return base64.b64decode(value, validate=True)
        if isinstance(value, str) and self.encoding == "text":
            return value.encode()
        return orjson.dumps(value)

    def _headers(self, found: Any) -> Iterator[dict[str, Any]]:
        if found is None or found is _ABSENT:
            return
        pairs = found.items() if isinstance(found, dict) else map(_pair, _list(found))
        for name, value in pairs:
            yield {"key": name, "value": self._bytes(value)}


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError("its headers are neither a list nor an object")  # noqa: TRY004
    return found


def _pair(header: Any) -> tuple[str, Any]:
    if not (isinstance(header, dict) and isinstance(header.get("key"), str)):
        raise ValueError('a header is not {"key":...,"value":...}')  # noqa: TRY004
    return header["key"], header.get("value")


def _at(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(row, dict):
            return _ABSENT
        row = row.get(name, _ABSENT)
    return row


def _moment(found: Any) -> int | None:
    """Return ms since the epoch of a number of them, or of a text in RFC 3339."""
    if found is None or found is _ABSENT:
        return None
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, str) and found.lstrip("-").isdecimal():
        return int(found)
    if not isinstance(found, str):
        raise ValueError("its timestamp is neither a number nor a text")  # noqa: TRY004
    at = datetime.fromisoformat(found)
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
