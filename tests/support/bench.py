"""A topic of one partition, its sinks, and what they have left in a bucket in memory."""

import gzip
import hashlib
import io
import json
from collections import Counter
from typing import Any, Final
from uuid import uuid4

import pyarrow.parquet as pq

from kbackup.kafka import Position
from kbackup.records import TopicPartition
from kbackup.stores import Store, StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink

WHERE: Final = TopicPartition("orders", 0)


def leave_to_another_tool(store: Store) -> None:
    """Make what is stored another tool's: no ledger, and nothing beside the bytes."""
    for one in [*store.list("")]:
        with store.open(one.key) as body:
            data = body.read()
        store.delete(one.key)
        if one.key.startswith("topics/"):
            digest = hashlib.sha256(data).hexdigest()
            store.put(one.key, io.BytesIO(data), sha256=digest, metadata={})


class Bench:
    """A topic of one partition, its backup, and a group that can be set back by hand."""

    def __init__(self, records: int) -> None:
        self.kafka, self.settings = FakeKafka(), StoreSettings(f"memory://{uuid4()}")
        self.store = open_store(self.settings)
        self.kafka.create("orders", records)

    def sink(self, size: int, **options: object) -> dict[str, Any]:
        """Back up what is there, *size* records a file; the summary."""
        json = {"format_class": "json", "value_converter_schemas_enable": False}
        given: dict[str, Any] = {"topics": "orders", "flush_size": size, **json, **options}
        return run_sink(self.kafka, self.settings, **given)

    def set_back(self, offset: int) -> None:
        """Set the group's offset, as Kafka's own tools do."""
        self.kafka.positions_[WHERE] = Position(offset)

    @property
    def position(self) -> int:
        """The group's offset."""
        return self.kafka.positions_[WHERE].offset

    def starts(self) -> set[int]:
        """The start offsets of the objects."""
        keys = [one.key for one in self.store.list("topics/orders/")]
        return {int(key.rsplit("+", 1)[1].split(".")[0]) for key in keys}

    def rows(self) -> dict[int, list[int]]:
        """The numbers in each object, by its start offset."""
        found: dict[int, list[int]] = {}
        for key, rows in self.objects().items():
            found[int(key.rsplit("+", 1)[1].split(".")[0])] = rows
        return found

    def objects(self) -> dict[str, list[int]]:
        """The numbers in each object, by its key; of full records the offsets."""
        found = {}
        for one in self.store.list("topics/orders/"):
            with self.store.open(one.key) as body:
                data = body.read()
            if ".record." in one.key:
                found[one.key] = pq.read_table(io.BytesIO(data))["offset"].to_pylist()
                continue
            text = gzip.decompress(data) if one.key.endswith(".gz") else data
            rows = [json.loads(line) for line in text.splitlines()]
            numbers = (one for row in rows for one in row.values() if isinstance(one, int))
            found[one.key] = [*numbers]
        return found

    def doubled(self) -> set[int]:
        """Rows of values that are in more than one object."""
        values = [rows for key, rows in self.objects().items() if ".record." not in key]
        counts = Counter(number for rows in values for number in rows)
        return {number for number, count in counts.items() if count > 1}
