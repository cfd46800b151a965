"""What a connector's file may ask for and this version cannot do, refused by name.

A row is a property, the values that would change what is written or read, and why not.  Which
formats, converters and partitioners exist is not here: `kbackup.plugins` knows.

Source of names, defaults and effects: kafka-connect-storage-cloud 87eb7d39,
``S3SinkConnectorConfig``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kbackup.config.property import READING, RESTORE, SINK

_BOTH: Final = SINK | READING


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row.

    Attributes:
        name: The property.
        applies: Whether a value, without surrounding blanks, asks for what cannot be done.
        why: The reason.
        do: What to do instead.
        commands: The commands that use the property.
        reads_others: Whether the other properties let it have its effect.
    """

    name: str
    applies: Callable[[str], bool]
    why: str
    do: str
    commands: frozenset[str] = _BOTH
    reads_others: Callable[[Mapping[str, str]], bool] = lambda _: True


def _given(text: str) -> bool:
    return bool(text)


def _true(text: str) -> bool:
    return text.lower() not in ("false", "")


def _other_than(*harmless: str) -> Callable[[str], bool]:
    return lambda text: text not in harmless


def _any_case(*words: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in words


_ROWS: Final = (
    Refusal(
        "behavior.on.null.values",
        _any_case("write"),
        "tombstone files hold keys without offsets, so a restore could not know which values "
        "came before a tombstone and which after it; this version writes none",
        "leave out format.class: whole records keep tombstones in their place; or set it to fail, "
        "or to ignore with errors.tolerance=all and a dead letter topic, which keeps them",
        SINK,
    ),
    Refusal(
        "file.discovery.starting.timestamp",
        _other_than("0", ""),
        "it would leave objects out by when they were stored, and this version restores all",
        "remove it, and choose records with --from-time or --from-offset",
        READING,
    ),
    Refusal(
        "parse.error.topic.prefix",
        _other_than("error", ""),
        "this version sends no topic the records that it cannot read",
        "remove it; behavior.on.error=log names each object and record that is left out",
        READING,
    ),
    Refusal(
        "value.schema",
        _given,
        "this version reads the fields of a CSV file as text",
        "remove it, and change types with transforms=c, transforms.c.type="
        "org.apache.kafka.connect.transforms.Cast$Value and transforms.c.spec=FIELD:int32",
        READING,
    ),
    Refusal(
        "csv.rfc.4180.parser.enabled",
        _other_than("true", ""),
        "this version reads CSV as RFC 4180 has it",
        "set it to true",
        READING,
    ),
    Refusal(
        "csv.keep.carriage.return",
        _true,
        "this version takes a carriage return before a line feed for a part of the line's end",
        "set it to false",
        READING,
    ),
    Refusal(
        "filename.regex",
        _other_than(r"(.+)\+(\d+)\+.+$", ""),
        "names are parsed by directory.delim and file.delim",
        "set file.delim, and remove it",
        READING,
    ),
    Refusal(
        "format.json.schema.enable",
        _true,
        "this version reads JSON without schemas",
        "set it to false",
        READING,
    ),
    Refusal(
        "kafka.api.key",
        _given,
        "only a managed connector has such a key",
        "set security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username and sasl.password",
    ),
    Refusal(
        "kafka.api.secret",
        _given,
        "only a managed connector has such a secret",
        "set sasl.password",
    ),
)

_AVRO: Final = ("AvroConverter", "avro")
_JSON_SCHEMA: Final = ("JsonSchemaConverter", "json_schema")
_PROTOBUF: Final = ("ProtobufConverter", "protobuf")
_REGISTERED: Final = (*_AVRO, *_JSON_SCHEMA, *_PROTOBUF)
_RUN: Final = SINK | RESTORE


@dataclass(frozen=True, slots=True)
class _Effect:
    """What a converter's property would change, and kbackup's converter does not."""

    name: str
    applies: Callable[[str], bool]
    converters: tuple[str, ...]
    why: str
    commands: frozenset[str] = _RUN

    def of(self, side: str) -> Refusal:
        """Return the row for the converter of keys or values."""
        chooses = f"{side}.converter"

        def is_theirs(given: Mapping[str, str]) -> bool:
            named = given.get(chooses, "").rpartition(".")[2]
            return not named or named in self.converters

        name = f"{chooses}.{self.name}"
        return Refusal(name, self.applies, self.why, "remove it", self.commands, is_theirs)


_EFFECTS: Final = (
    _Effect(
        "generalized.sum.type.support",
        _true,
        _REGISTERED,
        "it gives unions and enums other names in files, and this version does not write them",
    ),
    _Effect(
        "flatten.unions",
        _true,
        _PROTOBUF,
        "it puts the fields of a oneof beside the others, and this version keeps them in a struct",
    ),
    _Effect(
        "generate.struct.for.nulls",
        _true,
        _PROTOBUF,
        "it fills messages that are not set, and this version stores null",
    ),
    _Effect(
        "support.optional.for.proto2",
        _any_case("false"),
        _PROTOBUF,
        "this version reads the keyword optional in proto2 files too",
    ),
    _Effect(
        "scrub.invalid.names",
        _true,
        _JSON_SCHEMA,
        "it changes names that Avro does not allow, and this version keeps names",
    ),
    _Effect(
        "preserve.additional.properties",
        _true,
        _JSON_SCHEMA,
        "it keeps properties that the schema does not name, and this version leaves them out",
    ),
    _Effect(
        "json.fail.invalid.schema",
        _true,
        _JSON_SCHEMA,
        "it refuses records that break a rule of their JSON Schema, such as a pattern, and this "
        "version checks types only",
    ),
    _Effect(
        "json.indent.output",
        _true,
        _JSON_SCHEMA,
        "it spreads JSON over lines, and this version writes it on one",
        RESTORE,
    ),
    _Effect(
        "discard.type.doc.default",
        _true,
        _AVRO,
        "it removes documentation and defaults of types, and this version keeps them",
    ),
    _Effect(
        "flatten.singleton.unions",
        _any_case("false"),
        (*_AVRO, *_JSON_SCHEMA),
        "it keeps a union of one type as a struct, and this version stores the value itself",
    ),
    _Effect(
        "ignore.default.for.nullables",
        _true,
        _REGISTERED,
        "it writes null where this version writes the default",
        RESTORE,
    ),
    _Effect(
        "rule.executors",
        _given,
        _REGISTERED,
        "rules of a registry may encrypt or change fields, and this version applies none",
    ),
)


def _stores_headers(given: Mapping[str, str]) -> bool:
    return given.get("store.kafka.headers", "").lower() == "true"


def _other_header_text(text: str) -> bool:
    return text.rpartition(".")[2] not in ("", "SimpleHeaderConverter", "StringConverter")


def _more() -> Iterator[Refusal]:
    yield Refusal(
        "header.converter",
        _other_header_text,
        "files of headers hold the values' text, as with StringConverter; another converter would "
        "write something else",
        "set it to org.apache.kafka.connect.storage.StringConverter, or store.kafka.headers=false",
        SINK,
        _stores_headers,
    )
    for side in ("key", "value"):
        for effect in _EFFECTS:
            yield effect.of(side)


REFUSALS: Final = (*_ROWS, *_more())

_BY_NAME: Final = {refusal.name: refusal for refusal in REFUSALS}


def find(name: str) -> Refusal | None:
    """Return the row for property *name*, None if there is none."""
    return _BY_NAME.get(name)
