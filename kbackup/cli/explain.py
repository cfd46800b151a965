"""``kbackup explain``: what an exit code or a code of errors and warnings means, and what to do.

The text is that of the documentation's pages, which come with the package: one owner, read without
a network.
"""

import difflib
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import click

from kbackup.cli.options import GroupedCommand
from kbackup.errors import ConfigurationError

_ERRORS: Final = "troubleshoot.md"
_WARNINGS: Final = "reference/json-lines.md"
_WIDTH: Final = 80

_CODE: Final = re.compile(r"`([a-z][a-z0-9_]+)`")
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
_ANCHOR: Final = re.compile(r"\]\(#([^)]*)\)")
_ITEM: Final = re.compile(r"(?P<lead>- (?:\*\*.*?\*\*|[^:]*)[^:]*:|\| .*? \|)")
"""The beginning of an item of a list or of a table's row: what the item is about."""
_NAMED: Final = re.compile(r"^\| .*? \||^- \*\*.*?\*\*(?:, \*\*.*?\*\*)*")
"""Where an item names the codes that it is about, and no others."""
_RULE: Final = re.compile(r"\|[-:| ]+\|")
_STOPPED: Final = {"130": "130", "143": "130"}
"""Exit codes that share a section, and the first word of its title."""


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page, below its heading of the second level."""

    title: str
    lines: tuple[str, ...]


def sections(page: str = _ERRORS) -> list[PageSection]:
    """Return the parts of a page, in its order."""
    packaged = resources.files("kbackup.cli").joinpath(Path(page).name)
    if packaged.is_file():
        text = packaged.read_text(encoding="utf-8")
    else:  # in a checkout
        text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    found = (part.splitlines() for part in parts)
    return [PageSection(title, tuple(_without_heads(lines))) for title, *lines in found]


def _without_heads(lines: list[str]) -> Iterator[str]:
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not (_RULE.fullmatch(line) or _RULE.fullmatch(after)):
            yield line


@dataclass(frozen=True, slots=True)
class Page:
    """What is known about one code.

    Attributes:
        exit_code: The exit code that it stands for; itself where it is one, empty for a warning.
        meaning: One sentence; empty where the lines say it.
        lines: What to do, in the page's Markdown.
    """

    code: str
    exit_code: str
    meaning: str
    lines: tuple[str, ...]


def pages() -> dict[str, Page]:
    """Return what is known, by code: exit codes first, then errors, what was left out, warnings."""
    parts = {re.split(r"\W", each.title)[0]: each for each in sections()}
    beneath = {name: lines for each in parts.values() for name, lines in _beneath(each.lines)}
    found: dict[str, Page] = {}
    for first, part in parts.items():
        for number in [first, *(n for n, of in _STOPPED.items() if of == first)]:
            if number.isdigit():
                found[number] = Page(number, number, part.title.partition(": ")[2], part.lines)
    for code, numbers, meaning in _rows(parts["Error"].lines):
        number = numbers.split(",")[0]
        found[code] = Page(code, number, meaning, tuple(_about(code, parts[number].lines, beneath)))
    for number, part in parts.items():
        for line in part.lines if number.isdigit() else ():
            for code in _CODE.findall("".join(_NAMED.findall(line))):
                found.setdefault(
                    code, Page(code, number, "", tuple(_about(code, part.lines, beneath)))
                )
    (warnings,) = (each for each in sections(_WARNINGS) if each.title == "Warnings")
    for line in (each for each in warnings.lines if each.startswith("|`")):
        codes, _, meaning = line.strip("|").partition("|")
        for code in _CODE.findall(codes):
            found.setdefault(code, Page(code, "", meaning, ()))
    return found


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        if line.startswith("| `"):
            yield [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]


def _lead(line: str) -> list[str]:
    """Return the codes that an item of a list or a table is about."""
    match = _ITEM.match(line)
    return [] if match is None else _CODE.findall(match["lead"])


def _beneath(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each part below a heading of the third level, with what links to it call it."""
    begins = [at for at, line in enumerate(lines) if line.startswith("### ")]
    for at, end in itertools.pairwise([*begins, len(lines)]):
        yield re.sub(r"\W+", "-", lines[at][4:].lower()), [*lines[at:end]]


