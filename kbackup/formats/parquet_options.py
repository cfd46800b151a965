"""The options of Parquet files."""

from typing import Final

from kbackup.options import words

CODEC: Final = words(
    "parquet.codec",
    "Compression inside Parquet files.",
    ("none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"),
    "zstd",
    for_values="snappy",  # the connector's own default, which its extension shows
    commands="sink",
)

OPTIONS: Final = (CODEC,)
