"""Draw a table that fits: foldable columns shrink first, then less important parts are dropped.

Numbers are never folded nor cut short.  Where even the folded table is wider than the screen, it
is drawn with shorter titles and without what can be spared.  Where that is too wide too, each row
is written as a block of ``name value`` lines, so that nothing is lost at 40 columns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal

from rich.box import ROUNDED, Box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from kbackup.cli.quantities import THIN
from kbackup.cli.streams import OutputStream, escape

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


RULED: Final = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
"""A line below the head and nothing else."""

_GAPS: Final = (3, 2)
"""Cells between two columns: better few than folded text."""

_STYLES: Final = {"REFUSED": "bold red", "CORRUPT": "bold red", "MISSING": "bold red"}


@dataclass(frozen=True, slots=True)
class GridColumn:
    """One column.

    Attributes:
        head: Its title, which may have several lines.
        justify: ``right`` for numbers.
        least: Cells it may be folded to, 0 where its text is not broken into lines.
        short: A shorter title for a narrow screen, empty for the same.
        keeps: How much of it a narrow screen shows.
    """

    head: str
    justify: Literal["left", "right", "center"] = "left"
    least: int = 0
    short: str = ""
    keeps: Literal["all", "first word", "nothing"] = "all"

    def narrow(self) -> "GridColumn":
        """Return the column as a narrow screen has it."""
        head = self.short or self.head
        return GridColumn(head, self.justify, 0 if self.keeps == "first word" else self.least)


def number(head: str, short: str = "") -> GridColumn:
    """Return a column of numbers."""
    return GridColumn(head, "right", short=short)


def words(head: str, least: int = 8) -> GridColumn:
    """Return a column of text that may be folded; below *least* cells, blocks read better."""
    return GridColumn(head, least=least)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose width is not yet decided.

    Attributes:
        columns: The columns, left to right.
        rows: A cell a column; foreign text, escaped when it is drawn.
        total: The last row, set off by a line; None where there is none.
        headings: Number of first columns that name a row.
        is_boxed: Drawn with lines around it.
    """

    columns: Sequence[GridColumn]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    headings: int = 1
    is_boxed: bool = False

    def draw(self, stream: OutputStream) -> None:
        """Write the table as wide as it needs, at most as wide as *stream*."""
        if not (self.draw_table(stream) or self.narrowed().draw_table(stream)):
            self._draw_blocks(stream, self._cells())

    def draw_table(self, stream: OutputStream) -> bool:
        """Write it as a table if it fits; return whether it does."""
        cells = self._cells()
        spans = [self._span(index, cells) for index in range(len(self.columns))]
        for folds, gap in product((False, True), _GAPS[:1] if self.is_boxed else _GAPS):
            # A boxed table has lines at its sides, another a space at each of them.
            room = stream.width - gap * len(spans) + (-1 if self.is_boxed else gap - 2)
            if (widths := fitted(spans, room, folds=folds)) is not None:
                self._draw_table(stream, cells, widths, gap)
                return True
        return False

    def narrowed(self) -> "Grid":
        """Return the grid with short titles, and without what can be spared."""
        kept = [index for index, column in enumerate(self.columns) if column.keeps != "nothing"]

        def cells(row: Sequence[str]) -> list[str]:
            firsts = {i for i in kept if self.columns[i].keeps == "first word"}
            return [row[i].partition(" ")[0] if i in firsts else row[i] for i in kept]

        return replace(
            self,
            columns=[self.columns[index].narrow() for index in kept],
            rows=[cells(row) for row in self.rows],
            total=None if self.total is None else cells(self.total),
        )

    def _cells(self) -> list[list[str]]:
        rows = [*self.rows, *([] if self.total is None else [self.total])]
        return [[escape(cell) for cell in row] for row in rows]

    def _span(self, index: int, cells: list[list[str]]) -> tuple[int, int]:
        """Return the least and the natural width of a column."""
        column = self.columns[index]
        texts = [*column.head.split("\n"), *(row[index] for row in cells)]
        natural = max(map(cell_len, texts))
        if column.least == 0:
            return natural, natural
        head = max(map(cell_len, column.head.split()))
        return min(natural, max([head, column.least, *map(longest_atom, texts)])), natural

    def _draw_table(
        self, stream: OutputStream, cells: list[list[str]], widths: list[int], gap: int
    ) -> None:
        table = Table(
            box=ROUNDED if self.is_boxed else RULED,
            show_edge=self.is_boxed,
            pad_edge=gap == 3,
            padding=(0, 1) if gap == 3 else (0, 1, 0, 0),
            header_style="",
        )
        heads = [
            [line for part in column.head.split("\n") for line in fold(part, wide)]
            for column, wide in zip(self.columns, widths, strict=True)
        ]
        tallest = max(map(len, heads))
        for column, head, wide in zip(self.columns, heads, widths, strict=True):
            title = "\n".join([""] * (tallest - len(head)) + head)
            table.add_column(Text(title), justify=column.justify, width=wide, no_wrap=True)
        for index, row in enumerate(cells):
            is_last_before_total = self.total is not None and index == len(cells) - 2
            folded = [
                _styled("\n".join(fold(cell, wide))) for cell, wide in zip(row, widths, strict=True)
            ]
            table.add_row(*folded, end_section=is_last_before_total)
        with stream.console.capture() as drawn:
            stream.console.print(table)
        lines = [line.rstrip() for line in drawn.get().splitlines()]
        stream.write("\n".join(lines) + "\n")

    def _draw_blocks(self, stream: OutputStream, cells: list[list[str]]) -> None:
        heads = [column.head.split("\n")[0] for column in self.columns]
        indent = max(map(cell_len, heads[self.headings :])) + 4
        room = max(stream.width - indent, 1)
        for row in cells:
            name = " ".join(filter(None, row[: self.headings]))
            stream.text("\n".join(fold(name, stream.width)))
            for head, cell in zip(heads[self.headings :], row[self.headings :], strict=True):
                if cell:
                    lines = f"\n{' ' * indent}".join(fold(cell, room))
                    stream.text(_styled(f"  {head:<{indent - 2}}{lines}"))


def fitted(spans: Sequence[tuple[int, int]], room: int, *, folds: bool) -> list[int] | None:
    """Return a width for each column, None where together they need more than *room*.

    Args:
        spans: Least and natural width of each column.
        room: Cells for all of them.
        folds: Whether columns may be narrower than natural.
    """
    widths = [natural for _, natural in spans]
    while (excess := sum(widths) - room) > 0:
        slack = [wide - least for wide, (least, _) in zip(widths, spans, strict=True)]
        widest = slack.index(max(slack))
        if not folds or slack[widest] == 0:
            return None
        widths[widest] -= min(slack[widest], max(1, excess // len(widths)))
    return widths


def _styled(text: str) -> Text:
    styled = Text(text)
    for word, style in _STYLES.items():
        styled.highlight_words([word], style)
    return styled
