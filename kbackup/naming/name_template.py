"""Object names by a template, such as ``{year}/{month}/{day}/{hour}/{topic}-{partition}-{offset}``.

Times are those of the upload, in UTC.  Every name can be read back: a sink that resumes, a restore
and verify find objects by what their names say.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

TIMES: Final = {
    "date": ("%Y-%m-%d", r"\d{4}-\d\d-\d\d", "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"),
    "year": ("%Y", r"\d{4}", "[0-9][0-9][0-9][0-9]"),
    "month": ("%m", r"\d\d", "[0-9][0-9]"),
    "day": ("%d", r"\d\d", "[0-9][0-9]"),
    "hour": ("%H", r"\d\d", "[0-9][0-9]"),
    "minute": ("%M", r"\d\d", "[0-9][0-9]"),
    "second": ("%S", r"\d\d", "[0-9][0-9]"),
}
"""For each part of a time: how it is written, the expression that reads it, and a glob."""

_PLACES: Final = ("topic", "partition", "offset")
_FIELD: Final = re.compile(r"\{([a-z]*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9_/=+,@~:-]*")
_DAY: Final = frozenset({"date", "year", "month", "day"})


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """A template that was checked; `times` are one text, a time's parts in their order.

    Attributes:
        words: Literal texts and names of fields in turn, a literal first and last.
    """

    words: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "NameTemplate":
        """Read a template.

        Raises:
            ValueError: If its names could not be read back, with the reason.
        """
        words = tuple(_FIELD.split(text))
        literals, fields = words[::2], words[1::2]
        if unknown := [name for name in fields if name not in (*_PLACES, *TIMES)]:
            raise ValueError(f"{{{unknown[0]}}} is none of {', '.join((*_PLACES, *TIMES))}")
        if twice := [name for name in fields if fields.count(name) > 1]:
            raise ValueError(f"{{{twice[0]}}} is in it twice")
        if lacking := [name for name in _PLACES if name not in fields]:
            raise ValueError(f"without {{{lacking[0]}}} nobody could tell what an object holds")
        if not TIMES.keys() & set(fields):
            raise ValueError("it has no part of a time, such as {date}")
        if fields[-1] != "offset" or literals[-1]:
            raise ValueError("it does not end with {offset}, which the extension follows")
        _check_literals(literals)
        return cls(words)

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.words[1::2]

    @property
    def _times(self) -> tuple[str, ...]:
        return tuple(name for name in self._fields if name in TIMES)

    def times(self, moment: datetime) -> str:
        """Return a time as names hold it."""
        at = moment.astimezone(UTC)
        return "/".join(at.strftime(TIMES[name][0]) for name in self._times)

    def day(self, times: str) -> date | None:
        """Return the day of a time; None where names do not hold a whole one."""
        parts = dict(zip(self._times, times.split("/"), strict=False))
        try:
            if "date" in parts:
                return date.fromisoformat(parts["date"])
            return date(*(int(parts[name]) for name in ("year", "month", "day")))
        except (KeyError, ValueError):
            return None

    def name(self, topic: str, partition: str, offset: str, times: str | None) -> str:
        """Return a name; *times* None stands in the place of each part of a time.

        Args:
            topic: The topic.
            partition: Digits.
            offset: Digits.
            times: As `times` returns it.
        """
        parts = times.split("/") if times is not None else ["<date>"] * len(self._times)
        values = {"topic": topic, "partition": partition, "offset": offset}
        return self._filled(values | dict(zip(self._times, parts, strict=True)))

    def pattern(self) -> str:
        """Return an expression for names, up to the extension, with a group for each field."""
        values = {name: f"(?P<{name}>{TIMES[name][1]}|<date>)" for name in self._times}
        values["topic"] = r"(?P<topic>[\w.-]{1,249})"
        values |= {"partition": r"(?P<partition>\d{1,10})", "offset": r"(?P<offset>\d{1,99})"}
        return "".join(
            values[word] if at % 2 else re.escape(word) for at, word in enumerate(self.words)
        )

    def times_of(self, match: re.Match[str]) -> str | None:
        """Return the time in a name that *pattern* matched; None where something stands for it."""
        parts = [match[name] for name in self._times]
        return None if "<date>" in parts else "/".join(parts)

    def beginning(self, day: date, topic: str, partition: str) -> str:
        """Return what all names of a partition begin with on a day; empty where they share none."""
        at = datetime(day.year, day.month, day.day, tzinfo=UTC)
        values = {name: at.strftime(TIMES[name][0]) for name in _DAY}
        values |= {"topic": topic, "partition": partition}
        found, seen = "", set()
        for number, word in enumerate(self.words):
            if number % 2 and word not in values:
                break
            found += values[word] if number % 2 else word
            seen |= {word} if number % 2 else set()
        return found if "date" in seen or seen >= _DAY - {"date"} else ""

    def glob(self, topic: str, partition: str, offset: str) -> str | None:
        """Return a glob for the last segment of a topic's names; None where it lacks the topic.

        Args:
            topic: The topic.
            partition: A glob for it.
            offset: A glob for it.
        """
        values = {name: TIMES[name][2] for name in TIMES} | {"topic": "\0"}
        last = self._filled(values | {"partition": partition, "offset": offset}).rpartition("/")[2]
        return last.replace("\0", topic) if "\0" in last else None

    def _filled(self, values: dict[str, str]) -> str:
        return "".join(values[word] if at % 2 else word for at, word in enumerate(self.words))


def _check_literals(literals: tuple[str, ...]) -> None:
    """Check that what is between fields makes names that are read in one way."""
    for text in literals:
        if _LITERAL.fullmatch(text) is None:
            raise ValueError(f"{text!r} has another character than letters, digits and _/=+,@~:-")
    if literals[0].startswith("/") or any("//" in text for text in literals):
        raise ValueError("a segment is empty")
    if "_kbackup" in literals[0]:
        raise ValueError("_kbackup is the folder of the ledger")
    for at, text in enumerate(literals[1:-1], 1):
        if not text or text[0].isdigit() or text[-1].isdigit():
            between = "nothing" if not text else repr(text)
            raise ValueError(f"{between} stands between two fields, so their ends cannot be told")
        if at == len(literals) - 2 and text[-1].isalnum():
            raise ValueError(f"{text!r} before {{offset}} ends with a letter")
