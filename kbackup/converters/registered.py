"""A column of records that name their schema by id: what these converters share.

Rows are decoded together by schema, however schemas alternate, and are returned as a column for
each run of rows with the same schema.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect.registry import (
    AUTO_REGISTER,
    KEY_STRATEGY,
    URL,
    VALUE_STRATEGY,
    RegisteredSchema,
    check_installed,
    connect,
    settings_of,
    subject,
)
from kbackup.connect.registry.framing import Frames, alike, framed, unframed
from kbackup.connect.schema import ConnectSchema, of, of_arrow
from kbackup.converters import PART, TOPIC, Traits
from kbackup.errors import ConfigurationError, RegistryError
from kbackup.java import jackson
from kbackup.options import Option, Unsupported
from kbackup.records import Bad, Column, Encoded, Kind, Schema, all_bad, bad_where

if TYPE_CHECKING:
    from kbackup.connect.registry.client import RegistryClient

_DO: Final = "choose the converter that fits what producers write, or keep full records"


@dataclass(frozen=True, slots=True)
class RequestedSchemas:
    """A registry, and the records whose schemas are requested; no topic is an empty one."""

    registry: "RegistryClient"
    topic: str
    part: str
    strategy: str
    registers: bool = True

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> "RequestedSchemas | None":
        """Return what a converter's *properties* specify, None if they name no registry."""
        if not URL.of(properties):
            return None
        part = properties.get(PART, "value")
        strategy = (KEY_STRATEGY if part == "key" else VALUE_STRATEGY).of(properties)
        settings = settings_of(properties)
        topic = properties.get(TOPIC)
        if topic is None:  # a configuration is being checked, without any request
            check_installed()
            return None
        return cls(connect(settings), topic, part, strategy, AUTO_REGISTER.of(properties))

    def version(self, schema_id: int, record: str | None) -> int | None:
        """Return the version of a schema of the record *record* under its subject."""
        return self.registry.version(schema_id, self.subject(record))

    def versioned(self, schema: ConnectSchema, schema_id: int) -> ConnectSchema:
        """Return *schema* with its version in the registry, unless it brings one."""
        if schema.version is not None:
            return schema
        return replace(schema, version=self.version(schema_id, schema.name))

    def id_of(self, record: str | None, schema: RegisteredSchema) -> int:
        """Return the id of the schema of the record *record*, which is registered if it is new.

        Raises:
            RegistryError: If the registry does not answer, refuses the schema, or does not have
                it and nothing is to be registered.
        """
        name = self.subject(record)
        if self.registers:
            return self.registry.register(name, schema)
        found = self.registry.find(name, schema)
        if found is None:
            raise RegistryError(
                f"subject {name} does not have the schema that values are written with",
                f"{AUTO_REGISTER.name} is false, so it is not registered",
                f"register it, or set {self.part}.converter.{AUTO_REGISTER.name}=true",
            )
        return found

    def subject(self, record: str | None) -> str:
        """Return the subject of a schema of the record *record*."""
        return subject(self.strategy, self.topic, self.part, record)


def needed(asked: RequestedSchemas | None) -> RequestedSchemas:
    """Return *asked*; `ConfigurationError` if the converter has no registry."""
    if asked is not None:
        return asked
    raise ConfigurationError(
        "the converter has no Schema Registry to ask",
        f"{URL.name} is not given",
        f"set it, with key.converter. or value.converter. before it: {URL.name}=http://host:8081",
        property=URL.name,
    )


def bad_rows(wrong: Mapping[int, str], what: str, do: str = _DO) -> tuple[Bad, ...]:
    """Return the rows that are bad, in order: the reason of each in *wrong*, and what all share."""
    return tuple(Bad(row, what, why, do) for row, why in sorted(wrong.items()))


@dataclass(frozen=True, slots=True)
class SchemaWithId:
    """The schema of values, with its id in the registry.

    And which message of it, as in `Frames.messages`; empty if schemas have only one.
    """

    id: int
    schema: RegisteredSchema
    message: bytes = b""

    def of_kind(self, kind: str) -> RegisteredSchema:
        """Return the schema; ``ValueError`` if it has another kind."""
        if self.schema.kind != kind:
            raise ValueError(f"it is a schema of type {self.schema.kind}, not {kind}")
        return self.schema


