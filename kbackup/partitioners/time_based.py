"""``year=2026/month=11/day=22``: directories of spans of time."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.errors import ConfigurationError
from kbackup.joda import names, zones
from kbackup.joda.buckets import Buckets
from kbackup.joda.pattern import Pattern
from kbackup.partitioners import delimiter
from kbackup.partitioners.time_levels import levels
from kbackup.partitioners.time_options import DURATION, LOCALE, PATH_FORMAT
from kbackup.records import TopicPartition
from kbackup.table_parts import Column, Level

NO_DIRECTORY: Final = (
    "timestamp.extractor finds no time in it, or one that no date can name",
    "correct timestamp.field, or the record's timestamp",
)
"""Why a record has no directory by time, and what to do."""


class TimeBasedPartitioner:
    """A directory for each span of ``partition.duration.ms``, named by ``path.format``."""

    class_names: ClassVar[tuple[str, ...]] = ("TimeBasedPartitioner",)
    goes_by_time: ClassVar[bool] = True
    no_directory: ClassVar[tuple[str, str]] = NO_DIRECTORY

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take pattern, span, zone and language.

        Raises:
            ConfigurationError: If one of them is missing or cannot be used.
        """
        self._path = PATH_FORMAT.of(options).removesuffix(delimiter(options))
        self._buckets = buckets(self._path, DURATION.of(options), options)

    def only_directory(self, _where: TopicPartition) -> None:
        """Return nothing: it follows from the time of a record."""

    def encode(self, _where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return the directory of each row's time, null where it has none."""
        return self._buckets.printed(batch["time"])

    def levels(
        self,
        _columns: Sequence[Column],
        directories: Sequence[str],
        _partitions: int,
    ) -> tuple[Level, ...]:
        """Return a number for each directory, or one date for all of them."""
        return levels(self._path, directories)


def buckets(path: str, duration_ms: int, options: Mapping[str, Any]) -> Buckets:
    """Return the buckets of a partitioner by time.

    Args:
        path: The pattern of directories.
        duration_ms: The span that shares one.
        options: Zone and language.

    Raises:
        ConfigurationError: Naming the property that is missing or cannot be used.
    """
    if duration_ms < 1:
        why = f"it is {duration_ms}; a directory must span at least 1 ms"
        raise _refused(DURATION.name, why, "set it, such as 3600000 for an hour")
    if not path:
        raise _refused(
            PATH_FORMAT.name, "it is not given", f"set it, such as {PATH_FORMAT.example}"
        )
    locale, timezone = LOCALE.of(options), str(options.get("timezone") or "")
    for name, given in ((LOCALE.name, locale), ("timezone", timezone)):
        if not given:
            raise _refused(name, "it is not given, and time-based directories need it", "set it")
    try:
        zone = zones.by_id(timezone)
    except ValueError as error:
        raise _refused("timezone", str(error), "correct it") from error
    try:
        pattern = Pattern(path, names.of_locale(locale))
    except ValueError as error:
        raise _refused(PATH_FORMAT.name, str(error), "correct it") from error
    return Buckets(duration_ms, pattern, zone)


def _refused(name: str, why: str, do: str) -> ConfigurationError:
    return ConfigurationError(f"{name} cannot be used", why, do, property=name)
