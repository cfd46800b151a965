"""The options of Avro through a Schema Registry."""

from typing import Final

from kbackup.connect.registry import options as registry
from kbackup.options import Unsupported, boolean, false, true

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

BARE_TYPES: Final = Unsupported(
    "discard.type.doc.default",
    true,
    "it removes documentation and defaults of types, and this version keeps them",
)
SINGLE_UNIONS: Final = Unsupported(
    "flatten.singleton.unions",
    false,
    "it keeps a union of one type as a struct, and this version stores the value itself",
)

OPTIONS: Final = (*registry.OPTIONS, CONNECT_META, ENHANCED, BARE_TYPES, SINGLE_UNIONS)
