"""Write to stdout and stderr what each can show, without secrets or control sequences.

A backup must not die because ``| head`` has seen enough, so an `OutputStream` takes whatever is
written and drops it once its pipe is closed.

Topic names, object keys, record text and servers' answers are input.  Among them may be control
sequences that move the cursor, marks that reverse the direction of writing, and half characters
that cannot be encoded.

Nothing above this layer puts a secret into an event, an error or a log line on purpose; a server's
answer or a library's message may.  So each line and each free text passes through here.

Numbers are written as people read them, in grouped digits; JSON and log lines have plain digits.
"""

import io
import os
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import IO, Any, Final, Self, TypeVar, cast
from urllib.parse import quote, quote_plus

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbackup.errors import form
from kbackup.events import Ended, Plain

THIN: Final = "\u2009"
"""The thin space between groups of digits."""

UNKNOWN: Final = "?"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_THOUSANDS: Final = ("", "k", "M", "G", "T")


def digits(number: int | None) -> str:
    """Return *number* in groups of three digits, ``?`` where it is unknown."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", THIN)


def size(count: int | None, space: str = " ") -> str:
    """Return a number of bytes in the unit that leaves one to four digits: ``1.2 GiB``."""
    if count is None:
        return UNKNOWN
    value, power = float(count), 0
    while value >= 1023.5 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    shown = f"{value:.1f}" if power and value < 9.95 else f"{value:.0f}"
    return f"{shown}{space}{_UNITS[power]}"


def rate(per_second: float) -> str:
    """Return a rate in few characters: ``42.9k``."""
    if per_second < 1000:
        return f"{per_second:.0f}"
    scaled, power = per_second, 0
    while scaled >= 999.95 and power < len(_THOUSANDS) - 1:
        scaled, power = scaled / 1000, power + 1
    return f"{scaled:.1f}{_THOUSANDS[power]}"


def duration(seconds: float | None) -> str:
    """Return a time span to the second: ``1:44``, ``26:03:09``."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: int | None, noun: str) -> str:
    """Return *number* with its noun, in the plural where it is not one: ``2 objects``."""
    return f"{digits(number)} {form(number, noun)}"


