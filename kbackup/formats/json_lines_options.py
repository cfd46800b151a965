"""The options of files of JSON lines."""

from typing import Final

from kbackup.formats import separated_options
from kbackup.options import words

DECIMALS: Final = words(
    "json.decimal.format",
    "Write a Decimal as base64 of its bytes, or as a number.",
    ("base64", "numeric"),
    "base64",
    any_case=True,
    commands="sink",
)

OPTIONS: Final = (*separated_options.OPTIONS, DECIMALS)
