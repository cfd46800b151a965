"""The option of directories by field."""

from typing import Any, Final

from kbackup.options import Option, check_path, read_names


def _fields(value: Any) -> tuple[str, ...]:
    names = read_names(value)
    for name in names:
        check_path(name)
    return names


FIELDS: Final[Option[tuple[str, ...]]] = Option(
    name="partition.field.name",
    help="Fields of the value that name its directory; dots separate the names of nested fields.",
    type="list",
    default=(),
    read=_fields,
    commands="sink",
    example="region,user.country",
)
OPTIONS: Final = (FIELDS,)
