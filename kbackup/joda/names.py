"""Names of months, days, halves of a day and eras, in each language.

The connectors pass the whole ``locale`` to Java's one-argument ``Locale``, so only a bare
language, such as ``fr``, has names; ``fr-FR`` is an unknown language, whose names
are those of Java's root locale.  ``names.tsv`` has what OpenJDK 17 returns for every language of
ISO 639 (``DateFormatSymbols``, data of CLDR 39); libraries with older or newer data differ in about
half of the languages.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_RENAMED: Final = {"he": "iw", "id": "in", "yi": "ji"}


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one language.

    Attributes:
        language: Its code, empty for the root locale.
        months: January first.
        short_months: Their short names.
        days: Monday first.
        short_days: Their short names.
        halves: Before noon, after noon.
        eras: Before Christ, after.
    """

    language: str
    months: tuple[str, ...]
    short_months: tuple[str, ...]
    days: tuple[str, ...]
    short_days: tuple[str, ...]
    halves: tuple[str, ...]
    eras: tuple[str, ...]


@cache
def of_locale(text: str) -> Names:
    """Return the names for the property ``locale``."""
    language = text.lower()
    language = _RENAMED.get(language, language)
    rows = files("kbackup.joda").joinpath("names.tsv").read_text("utf-8").splitlines()
    for row in rows:
        name, *columns = row.split("\t")
        if name == language:
            return Names(name, *(tuple(column.split("|")) for column in columns))
    return of_locale("")
