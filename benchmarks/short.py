"""Runs as cron starts them: a thousand new records of one partition, and none; there and back.

A consumer group has read the topic, so that a sink has something to capture.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.cases import kbackup
from benchmarks.records import Load, arguments
from benchmarks.services import STORES, Place, Services

Row = dict[str, Any]

_LOAD: Final = Load("short", 100, 1_000)


def measured(services: Services, repeat: int) -> Iterator[Row]:
    """Yield a row of medians for each store, command, and whether it finds records."""
    for store in STORES:
        rows: dict[tuple[str, str], list[Row]] = {}
        for at in range(repeat):
            topic = f"short-{store}-{at}"
            _fill(services, topic)
            place = services.fresh_place(store)
            for direction, words in _commands(topic, at).items():
                for found, load in (("1,000", _LOAD), ("none", replace(_LOAD, records=0))):
                    rows.setdefault((direction, found), []).append(
                        _measured(services, words, load, place)
                    )
            services.delete_topics([topic, f"restored-{topic}"])
            services.empty(place)
        for (direction, found), each in rows.items():
            numbers = {name: median(row[name] for row in each) for name in each[0]}
            yield {"store": store, "direction": direction, "found": found, **numbers}


def _commands(topic: str, at: int) -> dict[str, list[str]]:
    back = ["--rename", "restored-$0", "--group", f"short-restore-{at}"]
    return {
        "sink": ["sink", "run", "-t", topic],
        "restore": ["restore", "run", "-t", topic, *back],
    }


def _measured(services: Services, words: list[str], load: Load, place: Place) -> Row:
    found = kbackup(services, words, load, place)
    return {name: found[name] for name in ("wall_s", "cpu_s", "peak_mib")}


def _fill(services: Services, topic: str) -> None:
    services.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": services.servers})
    for value, key, timestamp, headers in arguments(_LOAD.value_bytes, _LOAD.records, 1):
        producer.produce(topic, value, key, timestamp=timestamp, headers=headers)
    producer.flush()
    consumer = Consumer({"bootstrap.servers": services.servers, "group.id": f"reads-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, _LOAD.records)], asynchronous=False)
    consumer.close()
