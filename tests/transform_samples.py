"""Records for the tests of transforms, and what becomes of them."""

import json
from typing import Any

from record_samples import batch_of

from kbackup import converters, plugins
from kbackup.connect import json_values
from kbackup.transforms.data import Records

T = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z
STRUCT = {
    "type": "struct", "name": "Order", "version": 2, "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "note", "type": "string", "optional": True, "default": "none"},
        {"field": "at", "type": "int64", "optional": True, "version": 1,
         "name": "org.apache.kafka.connect.data.Timestamp"},
        {"field": "day", "type": "string", "optional": True},
    ],
}  # fmt: skip


def records(values: list[Any], schema: dict[str, Any] | None) -> Records:
    """Return records of the topic ``orders``, partition 3, a value of JSON each, None for null."""
    texts = [
        None
        if value is None
        else json.dumps(value if schema is None else {"schema": schema, "payload": value}).encode()
        for value in values
    ]
    rows = [
        {"offset": 40 + at, "timestamp": T + at, "value": text} for at, text in enumerate(texts)
    ]
    batch = batch_of(rows)
    converter = converters.by_name("json", {"schemas.enable": schema is not None})
    (column,) = converter.decode(batch["value"])
    return Records.of(batch, "orders", 3, None, column)


def applied(name: str, options: dict[str, Any], given: Records, side: str = "value") -> Records:
    """Return what the transform makes of the records."""
    transform = plugins.load("transforms", name)()
    options = {
        option.name: option.read(options[option.name])
        for option in transform.traits.options
        if option.name in options
    }
    transform.configure(options, side)
    found: Records = transform.apply(given)
    return found


def values(found: Records) -> list[Any]:
    """Return the values as JSON says them."""
    data = found.side("value")
    if data.schema is None:
        texts = data.values.storage
    else:
        texts = json_values.encode_json(data.values, data.schema)
    return [
        None if text is None or is_null else json.loads(text)
        for text, is_null in zip(texts.to_pylist(), data.values.is_null().to_pylist(), strict=True)
    ]


def why(found: Records) -> list[tuple[int, str]]:
    """Return the offsets of the records that were refused, and why."""
    return [(offset, bad.what) for offset, bad in found.refused]
