"""Directories of spans of time: ``year=2026/month=11/day=22``, each day or each hour."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.tables import Level, TableColumn, number
from kbackup.errors import ConfigurationError
from kbackup.java import joda
from kbackup.java.joda import Pattern, Zone
from kbackup.options import Suspicion, milliseconds, text
from kbackup.partitioners import Traits, delimiter
from kbackup.records import TopicPartition


def _bare(pattern: str) -> str:
    """Return *pattern* without the text between its quotes."""
    return re.sub(r"'[^']*'", "", pattern)


def _has(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, _bare(text)) is not None


def _swaps_month(text: str) -> bool:
    """Whether ``mm`` (minutes) stands where a month would: no hour before it."""
    return "mm" in _bare(text) and "H" not in _bare(text).partition("mm")[0]


def _is_open(text: str) -> bool:
    """Whether a quote lacks its end: two quotes are a quote, or begin and end a text."""
    return text.count("'") % 2 == 1


def _below(pattern: str) -> None:
    """Refuse a pattern whose directories leave the topic's."""
    if {level.replace("'", "").strip() for level in pattern.split("/")} & {".", ".."}:
        raise ValueError("expected directories below the topic's: no level may be . or ..")


LOCALE: Final = text(
    "locale",
    "Language of month and day names in time-based directories; without a region, such as de.",
    commands="sink",
    example="en",
    is_required=True,
    suspicions=(
        Suspicion(
            lambda text: re.search(r"[-_]", text) is not None or text.isupper(),
            "only a bare language has an effect; with a region the root locale's names are used",
            "write en, not en-US, unless the objects that exist were written so",
        ),
    ),
)
PATH_FORMAT: Final = text(
    "path.format",
    "Joda-Time pattern for the names of directories.",
    commands="sink",
    example="'year'=YYYY/'month'=MM/'day'=dd",
    is_required=True,
    check=_below,
    suspicions=(
        Suspicion(_swaps_month, "mm is minutes, and no hour is before it", "did you mean MM?"),
        Suspicion(_has("DD"), "DD is the day of the year", "did you mean dd?"),
        Suspicion(
            _has("(?=.*Y)(?=.*w)"),
            "YYYY is the calendar year; the year that weeks belong to is xxxx",
            "did you mean xxxx?",
        ),
        Suspicion(
            _is_open,
            "a quote has no end, so all that follows it is text, and no time",
            "write a quote before and after each text: 'year'=YYYY",
        ),
    ),
)
DURATION: Final = milliseconds(
    "partition.duration.ms",
    "Milliseconds of time that share a directory; at most the smallest unit of path.format.",
    -1,
    commands="sink",
    example="3600000",
    is_required=True,
)

OPTIONS: Final = (LOCALE,)
"""The options of days and hours."""
ALL_OPTIONS: Final = (LOCALE, PATH_FORMAT, DURATION)
"""The options of spans of any length."""


_UNITS: Final = {
    "Y": "YEARS",
    "y": "YEARS",
    "M": "MONTHS",
    "d": "DAYS",
    "H": "HOURS",
    "m": "MINUTES",
}
"""Joda's letters for units that Athena can project, coarsest first, with Athena's names."""

_RANGES: Final = {"M": (1, 12), "d": (1, 31), "H": (0, 23), "m": (0, 59)}
YEARS_AHEAD: Final = 10
"""How far beyond the newest directory a projection of years extends."""


_TOKEN: Final = re.compile(
    r"'(?P<name>[A-Za-z_]\w*)(='|'=)(?P<letters>YYYY|yyyy|MM?|dd?|HH?|mm?)", re.ASCII
)
"""One directory with a name and a number: ``'month'=MM`` or, equivalently, ``'month='MM``."""


def _time_number(name: str, letters: str, directories: Sequence[str]) -> Level:
    if letters[0] in "Yy":
        found = re.findall(
            rf"(?:^|/){re.escape(name)}=(\d{{4}})(?=/|$)", "\n".join(directories), re.MULTILINE
        )
        years = sorted(map(int, found)) or [2020]
        return number(name, years[0], years[-1] + YEARS_AHEAD)
    return number(name, *_RANGES[letters[0]], digits=len(letters) if len(letters) > 1 else 0)


def _date(pattern: str, directories: Sequence[str]) -> Level:
    """Return one column for all directories, which Athena formats like their names."""
    letters = dict.fromkeys(re.findall(r"[A-Za-z]", _bare(pattern)))
    if not letters or not letters.keys() <= _UNITS.keys() or "''" in pattern:
        raise ConfigurationError(
            f"{PATH_FORMAT.name} {pattern} cannot be declared",
            "Athena counts only years (YYYY), months (MM), days (dd), hours (HH) and minutes (mm)",
            "query the backup with kbackup restore query, or write the statement by hand",
        )
    unit = list(_UNITS.values())[max(list(_UNITS).index(letter) for letter in letters)]
    # Joda's Y is the year, SimpleDateFormat's is the week-based year
    quoted = re.split(r"('[^']*')", pattern)
    text = "".join(one if one.startswith("'") else one.replace("Y", "y") for one in quoted)
    projection = (
        ("type", "date"), ("range", f"{min(directories, default='NOW-10YEARS')},NOW+1YEARS"),
        ("format", text), ("interval", "1"), ("interval.unit", unit),
    )  # fmt: skip
    return Level(TableColumn("dt", "string"), "${dt}", projection, is_hive=False)


