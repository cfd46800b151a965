"""The options of text."""

from typing import Final

from kbackup.options import text

ENCODING: Final = text(
    "converter.encoding", "Encoding of the text; UTF-8 is the only one.", "UTF-8"
)

OPTIONS: Final = (ENCODING,)
