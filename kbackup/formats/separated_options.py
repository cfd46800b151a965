"""The options of files whose rows each end with a separator: JSON lines, byte arrays."""

from typing import Final

from kbackup.options import integer, words

COMPRESSION: Final = words(
    "s3.compression.type",
    "Compression of JSON and byte-array files as a whole.",
    ("none", "gzip"),
    "none",
    must_fit=True,
    commands="sink",
)
LEVEL: Final = integer(
    "s3.compression.level",
    "Gzip level: -1 for the fastest library; 1 to 9 for zlib, which gives a connector's bytes.",
    -1,
    ge=-1,
    le=9,
    commands="sink",
)

OPTIONS: Final = (COMPRESSION, LEVEL)
