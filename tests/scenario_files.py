"""Runs of the real S3 sink connector, each in a folder, and another folder of such folders.

``KBACKUP_OBJECTS`` names a folder of the same form; without it the copies beside the conformance
tests are run.  A scenario holds ``scenario.json`` (the connector's configuration and how it ended),
``input_records.jsonl`` (what it was given), ``objects.json`` (what came of it) and the objects.
"""

import base64
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pytest

from kbackup.stores import Store

COPIES: Final = Path(__file__).parent / "conformance" / "scenarios"
FOLDER: Final = Path(os.environ.get("KBACKUP_OBJECTS", COPIES))
CONVERTERS: Final = "org.apache.kafka.connect."
BYTES: Final = f"{CONVERTERS}converters.ByteArrayConverter"
JSON: Final = f"{CONVERTERS}json.JsonConverter"
STRING: Final = f"{CONVERTERS}storage.StringConverter"

ENDS: Final = {
    "avro-codec-xz": 0,
    "bytes-null-fail": 1,
    "keys-headers-null-json": 1,
    "keys-null-key": 1,
    "time-bad-timezone": 2,
    "tombstones-fail": 1,
}
"""The exit codes with which kbackup ends where the connector failed."""

IN_THE_GATE: Final = frozenset({
    "avro-quickstart", "bytes-gzip", "bytes-null-fail", "daily-record", "field-region",
    "json-schemaless", "keys-headers-avro", "offset-gaps", "parquet-snappy", "time-bad-timezone",
    "time-rotate-interval", "tombstones-write",
})  # fmt: skip
"""Those that the gate runs in a real cluster: each format, partitioner, view and rotation once.

The content of the others' objects is the conformance tests', which need no server.
"""

LOST_DIGITS: Final = {-1.0e20: "/yw95DEzEl8AAAE="}
"""Inputs name decimals as doubles.  Decimals that no double holds, as the connector was given them.
"""


@dataclass(frozen=True)
class Given:
    """A record that the connector was given.

    A key or value is null or an object with ``$bytes``, with ``$schemaless``, or with ``schema``
    and ``payload``.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Sequence[Any]


@dataclass(frozen=True)
class Listed:
    """An object that the connector wrote; *records* is None where nothing tells them."""

    key: str
    body: bytes
    sha256: str
    topic: str
    partition: int
    view: str
    records: int | None


@dataclass(frozen=True)
class Scenario:
    """One run of the connector."""

    name: str  # of its folder
    folder: Path
    config: dict[str, str]  # the connector's, without credentials
    result: str  # ``ok`` or the error
    # the offset that the task reported for each topic and partition
    committed: dict[tuple[str, int], int]

    @classmethod
    def read(cls, folder: Path) -> "Scenario":
        """Read a scenario's folder."""
        found = json.loads((folder / "scenario.json").read_bytes())
        committed = {}
        for where, offset in found.get("committed_next_offset", {}).items():
            topic, _, partition = where.rpartition("-")
            committed[topic, int(partition)] = offset
        return cls(folder.name, folder, found["config"], found["result"], committed)

    @cached_property
    def given(self) -> list[Given]:
        """The records in the order in which they were given."""
        text = (self.folder / "input_records.jsonl").read_text("utf-8")
        lines = [line for line in text.split("\n") if line]
        return [_exact(Given(**json.loads(line, parse_float=Decimal))) for line in lines]

    @cached_property
    def objects(self) -> list[Listed]:
        """The objects that came of them."""
        return [
            Listed(
                one["key"],
                (self.folder / one["file"]).read_bytes(),
                one["sha256"],
                one["topic"],
                one["partition"],
                one["view"],
                one["records"],
            )
            for one in json.loads((self.folder / "objects.json").read_bytes())
        ]

    def put_into(self, store: Store) -> None:
        """Put the objects where the connector put them."""
        for one in self.objects:
            store.put(one.key, io.BytesIO(one.body), sha256=one.sha256, metadata={})

    @cached_property
    def converters(self) -> dict[str, str]:
        """The converters from which the records can come, where the file names none of these.

        Those of a Schema Registry give the connector the same as JSON with schemas.
        """
        found = {}
        for part, data in (
            ("key.converter", [record.key for record in self.given]),
            ("value.converter", [record.value for record in self.given]),
        ):
            if self.config.get(part) not in (BYTES, JSON, STRING) and any(
                each is not None for each in data
            ):
                found |= implied(part, data)
        return found


