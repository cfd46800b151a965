"""The option of times in the value."""

from typing import Final

from kbackup.options import check_path, text


def _path(name: str) -> None:
    if name:  # without one, the first record is named
        check_path(name)


TIMESTAMP_FIELD: Final = text(
    "timestamp.field",
    "The field of the value that holds the time; dots separate the names of nested fields.",
    "timestamp",
    check=_path,
    commands="sink",
    example="meta.created",
)
OPTIONS: Final = (TIMESTAMP_FIELD,)
