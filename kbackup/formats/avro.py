"""Avro's object containers: what the connectors' ``AvroFormat`` writes.

A file has one schema, that of its records; each value, key or list of headers is a datum.

Source: kafka-connect-storage-cloud 87eb7d39, ``AvroRecordWriterProvider``; ``connect-compat``
section 3.2.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import BinaryIO, ClassVar, Final

import pyarrow as pa

from kbackup import columns
from kbackup.columns import ANY_KIND, ENCODED, Bad, Kind, Schema
from kbackup.connect import avro_datums, avro_values, avro_walk, avro_wire
from kbackup.connect import schema as connect
from kbackup.connect.avro_schema import AvroStyle, to_avro
from kbackup.connect.avro_wire import AVRO
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions, avro_table, choose, refuse_view
from kbackup.formats.avro_blocks import Block, BlockReader, BlockWriter
from kbackup.formats.avro_options import CODEC, CONNECT_META, ENHANCED, OPTIONAL_KEYS
from kbackup.formats.column_schema import column_schema
from kbackup.formats.keys import null_keys
from kbackup.naming import View
from kbackup.table_parts import Files

EXTENSION: Final = ".avro"
"""The same for every codec."""

_COLUMNS: Final = {View.VALUE: "value", View.KEY: "key", View.HEADERS: "headers"}
_TEXT: Final = ConnectSchema(Type.STRING)
HEADERS: Final = ConnectSchema(
    Type.ARRAY, value=ConnectSchema(Type.STRUCT, fields=(("key", _TEXT), ("value", _TEXT)))
)
"""Headers as the connectors keep them: text, whatever they were."""


class AvroFormat:
    """Avro containers; each batch has one column.

    It writes columns with a Connect schema, and plain columns as if they were optional.
    """

    class_names: ClassVar[tuple[str, ...]] = ("AvroFormat",)
    views: ClassVar[frozenset[View]] = frozenset(_COLUMNS)
    takes: ClassVar[frozenset[Kind]] = ANY_KIND
    assumed: ClassVar[Mapping[View, str]] = {View.VALUE: "json", View.KEY: "string"}
    assumed_to_write: ClassVar[Mapping[View, str]] = {View.VALUE: "avro"}
    splits_at: ClassVar[str] = ""
    needs_schema: ClassVar[bool] = True
    encodings: ClassVar[frozenset[str]] = frozenset({AVRO})

    def extension(self, options: FormatOptions) -> str:  # noqa: ARG002
        """Return ``.avro``."""
        return EXTENSION

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is ``.avro``."""
        return extension == EXTENSION

    def checks_itself(self, extension: str) -> bool:  # noqa: ARG002
        """Return False: blocks have no checksum."""
        return False

    def refuses(self, view: View, values: pa.Array) -> Sequence[Bad]:
        """Refuse null keys, JSON without a schema, and lists that nobody can read back."""
        if view is View.HEADERS:
            return ()
        if isinstance(values.type, pa.JsonType):
            do = f"set schemas.enable=true of its converter, or {choose(view, 'json')}"
            return [
                Bad(row, f"a {_COLUMNS[view]} has no schema", "an Avro file needs one", do)
                for row in range(len(values))
            ]
        return [
            *(null_keys(values) if view is View.KEY else ()),
            *_too_many_empty_items(values, view),
        ]

    def writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None = None
    ) -> "AvroWriter":
        """Begin a file of values, keys or headers.

        Raises:
            ConfigurationError: If *view* is whole records, or there is no such codec.
        """
        if view not in _COLUMNS:
            raise refuse_view("avro", view)
        return AvroWriter(file, view, options, schema)

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:  # noqa: ARG002
        """Return nothing: a container's metadata precedes its first record."""
        return {}

    def read(
        self,
        file: BinaryIO,
        view: View,
        extension: str,  # noqa: ARG002
        options: FormatOptions,
    ) -> Iterator[pa.RecordBatch]:
        """Read a file of values, keys or headers, a block at a time.

        A column of values or keys has the Connect schema that corresponds to the file's.

        Raises:
            ConfigurationError: If *view* is whole records.
            CorruptObjectError: If it is not an Avro container, is truncated within a block, or
                its blocks do not match its schema.
        """
        if view not in _COLUMNS:
            raise refuse_view("avro", view)
        return _read(file, view, options)

    def table(
        self,
        file: BinaryIO,
        view: View,  # noqa: ARG002
        extension: str,  # noqa: ARG002
        options: FormatOptions,
    ) -> Files:
        """Return a column for each field of the records.

        Raises:
            ConfigurationError: If the data are not records, or have no columns.
            CorruptObjectError: If it is not an Avro container.
        """
        schema = json.loads(BlockReader(file, options.max_record_bytes).schema)
        stored_as = partial(avro_table.stored_as, schema)
        return Files(avro_table.columns(schema), (EXTENSION,), "avro", stored_as)