_SHIFT: Final = 20
"""Moments with equal higher bits are within 17 minutes, in which a zone changes at most once."""
_FARTHEST: Final = 2**62
"""Moments farther from the epoch, in ms, have no bucket: their sums would overflow."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Spans of local time, such as days, which begin at a zone's midnight.

    A pattern makes the name of each of its beginning.
    """

    duration_ms: int
    pattern: Pattern
    zone: Zone

    def printed(self, times: pa.Int64Array) -> pa.DictionaryArray:
        """Return the text of the bucket of each moment, in ms since the epoch; null stays null.

        Before 1970, buckets are rounded towards 1970, as in Java's integer division, so that
        local 1969-12-31 is in the bucket of the following day.
        """
        far = pc.or_(pc.greater(times, _FARTHEST), pc.less(times, -_FARTHEST))
        times = pc.if_else(far, pa.scalar(None, pa.int64()), times)
        local = pc.add(times, self._offsets(times))
        begins = pc.multiply(pc.divide(local, self.duration_ms), self.duration_ms)
        found = begins.dictionary_encode()
        texts = [
            self.pattern.printed(self.zone.to_utc(begin), self.zone)
            for begin in found.dictionary.to_pylist()
        ]
        return pa.DictionaryArray.from_arrays(found.indices, pa.array(texts, pa.string()))

    def _offsets(self, times: pa.Int64Array) -> pa.Int64Array:
        """Return how many ms local time is ahead of UTC at each moment."""
        if self.zone.rules is None:
            return pa.repeat(pa.scalar(self.zone.fixed_ms, pa.int64()), len(times))
        spans = pc.shift_right(times, _SHIFT).dictionary_encode()
        known = [_offset_in(self.zone, span) for span in spans.dictionary.to_pylist()]
        offsets = pa.array(known, pa.int64()).take(spans.indices)
        if None not in known:
            return offsets
        each = [
            self.zone.offset(at) if at is not None and offset is None else offset
            for at, offset in zip(times.to_pylist(), offsets.to_pylist(), strict=True)
        ]
        return pa.array(each, pa.int64())


@lru_cache(maxsize=4096)
def _offset_in(zone: Zone, span: int) -> int | None:
    """Return the offset in one span of `_SHIFT` bits, None if it changes within it."""
    first = zone.offset(span << _SHIFT)
    return first if first == zone.offset(((span + 1) << _SHIFT) - 1) else None


NO_DIRECTORY: Final = (
    "timestamp.extractor finds no time in it, or one that no date can name",
    "correct timestamp.field, or the record's timestamp",
)
"""Why a record has no directory by time, and what to do."""


class TimeBasedPartitioner:
    """A directory for each span of ``partition.duration.ms``, named by ``path.format``."""

    traits: ClassVar = Traits(
        ("TimeBasedPartitioner",), options=ALL_OPTIONS, no_directory=NO_DIRECTORY
    )

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take pattern, span, zone and language."""
        self._path = PATH_FORMAT.of(options).removesuffix(delimiter(options))
        self._buckets = buckets(self._path, DURATION.of(options), options)

    def encode(self, _where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return the directory of each row's time, null where it has none."""
        return self._buckets.printed(batch["time"])

    def levels(
        self, _columns: Sequence[TableColumn], directories: Sequence[str], _partitions: int
    ) -> tuple[Level, ...]:
        """Return a number for each directory, or one date for all of them."""
        path = self._path.strip("/")
        parts = [_TOKEN.fullmatch(part) for part in path.split("/")]
        if all(parts):
            return tuple(
                _time_number(part["name"], part["letters"], directories) for part in parts if part
            )
        return (_date(path, directories),)


def buckets(path: str, duration_ms: int, options: Mapping[str, Any]) -> Buckets:
    """Return the buckets of a partitioner by time, whose zone and language are in *options*.

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
        zone = joda.zone_by_id(timezone)
    except ValueError as error:
        raise _refused("timezone", str(error), "correct it") from error
    try:
        pattern = Pattern(path, joda.names_of_locale(locale))
    except ValueError as error:
        raise _refused(PATH_FORMAT.name, str(error), "correct it") from error
    return Buckets(duration_ms, pattern, zone)


def _refused(name: str, why: str, do: str) -> ConfigurationError:
    return ConfigurationError(f"{name} cannot be used", why, do, property=name)


class DailyPartitioner(TimeBasedPartitioner):
    """A directory for each day, of 24 hours of local time."""

    traits: ClassVar = Traits(("DailyPartitioner",), options=OPTIONS, no_directory=NO_DIRECTORY)
    levels_of_time: ClassVar[tuple[str, ...]] = ("'year'=YYYY", "'month'=MM", "'day'=dd")
    duration_ms: ClassVar = joda.DAY_MS

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take zone and language; the rest is given."""
        self._path = delimiter(options).join(self.levels_of_time)
        self._buckets = buckets(self._path, self.duration_ms, options)


class HourlyPartitioner(DailyPartitioner):
    """A directory for each hour."""

    traits: ClassVar = Traits(("HourlyPartitioner",), options=OPTIONS, no_directory=NO_DIRECTORY)
    levels_of_time: ClassVar = (*DailyPartitioner.levels_of_time, "'hour'=HH")
    duration_ms: ClassVar = 3_600_000
