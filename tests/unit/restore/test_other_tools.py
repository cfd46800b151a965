"""What other tools have stored, restored by expressions over their keys."""

import base64
import gzip
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kbackup.config import loading
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.naming import Place
from kbackup.naming import generic as expressions
from kbackup.records import TopicPartition
from kbackup.runs import wiring
from tests.support.target import MARKER, Restoring

AIVEN = r"$1:backup/(.+)-(?<partition>\d+)-(?<offset>\d+)\.gz"
LENSES = r"$1:backup/([^/]+)/(?<partition>\d+)/(?<offset>\d+)\.json"
DOCS = Path(__file__).parents[3] / "docs"
AT = 1_577_836_801_000
"""2020-01-01T00:00:01Z in ms."""


def restored(
    properties: dict[str, str], objects: dict[str, bytes], topic: str = "orders", partition: int = 0
) -> Sequence[dict[str, Any]]:
    """Return the records of a partition after a restore of *objects*, each as plain data."""
    given = {"mode": "GENERIC", "topics.dir": "backup", **properties}
    restoring = Restoring(properties=given)
    settings = restoring.settings(rename=None)
    restoring.backup = replace(restoring.backup, layout=wiring.layout(settings))
    for key, data in objects.items():
        digest = sha256(data).hexdigest()
        restoring.store.put(f"backup/{key}", io.BytesIO(data), sha256=digest, metadata={})
    restoring.restore(rename=None, reading=wiring.reading(settings))
    log = restoring.cluster.logs[TopicPartition(topic, partition)]
    return [row for row in log.rows if row is not MARKER]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_aivens_json_lines_come_back_whole() -> None:
    """Key, value and headers in base64, the time as text; objects in the order of their offsets."""
    header = [{"key": "h", "value": b64("x")}, {"key": "n", "value": None}]
    time = "2020-01-01T00:00:01Z"
    first = {"key": b64("k"), "value": b64("v"), "offset": 9, "timestamp": time, "headers": header}
    tombstone: Any = {
        "key": b64("k"),
        "value": None,
        "offset": 10,
        "timestamp": time,
        "headers": [],
    }
    properties = {
        "topic.regex.list": AIVEN, "format.class": "json", "record.encoding": "base64",
        "record.fields": "key=key,value=value,timestamp=timestamp,headers=headers",
    }  # fmt: skip

    found = restored(
        properties,
        {
            "my-orders-1-10.gz": gzip.compress(lines(tombstone)),
            "my-orders-1-9.gz": gzip.compress(lines(first)),
        },
        "my-orders",
        1,
    )

    assert [(b"k", b"v", AT), (b"k", None, AT)] == [
        (row["key"], row["value"], row["timestamp"]) for row in found
    ]
    assert [{"key": "h", "value": b"x"}, {"key": "n", "value": None}] == found[0]["headers"]


def test_aivens_csv_without_a_header_comes_back() -> None:
    """Aiven's default CSV, the chosen fields in base64 without a header row, can be restored."""
    properties = {
        "topic.regex.list": AIVEN, "format.class": "csv", "csv.first.row.as.header": "false",
        "record.fields": "key=column01,value=column02", "record.encoding": "base64",
    }  # fmt: skip
    data = gzip.compress(f"{b64('k')},{b64('v')}\n".encode())

    (row,) = restored(properties, {"orders-0-0000000000.gz": data})

    assert (b"k", b"v") == (row["key"], row["value"])


@pytest.mark.parametrize(
    ("encoding", "key", "value"),
    [("text", b"k", b'{"n":1}'), ("json", b'"k"', b'{"n":1}')],
)
def test_lenses_envelopes_come_back(encoding: str, key: bytes, value: bytes) -> None:
    """The time is in nested metadata, headers are an object, and values are JSON."""
    row = {
        "key": "k", "value": {"n": 1}, "headers": {"h": "x"},
        "metadata": {"offset": 5, "partition": 0, "timestamp": AT, "topic": "orders"},
    }  # fmt: skip
    properties = {
        "topic.regex.list": LENSES, "record.encoding": encoding,
        "record.fields": "key=key,value=value,timestamp=metadata.timestamp,headers=headers",
    }  # fmt: skip

    (found,) = restored(properties, {"orders/000000000000/000000000005.json": lines(row)})

    header = b"x" if encoding == "text" else b'"x"'
    assert (key, value, AT, [{"key": "h", "value": header}]) == (
        found["key"], found["value"], found["timestamp"], found["headers"],
    )  # fmt: skip


