"""What a connector's file may ask for and this version cannot do, refused by name.

A row is a property, the values that would change what is written or read, and why not.  Formats,
converters and partitioners are not here: `kbackup.plugins` knows which exist.

Source of names, defaults and effects: kafka-connect-storage-cloud 87eb7d39,
``S3SinkConnectorConfig``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kbackup.config.property import READING, SINK

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
    """

    name: str
    applies: Callable[[str], bool]
    why: str
    do: str
    commands: frozenset[str] = _BOTH


def _given(text: str) -> bool:
    return bool(text)


def _true(text: str) -> bool:
    return text.lower() not in ("false", "")


def _other_than(*harmless: str) -> Callable[[str], bool]:
    return lambda text: text not in harmless


def _any_case(*words: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in words


REFUSALS: Final = (
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

_BY_NAME: Final = {refusal.name: refusal for refusal in REFUSALS}


def find(name: str) -> Refusal | None:
    """Return the row for property *name*, None if there is none."""
    return _BY_NAME.get(name)
