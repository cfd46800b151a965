"""The options of JSON."""

from typing import Final

from kbackup.options import boolean, words

SCHEMAS_ENABLE: Final = boolean(
    "schemas.enable",
    "Whether each JSON value carries its schema; true is Kafka Connect's default, which applies "
    "where the converter is named by its Java class.",
    True,
)
DECIMAL_FORMAT: Final = words(
    "decimal.format",
    "A Decimal of a schema as base64 of its bytes, or as a number, where JSON is written.",
    ("base64", "numeric"),
    "base64",
    any_case=True,
    commands="restore",
)

OPTIONS: Final = (SCHEMAS_ENABLE, DECIMAL_FORMAT)
