"""Pieces of a translated pattern, and how they combine.

A node carries its text and what later decisions need: how long a match can be (look-behind), how
large it is when the engine writes repetitions out, and which capturing groups can be trusted.

A group is in doubt where Java and ``regex`` may see different text in it.  Java shows what an
abandoned attempt left behind in constructs that are never entered again to find another way:
look-around, atomic groups and possessive quantifiers.  `held` are groups such a construct sets
whenever it is passed; they fall into doubt only where the construct itself is one of several ways.
And the engines disagree on whether a last round over empty text counts, as in ``(a*)*``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kbackup.java_regex.charsets import CharSet


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a pattern.

    Attributes:
        text: The part, as ``regex`` reads it; concatenates safely, quantify it by `repeat`.
        shortest: Characters of its shortest match, or fewer.
        longest: Characters of its longest match, or more; None where there is no bound.
        size: Characters, groups and anchors in it, minimum repetitions written out; at least 1.
        groups: Numbers of the capturing groups in it.
        certain: Those of `groups` that every way through it sets.
        held: Those of `groups` set in a construct that is not entered again.
        doubtful: Those of `groups` in which Java may see other text.
        is_single_way: Whether there is no choice in it between branches or numbers of rounds.
        is_atomic: Whether some part of it, once matched, gives nothing back.
    """

    text: str
    shortest: int = 0
    longest: int | None = 0
    size: int = 1
    groups: frozenset[int] = frozenset()
    certain: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    doubtful: frozenset[int] = frozenset()
    is_single_way: bool = True
    is_atomic: bool = False


EMPTY: Final = Node("")


def one_of(members: CharSet) -> Node:
    """Return the node that matches one character of *members*."""
    return Node(text_of(members), 1, 1)


def text_of(members: CharSet) -> str:
    """Return *members* as ``regex`` reads them; the empty set never matches."""
    if not members:
        return "(?!)"
    if len(members) == 1 and members[0][0] == members[0][1]:
        return _literal(members[0][0])
    return f"[{''.join(f'{_literal(low)}-{_literal(high)}' for low, high in members)}]"


def _literal(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\U{code:08x}"


def sequence(nodes: Sequence[Node]) -> Node:
    """Return the node that matches *nodes* one after the other."""
    if len(nodes) == 1:
        return nodes[0]
    return Node(
        text="".join(node.text for node in nodes),
        shortest=sum(node.shortest for node in nodes),
        longest=_sum(node.longest for node in nodes),
        size=max(1, sum(node.size for node in nodes)),
        groups=frozenset().union(*(node.groups for node in nodes)),
        certain=frozenset().union(*(node.certain for node in nodes)),
        held=frozenset().union(*(node.held for node in nodes)),
        doubtful=frozenset().union(*(node.doubtful for node in nodes)),
        is_single_way=all(node.is_single_way for node in nodes),
        is_atomic=any(node.is_atomic for node in nodes),
    )


def _sum(lengths: Iterable[int | None]) -> int | None:
    bounded = []
    for length in lengths:
        if length is None:
            return None
        bounded.append(length)
    return sum(bounded)


def alternate(branches: Sequence[Node]) -> Node:
    """Return the node that matches the first of *branches* that lets the rest match."""
    if len(branches) == 1:
        return branches[0]
    longest = [branch.longest for branch in branches if branch.longest is not None]
    whole = sequence(branches)
    return replace(
        whole,
        text=f"(?:{'|'.join(branch.text for branch in branches)})",
        shortest=min(branch.shortest for branch in branches),
        longest=max(longest) if len(longest) == len(branches) else None,
        certain=frozenset.intersection(*(branch.certain for branch in branches)),
        doubtful=whole.doubtful | whole.held,
        is_single_way=False,
    )


def capture(body: Node, number: int) -> Node:
    """Return *body* as the capturing group *number*."""
    group = frozenset({number})
    return replace(
        body,
        text=f"({body.text})",
        size=body.size + 1,
        groups=body.groups | group,
        certain=body.certain | group,
    )


def repeat(body: Node, low: int, high: int | None, mark: str) -> Node:
    """Return *body* *low* to *high* times (None: without limit); *mark* is ``""``, ``?``, ``+``."""
    bounds = f"{{{low},{'' if high is None else high}}}"
    is_optional = (low, high) == (0, 1)
    # Java has no bound for what repeats in several ways, other than possessively.
    is_bounded = is_optional or body.is_single_way or mark == "+"
    # Whether a last, empty round sets the groups differs from engine to engine.
    unsettled = body.groups if body.shortest == 0 and not is_optional else body.held
    repeated = replace(
        body,
        # Possessive in Java is each round for itself, not only all of them together.
        text=f"(?{'>' if mark == '+' else ':'}{body.text}){bounds}{mark}",
        shortest=body.shortest * low,
        longest=_product(body.longest, high) if is_bounded else None,
        size=body.size * max(low, 1),
        certain=body.certain if low else frozenset(),
        doubtful=body.doubtful | unsettled,
        is_single_way=body.is_single_way and low == high,
    )
    return _held(repeated) if mark == "+" else repeated


def _product(length: int | None, times: int | None) -> int | None:
    return None if length is None or times is None else length * times


def once(body: Node) -> Node:
    """Return *body* as an atomic group: what it matched first, it keeps."""
    return _held(replace(body, text=f"(?>{body.text})", size=body.size + 1))


def look(body: Node, opening: str) -> Node:
    """Return *body* as look-around; *opening* is ``(?=``, ``(?!``, ``(?<=`` or ``(?<!``."""
    looked = replace(
        body,
        text=f"{opening}{body.text})",
        shortest=0,
        longest=0,
        size=body.size + 1,
        is_single_way=True,
    )
    if opening == "(?=":
        return _held(looked)
    # Which of several ways a look-behind takes, and what a failed one leaves, differ from engine
    # to engine.
    return replace(looked, certain=frozenset(), doubtful=body.groups, is_atomic=True)


def _held(body: Node) -> Node:
    return replace(
        body,
        held=body.held | body.certain,
        doubtful=body.doubtful | (body.groups - body.certain),
        is_atomic=True,
    )
