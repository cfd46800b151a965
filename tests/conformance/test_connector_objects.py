"""Objects that the real S3 sink connector wrote (10.5.15), written again and read back.

Each folder of ``scenarios`` is one run of the connector: its configuration, the records it was
given and the objects that came of them, byte for byte.
"""

import base64
import io
import json
from typing import Any

import pyarrow as pa
import pytest
import scenario_files

from tests.conformance.product import (
    HEADERS,
    Converter,
    Format,
    FormatOptions,
    Layout,
    ObjectKey,
    View,
    converters,
    decoded,
    formats,
    plugins,
)

SCENARIOS = scenario_files.COPIES
NAMES = [
    "bytes-embedded-newlines",
    "bytes-gzip",
    "bytes-plain",
    "delims",
    "json-schemaless",
    "json-schemaless-gzip",
    "keys-headers-mixed-json",
    "keys-headers-null-json",
    "keys-null-key",
    "pad-2",
    "topics-dir-nested",
]
VIEWS = {"value": View.VALUE, "keys": View.KEY, "headers": View.HEADERS}
COLUMNS = {View.VALUE: "value", View.KEY: "key", View.HEADERS: "headers"}


def config(name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((SCENARIOS / name / "scenario.json").read_bytes())["config"]
    return found


def records(name: str) -> list[dict[str, Any]]:
    text = (SCENARIOS / name / "input_records.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def objects() -> list[Any]:
    """Return each object of each scenario, with the name of its scenario."""
    return [
        pytest.param(name, one, id=f"{name} {one['file'].partition('/')[2]}")
        for name in NAMES
        for one in json.loads((SCENARIOS / name / "objects.json").read_bytes())
    ]


def sent(value: Any) -> bytes | None:
    """Return the bytes of a Kafka record for what the connector was given by its converter."""
    if value is None:
        return None
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    return json.dumps(value.get("$schemaless", value.get("payload"))).encode()


def header_text(value: Any) -> str | None:
    if value is None:
        return None
    return value["$bytes"] if "$bytes" in value else str(value["payload"])


def column(view: View, rows: list[dict[str, Any]], converter: Converter) -> pa.Array:
    """Return what a format is given of *rows*."""
    if view is View.HEADERS:
        pairs = [
            [{"key": each["key"], "value": header_text(each["value"])} for each in row["headers"]]
            for row in rows
        ]
        return pa.array(pairs, HEADERS)
    if view is View.KEY:
        keys = [None if row["key"] is None else row["key"]["payload"].encode() for row in rows]
        return decoded(converters.by_name("string", {}), pa.array(keys, pa.binary()))
    return decoded(converter, pa.array([sent(row["value"]) for row in rows], pa.binary()))


def parts(name: str) -> tuple[Format, Converter, FormatOptions, Layout]:
    """Return what a connector's configuration chooses."""
    chosen = config(name)
    form = formats.by_name(plugins.by_class_name("formats", chosen["format.class"]))
    is_bytes = "ByteArrayFormat" in chosen["format.class"]
    converter = (
        converters.by_name("bytes", {})
        if is_bytes
        else converters.by_name("json", {"schemas.enable": "false"})
    )
    options = FormatOptions(
        {
            "s3.compression.type": chosen.get("s3.compression.type", "none"),
            # zlib's default by its number: only a level that is named gives the connector's bytes.
            "s3.compression.level": chosen.get("s3.compression.level", "6"),
        }
    )
    layout = Layout(
        chosen.get("topics.dir", "topics"),
        chosen.get("directory.delim", "/"),
        chosen.get("file.delim", "+"),
        int(chosen.get("filename.offset.zero.pad.width", "10")),
    )
    return form, converter, options, layout


@pytest.mark.parametrize(("name", "expected"), objects())
def test_the_same_records_give_the_same_object(name: str, expected: dict[str, Any]) -> None:
    """The connector's configuration and records give the connector's key and bytes."""
    form, converter, options, layout = parts(name)
    view = VIEWS[expected["view"]]
    partition, first = expected["partition"], expected["start_offset"]
    count = int(config(name)["flush.size"])
    rows = [row for row in records(name) if first <= row["offset"] < first + count]
    file = io.BytesIO()

    writer = form.writer(file, view, options)
    writer.write(pa.record_batch([column(view, rows, converter)], [COLUMNS[view]]))
    writer.close({})
    encoded = f"partition={partition}"
    key = layout.key(
        ObjectKey(expected["topic"], partition, first, encoded, form.extension(options), view)
    )

    assert (SCENARIOS / name / expected["file"]).read_bytes() == file.getvalue()
    assert expected["key"] == key


@pytest.mark.parametrize(
    ("name", "listed"), [one for one in objects() if "embedded" not in str(one.id)]
)
def test_the_connectors_objects_are_read(name: str, listed: dict[str, Any]) -> None:
    """What the connector was given comes back from the object it wrote."""
    _, converter, options, layout = parts(name)
    key = layout.parse(listed["key"])
    form = formats.by_name(formats.by_extension(key.extension, options) or "")
    rows = records(name)
    first = next(at for at, row in enumerate(rows) if row["offset"] == listed["start_offset"])
    file = io.BytesIO((SCENARIOS / name / listed["file"]).read_bytes())

    batches = form.read(file, key.view, key.extension, options)
    found = [row for batch in batches for row in batch[COLUMNS[key.view]].to_pylist()]

    given = column(key.view, rows[first : first + len(found)], converter)
    if key.view is View.KEY:
        given = pa.array([json.dumps(text) for text in given.to_pylist()])
    assert int(config(name)["flush.size"]) == len(found)
    assert given.to_pylist() == found


@pytest.mark.parametrize(
    ("name", "view", "row", "reason"),
    [
        pytest.param("keys-null-key", View.KEY, 1, "a null key", id="null key"),
        pytest.param(
            "keys-headers-null-json", View.HEADERS, 2, "header 'nul' is null", id="null header"
        ),
    ],
)
def test_where_the_connector_failed_the_record_is_named(
    name: str, view: View, row: int, reason: str
) -> None:
    """What the layout cannot hold is refused before anything of it is written, and named."""
    form, converter, _, _ = parts(name)

    [bad] = form.refuses(view, column(view, records(name), converter), FormatOptions())

    assert row == bad.row
    assert reason in bad.what
