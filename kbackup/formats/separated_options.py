"""The options of files whose rows each end with a separator: JSON lines, byte arrays."""

from typing import Final

from kbackup.options import integer, words

COMPRESSION: Final = words(
    "s3.compression.type",
    "Compression of JSON and byte-array files as a whole; the connectors have none and gzip.",
    ("none", "gzip", "zstd", "bzip2"),
    "none",
    must_fit=True,
    commands="sink",
)
LEVEL: Final = integer(
    "s3.compression.level",
    "Compression level: -1 for the fastest gzip library, level 3 of zstd, level 9 of bzip2; 1 to 9 "
    "for gzip's own library, which gives a connector's bytes, and for the others.",
    -1,
    ge=-1,
    le=9,
    commands="sink",
)

OPTIONS: Final = (COMPRESSION, LEVEL)
