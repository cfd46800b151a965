"""SEAM: records to records: Kafka Connect's single message transforms, on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from kbackup.options import Option
    from kbackup.transforms.data import Records


class Transform(Protocol):
    """Changes records, or drops some.

    Attributes:
        class_names: Simple names of the Java classes that stand for this transform, without the
            ``$Key`` or ``$Value`` after them.
        sides: The sides that Kafka has a class for: "key", "value", "header"; empty if the name
            has none.
        reads: The sides that must be converted for it besides its own: "key", "value".
        options: What follows ``transforms.ALIAS.`` in a file.

    One that gives the records of one topic different topics has ``chooses_topics = True`` too.  One
    that changes neither keys nor values has ``reads_only = True``: a restore then writes them as
    they are stored, unless another transform changes them.
    """

    class_names: ClassVar[tuple[str, ...]]
    sides: ClassVar[tuple[str, ...]]
    reads: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option[Any], ...]]

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take what was given for its options; called once, first.

        Args:
            options: Values by name; those that were not given are absent.
            side: One of `sides`; empty where there are none.

        Raises:
            ConfigurationError: If they ask for what this transform cannot do; its
                ``place["property"]`` names the option.
        """
        ...

    def apply(self, records: Records) -> Records:
        """Return the transformed records.

        Offsets stay as they are, and in order.  A record that it cannot be applied to is refused
        (`Records.refuse`); a record that it drops is counted (`Records.left_out`).
        """
        ...


class Predicate(Protocol):
    """Says which records a transform is for.

    Attributes:
        class_names: Simple names of the Java classes that stand for this predicate.
        options: What follows ``predicates.ALIAS.`` in a file.
    """

    class_names: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option[Any], ...]]

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take what was given for its options; called once, first.

        Raises:
            ConfigurationError: As `Transform.configure` raises it.
        """
        ...

    def test(self, records: Records) -> pa.BooleanArray:
        """Return whether each record matches: a row for each, none null."""
        ...
