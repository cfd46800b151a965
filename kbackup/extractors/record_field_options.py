"""The option of times in the value."""

from typing import Final

from kbackup.options import text

TIMESTAMP_FIELD: Final = text(
    "timestamp.field",
    "Where in the value its time is, a dot between the names of nested fields.",
    "timestamp",
    commands="sink",
    example="meta.created",
)
OPTIONS: Final = (TIMESTAMP_FIELD,)
