"""The options of files of JSON lines."""

from typing import Final

from kbackup.formats import separated_options
from kbackup.options import Unsupported, true, words

DECIMALS: Final = words(
    "json.decimal.format",
    "Write a Decimal as base64 of its bytes, or as a number.",
    ("base64", "numeric"),
    "base64",
    any_case=True,
    commands="sink",
)

SCHEMAS: Final = Unsupported(
    "format.json.schema.enable",
    true,
    "this version reads JSON without schemas",
    "set it to false",
    "restore",
)

OPTIONS: Final = (*separated_options.OPTIONS, DECIMALS, SCHEMAS)
