r"""Java's regular expressions, as far as they mean the same in the ``regex`` library.

A pattern is read piece by piece against a list of what Java and ``regex`` (version 1, ASCII) agree
on over the names of topics, and against the ways in which its pieces may be combined.
A few pieces are spelled another way for the engine::

    \Qa.b\E  ->  a\.b     \0141  ->  \x61     \p{Alpha}  ->  [A-Za-z]     \k<env>  ->  \g<1>

Everything else is refused, with its place; nothing is guessed.

Source: ``java.util.regex.Pattern``, documentation of Java 17.  The vectors in
``tests/conformance/cases/java_regex.yaml`` were computed with OpenJDK 17.0.15.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import thread_time
from typing import Any, Final, NoReturn

import regex

from kbackup.errors import counted

MATCH_TIMEOUT: Final = 1.0
"""Seconds a pattern may take over one name; a sound one takes microseconds."""

ALL_TIMEOUT: Final = 10.0
"""Seconds a pattern may take over all names that a process has for it..."""

NAME_S: Final = 0.001
"""...and for each of them."""

IN_DOUBT: Final = "its text may differ in Java, as it is repeated, or inside a look-around or (?>)"


class PatternError(ValueError):
    """A pattern that Java refuses, or that may mean something else here; the text says why."""


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A pattern that means here what it means in Java.

    Attributes:
        compiled: The pattern as the engine knows it.
        group_count: Capturing groups in it.
        names: Numbers of the groups that have names.
        doubtful: Numbers of the groups in which Java may see other text.
    """

    compiled: Any  # the `regex` library is untyped
    group_count: int
    names: Mapping[str, int]
    doubtful: frozenset[int]

    def matches(self, name: str) -> bool:
        """Whether the whole of *name* matches; as `whole`."""
        return self.whole(name) is not None

    def whole(self, name: str) -> Any:
        """Return the match of the whole of *name*, or None.

        Raises:
            TimeoutError: After `MATCH_TIMEOUT` seconds, or where it has taken more than
                `ALL_TIMEOUT` over all names; it says which.
        """
        return self._timed(self.compiled.fullmatch, name)

    def find(self, name: str) -> Any:
        """Return the first match in *name*, or None; as `whole`."""
        return self._timed(self.compiled.search, name)

    def _timed(self, match: Callable[..., Any], name: str) -> Any:
        taken, begun = _taken[self.compiled.pattern], thread_time()
        try:
            found = match(name, timeout=MATCH_TIMEOUT)
        except TimeoutError:
            raise TimeoutError(f"more than {MATCH_TIMEOUT:g} s over one name") from None
        taken.seconds += thread_time() - begun
        taken.names += 1
        if taken.seconds > ALL_TIMEOUT + NAME_S * taken.names:
            raise TimeoutError(f"{taken.seconds:.0f} s over {counted(taken.names, 'name')}")
        return found


@dataclass(slots=True)
class _MatchingCost:
    """What a pattern has taken in this process."""

    seconds: float = 0.0
    names: int = 0


_taken: Final[dict[str, _MatchingCost]] = defaultdict(_MatchingCost)


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


_MAX_LENGTH: Final = 2_000
_MAX_DEPTH: Final = 50
"""Groups and classes inside each other; recursion stays far from the interpreter's limit."""

_MAX_SIZE: Final = 2_000
"""Parts of a pattern, its required repetitions written out as the engine does."""


def translate(pattern: str) -> JavaPattern:
    """Read a Java pattern; `PatternError` if Java refuses it, or it may mean something else."""
    return _PatternReader(pattern).pattern()


@dataclass(frozen=True, slots=True)
class _Element:
    """A part of a pattern, as the engine reads it."""

    text: str
    is_empty: bool = False  # it can match no characters
    size: int = 1  # characters, classes and anchors, required repetitions written out
    groups: range = range(0)  # numbers of its capturing groups
    is_one: bool = False  # it always matches exactly one character