def escape(text: str) -> str:
    r"""Return *text* in one line, with what does not print as its escape, such as ``\x1b``.

    Escaped are control and format characters (bidirectional marks and zero-width ones among them),
    line and paragraph separators, surrogates, private and unassigned characters.  Spaces of any
    width stay.  Backslashes stay too, so this is for reading, not for reading back.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


_UNBOUNDED: Final = 10_000
"""Columns of a pipe: nothing is folded for a reader that is a program."""


class OutputStream(io.TextIOBase):
    """A text stream that knows what it leads to and outlives its reader.

    Attributes:
        is_terminal: A terminal that can redraw; false with ``TERM=dumb``.
        is_plain: No escape sequence may be written, be it colour or cursor.
        is_open: Someone may still read it; false after a broken pipe.
        error: Why writing failed, other than by a broken pipe, such as a full disk.
        console: The same stream for `rich`.
    """

    def __init__(
        self,
        file: IO[str],
        environ: Mapping[str, str] = os.environ,
        *,
        is_plain: bool = False,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        self._file = file
        # some programs leave a zero there where they do not know the width
        environ = {name: text for name, text in environ.items() if (name, text) != ("COLUMNS", "0")}
        is_dumb = environ.get("TERM") == "dumb"
        self.is_terminal = file.isatty() and not is_dumb
        is_coloured = self.is_terminal or bool(environ.get("FORCE_COLOR"))
        self.is_plain = is_plain or is_dumb or bool(environ.get("NO_COLOR")) or not is_coloured
        self.is_open = True
        self.error: OSError | None = None
        if width is None and not file.isatty() and not environ.get("COLUMNS", "").isdigit():
            width = _UNBOUNDED
        self.console = Console(
            file=cast(IO[str], self),
            force_terminal=not self.is_plain,
            color_system=None if self.is_plain else "standard",
            width=width,
            height=height,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ=environ,
        )

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the bytes; `rich` draws boxes of ASCII where it is not Unicode's."""
        return getattr(self._file, "encoding", None) or "utf-8"

    @property
    def width(self) -> int:
        """Columns, those of a pipe without bound."""
        return self.console.width

    def line(self, text: str, style: str = "") -> None:
        """Write one line as it is, however long; foreign text in it is escaped."""
        self.text(Text(escape(text), style))

    def text(self, text: Text | str) -> None:
        """Write lines whose foreign parts are escaped already; none is folded."""
        self.console.print(text, soft_wrap=True)

    def draw(self, table: Table) -> None:
        """Write a table, without the blanks at the end of its lines."""
        with self.console.capture() as drawn:
            self.console.print(table)
        self.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))

    def paragraph(self, text: str) -> None:
        """Write foreign text in lines that fit."""
        self.text("\n".join(fold(escape(text), self.width)))

    def hang(self, lead: str, text: str, style: str = "") -> None:
        """Write foreign text behind *lead*, which has a style, in lines that fit."""
        hung = Text(hang(lead, text, self.width))
        hung.stylize(style, 0, len(lead.rstrip()))
        self.text(hung)

    def write(self, text: str) -> int:
        """Write *text* at once, or drop it where nobody reads it."""
        self._pass(self._file, self._encodable(text))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Write *data* as it is; a file that takes text only gets what is not UTF-8 escaped."""
        buffer = getattr(self._file, "buffer", None)
        if buffer is None:
            self.write(data.decode(errors="backslashreplace"))
        else:
            self._pass(buffer, data)

    def _pass(self, file: Any, content: str | bytes) -> None:
        """Write *content* to the file, or to the buffer below it, which is flushed each time."""
        if self.is_open and self.error is None:
            try:
                file.write(content)
                file.flush()
            except BrokenPipeError:
                self.is_open = False
                self._leave()
            except OSError as error:
                self.error = error
                self._leave()

    def flush(self) -> None:
        """Do nothing: each write goes out at once."""

    def writable(self) -> bool:
        """Return true: a stream takes text even where it drops it."""
        return True

    def isatty(self) -> bool:
        """Return whether the stream leads to a terminal."""
        return self._file.isatty()

    def fileno(self) -> int:
        """Return the file descriptor below."""
        return self._file.fileno()

    def _encodable(self, text: str) -> str:
        encoding = self.encoding
        if not encoding.lower().startswith("utf"):
            text = text.replace(THIN, " ")
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _leave(self) -> None:
        """Lead what is still buffered to nowhere, so that the interpreter ends without a word."""
        with suppress(OSError, ValueError):  # not a file of the system
            null = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(null, self._file.fileno())
            finally:
                os.close(null)


MASK: Final = "********"

_SHORTEST: Final = 4
"""A shorter secret is not searched for: hiding every ``a`` would hide the message."""

_FREE_TEXT: Final = frozenset({"text", "what", "why", "do", "next", "reason"})
"""The fields made of sentences.  Names, keys and numbers are data and stay as they are."""

_CREDENTIALS: Final = (
    re.compile(r"(X-Amz-(?:Signature|Credential|Security-Token)=)[^&\s'\"]+", re.IGNORECASE),
    re.compile(r"(\b(?:AWS4-HMAC-SHA256|Basic|Bearer) )[\w+/=.~-]{8,}[^\r\n'\"]*"),
    re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)"),
    # without a scheme; orders:0@4200 is a place in a backup, and TOPIC[:PARTITION[@OFFSET]] help
    re.compile(r"((?:^|[\s,=])[^\s,=:/@\[\]]+:)(?!\d+@)[^\s,/@]+(?=@[\w.\[])"),
)
"""What signed requests and URLs with a password look like; the first group may be seen."""

T = TypeVar("T")


class Mask:
    """Replaces the given secrets, and whatever looks like a signed request, by asterisks."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {secret for secret in secrets if len(secret) >= _SHORTEST}
        forms = {form(secret) for secret in found for form in (str, quote, quote_plus)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """Return *text* without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub(MASK, text)
        for credentials in _CREDENTIALS:
            text = credentials.sub(rf"\1{MASK}", text)
        return text

    def of(self, event: T) -> T:
        """Return *event* with its free texts, those of its parts too, without secrets."""
        return cast(T, self._value("", event))

    def _value(self, name: str, value: Any) -> Any:
        """Return *value* itself where it holds no secret: rows of partitions come by thousands."""
        match value:
            case None | int() | float():
                return value
            case str():
                return self.text(value) if name in _FREE_TEXT else value
            case Mapping():
                return {each: self._value(each, one) for each, one in value.items()}
            case list() | tuple():
                return type(value)(self._value(name, one) for one in value)
            case _ if is_dataclass(value) and not isinstance(value, type):
                parts = {
                    each.name: getattr(value, each.name) for each in fields(value) if each.init
                }
                masked = {at: self._value(at, part) for at, part in parts.items()}
                changed = {at: one for at, one in masked.items() if one != parts[at]}
                return replace(value, **changed) if changed else value
        return value


class OutputPart:
    """One way to show a command; what it does not override it does nothing for."""

    def __enter__(self) -> Self:
        """Start, before the work."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop, whatever happened."""

    def tell(self, event: Plain) -> None:
        """Take in what has happened; called by one thread at a time, and not always the same."""

    def finish(self, summary: Ended) -> None:
        """Show how it ended; called once, last, after the part was left."""


_ARGUMENTS: Final = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")


def fold(text: str, width: int | None) -> list[str]:
    """Return *text* in lines of at most *width* columns, at least one line."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]


def hang(lead: str, text: str, width: int | None = None) -> str:
    """Return *text*, escaped line by line, after *lead*; further lines hang under the first."""
    room = None if width is None else width - len(lead)
    lines = [line for part in text.splitlines() for line in fold(escape(part.rstrip()), room)]
    return lead + f"\n{' ' * len(lead)}".join(lines or [""])


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