class AvroWriter:
    """An Avro container being written; holds a block.

    Args:
        file: Where the bytes go; never closed here.
        view: The part of each record that it holds.
        options: The codec, and what schemas retain.
        schema: The schema of the values, None if the batches have it.
    """

    def __init__(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> None:
        given = options.values
        self._style = AvroStyle(CONNECT_META.of(given), ENHANCED.of(given), OPTIONAL_KEYS.of(given))
        self._file, self._codec = file, CODEC.of(given)
        self._view, self._column = view, _COLUMNS[view]
        self._schema = HEADERS if view is View.HEADERS else connect.of(schema)
        self._blocks: BlockWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column.

        Raises:
            ConfigurationError: If the column is JSON without a schema.
        """
        if self._schema is None:
            self._schema = column_schema(batch.schema.field(self._column), "an Avro file")
        blocks = self._begun(self._schema)
        datums = self._as_they_came(batch, blocks.schema)
        if datums is None:
            datums = avro_datums.encode(batch[self._column], self._schema, self._style)
        if datums.null_count:
            raise ConfigurationError(
                f"{self._column}s do not match their schema",
                "something in one is null and must not be, is not a symbol of its enum, or has "
                "not the size of its fixed type",
                "correct the transform that changes them, or " + choose(self._view, "json"),
            )
        blocks.write(datums)

    def _as_they_came(self, batch: pa.RecordBatch, schema: str) -> pa.BinaryArray | None:
        """Return the producers' datums, None if they do not have the file's schema.

        Nor where a null in them may have a default, which the connector writes in its place.
        """
        if ENCODED not in batch.schema.names or batch[ENCODED].null_count:
            return None
        if self._schema is not None and self._schema.fills_null:
            return None
        theirs = columns.schema_of(batch.schema.field(ENCODED))
        if theirs is None or not avro_wire.is_same(theirs.text, schema):
            return None
        return batch[ENCODED]

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002  # no room for it
        """Complete the file."""
        schema = self._schema or ConnectSchema(Type.BYTES, optional=True)  # nothing was written
        self._begun(schema).finish()

    def _begun(self, schema: ConnectSchema) -> BlockWriter:
        if self._blocks is None:
            try:
                avro = to_avro(schema, self._style)
            except ValueError as error:
                raise ConfigurationError(
                    f"{self._column}s have a schema that Avro cannot express",
                    str(error),
                    choose(self._view, "json"),
                ) from None
            text = json.dumps(avro, separators=(",", ":"))
            self._blocks = BlockWriter(self._file, text, self._codec)
        return self._blocks


def _too_many_empty_items(values: pa.Array, view: View) -> list[Bad]:
    """Return the rows whose lists have more empty structs than a reader accepts."""
    empty = _empty_items(values.type)
    if empty is None:
        return []
    (schema, walk), found = empty, []
    for row, datum in enumerate(avro_datums.encode(values, schema, AvroStyle()).to_pylist()):
        if datum is not None:  # what cannot be encoded has another reason
            try:
                walk(datum, 0)
            except ValueError as why:
                what = "lists of empty structs are too long for Avro"
                found.append(Bad(row, what, str(why), choose(view, "json")))
    return found


@lru_cache(100)
def _empty_items(kind: pa.DataType) -> tuple[ConnectSchema, Callable[[bytes, int], int]] | None:
    """Return how values with lists of empty structs are looked through; None for other types."""
    try:
        schema = connect.of_arrow(kind)
        text = json.dumps(to_avro(schema, AvroStyle()))
    except ValueError:  # no type of Avro's: the writer says so
        return None
    return (schema, avro_walk.walker(text)) if avro_walk.empty_items(text) else None


def _read(file: BinaryIO, view: View, options: FormatOptions) -> Iterator[pa.RecordBatch]:
    blocks = BlockReader(file, options.max_record_bytes)
    try:
        schema = avro_values.connect_schema(blocks.schema)
    except ValueError as error:
        raise CorruptObjectError(
            "the Avro file has a schema that kbackup cannot read", str(error)
        ) from None
    text = blocks.schema
    blocks.limit(avro_walk.empty_parts(text), has_lists=avro_walk.has_lists(text))
    field = schema.of_column().on(pa.field(_COLUMNS[view], schema.arrow()))
    rows = 0
    for block in blocks:
        column = _values(block, blocks, rows)
        rows += len(column)
        yield pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))


def _values(block: Block, blocks: BlockReader, before: int) -> pa.Array:
    try:
        blocks.spend(avro_walk.check_block(block.data, block.count, blocks.schema))
        return avro_values.decode(block.data, block.count, blocks.schema)
    except (ValueError, pa.ArrowException) as error:
        why = f"values {before + 1} to {before + block.count}: {error}"
        raise CorruptObjectError("the Avro file does not match its schema", why) from None