def _about(code: str, lines: Iterable[str], beneath: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield *lines* without items about other codes; what those about *code* link to follows."""
    listed = [*lines]
    is_named = any(code in _lead(line) for line in listed)
    if is_named:
        listed = [*itertools.takewhile(lambda line: not line.startswith("### "), listed)]
    for line in listed:
        is_item = line.startswith(("- ", "| `"))
        if not is_item or code in _lead(line) or not (is_named or _lead(line)):
            yield line
            for name in _ANCHOR.findall(line) if is_named and is_item else ():
                yield from ("", *beneath[name])


def _link(found: re.Match[str]) -> str:
    """Return a link's words, and where another page is that it leads to."""
    words, target = found.groups()
    return words if target.startswith("#") else f"{words} (docs/{target})"


def plain(lines: Iterable[str], width: int = _WIDTH) -> Iterator[str]:
    """Yield Markdown as text for a terminal: folded, links with their pages, tables as lists."""
    is_code = False
    paragraph: list[str] = []
    for line in (*lines, ""):
        text = _LINK.sub(_link, line).replace("**", "").strip()
        begins = not text or is_code or text.startswith(("- ", "|", "#", "```", "<!--"))
        if begins and paragraph:
            joined = " ".join(paragraph)
            yield from _folded(joined, width, "  " if joined.startswith("- ") else "")
            paragraph = []
        if text.startswith("```"):
            is_code = not is_code
        elif is_code:
            yield f"    {text}"
        elif text.startswith("|"):
            first, *rest = (cell.strip().replace("\\|", "|") for cell in text[1:-1].split(" | "))
            yield from _folded(f"- {first}: {'; '.join(rest)}", width, "  ")
        elif text.startswith("#"):
            yield text.lstrip("# ")
        elif not text:
            yield ""
        elif not text.startswith("<!--"):
            paragraph.append(text)


def _closed(lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines* without a blank one after another, nor at the end."""
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    yield from text.rstrip("\n").split("\n")


def _folded(text: str, width: int, hanging: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_on_hyphens=False)


@click.command(
    "explain",
    cls=GroupedCommand,
    examples=("kbackup explain 7", "kbackup explain feedback_loop", "kbackup explain"),
)
@click.argument("code", required=False)
def explain_command(code: str | None) -> None:
    """Say what an exit code, or the code of an error or warning, means, and what to do.

    Without CODE, lists all codes.  Uses no network.
    """
    found = pages()
    if code is None:
        _list(found)
        return
    page = found.get(code.strip().lower())
    if page is None:
        from kbackup.cli import running  # noqa: PLC0415  (not needed for what is known)

        running.refuse("explain", {}, _unknown(code, found))
    head = f"exit code {page.exit_code}" if page.exit_code else "a warning"
    if page.code != page.exit_code:
        head = f"{page.code}, {head}"
    for line in _closed(plain([": ".join(filter(None, [head, page.meaning])), "", *page.lines])):
        click.echo(line)
    if page.exit_code not in ("", page.code):
        click.echo(f"\nall of exit code {page.exit_code}: kbackup explain {page.exit_code}")


def _list(found: dict[str, Page]) -> None:
    numbers = [page for page in found.values() if page.code == page.exit_code]
    click.echo("Exit codes\n")
    for page in numbers:
        meaning = page.meaning or next(filter(None, page.lines))
        for line in _folded(f"{page.code:>3}  {meaning}", _WIDTH, "     "):
            click.echo(line)
    click.echo("\nCodes of errors and of what was left out, by exit code\n")
    for page in numbers:
        codes = [each.code for each in found.values() if each.exit_code == page.code != each.code]
        for line in _folded(f"{page.code:>3}  {' '.join(codes)}", _WIDTH, "     ") if codes else ():
            click.echo(line)
    click.echo("\nCodes of warnings\n")
    for line in _folded(
        " ".join(each.code for each in found.values() if not each.exit_code), 75, ""
    ):
        click.echo(f"     {line}")


def _unknown(code: str, found: Iterable[str]) -> ConfigurationError:
    near = [] if code.isdigit() else difflib.get_close_matches(code, found, 1)
    do = f"did you mean kbackup explain {near[0]}?" if near else "kbackup explain lists the codes"
    return ConfigurationError(f"there is no code {code!r}", do=do)