def raw(data: Any) -> bytes | None:
    """Return the bytes that a key or value is; None if it is anything else."""
    if "$bytes" in data:
        return base64.b64decode(data["$bytes"])
    schema = data.get("schema")
    is_raw = schema is not None and schema["type"] == "bytes" and "name" not in schema
    payload = data.get("payload")
    return base64.b64decode(payload) if is_raw and payload is not None else None


def implied(part: str, data: Sequence[Any]) -> dict[str, str]:
    """Return the properties of the converter from which *data* comes."""
    there = [each for each in data if each is not None]
    if all(raw(each) is not None for each in there):
        return {part: BYTES}
    has_schemas = any("schema" in each for each in there)
    return {part: JSON, f"{part}.schemas.enable": str(has_schemas).lower()}


def scenarios(*, ended_well: bool) -> list[Any]:
    """Return the scenarios that the connector ended well, or the others, one parameter each."""
    found = [Scenario.read(path.parent) for path in sorted(FOLDER.glob("*/scenario.json"))]
    assert found, f"{FOLDER} holds no scenario"
    gate = IN_THE_GATE if FOLDER == COPIES else {one.name for one in found}
    return [
        pytest.param(one, id=one.name, marks=() if one.name in gate else pytest.mark.nightly)
        for one in found
        if (one.result == "ok") == ended_well
    ]


def _exact(record: Given) -> Given:
    """Write decimals as the converters do, the base64 of their digits, and NaN as Jackson does."""
    headers = [{**each, "value": _exact_data(each["value"])} for each in record.headers]
    key, value = _exact_data(record.key), _exact_data(record.value)
    return replace(record, key=key, value=value, headers=headers)


def _exact_data(data: Any) -> Any:
    if data is None or "schema" not in data:
        return plain(data)
    payload = data["payload"]
    exact = (
        plain(payload)
        if data["schema"] is None
        else each_value(data["schema"], payload, _of_schema)
    )
    return {"schema": plain(data["schema"]), "payload": exact}


def each_value(schema: Any, payload: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Return data with each value that holds no others changed, by its schema."""
    if payload is None:
        return None
    within = partial(each_value, change=change)
    if schema["type"] == "struct":
        fields = {field["field"]: field for field in schema["fields"]}
        return {name: within(fields[name], each) for name, each in payload.items()}
    if schema["type"] == "array":
        return [within(schema["items"], each) for each in payload]
    if schema["type"] == "map" and isinstance(payload, dict):
        return {key: within(schema["values"], each) for key, each in payload.items()}
    if schema["type"] == "map":
        kinds = schema["keys"], schema["values"]
        return [[*map(within, kinds, pair)] for pair in payload]
    return change(schema, payload)


def _of_schema(schema: Any, value: Any) -> Any:
    if is_decimal(schema) and isinstance(value, int | float | Decimal):
        digits = _digits(Decimal(value), int(schema["parameters"]["scale"]))
        return LOST_DIGITS.get(float(value)) or digits
    return plain(value)


def is_decimal(schema: Any) -> bool:
    """Whether a schema in JSON is Connect's Decimal."""
    return bool(schema.get("name") == "org.apache.kafka.connect.data.Decimal")


def plain(data: Any) -> Any:
    """Return data with its numbers as doubles, and those that are none as Jackson's text."""
    if isinstance(data, Decimal | float):
        number = float(data)
        return number if math.isfinite(number) else _NO_NUMBERS[str(number)]
    if isinstance(data, dict):
        return {name: plain(each) for name, each in data.items()}
    return [plain(each) for each in data] if isinstance(data, list) else data


_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _digits(number: Decimal, scale: int) -> str:
    with localcontext(prec=1000):
        unscaled = int(number.scaleb(scale))
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
