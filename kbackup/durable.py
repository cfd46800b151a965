"""Files that outlast a power cut: written aside, synced, then moved to their names."""

import io
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 20


def write(folder: Path, body: BinaryIO, *, prefix: str = "", is_synced: bool = True) -> Path:
    """Copy *body* from its start to a new file in *folder*, and sync it unless told not to.

    Its name is *prefix* and random digits, which are no part of any object's key.
    """
    make_folder(folder)
    new = folder / f"{prefix}{secrets.token_hex(12)}"
    try:
        with new.open("xb") as file:
            body.seek(0)
            while chunk := body.read(_CHUNK):
                file.write(chunk)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put *content* in the place of what is at *path*, whole or not at all.

    Args:
        path: Any file; its folder is made if need be.
        content: All of it.
        mode: Permissions; None for those of any new file.

    Raises:
        OSError: If it cannot be written; an old file is then as it was.
    """
    new = write(path.parent, io.BytesIO(content), prefix=f".{path.name}.")
    try:
        if mode is not None:
            new.chmod(mode)
        move(new, path)
    finally:
        new.unlink(missing_ok=True)


def move(new: Path, path: Path, *, replace: bool = True) -> None:
    """Give a file its name, whole at once, and sync its folder.

    Raises:
        FileExistsError: If not *replace*, and the name is taken.
    """
    moves = Moves()
    moves.move(new, path, replace=replace)
    moves.sync()


class Moves:
    """Files that get their names together, and last only once all of them are synced.

    Syncing them all at once takes about one wait for the disk, not one for each.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, None] = {}

    def move(self, new: Path, path: Path, *, replace: bool = True) -> None:
        """Give a file its name, whole at once, its folders made if need be.

        Raises:
            FileExistsError: If not *replace*, and the name is taken.
        """
        self._make_folder(path.parent)
        if replace:
            new.replace(path)
        else:
            path.hardlink_to(new)
            new.unlink()
        self.add(path.parent)

    def add(self, folder: Path) -> None:
        """Sync *folder* too: another process may have moved a file there and not come so far."""
        self._folders[folder] = None

    def take(self) -> list[Path]:
        """Return the folders to sync, which is left to the caller."""
        folders, self._folders = [*self._folders], {}
        return folders

    def sync(self) -> None:
        """Put all the names on the disk."""
        sync(*self.take())

    def _make_folder(self, path: Path) -> None:
        if not path.is_dir():
            self._make_folder(path.parent)
            path.mkdir(exist_ok=True)
            self.add(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and those above it, each synced."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(*paths: Path) -> None:
    """Put files, and the names in folders, on the disk: side by side, so that they share a wait."""
    if len(paths) > 1:
        with ThreadPoolExecutor(len(paths)) as pool:
            list(pool.map(sync, paths))
        return
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