Decode = Callable[[pa.BinaryArray, SchemaWithId], Column]
"""Turns values without their prefixes, none of them null, and their schema into a column."""


class Form(NamedTuple):
    """How values of one schema are written.

    Attributes:
        record: The name of the record, for the subject of the schema.
        write: Encodes them without their prefixes, null where that cannot be.
    """

    record: str | None
    schema: RegisteredSchema
    write: Callable[[pa.Array], pa.BinaryArray]


def traits(class_name: str, package: str, options: tuple[Option[Any] | Unsupported, ...]) -> Traits:
    """Return the traits of such a converter."""
    return Traits(frozenset({Kind.TYPED}), (class_name,), package, options, registers=True)


class RegisteredConverter:
    """Columns under schemas of Connect, whose versions are those of the registry.

    Attributes:
        encoding: What values are written as, such as "Avro".
        described: What schemas are, such as "Avro schema".
        unfit: What is wrong with a value that cannot be written, and why.
    """

    encoding: ClassVar[str]
    described: ClassVar[str]
    unfit: ClassVar[tuple[str, str]]
    unframe = staticmethod(unframed)

    def __init__(self) -> None:
        self.asked: RequestedSchemas | None = None

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* with the schemas that its rows name."""
        return decode(column, self.asked, self._of_schema, self.unframe)

    def encode(self, column: pa.Array, schema: Schema | None = None) -> Column:
        """Return *column* with its schema, which is registered if it is new.

        A value that does not fit its schema, or has none, is bad.
        """
        if isinstance(column.type, pa.JsonType):
            return all_bad(
                jackson.without_null(column.storage),
                f"JSON without a schema cannot be written as {self.encoding}",
                f"a value of {self.encoding} needs a schema, and the file has none",
                "choose value.converter=json, or string for keys",
            )
        if column.null_count == len(column):
            return Column(pa.nulls(len(column), pa.binary()))
        try:
            form = self._form(of(schema) or of_arrow(column.type, optional=False))
        except ValueError as problem:
            what = f"values of type {column.type} have no {self.described}"
            do = "choose the converter that the backup was written with"
            return all_bad(column, what, str(problem), do)
        bodies = form.write(column)
        lost = pc.and_(bodies.is_null(), column.is_valid())
        bad = bad_where(lost, *self.unfit, "repair the object, or leave it out")
        if bodies.null_count == len(bodies):  # nothing is written that would need a schema
            return Column(bodies, bad=bad)
        schema_id = needed(self.asked).id_of(form.record, form.schema)
        return Column(framed(schema_id, bodies), bad=bad)

    def _of_schema(self, bodies: pa.BinaryArray, under: SchemaWithId) -> Column:
        """Return *bodies* with the Connect schema that corresponds to theirs."""
        raise NotImplementedError

    def _form(self, schema: ConnectSchema) -> Form:
        """Return how values are written; a ``ValueError`` says why they cannot be."""
        raise NotImplementedError


@dataclass(slots=True)
class _SchemaRows:
    """The rows of one schema: their column, and how many of them have been used."""

    column: Column
    given: int = 0


def decode(
    column: pa.BinaryArray,
    asked: RequestedSchemas | None,
    of_schema: Decode,
    unframe: Callable[[pa.BinaryArray], Frames],
) -> Sequence[Column]:
    """Return *column* as `kbackup.converters.Converter.decode` does.

    A row that names no schema, or one that the registry does not know or that has no column, is
    bad; like null, it stays in the current run.  Nulls need no request.

    A ``ValueError`` of *of_schema* says why it cannot decode the values of a schema.

    Raises:
        ConfigurationError: If the converter was told of no registry.
        RegistryError: If the registry does not answer; its ``row`` is the row concerned.
    """
    if column.null_count == len(column):
        return (Column(pa.nulls(len(column), pa.string())),)
    registry = needed(asked).registry
    same = alike(column) if unframe is unframed else None
    found = None if same is None else _of_one_schema(*same, registry, of_schema)
    if found is not None:
        return (found,)
    frames = unframe(column)
    bad: dict[int, Bad] = {}
    if frames.ids.null_count > column.null_count:
        wrong = pc.and_(frames.ids.is_null(), column.is_valid())
        for row in pc.indices_nonzero(wrong).to_pylist():
            bad[row] = _headless(column[row].as_py())
    keys, messages = frames.ids, frames.messages
    if messages is not None:
        if messages.null_count > frames.ids.null_count:
            wrong = pc.and_(messages.is_null(), frames.ids.is_valid())
            bad |= {row: _messageless(row) for row in pc.indices_nonzero(wrong).to_pylist()}
        keys = pc.binary_join_element_wise(keys.cast(pa.string()).cast(pa.binary()), messages, b":")
    kinds = keys.dictionary_encode()
    groups: dict[int, _SchemaRows] = {}
    usable: list[int | None] = []
    for kind in range(len(kinds.dictionary)):
        rows = pc.indices_nonzero(pc.equal(kinds.indices, kind))
        schema_id = frames.ids[rows[0].as_py()].as_py()
        message = b"" if messages is None else messages[rows[0].as_py()].as_py()
        try:
            group = _group(frames.bodies, rows, registry, of_schema, schema_id, message)
        except RegistryError as error:
            error.row = rows[0].as_py()
            raise
        except ValueError as problem:
            usable.append(None)
            what = f"a record names schema {schema_id}, which cannot be used"
            for row in rows.to_pylist():
                bad[row] = Bad(row, what, str(problem), _DO)
            continue
        usable.append(kind)
        groups[kind] = group
        for at in group.column.bad:
            row = rows[at.row].as_py()
            bad[row] = replace(at, row=row)
    if not groups:
        return (Column(pa.nulls(len(column), pa.string()), bad=_sorted(bad)),)
    of_rows = pa.array(usable, pa.int32()).take(kinds.indices)
    return _runs(of_rows, groups, bad)


def _of_one_schema(
    schema_id: int, bodies: pa.BinaryArray, registry: "RegistryClient", of_schema: Decode
) -> Column | None:
    """Return the column of rows that all have one schema; None if it cannot be used."""
    try:
        group = _group(bodies, bodies, registry, of_schema, schema_id, b"")
    except RegistryError as error:
        error.row = 0
        raise
    except ValueError:
        return None
    return group.column


def _group(
    bodies: pa.BinaryArray,
    rows: pa.Array,
    registry: "RegistryClient",
    of_schema: Decode,
    schema_id: int,
    message: bytes,
) -> _SchemaRows:
    found = registry.schema(schema_id)
    if found is None:
        raise ValueError("the Schema Registry has no schema of this id")
    mine = bodies if len(rows) == len(bodies) else bodies.take(rows)
    return _SchemaRows(of_schema(mine, SchemaWithId(schema_id, found, message)))


def _runs(
    of_rows: pa.Int32Array, groups: Mapping[int, _SchemaRows], bad: Mapping[int, Bad]
) -> Sequence[Column]:
    """Return a column for each run of one schema; rows without one stay in the current run."""
    filled = pc.fill_null_backward(pc.fill_null_forward(of_rows))
    ends = pc.run_end_encode(filled)
    found, start = [], 0
    for kind, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        group = groups[kind]
        here = of_rows.slice(start, end - start)
        count = len(here) - here.null_count
        values = group.column.values.slice(group.given, count)
        encoded = group.column.encoded
        datums = None if encoded is None else encoded.values.slice(group.given, count)
        group.given += count
        if here.null_count:
            values = json_values.spread(values, here.is_valid())
            datums = None if datums is None else json_values.spread(datums, here.is_valid())
        mine = {row: each for row, each in bad.items() if start <= row < end} if bad else {}
        moved = tuple(replace(each, row=row - start) for row, each in sorted(mine.items()))
        if encoded is not None and datums is not None:
            encoded = Encoded(values, datums, encoded.schema)
        found.append(Column(values, group.column.schema, moved, encoded))
        start = end
    return found


def _headless(value: bytes) -> Bad:
    what = "a record names no schema of a Schema Registry"
    why = f"it begins with {value[:5].hex(' ')} instead of 00 and the schema's id"
    return Bad(0, what, "it is empty" if not value else why, _DO)


def _messageless(row: int) -> Bad:
    what = "a record names no message of its schema"
    return Bad(row, what, "the bytes after the schema's id are not indexes of a message", _DO)


def _sorted(bad: Mapping[int, Bad]) -> tuple[Bad, ...]:
    return tuple(replace(each, row=row) for row, each in sorted(bad.items()))
