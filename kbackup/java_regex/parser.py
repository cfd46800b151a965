"""Reading a Java pattern and writing it again; see the package's docstring."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kbackup.java_regex import charsets
from kbackup.java_regex.charsets import CharSet
from kbackup.java_regex.classes import escaped_set, folded, read_class
from kbackup.java_regex.nodes import (
    EMPTY,
    Node,
    alternate,
    capture,
    look,
    once,
    one_of,
    repeat,
    sequence,
    text_of,
)
from kbackup.java_regex.scanner import Scanner

MAX_SIZE: Final = 10_000
"""Largest `Node.size`; the engine's memory grows with it."""

MAX_TEXT: Final = 1_000_000
"""Characters of a translation, sets of many ranges included; more takes seconds to compile."""

_LINE_END: Final = text_of(charsets.LINE_ENDS)
_ONE_LINE_END: Final = text_of(charsets.chars("\r\x85\u2028\u2029"))
_WORD: Final = text_of(charsets.WORD)
_START: Final = r"\A"
_BOUNDARY: Final = f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
_NO_BOUNDARY: Final = f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))"
_ANCHORS: Final = {"A": _START, "G": _START, "z": r"\Z", "b": _BOUNDARY, "B": _NO_BOUNDARY}
r"""``\G`` is where the last match ended, and a topic's name is matched but once."""

_LAST_END: Final = {
    False: rf"(?:\Z|(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?={_ONE_LINE_END}\Z))",
    True: r"(?:\Z|(?=\n\Z))",
}
_END_OF_LINE: Final = {
    False: rf"(?:\Z|(?<!\r)(?=\n)|(?={_ONE_LINE_END}))",
    True: r"(?:\Z|(?=\n))",
}
_START_OF_LINE: Final = {
    False: rf"(?!\Z)(?:\A|(?<={_LINE_END})(?!(?<=\r)\n))",
    True: r"(?!\Z)(?:\A|(?<=\n))",
}
"""Anchors by whether ``(?d)`` makes ``\\n`` the only line end."""

