"""Columns as a file holds them: values, the schema they are under, and the rows that do not fit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_TEXT: Final = b"kbackup.schema"
_VERSION: Final = b"kbackup.schema.version"
_ENCODING: Final = b"kbackup.schema.encoding"

ENCODED: Final = "encoded"
"""Column of a file's batches that has `Encoded.values`, beside the values themselves."""


class Kind(Enum):
    """What a converter's columns are, by which it goes with a format or not."""

    BYTES = "bytes"
    """``binary`` without a schema."""

    TEXT = "text"
    """``string`` without a schema."""

    JSON = "JSON"
    """``pa.json_()`` without a schema."""

    TYPED = "typed"
    """Any type, with a schema."""


ANY_KIND: Final = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Schema:
    """What describes a column's values beyond their Arrow type.  Equal schemas share a file.

    A converter whose schemas are compatible in more cases than equality derives a class of its
    own from this one, still plain data.

    Attributes:
        text: The schema, in a form in which equal schemas have equal texts.
        version: Its number in a registry, None without one.
        encoding: How the values are encoded under it, such as ``avro``: the column is ``binary``
            then, and nothing has been decoded.  Empty where the Arrow type says it all.
        name: What the schema is called, None where it has no name.
    """

    text: str
    version: int | None = None
    encoding: str = ""
    name: str | None = None

    def on(self, field: pa.Field) -> pa.Field:
        """Return *field* with this schema among its metadata, where `schema_of` finds it."""
        version = {} if self.version is None else {_VERSION: str(self.version)}
        return field.with_metadata({_TEXT: self.text, _ENCODING: self.encoding, **version})

    def takes(self, other: "Schema") -> bool:
        """Whether values under *other* can be brought under this schema without a loss."""
        return (self.text, self.encoding) == (other.text, other.encoding)


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that cannot be stored, and why, in the three parts of an error.

    Attributes:
        row: Its row in the column or batch at hand, counted from 0.
        what: What is wrong with it.
        why: The reason; may be empty.
        do: What the operator can do about it; may be empty.
        by: The Java class that would complain in a Connect worker; empty for that of the stage.
    """

    row: int
    what: str
    why: str = ""
    do: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Values as their producer encoded them, for formats that keep values so.

    Attributes:
        of: The values that are encoded; those of a column that has been changed are others.
        values: ``binary``, one row per row of *of*.
        schema: What they are encoded under; its ``encoding`` says how.
    """

    of: pa.Array
    values: pa.BinaryArray
    schema: Schema


@dataclass(frozen=True, slots=True)
class Column:
    """Values under one schema.

    Attributes:
        values: One row per row of what was converted; null where it was null, and where it is bad.
        schema: What they are under, None where the Arrow type says it all.
        bad: The rows that could not be converted, in rising order.
        encoded: The same values as they came, where a format may make use of it.
    """

    values: pa.Array
    schema: Schema | None = None
    bad: tuple[Bad, ...] = ()
    encoded: Encoded | None = None

    @property
    def kind(self) -> Kind:
        """What a format must take to hold it."""
        if self.schema is not None:
            return Kind.TYPED
        if isinstance(self.values.type, pa.JsonType):
            return Kind.JSON
        return Kind.TEXT if pa.types.is_string(self.values.type) else Kind.BYTES


def bad_where(wrong: pa.BooleanArray, what: str, why: str = "", do: str = "") -> tuple[Bad, ...]:
    """Return the rows where *wrong* is true, all bad for the same reason."""
    return tuple(Bad(row, what, why, do) for row in pc.indices_nonzero(wrong).to_pylist())


def all_bad(values: pa.Array, what: str, why: str = "", do: str = "") -> Column:
    """Return a ``binary`` column of nulls; each of *values* but null is bad for the same reason."""
    return Column(
        pa.nulls(len(values), pa.binary()), bad=bad_where(values.is_valid(), what, why, do)
    )


def row_by_row(
    values: Iterable[Any], convert: Callable[[Any], Any], kind: pa.DataType, what: str, do: str = ""
) -> Column:
    """Return a column of what *convert* returns for each value, for which Arrow has no function.

    Args:
        values: Python values; None stays null, and is not converted.
        convert: Returns what `pyarrow.array` accepts as *kind*; its ``ValueError`` says why a row
            is bad.
        kind: The column's type.
        what: What is wrong with a bad row.
        do: What the operator can do about it.
    """
    found: list[Any] = []
    bad: list[Bad] = []
    for row, value in enumerate(values):
        made = None
        if value is not None:
            try:
                made = convert(value)
            except ValueError as error:
                bad.append(Bad(row, what, str(error), do))
        found.append(made)
    return Column(pa.array(found, kind), bad=tuple(bad))


def schema_of(field: pa.Field) -> Schema | None:
    """Return what `Schema.on` put into *field*, None where there is nothing."""
    found = field.metadata or {}
    if _TEXT not in found:
        return None
    version = found.get(_VERSION)
    return Schema(
        found[_TEXT].decode(),
        None if version is None else int(version),
        found.get(_ENCODING, b"").decode(),
    )
