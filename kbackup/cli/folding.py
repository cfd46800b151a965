"""Fold text into columns: break at spaces, elsewhere only if necessary, never inside a number."""

import re
from typing import Final

from rich.cells import cell_len

from kbackup.cli.quantities import THIN

_ATOMS: Final = re.compile(rf"\d(?:[\d{THIN}.,]*\d)?|.", re.DOTALL)
"""The pieces a word may be broken into: whole numbers, and single other characters."""

_PARTS: Final = re.compile(r".+?(?:[/_+:-]|[.,](?!\d)|$)", re.DOTALL)
"""The pieces a word is broken into first: its parts, each with the punctuation after it."""

_ARGUMENTS: Final = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")


def fold(text: str, width: int | None) -> list[str]:
    """Return *text* in lines of at most *width* cells, at least one line.

    A number longer than *width* stands in a line of its own and is longer than *width*.
    """
    if width is None or cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
        elif cell_len(word) <= width:
            lines.append(word)
        else:
            lines += _split(word, width)
    return [line.rstrip() for line in lines if line.strip()] or [""]


def _split(word: str, width: int) -> list[str]:
    pieces = [""]
    for part in _PARTS.findall(word):
        for atom in [part] if cell_len(part) <= width else _ATOMS.findall(part):
            if pieces[-1] and cell_len(pieces[-1] + atom) > width:
                pieces.append("")
            pieces[-1] += atom
    return pieces


def fold_command(command: str, width: int) -> list[str]:
    """Return a shell command in indented lines that can be pasted as one."""
    lines = ["  "]
    for argument in _ARGUMENTS.findall(command):
        joined = f"{lines[-1]}{argument}"
        if lines[-1].strip() and cell_len(joined) > width - len(" \\"):
            lines[-1] += "\\"
            joined = f"    {argument}"
            lines.append("")
        lines[-1] = f"{joined} "
    return [line.rstrip() for line in lines]


def longest_atom(text: str) -> int:
    """Return the minimum width of *text* in cells, however it is folded."""
    return max(map(cell_len, _ATOMS.findall(text)), default=0)


def shorten(text: str, width: int) -> str:
    """Return *text* in at most *width* cells, its middle left out where it is longer."""
    if cell_len(text) <= width:
        return text
    if width < 3:
        return "…"[:width]
    head = (width - 1) // 2
    return f"{_clip(text, head)}…{_clip(text[::-1], width - 1 - head)[::-1]}"


def _clip(text: str, width: int) -> str:
    clipped = text[:width]
    while cell_len(clipped) > width:
        clipped = clipped[:-1]
    return clipped