_LINE_BREAK: Final = Node(rf"(?:\r\n|{text_of(charsets.VERTICAL)})", 1, 2)
_REPEATS: Final[dict[str, tuple[int, int | None]]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_DIGITS: Final = frozenset("0123456789")
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")

IN_DOUBT: Final = (
    "what it holds after its look-around, its atomic group, its possessive quantifier or a round "
    "over empty text can differ from engine to engine"
)


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A translated pattern.

    Attributes:
        text: The pattern for ``regex``, to be compiled with the flags ``V0 | ASCII``.
        group_count: Number of capturing groups.
        names: The number of each named group.
        doubtful: Groups whose content cannot be promised to be Java's.
    """

    text: str
    group_count: int
    names: Mapping[str, int]
    doubtful: frozenset[int]


def translate(pattern: str) -> JavaPattern:
    """Return *pattern*, as ``java.util.regex.Pattern`` reads it, for the ``regex`` module.

    Raises:
        PatternError: If Java refuses it, or it uses what cannot be translated faithfully.
    """
    return _Parser(pattern).parse()


class _Parser(Scanner):
    """One pass over a pattern; Java's flags change on the way and end with their group."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self._group_count = 0
        self._names: dict[str, int] = {}
        self._open: set[int] = set()
        self._references: set[int] = set()

    def parse(self) -> JavaPattern:
        """Return the whole pattern, translated."""
        whole = self._alternatives()
        if self.peek():
            self.refuse("a ')' closes no group")
        if len(whole.text) > MAX_TEXT:
            self.refuse(f"its translation is longer than {MAX_TEXT:,} characters")
        if missing := {number for number in self._references if number > self._group_count}:
            self.refuse(f"there is no group {min(missing)} to refer back to")
        if doubtful := self._references & whole.doubtful:
            self.refuse(f"a back-reference to group {min(doubtful)}: {IN_DOUBT}")
        return JavaPattern(whole.text, self._group_count, self._names, whole.doubtful)

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self.peek() == "|":
            self.take()
            branches.append(self._sequence())
            self._bounded(len(branches))
        whole = alternate(branches)
        self._bounded(whole.size)
        return whole

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        size = 0
        while self.peek() not in {"", "|", ")"}:
            if (atom := self._atom()) is not None:
                nodes.append(self._quantified(atom))
                size = self._bounded(size + nodes[-1].size)
        return sequence(nodes)

    def _bounded(self, size: int) -> int:
        if size > MAX_SIZE:
            self.refuse(f"with its repetitions written out it has more than {MAX_SIZE:,} parts")
        return size

    def _quantified(self, node: Node) -> Node:
        char = self.peek()
        if not char or char not in "?*+{":
            return node
        self.take()
        low, high = _REPEATS[char] if char in _REPEATS else self.counts()
        mark = self.take() if self.peek() in {"?", "+"} else ""
        return repeat(node, low, high, mark)

    def _atom(self) -> Node | None:
        char = self.peek()
        if char in _REPEATS:
            self.refuse(f"nothing stands before {char!r} that it could repeat")
        if char == "{":  # Java repeats the empty text then, and so do we
            return EMPTY
        self.take()
        match char:
            case "(":
                with self.nested():
                    return self._group()
            case "[":
                return one_of(read_class(self))
            case "\\":
                return self._escape()
            case _:
                return self._plain(char)

    def _plain(self, char: str) -> Node:
        match char:
            case "^":
                return Node(_START_OF_LINE[self.has("d")] if self.has("m") else _START)
            case "$":
                return Node((_END_OF_LINE if self.has("m") else _LAST_END)[self.has("d")])
            case ".":
                return one_of(self._dot())
            case _:
                return one_of(folded(self, ord(char), ord(char)))

    def _dot(self) -> CharSet:
        if self.has("s"):
            return charsets.ANY
        return charsets.complement(charsets.chars("\n") if self.has("d") else charsets.LINE_ENDS)

    # Groups

    def _group(self) -> Node | None:
        flags = self.flags
        if self.peek() != "?":
            node = self._capture()
        else:
            self.take()
            opened = self._special_group()
            if opened is None:  # flags alone, which hold until the group around them ends
                return None
            node = opened
        if self.take() != ")":
            self.refuse("a group lacks its ')'")
        self.flags = flags
        return node

    def _capture(self) -> Node:
        self._group_count += 1
        number = self._group_count
        self._open.add(number)
        node = capture(self._alternatives(), number)
        self._open.remove(number)
        return node

    def _special_group(self) -> Node | None:
        kind = self.inside()
        if kind == "<" and (self.follows("=") or self.follows("!")):
            return self._look_behind(f"(?<{self.inside()}")
        match kind:
            case ":":
                return self._alternatives()
            case "=" | "!":
                return look(self._alternatives(), f"(?{kind}")
            case ">":
                return once(self._alternatives())
            case "<":
                return self._named_capture()
            case _:
                if kind:
                    self.step_back()
                return self._flag_group()

    def _look_behind(self, opening: str) -> Node:
        body = self._alternatives()
        if body.longest is None:
            self.refuse("a look-behind has no obvious maximum length")
        if body.is_atomic:
            self.refuse(
                "an atomic group, possessive quantifier or look-behind inside a "
                "look-behind cannot be translated faithfully"
            )
        return look(body, opening)

    def _named_capture(self) -> Node:
        name = self._name()
        if name in self._names:
            self.refuse(f"two groups are named {name!r}")
        self._names[name] = self._group_count + 1
        return self._capture()

    def _name(self) -> str:
        name = self.run_of(_NAME, 1_000)
        if not name or name[0].isdigit() or self.inside() != ">":
            self.refuse("a group's name is a letter, then letters and digits, between '<' and '>'")
        return name

    def _flag_group(self) -> Node | None:
        switched_on = True
        while (char := self.take()) not in {")", ":"}:
            if char == "-" and switched_on:
                switched_on = False
            elif char and char in "idmsux":
                self.flags = self.flags | {char} if switched_on else self.flags - {char}
            elif char and char in "cU":
                self.refuse(f"the flag (?{char}) is not supported")
            else:
                self.refuse(f"(?{char} opens no kind of group that Java knows")
        return None if char == ")" else self._alternatives()

    # Escapes

    def _escape(self) -> Node:
        char = self.after_backslash()
        if char == "b" and self.follows("{g"):
            self.refuse("\\b{g} (a boundary of a grapheme) is not supported")
        if char in _ANCHORS:
            return Node(_ANCHORS[char])
        match char:
            case "Z":
                return Node(_LAST_END[self.has("d")])
            case "R":
                return _LINE_BREAK
            case "k":
                return self._named_reference()
        if char in _DIGITS and char != "0":
            return self._numbered_reference(int(char))
        return one_of(escaped_set(self, char))

    def _named_reference(self) -> Node:
        if self.inside() != "<":
            self.refuse("\\k is not followed by a group's name in '<' and '>'")
        name = self._name()
        if name not in self._names:
            self.refuse(f"there is no group named {name!r} before its back-reference")
        return self._reference(self._names[name])

    def _numbered_reference(self, number: int) -> Node:
        while (digit := self.peek()) and digit in _DIGITS:
            if (longer := number * 10 + int(digit)) > self._group_count:
                break
            self.take()
            number = longer
        return self._reference(number)

    def _reference(self, number: int) -> Node:
        if number in self._open:
            self.refuse(f"a back-reference to group {number} inside of it is not supported")
        if self.has("i") and self.has("u"):
            self.refuse("a back-reference under (?iu) is not supported")
        self._references.add(number)
        return Node(f"(?{'i' if self.has('i') else ''}:\\{number})", 0, None)
