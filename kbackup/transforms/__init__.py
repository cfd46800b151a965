"""SEAM: records to records: Kafka Connect's single message transforms, on columns.

A new transform is a class in one of the files here that fits `Transform`, and one line under
``[project.entry-points."kbackup.transforms"]``; a predicate one under ``"kbackup.predicates"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from kbackup.options import Option
    from kbackup.transforms.data import Records

KAFKA: Final = "org.apache.kafka.connect.transforms"
"""The package of Kafka's own transforms."""

KEY_OR_VALUE: Final = ("key", "value")
"""The sides of a transform of fields."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a transform or a predicate declares of itself.

    Attributes:
        class_names: Simple names of the Java classes that stand for it, without the ``$Key`` or
            ``$Value`` after them.
        java_package: The package of these classes; empty for a transform of no one else's.
        options: What follows ``transforms.ALIAS.``, or ``predicates.ALIAS.``, in a file.
        sides: The sides that Kafka has a class for: "key", "value", "header"; empty if the name
            has none.  A predicate has none, and nothing of what follows.
        reads: The sides that must be converted for it besides its own: "key", "value".
        chooses_topics: It may give the records of one topic different topics.
        reads_only: It changes neither keys nor values: a restore then writes them as they are
            stored, unless another transform changes them.
    """

    class_names: tuple[str, ...] = ()
    java_package: str = ""
    options: tuple[Option[Any], ...] = ()
    sides: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    chooses_topics: bool = False
    reads_only: bool = False


class Transform(Protocol):
    """Changes records, or drops some."""

    traits: ClassVar[Traits]

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take what was given for its options; called once, first.

        Args:
            options: Values by name; those that were not given are absent.
            side: One of its ``sides``; empty where there are none.

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
    """Says which records a transform is for."""

    traits: ClassVar[Traits]

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take what was given for its options; called once, first.

        Raises:
            ConfigurationError: As `Transform.configure` raises it.
        """
        ...

    def test(self, records: Records) -> pa.BooleanArray:
        """Return whether each record matches: a row for each, none null."""
        ...
