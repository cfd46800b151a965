"""A table that fits: foldable columns give way first, then it becomes a list of blocks.

Numbers are never folded nor cut short.  Where even the folded table is wider than the screen, each
row is written as a block of ``name value`` lines, so that nothing is lost at 40 columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.box import ROUNDED, Box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from kbackup.cli.escape import escape
from kbackup.cli.folding import fold, longest_atom
from kbackup.cli.streams import Stream

RULED: Final = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
"""A line below the head and nothing else."""

_FOLDED_MIN: Final = 12
"""Cells below which a column is not folded: blocks are easier to read then."""

_STYLES: Final = {"REFUSED": "bold red", "CORRUPT": "bold red", "MISSING": "bold red"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        head: Its title, which may have several lines.
        justify: ``right`` for numbers.
        folds: Whether its text may be broken into lines.
    """

    head: str
    justify: Literal["left", "right", "center"] = "left"
    folds: bool = False


def number(head: str) -> Column:
    """Return a column of numbers."""
    return Column(head, "right")


def words(head: str) -> Column:
    """Return a column of text that may be folded."""
    return Column(head, folds=True)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table before it has a width.

    Attributes:
        columns: The columns, left to right.
        rows: A cell a column; foreign text, escaped when it is drawn.
        total: The last row, set off by a line; None where there is none.
        headings: Number of first columns that name a row.
        is_boxed: Drawn with lines around it.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    headings: int = 1
    is_boxed: bool = False

    def draw(self, stream: Stream) -> None:
        """Write the table as wide as it needs, at most as wide as *stream*."""
        cells = [[escape(cell) for cell in row] for row in self._all_rows()]
        widths = self._widths(cells, stream.width)
        if widths is None:
            self._draw_blocks(stream, cells)
        else:
            self._draw_table(stream, cells, widths)

    def _all_rows(self) -> list[Sequence[str]]:
        return [*self.rows, *([] if self.total is None else [self.total])]

    def _widths(self, cells: list[list[str]], width: int) -> list[int] | None:
        """Return the width of each column, None where they do not fit."""
        heads = [max(map(cell_len, column.head.split("\n"))) for column in self.columns]
        by_column = [[row[index] for row in cells] for index in range(len(self.columns))]
        widths = [
            max([head, *map(cell_len, column)])
            for head, column in zip(heads, by_column, strict=True)
        ]
        least = [
            min(wide, max([head, _FOLDED_MIN, *map(longest_atom, column)])) if spec.folds else wide
            for spec, wide, head, column in zip(self.columns, widths, heads, by_column, strict=True)
        ]
        # Of three cells a column, two are space and one is the line or gap between columns.
        room = width - 3 * len(widths) + (-1 if self.is_boxed else 1)
        while (excess := sum(widths) - room) > 0:
            slack = [wide - small for wide, small in zip(widths, least, strict=True)]
            widest = slack.index(max(slack))
            if slack[widest] == 0:
                return None
            widths[widest] -= min(slack[widest], max(1, excess // len(widths)))
        return widths

    def _draw_table(self, stream: Stream, cells: list[list[str]], widths: list[int]) -> None:
        table = Table(
            box=ROUNDED if self.is_boxed else RULED,
            show_edge=self.is_boxed,
            show_footer=False,
            header_style="",
        )
        for column, wide in zip(self.columns, widths, strict=True):
            table.add_column(Text(column.head), justify=column.justify, width=wide, no_wrap=True)
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

    def _draw_blocks(self, stream: Stream, cells: list[list[str]]) -> None:
        heads = [" ".join(column.head.split()) for column in self.columns]
        indent = max(map(cell_len, heads[self.headings :])) + 4
        room = max(stream.width - indent, 1)
        for row in cells:
            name = " ".join(filter(None, row[: self.headings]))
            stream.text("\n".join(fold(name, stream.width)))
            for head, cell in zip(heads[self.headings :], row[self.headings :], strict=True):
                if cell:
                    lines = f"\n{' ' * indent}".join(fold(cell, room))
                    stream.text(_styled(f"  {head:<{indent - 2}}{lines}"))


def _styled(text: str) -> Text:
    styled = Text(text)
    for word, style in _STYLES.items():
        styled.highlight_words([word], style)
    return styled
