"""The options of byte-array files."""

import re
from typing import Final

from kbackup.formats import separated_options
from kbackup.options import boolean, text, verbatim


def _readable(extension: str) -> None:
    """Refuse what no reader could tell from the offset before it."""
    if re.fullmatch(r"(\.[A-Za-z0-9]+)+", extension) is None:
        raise ValueError("expected a dot, and letters or digits after it, such as .bin")


def _separates(separator: str) -> None:
    """Refuse a separator that separates nothing."""
    if not separator:
        raise ValueError("expected at least one character")


EXTENSION: Final = text(
    "format.bytearray.extension", "Extension of byte-array files.", ".bin", check=_readable
)
SEPARATOR: Final = verbatim(
    "format.bytearray.separator",
    "Separator written after each value of a byte-array file, exactly as given; default: a line "
    "feed.",
    example=";",
    check=_separates,
    is_literal=True,
)
REFUSES: Final = boolean(
    "format.bytearray.refuse.separator",
    "A value or key that contains the separator is a bad record, which errors.tolerance decides "
    "about; otherwise it is written, as the connector writes it, with a warning for each file.",
    False,
    commands="sink",
)

OPTIONS: Final = (*separated_options.OPTIONS, EXTENSION, SEPARATOR, REFUSES)
