"""The options of JSON."""

from typing import Final

from kbackup.options import boolean, words

SCHEMAS_ENABLE: Final = boolean(
    "schemas.enable",
    "Each JSON value carries its schema; true is Kafka Connect's default, which applies if the "
    "converter is named by its Java class.",
    True,
)
DECIMAL_FORMAT: Final = words(
    "decimal.format",
    "When writing JSON, write a Decimal as base64 of its bytes, or as a number.",
    ("base64", "numeric"),
    "base64",
    any_case=True,
    commands="restore",
)

FILL: Final = boolean(
    "replace.null.with.default",
    "With schemas: whether null is the default of its schema, where that has one.",
    True,
)

OPTIONS: Final = (SCHEMAS_ENABLE, DECIMAL_FORMAT, FILL)
