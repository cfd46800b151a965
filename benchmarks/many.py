"""Many small partitions into a folder and back: one topic of them, and a topic for each."""

from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks.cases import kbackup
from benchmarks.records import Load
from benchmarks.services import Services

Row = dict[str, Any]

PARTITIONS: Final = 1_000
RECORDS: Final = 10
"""In each partition."""

VALUE_BYTES: Final = 100

_STORE: Final = "dir"


def measured(services: Services, scale: float) -> Iterator[Row]:
    """Yield a row for the sink, and one for the restore, of each shape."""
    partitions = max(1, round(PARTITIONS * scale))
    shapes = {
        "one topic": ("many-wide", {"many-wide": partitions}),
        "a topic each": ("many-[0-9]+", {f"many-{at:05}": 1 for at in range(partitions)}),
    }
    for shape, (pattern, topics) in shapes.items():
        load = Load("many", VALUE_BYTES, partitions * RECORDS)
        services.create_topics(topics)
        _fill(services.servers, topics)
        place = services.fresh_place(_STORE)
        chosen = ["--topics-regex", pattern]
        for words in (["sink", "run"], ["restore", "run", "--rename", "restored-$0"]):
            found = kbackup(services, [*words, *chosen], load, place)
            yield {"shape": shape, "partitions": partitions, "direction": words[0], **found}
        services.delete_topics([*topics, *(f"restored-{name}" for name in topics)])
        services.empty(place)


def _fill(servers: str, topics: dict[str, int]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for name, partitions in topics.items():
        for partition in range(partitions):
            for at in range(RECORDS):
                value = b"%d" % at * VALUE_BYTES
                producer.produce(name, key=b"k%d" % at, value=value, partition=partition)
        producer.poll(0)
    producer.flush()
