"""The user's cache: where it is, and how a download is stored in it completely or not at all.

Nothing here depends on what is downloaded.  A directory in the cache is valid if it has every file
of its checksum list with the right SHA-256; other files in it are never used.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kbackup.errors import LocalServiceError
from kbackup.files import user_cache

LOCK_SECONDS: Final = 900
"""How long one process waits for another's download."""


def cache_directory() -> Path:
    """Return the user's cache for kbackup, creating it if necessary.

    ``KBACKUP_CACHE_DIR``, else ``$XDG_CACHE_HOME/kbackup``, else ``~/.cache/kbackup``.

    Raises:
        LocalServiceError: If it cannot be created or written to.
    """
    path = cache_path()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unusable(path, "no permission to write there")
    return path


def checksums(text: str) -> dict[str, str]:
    """Return file name to SHA-256 (64 hexadecimal digits) from the lines of ``sha256sum``."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {name: digest for digest, name in pairs}


def damaged(directory: Path, sums: Mapping[str, str]) -> list[str]:
    """Return the names in *sums* that are missing from *directory* or differ, in order."""
    return [name for name, digest in sums.items() if _sha256(directory / name) != digest]


def fetch_once(name: str, sums: Mapping[str, str], fetch: Callable[[Path], None]) -> Path:
    """Return the cache's directory *name*, downloaded first unless it exists undamaged.

    Two concurrent processes download it once.  A reader sees the whole directory or none.

    Args:
        name: The directory's name; one for each content, so it should include a version.
        sums: File name to SHA-256 of every required file.
        fetch: Puts the files into the given empty directory, or raises.

    Raises:
        LocalServiceError: If what was fetched does not match *sums*, the cache cannot be used, or
            another process held the download for `LOCK_SECONDS`.
    """
    cache = cache_directory()
    target = cache / name
    if not damaged(target, sums):
        return target
    with _locked(cache / f"{name}.lock"):
        if damaged(target, sums):  # unless the process we waited for has just fetched it
            _replace(target, sums, fetch)
    return target


def _replace(target: Path, sums: Mapping[str, str], fetch: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        fresh = Path(scratch, "fresh")
        fresh.mkdir()
        fetch(fresh)
        if wrong := damaged(fresh, sums):
            raise LocalServiceError(
                f"the download for {target.name} is not what it should be",
                f"missing or with another SHA-256: {', '.join(wrong)}",
                "try again; if that does not help, a proxy on the way alters downloads",
            )
        if target.exists():  # damaged: move it away first, because a directory cannot be replaced
            target.rename(Path(scratch, "damaged"))
        fresh.rename(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        with FileLock(path, timeout=LOCK_SECONDS):
            yield
    except Timeout as error:
        raise LocalServiceError(
            f"another process has held {path} for {LOCK_SECONDS} s",
            do="check what it is doing, and stop it if it hangs",
        ) from error


def cache_path() -> Path:
    """Return where the cache is or would be, without creating or checking it.

    Raises:
        LocalServiceError: If this user has no home.
    """
    if ours := os.environ.get("KBACKUP_CACHE_DIR"):
        return Path(ours).absolute()
    found = user_cache()
    if found is None:
        raise _unusable(Path("~/.cache/kbackup"), "HOME is not set")
    return found


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None  # missing, unreadable and altered are the same to the caller: fetch it again


def _unusable(path: Path, why: object) -> LocalServiceError:
    return LocalServiceError(
        f"the cache {path} cannot be used",
        str(why),
        "set KBACKUP_CACHE_DIR to a directory that you may write to",
    )
