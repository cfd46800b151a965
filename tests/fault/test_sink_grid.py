"""A sink in each format, with and without keys and headers, over an S3 that fails for a while."""

import json
import os
from typing import Any, Final

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Action, Fault, S3Faults

from kbackup.clock import SystemClock
from kbackup.events import to_json
from kbackup.runs.context import Environment, Stop
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.in_turn import InTurn
from tests.support.s3_requests import content, keys, unfinished

FORMAT: Final = "io.confluent.connect.s3.format."
JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
FORMATS: Final[dict[str, dict[str, Any]]] = {
    "full records": {},
    "json": {"format_class": f"{FORMAT}json.JsonFormat", "value_converter": JSON},
    "avro": {"format_class": f"{FORMAT}avro.AvroFormat", "value_converter": JSON},
    "bytes": {
        "format_class": f"{FORMAT}bytearray.ByteArrayFormat",
        "value_converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    },
    "parquet": {"format_class": f"{FORMAT}parquet.ParquetFormat", "value_converter": JSON},
}
SIBLINGS: Final = {
    "store_kafka_keys": True,
    "store_kafka_headers": True,
    "keys_format_class": f"{FORMAT}json.JsonFormat",
    "headers_format_class": f"{FORMAT}json.JsonFormat",
    "key_converter": "org.apache.kafka.connect.storage.StringConverter",
}
TURNS: Final[list[tuple[int, Action, int]]] = [
    (1, "status", 429),
    (3, "status", 500),
    (5, "reset", 0),
]
OBJECT: Final = "[^?]*/topics/orders/[^?]*"
PASSING: Final = [
    Fault(request, do, nth=(nth,), status=status)
    for request in (
        rf"POST {OBJECT}\?uploads",
        rf"PUT {OBJECT}\?.*partNumber",
        rf"POST {OBJECT}\?uploadId",
    )
    for nth, do, status in TURNS
]
"""Every second request of each kind fails at first: with 429, then with 500, then by a reset."""

SCHEMA: Final = {"type": "struct", "optional": False, "fields": [{"field": "n", "type": "string"}]}


def kafka_of(values: list[str]) -> FakeKafka:
    """A topic of JSON values, each with its schema."""
    kafka = FakeKafka()
    (where,) = kafka.create("orders", len(values))
    for at, text in enumerate(values):
        value = {"schema": SCHEMA, "payload": {"n": text}}
        kafka.values[where, at] = json.dumps(value).encode()
    return kafka


def sink(kafka: FakeKafka, store: StoreSettings, **options: Any) -> dict[str, Any]:
    """Back the topic up."""
    given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "topics": "orders", **options}
    given["store_url"] = store.endpoint_url  # what other processes test has locks of its own
    environment = Environment(kafka, store, InTurn(), SystemClock())  # type: ignore[arg-type]
    return to_json(SinkRun(load("sink", **given).settings, lambda _: None, Stop(), environment)())


@pytest.mark.parametrize(
    ("name", "siblings"),
    [("full records", False)]
    + [
        (name, siblings) for name in FORMATS if name != "full records" for siblings in (False, True)
    ],
)
def test_what_fails_for_a_while_changes_no_object_of_any_format(
    settings: StoreSettings, proxy: S3Faults, truth: S3Client, name: str, siblings: bool
) -> None:
    """429, 500 and a reset cost time only: the objects are the same, no upload is unfinished."""
    bucket = settings.url.removeprefix("s3://")
    kafka = kafka_of([os.urandom(1500).hex() for _ in range(6)])
    options = {"flush_size": 2, **FORMATS[name], **(SIBLINGS if siblings else {})}
    assert 0 == sink(kafka, settings, **options)["exit_code"]
    wanted = {
        key: content(truth, bucket, key) for key in keys(truth, bucket) if key.startswith("topics/")
    }
    for key in keys(truth, bucket):
        truth.delete_object(Bucket=bucket, Key=key)
    kafka.positions_.clear()
    proxy.faults = list(PASSING)
    before = len(proxy.log)

    summary = sink(kafka, settings, **options)

    assert (0, 6) == (summary["exit_code"], summary["records"])
    found = {
        key: content(truth, bucket, key) for key in keys(truth, bucket) if key.startswith("topics/")
    }
    assert (9 if siblings else 3, wanted) == (len(found), found)
    failed = [done for _, done in proxy.log[before:] if done in ("status", "reset")]
    assert len(PASSING) == len(failed)
    assert 0 == unfinished(truth, bucket)
