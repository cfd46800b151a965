"""SEAM: a column of bytes, as Kafka has it, to a typed column, as a file has it, and back.

Only the connectors' layout needs converters; whole records keep their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from kbackup import plugins

if TYPE_CHECKING:  # modules of options here are imported for --help
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from kbackup.columns import Column, Schema


TOPIC: Final = "topic"
"""Property that is given with the options: which topic the records are of."""
PART: Final = "part"
"""Property that is given with the options: "key" or "value"."""


class Converter(Protocol):
    """Bytes to a typed column and back; null stays null, empty stays empty.

    One that registers schemas when it encodes has ``registers = True``.

    Attributes:
        class_names: Simple names of the Java classes that stand for this converter.
        defaults: Values of its options where the converter is assumed, or named by the name it
            is registered as; a Java class keeps the declared defaults, which are Connect's.
    """

    class_names: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, Any]]

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take what was given for its options, such as ``schemas.enable``; called once, first.

        Where records are at hand, `TOPIC` and `PART` among *properties* say which.

        Raises:
            ConfigurationError: If a property asks for what this converter cannot do; its
                ``place["property"]`` names it.
        """
        ...

    def decode(self, column: pa.Array) -> Sequence[Column]:
        """Turn ``binary`` into typed columns.

        They are ``binary``, ``string`` or ``pa.json_()``, or under a schema: that of Kafka
        Connect, see `kbackup.connect`, or one that says how values are encoded that stay so.

        Returns:
            One column for each run of rows under the same schema, at least one; together they
            have the rows of *column*, in order.  A value that cannot be converted is among the
            bad rows of its column.
        """
        ...

    def encode(self, column: pa.Array, schema: Schema | None = None, /) -> pa.Array:
        """Turn a typed column, as a format's reader gives it, into ``binary``.

        Args:
            column: The values.
            schema: What they are under; not passed where the Arrow type says it all.

        Raises:
            BadRecordError: With the row of the first value that cannot be converted.
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
        name: Of the plugin.
        properties: What was given for its options, None for its own defaults.
        topic: Which topic the records are of, None where it is not known.
        part: What is converted: "key" or "value".
    """
    found: Converter = plugins.load("converters", name)()
    given = found.defaults if properties is None else properties
    place = {} if topic is None else {TOPIC: topic, PART: part}
    found.configure({**given, **place})
    return found


def registers(name: str) -> bool:
    """Whether the converter *name* registers the schemas of what it encodes."""
    return bool(getattr(plugins.load("converters", name), "registers", False))
