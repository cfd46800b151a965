"""A backup of full records, seen through boto3 and pyarrow; batches through their decoder."""

import hashlib
import io
import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from kbackup.formats import FormatOptions
from kbackup.formats.log import LogFormat
from kbackup.local import LocalS3
from kbackup.naming import View
from tests.support.cluster import Record
from tests.support.truth import client_of

_NAME = re.compile(r"topics/(?P<topic>[^/]+)/[^/]+/(?P=topic)\+(?P<p>\d+)\+(?P<start>\d{10})\.")


@dataclass(frozen=True)
class StoredFile:
    """One object of records."""

    topic: str  # by its key
    partition: int  # by its key
    start: int  # first offset, by its key
    offsets: tuple[int, ...] = field(repr=False)  # of its rows
    records: tuple[Record, ...] = field(repr=False)  # its rows
    sha256: str  # of its bytes


class Backup:
    """What lies in a bucket; an object that was decoded is not fetched again."""

    def __init__(self, s3: LocalS3, bucket: str) -> None:
        self.bucket = bucket
        self.client: Any = client_of(s3)
        self._decoded: dict[tuple[str, str], StoredFile] = {}

    def keys(self, prefix: str = "") -> dict[str, str]:
        """All keys with their ETags."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=prefix
        )
        return {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", ())}

    def body(self, key: str) -> bytes:
        """An object's bytes."""
        data: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return data

    def files(self) -> dict[str, StoredFile]:
        """Every object of records, decoded whole; fails where one is foreign or damaged."""
        found = {}
        for key, etag in self.keys("topics/").items():
            if (key, etag) not in self._decoded:
                self._decoded[key, etag] = decode(key, self.body(key))
            found[key] = self._decoded[key, etag]
        return found

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """A partition's records by their offsets; fails where two objects hold the same one."""
        found: dict[int, Record] = {}
        for file in self.files().values():
            if (file.topic, file.partition) == (topic, partition):
                assert found.keys().isdisjoint(file.offsets)
                assert sorted(file.offsets) == list(file.offsets)
                found |= zip(file.offsets, file.records, strict=True)
        return [found[offset] for offset in sorted(found)]


def decode(key: str, body: bytes) -> StoredFile:
    """Read an object of full records."""
    match = _NAME.match(key)
    assert match is not None, key
    assert "/partition=" not in key or f"/partition={match['p']}/" in key
    if key.endswith(".log.zst"):
        found = LogFormat().read(io.BytesIO(body), View.RECORD, ".log.zst", FormatOptions())
        rows = [row for batch in found for row in batch.to_pylist()]
    else:
        rows = pq.ParquetFile(io.BytesIO(body)).read().to_pylist()
    offsets = tuple(row["offset"] for row in rows)
    assert offsets
    assert offsets[0] == int(match["start"])
    records = tuple(
        Record(
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["timestamp"],
        )
        for row in rows
    )
    sha256 = hashlib.sha256(body).hexdigest()
    return StoredFile(
        match["topic"], int(match["p"]), int(match["start"]), offsets, records, sha256
    )
