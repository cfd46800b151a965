"""The half of the run lock that is on this host: a file held with flock.

It holds an id of 32 hexadecimal digits, given to it once, and a line that says who holds it.  It
is never removed: another process may have opened it and wait for it.
"""

import fcntl
import os
import re
from pathlib import Path
from typing import Final
from uuid import uuid4

from kbackup.errors import ConfigurationError

_ID: Final = re.compile(rb"[0-9a-f]{32}")


class LockFile:
    """One lock file.  Nothing of the lock survives the process: the kernel gives it back.

    Attributes:
        id: The file's own, once it is held; a file made anew has another one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.id = ""

    def take(self, who: str) -> bool:
        """Hold the file if nobody does, and note *who* in it; whether that was done.

        Raises:
            ConfigurationError: If there can be no such file, or no lock on it.
        """
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.id = _identified(self._file)
            os.ftruncate(self._file, len(self.id))
            os.pwrite(self._file, f"\n{who}\n".encode(), len(self.id))
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConfigurationError(
                f"the lock file {self._path} cannot be used",
                error.strerror or str(error),
                "set KBACKUP_LOCK_DIR to a folder on this host that can be written to",
            ) from error
        return True

    def is_free(self, known: str) -> bool:
        """Whether this is the file with the id *known*, and nobody holds it; changes nothing."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            if os.pread(file, 32, 0).decode(errors="replace") != known:
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def holder(self) -> str:
        """Return who noted themselves in the file, empty where that cannot be told."""
        if self._file is None:
            return ""
        return os.pread(self._file, 300, 0)[32:].decode(errors="replace").strip()

    def release(self) -> None:
        """Let the file go, held or not."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _identified(file: int) -> str:
    """Return the id in a file that is held, after giving it one if it has none."""
    found = os.pread(file, 32, 0)
    if _ID.fullmatch(found) is None:
        found = uuid4().hex.encode()
        os.pwrite(file, found, 0)
    return found.decode()
