"""The options of CSV files, with the names and defaults of Kafka Connect's source connectors."""

from collections.abc import Mapping
from typing import Any, Final

from kbackup.errors import ConfigurationError
from kbackup.options import Unsupported, boolean, given, integer, other_than, text, true, words

_CHARACTER_MAX: Final = 127
"""Arrow reads ASCII separators only."""


def _charset(name: str) -> None:
    try:
        b"a".decode(name)  # of nothing Python does not look the name up
    except UnicodeDecodeError:
        return  # a character has more bytes
    except (LookupError, UnicodeError) as error:
        raise ValueError("expected the name of a character set, such as UTF-8") from error


SEPARATOR: Final = integer(
    "csv.separator.char",
    "CSV: the character between two fields, as its number; 44 is a comma, 9 a tab, 59 a semicolon.",
    44,
    ge=1,
    le=_CHARACTER_MAX,
    commands="restore",
)
QUOTE: Final = integer(
    "csv.quote.char",
    "CSV: the character around a field that contains the separator or a line feed, as its number. "
    "Within such a field, two of them stand for one.",
    34,
    ge=1,
    le=_CHARACTER_MAX,
    commands="restore",
)
SKIP_LINES: Final = integer(
    "csv.skip.lines", "CSV: lines to skip at the start of a file.", 0, ge=0, commands="restore"
)
HEADER: Final = boolean(
    "csv.first.row.as.header",
    "CSV: the first row has the names of the fields; otherwise they are column01, column02 ...",
    True,
    commands="restore",
)
CHARSET: Final = text(
    "csv.file.charset",
    "CSV: the character set of the file.",
    "UTF-8",
    check=_charset,
    example="ISO-8859-1",
    commands="restore",
)
NULL: Final = words(
    "csv.null.field.indicator",
    "CSV: which empty fields are null: none, those without quotes, or all.",
    ("NEITHER", "EMPTY_SEPARATORS", "BOTH"),
    "NEITHER",
    commands="restore",
)

TYPES: Final = Unsupported(
    "value.schema",
    given,
    "this version reads the fields of a CSV file as text",
    "remove it, and change types with transforms=c, transforms.c.type="
    "org.apache.kafka.connect.transforms.Cast$Value and transforms.c.spec=FIELD:int32",
    "restore",
)
OTHER_PARSER: Final = Unsupported(
    "csv.rfc.4180.parser.enabled",
    other_than("true", ""),
    "this version reads CSV as RFC 4180 has it",
    "set it to true",
    "restore",
)
CARRIAGE_RETURN: Final = Unsupported(
    "csv.keep.carriage.return",
    true,
    "this version takes a carriage return before a line feed as part of the line's end",
    "set it to false",
    "restore",
)

OPTIONS: Final = (
    SEPARATOR, QUOTE, SKIP_LINES, HEADER, CHARSET, NULL, TYPES, OTHER_PARSER, CARRIAGE_RETURN,
)  # fmt: skip

_LINE_ENDS: Final = (ord("\r"), ord("\n"))


def check(given: Mapping[str, Any]) -> None:
    """Check that fields and lines can be told apart.

    Args:
        given: Values by property.

    Raises:
        ConfigurationError: If they cannot.
    """
    for option in (SEPARATOR, QUOTE):
        if option.of(given) in _LINE_ENDS:
            raise ConfigurationError(
                f"{option.name}={option.of(given)} cannot be used",
                "this character ends a line",
                "choose another one",
                property=option.name,
            )
    if SEPARATOR.of(given) == QUOTE.of(given):
        raise ConfigurationError(
            f"{QUOTE.name}={QUOTE.of(given)} cannot be used",
            f"it is also {SEPARATOR.name}",
            "choose another one",
            property=QUOTE.name,
        )
