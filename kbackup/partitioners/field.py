"""``region=eu/kind=order``: directories of what stands in fields of the values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import fields
from kbackup.connect.tables import Level, TableColumn, injected
from kbackup.options import Option, check_path, read_names
from kbackup.partitioners import Traits, delimiter
from kbackup.records import TopicPartition

_NO_DIRECTORY: Final = (
    "a field of partition.field.name is missing, or is not text, a whole number or a boolean",
    "correct partition.field.name, or the record",
)


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


class FieldPartitioner:
    """A directory for each combination of the fields' texts, in the order of their names.

    A field is text, a whole number or a boolean.  Null is ``null``, and so is every field of a
    record without a value.  Nothing is escaped, as the connectors do it: a slash in a text makes
    a level more, and null cannot be told from the text ``null``.
    """

    traits: ClassVar = Traits(
        ("FieldPartitioner",), options=OPTIONS, goes_by_time=False, no_directory=_NO_DIRECTORY
    )

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the names of the fields, and what stands between directories."""
        self._names = FIELDS.of(options)
        self._delimiter = delimiter(options)
        if not self._names:
            raise FIELDS.refusal("it is not given", "name the fields")

    def encode(self, _where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return the directory of each row, null where a field of it cannot name one."""
        column = fields.values(batch)
        paths = [tuple(name.split(".")) for name in self._names]
        if fields.holds_json(column):
            texts = [_from_json(found) for found in fields.in_json(column, paths)]
        else:
            texts = [_texts(fields.typed(column, path), len(batch)) for path in paths]
        parts = [
            pc.binary_join_element_wise(name, text, "=")
            for name, text in zip(self._names, texts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, self._delimiter)

    def levels(
        self, columns: Sequence[TableColumn], _directories: Sequence[str], _partitions: int
    ) -> tuple[Level, ...]:
        """Return a level for each field: a whole number keeps its type, all else is text."""
        types = {one.name: one.type for one in columns}
        return tuple(_level(name, types.get(name, "string")) for name in self._names)


def _level(name: str, kind: str) -> Level:
    is_whole = kind in {"tinyint", "smallint", "int", "bigint"}
    return injected(TableColumn(re.sub(r"\W", "_", name), kind if is_whole else "string"), name)


def _texts(field: pa.Array | None, rows: int) -> pa.StringArray:
    """Return the text of each typed value."""
    if field is None:
        return pa.nulls(rows, pa.string())
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    is_usable = any(
        is_one(kind)
        for is_one in (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_boolean)
    )
    return (
        pc.fill_null(field.cast(pa.string()), "null") if is_usable else pa.nulls(rows, pa.string())
    )


def _from_json(found: list[Any]) -> pa.StringArray:
    """Return the text of each value out of JSON; text alone, the usual case, as it is."""
    if all(type(value) is str for value in found):
        return pa.array(found, pa.string())
    return pa.array(map(_text, found), pa.string())


def _text(found: object) -> str | None:
    match found:
        case None:
            return "null"
        case bool():
            return "true" if found else "false"
        case int() | str():
            return str(found)
    return None
