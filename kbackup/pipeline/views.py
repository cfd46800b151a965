"""Turn rows into the columns of each view's file, and back.

A full-record file has every column of ``records.SCHEMA``.  The connectors' layout has a value
file, and if requested, a keys file and a headers file beside it, row for row.

In a generic layout each row is a JSON object, whose fields ``record.fields`` names::

    {"key": "azE=", "value": "djE=", "timestamp": "2026-11-22T17:00:00Z", "headers": []}
    {"key": "k1", "value": {"n": 1}, "headers": {"a": "b"}, "metadata": {"timestamp": 17953}}
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup import converters, formats, plugins
from kbackup.converters import Converter
from kbackup.errors import ConfigurationError, CorruptObjectError, counted
from kbackup.formats import HEADERS, Format, FormatOptions
from kbackup.naming import OFFSET_MAX, View
from kbackup.options import Option, Unsupported
from kbackup.records import HEADER, SCHEMA, Bad, Column, TimestampType

PARTS: Final = ("key", "value", "timestamp", "headers")
"""What a row may hold of a record.  Offsets are counted from the object's name instead."""

_ABSENT: Final = object()

_WRITTEN_WITH: Final = "written-with"
CONVERTER: Final = "converter"
"""Under what `ViewSpec.written_with` has the converter's plugin; options have their own names."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """How rows hold records; plain data.

    Attributes:
        fields: The field of each part of `PARTS`, dots between the names of nested fields; a part
            that is not there is not stored.
        encoding: How key, value and headers are written: ``text`` as it is, and what is no text as
            JSON; ``json``: all of it JSON; ``base64``.
    """

    fields: Mapping[str, str]
    encoding: str = "text"

    def opened(self, rows: pa.BinaryArray, start: int) -> pa.RecordBatch:
        """Return the records that *rows*, JSON objects, hold; their offsets begin at *start*.

        Returns:
            ``records.SCHEMA``.

        Raises:
            CorruptObjectError: If a row is no object, has no field of the value's name, or has a
                part that is not of its kind.
        """
        paths = {part: tuple(path.split(".")) for part, path in self.fields.items()}
        records = []
        for row, text in enumerate(rows.to_pylist()):
            try:
                records.append({**self._record(orjson.loads(text or b"null"), paths)})
            except (ValueError, binascii.Error) as error:
                what = f"row {start + row} cannot be read by record.fields"
                raise CorruptObjectError(what, str(error), "correct record.fields") from None
        for row, record in enumerate(records):
            record["offset"] = start + row
        return pa.RecordBatch.from_pylist(records, SCHEMA)

    def _record(self, row: Any, paths: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
        parts = {part: _at(row, path) for part, path in paths.items()}
        if parts.get("value", _ABSENT) is _ABSENT:
            raise ValueError(f"it has no field {self.fields.get('value', 'value')}")
        moment = _moment(parts.get("timestamp", _ABSENT))
        kind = TimestampType.NONE if moment is None else TimestampType.CREATE
        return {
            "timestamp": moment,
            "timestamp_type": int(kind),
            "key": self._bytes(parts.get("key", _ABSENT)),
            "value": self._bytes(parts["value"]),
            "headers": list(self._headers(parts.get("headers", _ABSENT))),
        }

    def _bytes(self, value: Any) -> bytes | None:
        if value is None or value is _ABSENT:
            return None
        if self.encoding == "base64":
            if not isinstance(value, str):
                raise ValueError("it is not text, so it cannot be base64")
            return base64.b64decode(value, validate=True)
        if isinstance(value, str) and self.encoding == "text":
            return value.encode()
        return orjson.dumps(value)

    def _headers(self, found: Any) -> Iterator[dict[str, Any]]:
        if found is None or found is _ABSENT:
            return
        pairs = found.items() if isinstance(found, dict) else map(_pair, _list(found))
        for name, value in pairs:
            yield {"key": name, "value": self._bytes(value)}


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError("its headers are neither a list nor an object")  # noqa: TRY004
    return found


def _pair(header: Any) -> tuple[str, Any]:
    if not (isinstance(header, dict) and isinstance(header.get("key"), str)):
        raise ValueError('a header is not {"key":...,"value":...}')  # noqa: TRY004
    return header["key"], header.get("value")


def _at(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(row, dict):
            return _ABSENT
        row = row.get(name, _ABSENT)
    return row


def _moment(found: Any) -> int | None:
    """Return ms since the epoch of a number of them, or of a text in RFC 3339."""
    if found is None or found is _ABSENT:
        return None
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, str) and found.lstrip("-").isdecimal():
        return int(found)
    if not isinstance(found, str):
        raise ValueError("its timestamp is neither a number nor a text")  # noqa: TRY004
    at = datetime.fromisoformat(found)
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """One kind of file of a layout; plain data.

    Attributes:
        converter: Name of the converter's plugin; None for full records and headers.
        properties: What was given for the converter's options.
    """

    view: View
    format: str
    options: FormatOptions
    converter: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def open_format(self) -> Format:
        """Return the format, ready to use."""
        return formats.by_name(self.format)

    @property
    def stores_batches(self) -> bool:
        """Whether its files hold record batches as they are."""
        return self.open_format().traits.stores_batches

    def extension(self) -> str:
        """Return the extension of its files, dot first."""
        return self.open_format().extension(self.options)

    def open_converter(self, topic: str | None = None) -> Converter | None:
        """Return the converter of *topic*, configured; None where the bytes stay as they are."""
        if self.converter is None:
            return None
        part = "key" if self.view is View.KEY else "value"
        return converters.by_name(self.converter, self.properties, topic=topic, part=part)

    @property
    def written_with(self) -> dict[str, Any]:
        """What reading its files needs to know of how they were written, in JSON's types.

        That is what the format keeps, and the converter with those of its options that reading uses
        too; of one that registers schemas, which goes by the target's registry, its name alone.
        """
        splits_at = self.open_format().traits.splits_at
        found: dict[str, Any] = {}
        for each in kept(self.format):
            given = each.of(self.options.values)
            found[each.name] = "\n" if given is None and each.name == splits_at else given
        if self.converter is not None:
            found[CONVERTER] = self.converter
            for each in _kept(self.converter):
                found[each.name] = each.of(self.properties)
        return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]  # as read


def kept(form: str) -> list[Option[Any]]:
    """Return the options of a format that its files name."""
    traits = formats.by_name(form).traits
    names = {*traits.keeps, traits.splits_at}
    options = plugins.options("formats", form)
    return [each for each in options if each.name in names and not each.is_secret]


def _kept(converter: str) -> Iterator[Option[Any]]:
    """Yield the options of a converter that its files name."""
    own: converters.Traits = plugins.load("converters", converter).traits
    for each in () if own.registers else own.options:
        if isinstance(each, Option) and each.commands == "both" and not each.is_secret:
            yield each


def written_metadata(written: Mapping[str, Any]) -> dict[str, str]:
    """Return `ViewSpec.written_with` as an object's user metadata: ASCII without a space."""
    if not written:
        return {}
    text = json.dumps(written, separators=(",", ":"))
    return {_WRITTEN_WITH: text.replace(" ", r"\u0020")}  # signatures take two spaces for one


