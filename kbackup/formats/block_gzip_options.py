"""The options of block-gzip files."""

from typing import Final

from kbackup.formats.separated_options import LEVEL
from kbackup.options import integer, words

BLOCK_BYTES: Final = integer(
    "compressed_block_size",
    "Uncompressed bytes that a block of a block-gzip file holds at most; one larger record has a "
    "block to itself.",
    67_108_864,
    ge=1,
    le=2**31 - 1,
    commands="sink",
)

CODEC: Final = words(
    "compressed_block_codec",
    "Compression of the blocks; the original has gzip alone.",
    ("gzip", "zstd", "bzip2"),
    "gzip",
    commands="sink",
)

OPTIONS: Final = (BLOCK_BYTES, CODEC, LEVEL)