def test_lenses_values_alone_come_back() -> None:
    """Without an envelope, a line is the value; directories and offsets are padded."""
    properties = {"topic.regex.list": LENSES}

    found = restored(
        properties,
        {
            "orders/000000000000/000000000001.json": b'{"n":1}\n',
            "orders/000000000000/000000000010.json": b'{"n":2}',
        },
    )

    assert [b'{"n":1}', b'{"n":2}'] == [row["value"] for row in found]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        pytest.param({"key": "k"}, "no field value", id="no value"),
        pytest.param({"value": 7}, "base64", id="a number"),
        pytest.param({"value": "%"}, "row 0", id="no base64"),
        pytest.param({"value": "", "headers": 7}, "headers", id="headers"),
        pytest.param({"value": "", "timestamp": "noon"}, "noon", id="time"),
        pytest.param([1], "no field value", id="no object"),
    ],
)
def test_a_row_that_holds_no_record_is_named(row: Any, why: str) -> None:
    """A wrong name of a field makes no tombstones."""
    properties = {
        "topic.regex.list": LENSES, "record.encoding": "base64",
        "record.fields": "key=key,value=value,timestamp=timestamp,headers=headers",
    }  # fmt: skip

    with pytest.raises(CorruptObjectError, match=why):
        restored(properties, {"orders/0/0.json": lines(row)})


@pytest.mark.parametrize("fields", ["key=key", "value=v,colour=c"])
def test_fields_without_a_value_or_of_unknown_parts_are_refused(fields: str) -> None:
    """Record fields that name no value or an unknown part are refused before anything is read."""
    given = ["mode=GENERIC", "topic.regex.list=a:b", f"record.fields={fields}"]
    options = {"bootstrap_servers": "-", "s3_bucket_name": "b"}

    with pytest.raises(ConfigurationError, match=r"record\.fields"):
        loading.load("restore", options=options, files=(), environ={}, extra=given)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("exports/clicks/a.json", Place("clicks", 0, 0)),
        ("exports/tables/users/a.json", Place("users", 0, 0)),
        ("backup/my-orders-1-0000000010.gz", Place("my-orders", 1, 10)),
        ("backup/orders/000000000001/000000000010.json", Place("orders", 1, 10)),
        (
            "daily-backup-001/topics/orders/partition=1/segment-00000000000000000010.bin.zst",
            Place("orders", 1, 10),
        ),
    ],
)
def test_the_patterns_of_the_guide_match_what_they_are_for(
    key: str, place: Place, tmp_path: Path
) -> None:
    """A properties file takes a backslash away, so the guide's patterns need two."""
    guide = (DOCS / "how-to/from-other-tools.md").read_text(encoding="utf-8")
    found = []
    for line in re.findall(r"^topic\.regex\.list=.+$", guide, re.MULTILINE):
        file = tmp_path / "generic.properties"
        file.write_text(f"mode=GENERIC\n{line}\n", encoding="utf-8")
        options = {"bootstrap_servers": "-", "s3_bucket_name": "b"}
        loaded = loading.load("restore", options=options, files=[file], environ={})
        found.append(expressions.place(loaded.settings.topic_regex_list, key))

    assert [place] == [one for one in found if one is not None]


def test_headers_of_the_object_follow_those_of_the_record() -> None:
    """The headers of an object are added after the record's own, and replace none."""
    properties = {
        "topic.regex.list": LENSES, "record.fields": "value=value,headers=headers",
        "file.metadata.headers.enable": "true",
    }  # fmt: skip

    (row,) = restored(properties, {"orders/0/0.json": lines({"value": "v", "headers": {"h": "x"}})})

    assert ["h", "file.name", "file.path", "file.last.modified", "file.length"] == [
        header["key"] for header in row["headers"]
    ]
