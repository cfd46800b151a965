"""The options of Parquet files."""

from typing import Final

from kbackup.options import words

CODEC: Final = words(
    "parquet.codec",
    "Compression inside Parquet files.",
    ("none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"),
    "zstd",
    commands="sink",
)

OPTIONS: Final = (CODEC,)
