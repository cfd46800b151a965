r"""Java ``.properties`` text, with line numbers.

::

    # comment                      ! comment
    flush.size = 3                 one of = : or blanks separates name, value
    topics=orders,\
           payments                a backslash at the end continues with the next line
    format.bytearray.separator=\u0001

Source: ``java.util.Properties.load(Reader)``, documentation of Java 17.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A property as it is in a file; *line* counts from 1."""

    name: str
    text: str
    line: int


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u([0-9A-Fa-f]{4})|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> Iterator[Entry]:
    """Yield the entries of *text* in order, including repeated names.

    Raises:
        ValueError: For an escape that Java cannot read; the text names the line.
    """
    for line, logical in _logical_lines(text):
        name = _NAME.match(logical)
        at = name.end() if name is not None else 0
        separator = _SEPARATOR.match(logical, at)
        value = logical[separator.end() if separator is not None else at :]
        yield Entry(_unescape(logical[:at], line), _unescape(value, line), line)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with content, its continuations joined, and its number."""
    begun: list[str] = []
    first = 0
    for number, match in enumerate(_LINE.finditer(text), 1):
        part = match[0].rstrip("\r\n").lstrip(_BLANKS)
        if not begun and (not part or part[0] in "#!"):
            continue
        first = first if begun else number
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            begun.append(part[:-1])
            continue
        yield first, "".join((*begun, part))
        begun = []
    if any(begun):
        yield first, "".join(begun)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match[2] is not None:
            return chr(int(match[2], 16))
        if match[1] == "u":
            raise ValueError(f"line {line}: \\u needs four hexadecimal digits")
        return _CONTROLS.get(match[1], match[1])

    plain = _ESCAPE.sub(character, text)
    try:  # a character beyond U+FFFF is written as two escapes
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"line {line}: \\u escapes that are no character") from None
