"""``TimestampRouter``: a topic for each day, or hour, or other stretch of time.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.TimestampRouter``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.columns import Bad
from kbackup.errors import ConfigurationError
from kbackup.options import Option, text
from kbackup.transforms.data import Records
from kbackup.transforms.simple_date_format import FIRST_MS, LAST_MS, SimpleDateFormat

TOPIC_FORMAT: Final = text(
    "topic.format",
    "The topic's new name: ${topic} stands for the present one, ${timestamp} for the time.",
    "${topic}-${timestamp}",
    is_literal=True,
)
TIMESTAMP_FORMAT: Final = text(
    "timestamp.format", "SimpleDateFormat pattern of the time, in UTC.", "yyyyMMdd"
)


class TimestampRouter:
    """Names the topic by the record's timestamp, in a restore."""

    class_names: ClassVar[tuple[str, ...]] = ("TimestampRouter",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    chooses_topics: ClassVar[bool] = True
    options: ClassVar[tuple[Option[Any], ...]] = (TOPIC_FORMAT, TIMESTAMP_FORMAT)

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take the formats.

        Raises:
            ConfigurationError: If the time's is not a pattern.
        """
        self._topic = TOPIC_FORMAT.of(options)
        pattern = TIMESTAMP_FORMAT.of(options)
        try:
            self._time = SimpleDateFormat(pattern)
        except ValueError as error:
            raise ConfigurationError(
                f"timestamp.format={pattern} cannot be used", str(error), "correct it",
                property=TIMESTAMP_FORMAT.name,
            ) from error  # fmt: skip

    def apply(self, records: Records) -> Records:
        """Return the records with their new topics; those without a timestamp are refused."""
        times = records.timestamps
        records = records.refuse(_untimely(times))
        times = self._time.texts(records.timestamps).dictionary_encode()
        texts, names = times.dictionary.to_pylist(), records.topics.dictionary.to_pylist()
        count = pa.scalar(len(names), pa.int64())
        pairs = pc.add(
            pc.multiply(times.indices.cast(pa.int64()), count),
            records.topics.indices.cast(pa.int64()),
        ).dictionary_encode()  # a name is made once for each pair of time and topic
        found = [
            self._named(names[pair % len(names)], texts[pair // len(names)])
            for pair in pairs.dictionary.to_pylist()
        ]
        topics = pa.DictionaryArray.from_arrays(pairs.indices, pa.array(found, pa.string()))
        return replace(records, topics=topics)

    def _named(self, topic: str, time: str) -> str:
        return self._topic.replace("${topic}", topic).replace("${timestamp}", time)


def _untimely(times: pa.Int64Array) -> list[Bad]:
    """Return the rows whose timestamp cannot be part of a name."""
    out = pc.fill_null(pc.or_(pc.less(times, FIRST_MS), pc.greater(times, LAST_MS)), True)
    rows = pc.indices_nonzero(out).to_pylist()
    known = times.take(pa.array(rows, pa.int64())).to_pylist()
    why = "its timestamp is before 15 October 1582 or after the year 9999"
    return [
        Bad(row, "it has no timestamp" if time is None else why)
        for row, time in zip(rows, known, strict=True)
    ]
