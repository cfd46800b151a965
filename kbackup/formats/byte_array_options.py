"""The options of byte-array files."""

from typing import Final

from kbackup.formats import separated_options
from kbackup.options import text, verbatim


def _not_empty(extension: str) -> None:
    if not extension:
        raise ValueError("expected at least one character")


EXTENSION: Final = text(
    "format.bytearray.extension", "Extension of byte-array files.", ".bin", check=_not_empty
)
SEPARATOR: Final = verbatim(
    "format.bytearray.separator",
    "Separator written after each value of a byte-array file, exactly as given; default: a line "
    "feed.",
    example=";",
    is_literal=True,
)

OPTIONS: Final = (*separated_options.OPTIONS, EXTENSION, SEPARATOR)
