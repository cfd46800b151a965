"""Extension point: from a column of bytes, as in Kafka, to a typed column, as in a file, and back.

Owns how bytes become values, for files of values and for transforms; other records keep their
bytes.  It never asks Kafka or a store; only converters of registered schemas ask a registry.

A new converter is one file here with a class that fits `Converter`, and one line under
``[project.entry-points."kbackup.converters"]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa

from kbackup import plugins
from kbackup.options import Option, Unsupported
from kbackup.records import Column, Kind, Schema

TOPIC: Final = "topic"
"""Property passed with the options: the topic of the records."""
PART: Final = "part"
"""Property passed with the options: "key" or "value"."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a converter declares of itself.

    Attributes:
        gives: The kinds of columns that it may decode to: a format that takes none of them is
            refused at the start of a run.
        class_names: Simple names of the Java classes that stand for this converter.
        java_package: The package of these classes, which dead letters name; empty for none.
        options: Its options, as `kbackup.plugins` has them.
        defaults: Values of its options if the converter is assumed, or named by its registered
            name; with a Java class, the declared defaults apply, which are Connect's.
        registers: It registers the schemas of the values that it encodes.
    """

    gives: frozenset[Kind]
    class_names: tuple[str, ...] = ()
    java_package: str = ""
    options: tuple[Option[Any] | Unsupported, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    registers: bool = False


class Converter(Protocol):
    """Bytes to a typed column and back; null stays null, empty stays empty.

    One whose options decide whether its columns have a schema is a
    `kbackup.plugins.MayBeSchemaless`.
    """

    traits: ClassVar[Traits]

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Set its options, such as ``schemas.enable``; called once, first.

        If it is for known records, *properties* include their `TOPIC` and `PART`.

        Raises:
            ConfigurationError: If a property asks for what this converter cannot do; its
                ``place["property"]`` names it.
        """
        ...

    def decode(self, column: pa.Array) -> Sequence[Column]:
        """Turn ``binary`` into typed columns.

        They are ``binary``, ``string`` or ``pa.json_()``, or have a schema: one of Kafka Connect,
        see `kbackup.connect`, or one that describes the encoding of values that stay encoded.

        Returns:
            One column for each run of rows with the same schema, at least one; together they
            have the rows of *column*, in order.  A value that cannot be converted is among the
            bad rows of its column.
        """
        ...

    def encode(self, column: pa.Array, schema: Schema | None = None, /) -> Column:
        """Turn a typed column, as a format's reader gives it, into ``binary``.

        Args:
            column: The values.
            schema: Their schema; not passed if the Arrow type is sufficient.

        Returns:
            One row per row of *column*.  Each value that cannot be converted is null, and is among
            the bad rows; null never is.
        """
        ...


def by_name(
    name: str,
    properties: Mapping[str, Any] | None = None,
    *,
    topic: str | None = None,
    part: str = "value",
) -> Converter:
    """Return the converter registered as *name*, configured.

    Args:
        properties: Values of its options, None for its own defaults.
        topic: The topic of the records, None if it is not known.
    """
    found: Converter = plugins.load("converters", name)()
    given = found.traits.defaults if properties is None else properties
    place = {} if topic is None else {TOPIC: topic, PART: part}
    found.configure({**given, **place})
    return found


def registers(name: str) -> bool:
    """Whether the converter *name* registers the schemas of the values that it encodes."""
    found: Traits = plugins.load("converters", name).traits
    return found.registers
