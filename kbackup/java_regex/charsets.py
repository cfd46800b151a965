r"""Sets of characters as Java's regular expressions know them.

A set is a sorted tuple of inclusive, disjoint ranges of code points: ``[a-cx]`` is
``((97, 99), (120, 120))``.  Every character class becomes one, so that unions, intersections and
case folding are arithmetic here and no other engine's reading of ``[a-z&&[^aeiou]]`` can differ.

Source: ``java.util.regex.Pattern``, documentation of Java 17, "Summary of regular-expression
constructs" and "Unicode support".  For ASCII, all a topic's name can be, the sets are exactly
Java's; above it ``\p{L}`` and its like follow the Unicode version of this Python.
"""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, NamedTuple

CharSet = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points, rising, neither touching nor overlapping."""

_LAST: Final = 0x10FFFF
_GAP: Final = ord("a") - ord("A")
_CASED_END: Final = 0x20000  # no letter beyond the first two planes has a case


def union(*sets: CharSet) -> CharSet:
    """Return the characters that are in any of *sets*."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(span for each in sets for span in each):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(chars: CharSet) -> CharSet:
    """Return all code points that are not in *chars*."""
    edges = [-1, *(edge for span in chars for edge in span), _LAST + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in gaps if low + 1 < high)


def intersection(one: CharSet, other: CharSet) -> CharSet:
    """Return the characters that are in both sets."""
    return complement(union(complement(one), complement(other)))


def chars(text: str) -> CharSet:
    """Return the set of the characters of *text*."""
    return union(tuple((ord(char), ord(char)) for char in text))


def spans(*pairs: str) -> CharSet:
    """Return the ranges written as two characters each, such as ``"az"``."""
    return union(tuple((ord(pair[0]), ord(pair[1])) for pair in pairs))


ANY: Final = ((0, _LAST),)
LINE_ENDS: Final = chars("\n\r\x85\u2028\u2029")
DIGIT: Final = spans("09")
_UPPER: Final = spans("AZ")
_LOWER: Final = spans("az")
_ALPHA: Final = union(_UPPER, _LOWER)
WORD: Final = union(_ALPHA, DIGIT, chars("_"))
_SPACE: Final = chars(" \t\n\v\f\r")
_HORIZONTAL: Final = union(chars(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), spans("\u2000\u200a"))
VERTICAL: Final = union(chars("\v\f"), LINE_ENDS)

ESCAPES: Final = {
    escape: members
    for letter, inside in [
        ("d", DIGIT),
        ("h", _HORIZONTAL),
        ("s", _SPACE),
        ("v", VERTICAL),
        ("w", WORD),
    ]
    for escape, members in [(letter, inside), (letter.upper(), complement(inside))]
}
r"""What ``\d`` and the like stand for; ASCII, as no ``(?U)`` is accepted."""

_POSIX: Final = {
    "ASCII": spans("\0\x7f"),
    "Alnum": union(_ALPHA, DIGIT),
    "Alpha": _ALPHA,
    "Blank": chars(" \t"),
    "Cntrl": spans("\0\x1f", "\x7f\x7f"),
    "Digit": DIGIT,
    "Graph": spans("!~"),
    "L1": spans("\0\xff"),
    "Lower": _LOWER,
    "Print": spans(" ~"),
    "Punct": spans("!/", ":@", "[`", "{~"),
    "Space": _SPACE,
    "Upper": _UPPER,
    "XDigit": union(DIGIT, spans("AF", "af")),
    "all": ANY,
}

_CASED: Final = ("Lu", "Ll", "Lt")
_GROUPED: Final = {"LC": _CASED, "LD": ("L", "Nd")}
_MINOR: Final = {
    "C": "cfnos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
_CATEGORIES: Final = {*_GROUPED, *_MINOR, *(a + b for a in _MINOR for b in _MINOR[a])}


def named(name: str, *, ignore_case: bool) -> CharSet | None:
    r"""Return what ``\p{name}`` matches, or None for a name that is not known here.

    Known are Java's POSIX classes (``Alpha``) and the general categories (``Lu``, ``IsLu``,
    ``gc=Lu``, ``general_category=Lu``).
    """
    if name in _POSIX:
        return _ALPHA if ignore_case and name in {"Lower", "Upper"} else _POSIX[name]
    key, equals, value = name.rpartition("=")
    if equals and key.lower() not in {"gc", "general_category"}:
        return None
    category = value if equals else name.removeprefix("Is")
    if category not in _CATEGORIES:
        return None
    return _category(_CASED if ignore_case and category in _CASED else (category,))


@cache
def _category(names: tuple[str, ...]) -> CharSet:
    wanted = tuple(part for name in names for part in _GROUPED.get(name, (name,)))
    category = unicodedata.category
    return _collect(code for code in range(_LAST + 1) if category(chr(code)).startswith(wanted))


def _collect(codes: Iterable[int]) -> CharSet:
    return union(tuple((code, code) for code in codes))


class _Folded(NamedTuple):
    """A character whose case has other forms: ``lower`` is that of ``upper``."""

    code: int
    upper: int
    lower: int


@cache
def _folds() -> tuple[_Folded, ...]:
    cased = (
        code
        for code in range(_CASED_END)
        if (char := chr(code)).lower() != char or char.upper() != char
    )
    return tuple(map(_fold, cased))


def _fold(code: int) -> _Folded:
    char = chr(code)
    # Java maps one character to one, where Python's mapping may give several.
    upper = next((form for form in (char.upper(), char.title()) if len(form) == 1), char)
    return _Folded(code, ord(upper), ord(upper.lower()[0]))


def fold_ascii(members: CharSet) -> CharSet:
    """Return *members* with the other case of each ASCII letter, as under ``(?i)``."""
    upper, lower = intersection(members, _UPPER), intersection(members, _LOWER)
    return union(members, _shift(upper, _GAP), _shift(lower, -_GAP))


def _shift(members: CharSet, by: int) -> CharSet:
    return tuple((low + by, high + by) for low, high in members)


def fold_unicode(low: int, high: int) -> CharSet:
    """Return the range with all that equals one of it under ``(?iu)``."""
    return union(
        ((low, high),), _collect(fold.code for fold in filter(_equal_to(low, high), _folds()))
    )


def _equal_to(low: int, high: int) -> Callable[[_Folded], bool]:
    if low < high:
        return lambda fold: low <= fold.upper <= high or low <= fold.lower <= high
    alone = _fold(low)
    # For Java a letter without an upper case, such as the sharp s, equals itself only.
    return lambda fold: fold.lower == alone.lower != alone.upper
