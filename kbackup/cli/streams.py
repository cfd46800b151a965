"""stdout and stderr: what each can show, and what happens when its reader is gone.

A backup must not die because ``| head`` has seen enough, so a `Stream` takes whatever is written
and drops it once its pipe is closed.
"""

import io
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Final, cast

from rich.console import Console
from rich.text import Text

from kbackup.cli.escape import escape
from kbackup.cli.quantities import THIN

_UNBOUNDED: Final = 10_000
"""Columns of a pipe: nothing is folded for a reader that is a program."""


class Stream(io.TextIOBase):
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
            _environ=dict(environ),
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
