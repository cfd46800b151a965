"""The characters of a Java pattern, one after the other."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

MAX_DEPTH: Final = 50
"""Groups and classes inside each other; recursion stays far from the interpreter's limit."""

_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_GAPS: Final = frozenset(" \t\n\v\f\r#")
_OCTAL: Final = frozenset("01234567")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")
_CONTROL: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_UNSUPPORTED: Final = {
    "N": r"\N{...} (a character by its name)",
    "X": r"\X (a grapheme cluster)",
}
_MAX_COUNT: Final = 2**31 - 1
_MAX_CODE: Final = 0x10FFFF


class PatternError(ValueError):
    """A pattern that Java refuses, or that cannot be translated faithfully; the text says why."""


class Scanner:
    r"""A place in a pattern whose ``\Q...\E`` are resolved, and the flags that hold there.

    Attributes:
        flags: Of Java's inline flags ``idmsux`` those in force.
    """

    def __init__(self, pattern: str) -> None:
        self._text = _QUOTED.sub(_unquoted, pattern)
        self._at = 0
        self._depth = 0
        self.flags: frozenset[str] = frozenset()

    def has(self, flag: str) -> bool:
        """Return whether the inline flag is in force."""
        return flag in self.flags

    def refuse(self, why: str) -> NoReturn:
        """Give the pattern up, naming the place."""
        raise PatternError(f"{why} (near character {min(self._at, len(self._text))})")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Go one group or class deeper, to at most `MAX_DEPTH`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.refuse(f"more than {MAX_DEPTH} groups or classes inside each other")
        yield
        self._depth -= 1

    def peek(self) -> str:
        """Return the next character, or "" at the end; under ``(?x)`` none of a comment."""
        while self.has("x") and (char := self.glance()) in _GAPS:
            self._at += 1
            while char == "#" and self.glance() not in self._line_ends():
                self._at += 1
        return self.glance()

    def _line_ends(self) -> frozenset[str]:
        return frozenset({"", "\n"} if self.has("d") else {"", *"\n\r\x85\u2028\u2029"})

    def glance(self) -> str:
        """Return the next character as it stands, or "" at the end."""
        return self._text[self._at : self._at + 1]

    def follows(self, text: str) -> bool:
        """Return whether *text* stands next."""
        return self._text.startswith(text, self._at)

    def take(self) -> str:
        """Go past the character that `peek` shows, and return it."""
        char = self.peek()
        self._at += len(char)
        return char

    def inside(self) -> str:
        """Go past one more character of a token, and return it; "" at the end."""
        self.refuse_gap()
        char = self.glance()
        self._at += len(char)
        return char

    def refuse_gap(self) -> None:
        """Refuse white space or a comment here: in the middle of a token Java reads it oddly."""
        if self.has("x") and self.glance() in _GAPS:
            self.refuse("under (?x), white space or a comment inside a token")

    def after_backslash(self) -> str:
        """Go past the character after a backslash, and return it."""
        char = self.glance()
        if not char:
            self.refuse("it ends in a backslash")
        self._at += 1
        return char

    def step_back(self) -> None:
        """Undo the last `take` or `inside`, which was not at the end."""
        self._at -= 1

    def run_of(self, allowed: frozenset[str], at_most: int) -> str:
        """Go past up to *at_most* characters that are all in *allowed*, and return them."""
        run = ""
        while len(run) < at_most and (char := self.inside()):
            if char not in allowed:
                self.step_back()
                break
            run += char
        return run

    def counts(self) -> tuple[int, int | None]:
        """Read ``2}``, ``2,}`` or ``2,3}``; None stands for no limit.

        The opening brace is already taken.
        """
        low = self._count()
        if low is None:
            self.refuse("a '{' that is no repetition; write \\{ for the character")
        high: int | None = low
        if self.follows(","):
            self.inside()
            high = self._count()
        if self.inside() != "}":
            self.refuse("a repetition lacks its '}'")
        if high is not None and high < low:
            self.refuse(f"{{{low},{high}}} is no range")
        return low, high

    def _count(self) -> int | None:
        digits = self.run_of(_DIGITS, 20)
        if not digits:
            return None
        if int(digits) > _MAX_COUNT:
            self.refuse(f"no repetition can be {digits} times")
        return int(digits)

    def code_of(self, escape: str) -> int:
        """Return the code point for the character after a backslash, reading what belongs to it."""
        match escape:
            case "0":
                return self._octal()
            case "x":
                return self._hexadecimal()
            case "u":
                return self._utf16()
            case "c":
                return ord(self.inside() or self.refuse("\\c lacks its character")) ^ 64
        if escape in _UNSUPPORTED:
            self.refuse(f"{_UNSUPPORTED[escape]} is not supported")
        if escape in _CONTROL:
            return _CONTROL[escape]
        if escape.isascii() and escape.isalnum():
            self.refuse(f"\\{escape} is no escape of Java's, or not possible here")
        return ord(escape)

    def _octal(self) -> int:
        digits = self.run_of(_OCTAL, 2)
        if len(digits) == 2 and digits[0] <= "3":
            digits += self.run_of(_OCTAL, 1)
        return int(digits or self.refuse("\\0 lacks its octal digits"), 8)

    def _hexadecimal(self) -> int:
        if not self.follows("{"):
            digits = self.run_of(_HEX, 2)
            return int(digits if len(digits) == 2 else self.refuse("\\x needs two digits"), 16)
        self.inside()
        code = int(self.run_of(_HEX, len(self._text)) or self.refuse("\\x{} is empty"), 16)
        if self.inside() != "}" or code > _MAX_CODE:
            self.refuse("\\x{...} holds no code point")
        return code

    def _utf16(self) -> int:
        high = self._unit()
        if 0xD800 <= high < 0xDC00 and self.follows("\\u"):
            self._at += 2
            low = self._unit()
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            self._at -= 6
        return high

    def _unit(self) -> int:
        digits = self.run_of(_HEX, 4)
        return int(digits if len(digits) == 4 else self.refuse("\\u needs four digits"), 16)


def _unquoted(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    return "".join(map(_quoted, match[1]))


def _quoted(char: str) -> str:
    if char in _DIGITS:  # as a hexadecimal escape it cannot become part of one before it
        return f"\\x3{char}"
    return char if not char.isascii() or char.isalpha() else f"\\{char}"
