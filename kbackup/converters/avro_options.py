"""The options of Avro through a Schema Registry."""

from typing import Final

from kbackup.options import boolean
from kbackup.registry import options as registry

CONNECT_META: Final = boolean(
    "connect.meta.data",
    "When writing Avro, keep what only Kafka Connect knows about a schema in attributes that "
    "begin with connect.",
    True,
    commands="restore",
)
ENHANCED: Final = boolean(
    "enhanced.avro.schema.support",
    "When writing Avro, write text that was an Avro enum as an enum again.",
    False,
    commands="restore",
)

OPTIONS: Final = (*registry.OPTIONS, CONNECT_META, ENHANCED)
