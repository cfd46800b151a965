"""Commits of a group as clients for other languages make them."""

import ctypes
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import confluent_kafka

from kbackup.kafka import Position
from kbackup.records import TopicPartition

_PATH: Final = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"


class _Partition(ctypes.Structure):
    """The beginning of librdkafka's ``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
    )


def commit_as_others_do(
    servers: str, group: str, positions: Mapping[TopicPartition, Position]
) -> None:
    """Commit positions whose metadata have no zero byte at their end.

    The client for Python adds one, which hides how it reads metadata that have none.
    """
    client = ctypes.CDLL(str(next(_PATH.glob("librdkafka*"))))
    for name in ("conf_new", "new", "topic_partition_list_new", "topic_partition_list_add"):
        getattr(client, f"rd_kafka_{name}").restype = ctypes.c_void_p
    memory = ctypes.CDLL(None)  # librdkafka frees what it is given
    memory.malloc.restype, memory.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    why = ctypes.create_string_buffer(256)
    conf = ctypes.c_void_p(client.rd_kafka_conf_new())
    for name, value in {"bootstrap.servers": servers, "group.id": group, "log_level": "0"}.items():
        assert client.rd_kafka_conf_set(conf, name.encode(), value.encode(), why, len(why)) == 0
    consumer = ctypes.c_void_p(client.rd_kafka_new(1, conf, why, len(why)))
    asked = ctypes.c_void_p(client.rd_kafka_topic_partition_list_new(len(positions)))
    for where, at in positions.items():
        topic, text = where.topic.encode(), at.metadata.encode()
        entry = _Partition.from_address(
            client.rd_kafka_topic_partition_list_add(asked, topic, where.partition)
        )
        entry.offset, entry.metadata_size = at.offset, len(text)
        entry.metadata = memory.malloc(len(text))
        ctypes.memmove(entry.metadata, text, len(text))
    deadline = time.monotonic() + 20
    while error := client.rd_kafka_commit(consumer, asked, 0):
        assert time.monotonic() < deadline, f"error {error} of librdkafka"
        time.sleep(0.1)
    client.rd_kafka_topic_partition_list_destroy(asked)
    client.rd_kafka_destroy(consumer)
