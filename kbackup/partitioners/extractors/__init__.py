"""SEAM: the time of each record, by which files rotate and time-based directories are named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from kbackup import plugins


@dataclass(frozen=True, slots=True)
class Traits:
    """What a timestamp extractor declares of itself.

    Attributes:
        class_names: Words, and simple names of the Java classes, that stand for this extractor.
    """

    class_names: tuple[str, ...] = ()


class TimestampExtractor(Protocol):
    """Finds the time of each record."""

    traits: ClassVar[Traits]

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take what was given for its options, such as ``timestamp.field``; called once, first.

        Raises:
            ConfigurationError: If a property asks for what this extractor cannot do.
        """
        ...

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:
        """Return the time of each row.

        Args:
            batch: ``records.SCHEMA``, and, where values are converted, ``decoded``: each value as
                its file holds it.
            now_ms: The time that stands for "now", ms since the epoch; no other clock is read.

        Returns:
            ``int64``, ms since the epoch, one row per row of *batch*; null where there is none.
        """
        ...


def by_name(name: str, properties: Mapping[str, Any]) -> TimestampExtractor:
    """Return the extractor registered as *name*, configured."""
    found: TimestampExtractor = plugins.load("extractors", name)()
    found.configure(properties)
    return found