def written_of(metadata: Mapping[str, str]) -> Mapping[str, Any]:
    """Read what `written_metadata` wrote; empty where it is not there, or not sound."""
    try:
        found = orjson.loads(metadata.get(_WRITTEN_WITH, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get(CONVERTER, ""), str) else {}


def _sound(
    written: Mapping[str, Any], options: Iterable[Option[Any] | Unsupported], key: str
) -> dict[str, Any]:
    """Return what the object *key* says of *options*; each must be able to take it."""
    found = {}
    for each in options:
        if isinstance(each, Option) and each.name in written:
            value = written[each.name]
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            try:
                is_absent = value is None and each.default is None
                found[each.name] = None if is_absent else each.read(text)
            except ValueError as error:
                why = f"it says that it was written with {each.name}={text[:80]!r}: {error}"
                do = "restore it from a copy of the bucket"
                raise CorruptObjectError(key, why, do, key=key) from error
    return found


def registers(converter: str, key: str) -> bool:
    """Whether the converter that the object *key* names registers schemas.

    Raises:
        ConfigurationError: If it is not installed.
    """
    try:
        return converters.registers(converter)
    except ConfigurationError as error:
        do = "install the package that brings it, or give --value-converter or --key-converter"
        raise ConfigurationError(f"{key}: {error.what}", error.why, do, key=key) from error


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How objects are read; plain data.

    Attributes:
        key_converter: Plugin name, None for what suits the format of the file.
        value_converter: Plugin name, None for what suits the format of the file.
        properties: What was given for the options of each converter, by view.
        unasked: The views for which no converter was asked: one that a sink's file names is what is
            written now, and an object that names another is read by that.
        wants_siblings: A value object without a sibling that it says it has is incomplete.
        topic: The topic that records are read for; None where they are only looked at.
        file_headers: Records of a generic layout get headers that describe their object.
        envelope: How rows of a generic layout hold records; None: they are values.
        salvages: Rows that cannot be read are left out, and those of a damaged object that precede
            the damage are read; otherwise an object is bad as a whole.
        by_format: Each file is read by its format's own converter, whatever is named: to compare
            what several tools have stored, not all of which say how.
        in_frames: Values of files that keep their schemas come as a registry's Avro converter
            writes them, with 0 for the schema's id: to be compared, not restored.
    """

    formats: FormatOptions = field(default_factory=FormatOptions)
    key_converter: str | None = None
    value_converter: str | None = None
    properties: Mapping[View, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    unasked: frozenset[View] = frozenset()
    wants_siblings: bool = True
    topic: str | None = None
    file_headers: bool = False
    envelope: Envelope | None = None
    salvages: bool = False
    by_format: bool = False
    in_frames: bool = False

    def converter(self, view: View) -> str | None:
        """Return the converter of a part of the records."""
        if self.by_format:
            return None
        return self.key_converter if view is View.KEY else self.value_converter

    def formatted(self, form: str, written: Mapping[str, Any], key: str) -> FormatOptions:
        """Return the options of the format for an object of *key*, by what its sink `written`."""
        own = {name: it for name, it in _sound(written, kept(form), key).items() if it is not None}
        return replace(self.formats, values={**self.formats.values, **own})

    def as_written(
        self, view: View, form: str, written: Mapping[str, Any], key: str
    ) -> "ReadOptions":
        """Return how to read a file, an object of *key*, that says what it was `written` with.

        What its format keeps counts.  Its converter does where a sink's file names another, or
        nobody names one and the format's own is another: who asks for one converts on purpose.
        """
        found = replace(self, formats=self.formatted(form, written, key))
        assumed = formats.by_name(form).traits.assumed
        own, given = written.get(CONVERTER), self.converter(view)
        is_asked = given is not None and view not in self.unasked
        is_usual = self.by_format or (given is None and own == assumed.get(view))
        if own is None or is_asked or is_usual or registers(own, key):
            return found
        defaults = plugins.load("converters", own).traits.defaults
        same = self.properties.get(view, {}) if own == given else defaults
        properties = {**self.properties, view: {**same, **_sound(written, _kept(own), key)}}
        if view is View.KEY:
            return replace(found, key_converter=own, properties=properties)
        return replace(found, value_converter=own, properties=properties)


def assemble(
    first_offset: int,
    value: pa.Array,
    key: pa.Array | None,
    headers: pa.Array | None,
) -> pa.RecordBatch:
    """Put the columns of the connectors' layout together again.

    Args:
        first_offset: Offset of the first row.  The layout stores no others: rows are numbered on
            from here, which is exact only where the topic had no holes.
        value: ``binary``.
        key: ``binary``, None where keys were not stored.
        headers: `HEADERS`, None where headers were not stored.

    Returns:
        ``records.SCHEMA``; the timestamps, which this layout does not store, are null.

    Raises:
        CorruptObjectError: If the columns differ in length: rows are never paired by guess.
    """
    rows = len(value)
    if first_offset + rows > OFFSET_MAX:
        raise CorruptObjectError(
            f"{counted(rows, 'row')} from offset {first_offset} on", "Kafka has no such offsets"
        )
    for name, column in (("keys", key), ("headers", headers)):
        if column is not None and len(column) != rows:
            raise CorruptObjectError(
                f"the {name} file does not fit the value file",
                f"{counted(len(column), 'row')} against {rows}",
                "write the objects again with kbackup sink, if Kafka still has the records",
            )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first_offset, first_offset + rows), pa.int64()),
            pa.nulls(rows, pa.int64()),
            pa.repeat(pa.scalar(int(TimestampType.NONE), pa.int8()), rows),
            pa.nulls(rows, pa.binary()) if key is None else key,
            value,
            _headers_as_bytes(rows, headers),
        ],
        schema=SCHEMA,
    )


def _headers_as_bytes(rows: int, headers: pa.Array | None) -> pa.Array:
    element = SCHEMA.field("headers").type.value_field
    if headers is None:
        none = pa.StructArray.from_arrays(
            [pa.array([], pa.string()), pa.array([], pa.binary())], fields=list(HEADER)
        )
        ends = pa.repeat(pa.scalar(0, pa.int32()), rows + 1)
        return pa.ListArray.from_arrays(ends, none, type=pa.list_(element))
    flat = headers.flatten()
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays(
        [flat.field("key"), flat.field("value").cast(pa.binary())], fields=list(HEADER)
    )
    return pa.ListArray.from_arrays(ends, structs, type=pa.list_(element))


_HEADERS_DO: Final = "use full records (without format.class), or store.kafka.headers=false"


def headers_as_text(column: pa.Array) -> Column:
    """Return headers with values as text: UTF-8 as it is, other bytes in base64.

    Source: ``Values.convertToString`` by way of ``connect-compat`` section 3.5.

    Returns:
        `HEADERS`; a record without headers, or with a null header value, is bad: the
        connectors' header files cannot store it.
    """
    lengths = pc.list_value_length(column)
    flat = column.flatten()
    names, values = flat.field("key"), flat.field("value")
    bad = [
        Bad(row, "a record has no headers", "store.kafka.headers=true needs some", _HEADERS_DO)
        for row in pc.indices_nonzero(pc.equal(lengths, 0)).to_pylist()
    ]
    if values.null_count:
        parents = pc.list_parent_indices(column)
        for at in pc.indices_nonzero(values.is_null()).to_pylist():
            what = "a header of a record has a null value"
            why = f"it is {names[at].as_py()!r}, and the connectors' header files cannot store it"
            bad.append(Bad(parents[at].as_py(), what, why, _HEADERS_DO))
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:  # some value is not UTF-8; such headers are rare
        found = [None if value is None else _text(value) for value in values.to_pylist()]
        texts = pa.array(found, pa.string())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays([names, texts], fields=list(HEADERS.value_type))
    bad.sort(key=lambda at: at.row)
    return Column(pa.ListArray.from_arrays(ends, structs), bad=tuple(bad))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
