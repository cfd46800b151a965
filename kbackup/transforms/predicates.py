"""Kafka's three predicates, and ``Filter``, which drops the records that match one.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.predicates`` and ``Filter``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.errors import ConfigurationError
from kbackup.java.regex import PatternError, translate
from kbackup.options import text
from kbackup.transforms import Traits, of_kafka
from kbackup.transforms.data import Records
from kbackup.transforms.headers import has_header

PATTERN: Final = text("pattern", "Java regular expression for the whole name.", is_required=True)
NAME: Final = text("name", "Name of the header.", is_required=True)


class TopicNameMatches:
    """Matches records by topic, as earlier transforms have left it."""

    traits: ClassVar = Traits(class_names=("TopicNameMatches",), options=(PATTERN,))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the pattern."""
        pattern = PATTERN.of(options)
        try:
            self._pattern = translate(pattern)
        except PatternError as error:
            raise PATTERN.refusal(str(error), "write it another way", value=pattern) from error

    def test(self, records: Records) -> pa.BooleanArray:
        """Return whether each topic matches.

        Raises:
            ConfigurationError: If the pattern takes too long.
        """
        try:
            found = [self._pattern.matches(name) for name in records.topics.dictionary.to_pylist()]
        except TimeoutError:
            raise ConfigurationError(
                f"the pattern {PATTERN.name} of a predicate took too long",
                "it backtracks too much",
                "remove a repetition inside a repetition, such as (a+)+ for a+",
            ) from None
        return pa.array(found, pa.bool_()).take(records.topics.indices)


class HasHeaderKey:
    """Matches records with a header of this name."""

    traits: ClassVar = Traits(class_names=("HasHeaderKey",), options=(NAME,))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the name."""
        self._name = NAME.of(options)

    def test(self, records: Records) -> pa.BooleanArray:
        """Return whether each record has such a header."""
        return has_header(records.headers, self._name)


class RecordIsTombstone:
    """Matches records whose converted value is null."""

    traits: ClassVar = Traits(class_names=("RecordIsTombstone",))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def test(self, records: Records) -> pa.BooleanArray:
        """Return whether each value is null."""
        values = records.batch["value"] if records.value is None else records.value.values
        return values.is_null()


class Filter:
    """Drops every record that it is applied to."""

    traits: ClassVar = of_kafka("Filter", sides=())

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Do nothing: there are no options."""

    def apply(self, records: Records) -> Records:
        """Return none of the records."""
        return records.leave_out(pa.repeat(pa.scalar(True), len(records)))
