"""The option of times in the value."""

from typing import Final

from kbackup.options import text

TIMESTAMP_FIELD: Final = text(
    "timestamp.field",
    "The field of the value that holds the time; dots separate the names of nested fields.",
    "timestamp",
    commands="sink",
    example="meta.created",
)
OPTIONS: Final = (TIMESTAMP_FIELD,)
