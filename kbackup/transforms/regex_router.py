"""``RegexRouter``: renames topics by a regular expression.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.RegexRouter``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.options import Option, text
from kbackup.renaming import Rename
from kbackup.transforms.data import Records

REGEX: Final = text("regex", "Java regular expression for the whole name.", is_required=True)
REPLACEMENT: Final = text(
    "replacement", "What replaces the match: $1 or ${name} for a group.", is_required=True
)


class RegexRouter:
    """Renames topics that match: what a restore writes to, or a sink stores them as."""

    class_names: ClassVar[tuple[str, ...]] = ("RegexRouter",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (REGEX, REPLACEMENT)

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take pattern and replacement.

        Raises:
            ConfigurationError: If Java refuses one, or it uses something that is not supported.
        """
        self._rename = Rename(regex=REGEX.of(options), replacement=REPLACEMENT.of(options))

    def apply(self, records: Records) -> Records:
        """Return the records with their new topics."""
        names = [self._rename(name) for name in records.topics.dictionary.to_pylist()]
        indices = records.topics.indices
        topics = pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
        return replace(records, topics=topics)
