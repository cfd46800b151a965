"""The options of Avro files."""

from typing import Final

from kbackup.options import boolean, words

CODEC: Final = words(
    "avro.codec",
    "Compression of the blocks of an Avro file.",
    ("null", "deflate", "snappy", "bzip2", "zstandard", "xz"),
    "null",
    commands="sink",
)
CONNECT_META: Final = boolean(
    "connect.meta.data",
    "Keep what only Kafka Connect knows about a schema in attributes that begin with connect.",
    True,
    commands="sink",
)
ENHANCED: Final = boolean(
    "enhanced.avro.schema.support",
    "Write text that was an Avro enum as an enum again.",
    True,
    commands="sink",
)
OPTIONAL_KEYS: Final = boolean(
    "allow.optional.map.keys",
    "Write maps with optional text keys as Avro maps.",
    False,
    commands="sink",
)

OPTIONS: Final = (CODEC, CONNECT_META, ENHANCED, OPTIONAL_KEYS)
