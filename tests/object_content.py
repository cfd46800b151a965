"""What objects of the connectors' layout hold, by other libraries than kbackup's readers."""

import gzip
import io
import json
import math
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow.parquet as pq

from kbackup.stores import Store


@dataclass(frozen=True)
class Content:
    """What is equal where two objects hold the same."""

    about: Any  # schema and codec; None where the format has none
    rows: list[Any]  # the records; one, of all bytes, where nothing tells where a record ends


def stored(store: Store) -> dict[str, bytes]:
    """Every object but kbackup's own records, by key."""
    found = {}
    for entry in store.list(""):
        if "_kbackup/" not in entry.key:
            with store.open(entry.key) as body:
                found[entry.key] = body.read()
    return found


def content(key: str, data: bytes) -> Content:
    """Decode an object by the extension of its key."""
    if key.endswith(".avro"):
        reader = fastavro.reader(io.BytesIO(data))
        return Content((_named(reader.writer_schema), reader.codec), _comparable(list(reader)))
    if key.endswith(".parquet"):
        file = pq.ParquetFile(io.BytesIO(data))
        avro = json.loads((file.metadata.metadata or {})[b"parquet.avro.schema"])
        about = _named(fastavro.parse_schema(avro)), file.schema_arrow.names
        return Content(about, _comparable(file.read().to_pylist()))
    plain = gzip.decompress(data) if key.endswith(".gz") else data
    if key.removesuffix(".gz").endswith(".json"):
        return Content(None, [TaskChannel(text) for text in plain.split(b"\n") if text])
    return Content(None, [plain])


@dataclass(frozen=True, eq=False)
class TaskChannel:
    """A line of JSON.  Equal to one of equal values, and of equal bytes if its keys come alike."""

    text: bytes

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskChannel):
            return NotImplemented
        if json.loads(self.text, object_pairs_hook=list) == json.loads(
            other.text, object_pairs_hook=list
        ):
            return self.text == other.text
        return bool(json.loads(self.text) == json.loads(other.text))


def _comparable(value: Any) -> Any:
    """Return *value* with one NaN for all, so that a row equals itself."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _named(schema: Any) -> Any:
    """Return an Avro schema with full names, as fastavro keeps it."""
    if isinstance(schema, list):
        return [_named(each) for each in schema]
    if isinstance(schema, dict):
        kept = {key: _named(value) for key, value in schema.items() if not key.startswith("__")}
        if "namespace" in kept:
            kept["name"] = f"{kept.pop('namespace')}.{kept['name']}"
        return kept
    return schema
