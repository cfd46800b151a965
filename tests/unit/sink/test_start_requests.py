"""What a start asks of the store."""

from collections import Counter
from collections.abc import Iterator

import pytest

from kbackup.clock import SystemClock
from kbackup.records import TopicPartition
from kbackup.sink.plan import make_plan
from kbackup.stores import ObjectHead, StoredObject
from kbackup.stores.memory import MemoryStore
from tests.support.bench import Bench
from tests.support.configurations import load

PARTITIONS = 40


class Counted(MemoryStore):
    """Counts requests for what is below ``topics.dir``."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.settings)
        self.requests: Counter[str] = Counter()

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List."""
        self.requests["LIST"] += prefix.startswith("topics/")
        return super().list(prefix, after=after)

    def head(self, key: str) -> ObjectHead | None:
        """Ask."""
        self.requests["HEAD"] += key.startswith("topics/")
        return super().head(key)


@pytest.mark.parametrize("format_class", ["json", None], ids=["values", "full records"])
def test_a_partition_that_is_confirmed_costs_one_request(format_class: str | None) -> None:
    """With news or without: the listing of its last object shows that nothing follows."""
    bench = Bench(4)
    bench.kafka.create("orders", *[4] * (PARTITIONS - 1))
    given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "topics": "orders", "flush_size": 3,
             "format_class": format_class, "value_converter_schemas_enable": False}  # fmt: skip
    bench.sink(3, format_class=format_class)
    for at in range(0, PARTITIONS, 2):
        bench.kafka.append(TopicPartition("orders", at), 2)
    store = Counted(bench)

    plan = make_plan(load("sink", **given).settings, bench.kafka, store, SystemClock())  # type: ignore[arg-type]

    assert PARTITIONS // 2 == len(plan.units())
    assert {"LIST": PARTITIONS} == +store.requests
