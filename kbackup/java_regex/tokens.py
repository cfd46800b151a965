r"""The pieces that Java and ``regex`` read alike; what is not here is refused."""

import re
from typing import Final

PROPERTIES: Final = {
    "ASCII": r"\x00-\x7f",
    "Alnum": "A-Za-z0-9",
    "Alpha": "A-Za-z",
    "Blank": r"\x20\t",
    "Cntrl": r"\x00-\x1f\x7f",
    "Digit": "0-9",
    "Graph": "!-~",
    "L": "A-Za-z",
    "Ll": "a-z",
    "Lower": "a-z",
    "Lu": "A-Z",
    "N": "0-9",
    "Nd": "0-9",
    "Print": r"\x20-~",
    "Punct": r"!-/:-@\[-`\{-~",
    "Space": r"\s",
    "Upper": "A-Z",
    "XDigit": "0-9A-Fa-f",
}
r"""What ``\p{...}`` stands for in ASCII."""

# What stands for a character, or for one of a set, inside a class and outside.
_CHAR: Final = r"""
    \\0(?P<octal>[0-1][0-7]{2}|[0-7]{1,2}(?![0-7]))
  | \\(?:x|u00)(?P<hex>[0-7][0-9A-Fa-f])
  | \\(?P<control>[tnrfa])
  | \\(?P<escaped>[!-/:-@\[-`{-~\ ])
"""
_SET: Final = r"""
  | \\(?P<set>[dDwWsS])
  | \\(?P<property>[pP])\{(?P<name>\w+)\}
"""
OUTSIDE: Final = re.compile(
    rf"""{_CHAR}{_SET}
  | \\Q(?P<quoted>.*?)(?:\\E|\Z)
  | \\(?P<anchor>[bBAZz]) | (?P<line>[\^$])
  | \\(?P<reference>[1-9])(?![0-9]) | \\k<(?P<named>[A-Za-z][A-Za-z0-9]*)>
  | (?P<opening>\((?:\?(?:[:=!>]|<[=!]|<(?P<as>[A-Za-z][A-Za-z0-9]*)>)|(?!\?)))
  | (?P<class>\[) | (?P<plain>[^\\(?*+{{])
""",
    re.VERBOSE | re.DOTALL,
)
"""What may follow outside a class, repetitions aside; one named group says which piece it is."""

INSIDE: Final = re.compile(rf"{_CHAR}{_SET} | (?P<plain>[^\\&\[\]])", re.VERBOSE)
"""What may follow inside a class."""

END_OF_RANGE: Final = re.compile(rf"-(?:{_CHAR} | (?P<plain>[^\\&\[\]\-]))", re.VERBOSE)
"""What may follow a character inside a class to make it a range."""

REPEAT: Final = re.compile(
    r"(?:[?*+]|\{(?P<low>[0-9]{1,4})(?P<more>,(?P<high>[0-9]{1,4})?)?\})(?P<mark>[?+]?)"
)
"""How often the piece before it may come."""

FLAGS: Final = re.compile(r"\(\?([isx]+)\)")
"""Flags at the beginning of a pattern: ignore case, dot matches all, and comments."""

GAP: Final = re.compile(r"(?:\s|#[^\n]*)*")
"""White space and comments, where the flag ``x`` allows them."""


def counts(repeat: re.Match[str]) -> tuple[int, int | None]:
    """Return how often a repetition repeats, at least and at most; None is without limit."""
    if repeat["low"] is None:
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[repeat[0][0]]
    low = int(repeat["low"])
    return low, int(repeat["high"]) if repeat["high"] else None if repeat["more"] else low


def character(token: re.Match[str]) -> str:
    """Return the one character that *token* stands for."""
    if token["octal"]:
        return chr(int(token["octal"], 8))
    if token["hex"]:
        return chr(int(token["hex"], 16))
    if token["control"]:
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a"}[token["control"]]
    return token["escaped"] or token["plain"]
