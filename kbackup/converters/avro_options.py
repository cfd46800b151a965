"""The options of Avro through a Schema Registry."""

from typing import Final

from kbackup.options import boolean
from kbackup.registry import options as registry

CONNECT_META: Final = boolean(
    "connect.meta.data",
    "Keep what only Kafka Connect knows of a schema in attributes that begin with connect., where "
    "Avro is written.",
    True,
    commands="restore",
)
ENHANCED: Final = boolean(
    "enhanced.avro.schema.support",
    "Write text that was an Avro enum as an enum again, where Avro is written.",
    False,
    commands="restore",
)

OPTIONS: Final = (*registry.OPTIONS, CONNECT_META, ENHANCED)