class _PatternReader:
    """A place in a pattern, and what has been learnt on the way to it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0
        self._behind = False
        self._verbose = False
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self._doubtful: set[int] = set()
        self._references: set[int] = set()

    def pattern(self) -> JavaPattern:
        """Read it all."""
        if len(self._source) > _MAX_LENGTH:
            self._refuse(f"it is longer than {_MAX_LENGTH:,} characters")
        if not (self._source.isascii() and self._source.replace("\n", "").isprintable()):
            self._refuse("only printable ASCII characters are supported")
        flags = regex.V1 | regex.ASCII
        if opening := FLAGS.match(self._source):
            self._at = opening.end()
            self._verbose = "x" in opening[1]
            flags |= regex.IGNORECASE if "i" in opening[1] else 0
            flags |= regex.DOTALL if "s" in opening[1] else 0
        whole = self._branches()
        if self._at < len(self._source):
            self._refuse("a ')' closes no group")
        if doubtful := self._references & self._doubtful:
            self._refuse(f"a back-reference to group {min(doubtful)}: {IN_DOUBT}")
        compiled = regex.compile(whole.text, flags)
        return JavaPattern(compiled, self._groups, self._names, frozenset(self._doubtful))

    def _refuse(self, why: str) -> NoReturn:
        raise PatternError(f"{why} (near character {self._at})")

    def _next(self) -> str:
        """Return the character that comes next, or ""; under ``(?x)`` after white space."""
        if self._verbose:
            self._at = GAP.match(self._source, self._at).end()  # type: ignore[union-attr]
        return self._source[self._at : self._at + 1]

    def _branches(self) -> _Element:
        """Read up to the ')' that ends the group, or to the end."""
        first = self._groups + 1
        branches = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            branches.append(self._sequence())
        return _Element(
            "|".join(branch.text for branch in branches),
            any(branch.is_empty for branch in branches),
            self._bounded(sum(branch.size for branch in branches)),
            range(first, self._groups + 1),
        )

    def _bounded(self, size: int) -> int:
        if size > _MAX_SIZE:
            self._refuse(f"with its repetitions written out it has more than {_MAX_SIZE:,} parts")
        return size

    def _sequence(self) -> _Element:
        parts: list[_Element] = []
        while self._next() not in {"", "|", ")"}:
            parts.append(self._repeated(self._atom()))
        return _Element(
            "".join(part.text for part in parts),
            all(part.is_empty for part in parts),
            self._bounded(1 + sum(part.size for part in parts)),
        )

    def _repeated(self, part: _Element) -> _Element:
        if self._next() not in {"?", "*", "+", "{"}:
            return part
        repeat = REPEAT.match(self._source, self._at)
        if repeat is None:
            self._refuse("a '{' that is not a repetition; write \\{ for the character")
        low, high = counts(repeat)
        if high is not None and low > high:
            self._refuse(f"{repeat[0]!r} repeats at least more often than at most")
        if part.size == 0:
            self._refuse(f"there is nothing before {repeat[0]!r} for it to repeat")
        if part.is_empty and high != 1:
            self._refuse(f"{repeat[0]!r} repeats what can match nothing")
        if repeat["mark"] == "+" and not part.is_one:
            self._refuse(f"the possessive {repeat[0]!r} after a group; write (?>...)")
        if self._behind and (high is None or repeat["mark"] == "+" or not part.is_one):
            self._refuse("in a look-behind, a repetition of a group or without a limit")
        if high != 1:
            self._doubtful.update(part.groups)
        self._at = repeat.end()
        return _Element(
            f"{part.text}{repeat[0]}",
            part.is_empty or low == 0,
            self._bounded(part.size * max(low, 1)),
            part.groups,
        )

    def _atom(self) -> _Element:
        token = OUTSIDE.match(self._source, self._at)
        if self._source[self._at] in "?*+":
            self._refuse(f"there is nothing before {self._source[self._at]!r} for it to repeat")
        if token is None:
            self._refuse(f"{self._what_is_here()} is not supported")
        if token["class"]:
            return _Element(self._class(), is_one=True)
        if token["opening"]:
            return self._group(token)
        self._at = token.end()
        if token["quoted"] is not None:
            return self._quoted(token["quoted"])
        if token["anchor"] or token["line"]:
            # Without line ends in a name, all ends are one.
            end = token["anchor"] in {"Z", "z"} or token["line"] == "$"
            return _Element(r"\Z" if end else r"\A" if token["line"] else token[0], True, 0)
        if token["reference"] or token["named"]:
            return self._reference(token)
        return _Element("." if token["plain"] == "." else self._one(token), is_one=True)

    def _what_is_here(self) -> str:
        rest = self._source[self._at :]
        return re.match(r"\\[pP]\{\w*\}?|\(\?<?.?|\\.|.|", rest, re.DOTALL)[0]  # type: ignore[index]

    def _quoted(self, text: str) -> _Element:
        if not text:  # a repetition would be one of what stands before it
            self._refuse(r"an empty \Q\E is not supported")
        if self._next() in {"?", "*", "+", "{"}:  # it repeats the last character only
            self._refuse(r"a repetition right after \E; put what it repeats into (?:...)")
        return _Element(regex.escape(text, special_only=False), size=len(text))

    def _reference(self, token: re.Match[str]) -> _Element:
        name = token["named"]
        number = self._names.get(name, 0) if name else int(token["reference"])
        if self._behind or number not in self._closed:
            self._refuse(f"{token[0]} refers to no group that ends before it, or in a look-behind")
        self._references.add(number)
        return _Element(rf"\g<{number}>", is_empty=True)

    # Groups

    def _group(self, token: re.Match[str]) -> _Element:
        opening, name = token["opening"], token["as"]
        captures = opening == "(" or name is not None
        if self._behind and opening != "(?:":
            self._refuse(f"{opening} in a look-behind")
        if name in self._names:
            self._refuse(f"two groups are named {name!r}")
        self._at = token.end()
        if captures:
            self._groups += 1
        number = self._groups
        if name is not None:
            self._names[name] = number
        is_behind = self._behind
        self._behind = is_behind or opening in {"(?<=", "(?<!"}
        body = self._nested()
        self._behind = is_behind
        if captures:
            self._closed.add(number)
            return _Element(
                f"({body.text})", body.is_empty, body.size, range(number, self._groups + 1)
            )
        if opening != "(?:":
            self._doubtful.update(body.groups)
        if opening in {"(?:", "(?>"}:
            return _Element(f"{opening}{body.text})", body.is_empty, body.size, body.groups)
        # A look-around is no character that could be repeated.
        return _Element(f"{opening}{body.text})", True, 0, body.groups)

    def _nested(self) -> _Element:
        self._deeper()
        body = self._branches()
        if self._next() != ")":
            self._refuse("a group lacks its ')'")
        self._at += 1
        self._depth -= 1
        return body

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(f"more than {_MAX_DEPTH} groups or classes inside each other")

    # Characters and classes

    def _one(self, token: re.Match[str]) -> str:
        """Return the character or the set that *token* stands for, as the engine reads it."""
        if token["set"]:
            return token[0]
        if token["name"]:
            if token["name"] not in PROPERTIES:
                self._refuse(f"{token[0]} is not supported; try one of {', '.join(PROPERTIES)}")
            sign = "^" if token["property"] == "P" else ""
            return f"[{sign}{PROPERTIES[token['name']]}]"
        return f"\\x{ord(character(token)):02x}"

    def _class(self) -> str:
        """Read ``[...]``: characters, ranges, sets, classes, and then ``&&[...]`` any times."""
        self._deeper()
        self._at += 1
        parts = ["["]
        if self._source.startswith("^", self._at):
            self._at += 1
            parts.append("^")
        parts.append(self._member())
        while not self._source.startswith(("]", "&&["), self._at):
            parts.append(self._member())
        while self._source.startswith("&&[", self._at):
            self._at += 2
            parts.append("&&" + self._class())
        if not self._source.startswith("]", self._at):
            self._refuse("after '&&[...]' a class holds no more than another '&&[...]'")
        self._at += 1
        self._depth -= 1
        return "".join((*parts, "]"))

    def _member(self) -> str:
        if self._source.startswith("[", self._at):
            return self._class()
        token = INSIDE.match(self._source, self._at)
        if token is None or (self._verbose and (token[0].isspace() or token[0] == "#")):
            if self._at == len(self._source):
                self._refuse("a class lacks its ']'")
            self._refuse(f"{self._what_is_here()!r} is not supported in a class")
        self._at = token.end()
        one = self._one(token)
        end = END_OF_RANGE.match(self._source, self._at)
        if token["set"] or token["name"]:
            return one
        if end is None:
            if self._source.startswith("-", self._at) and self._source[self._at + 1 :][:1] != "]":
                self._refuse("a '-' in a class that is not a range; write \\- for the character")
            return one
        if token[0] == "-":
            self._refuse("a range from '-'; write \\-")
        if character(end) < character(token):
            self._refuse(f"{token[0]!r} to {end[0][1:]!r} is not a range")
        self._at = end.end()
        return f"{one}-\\x{ord(character(end)):02x}"
