"""Files that outlast a power cut: written aside, synced, then moved to their names."""

import io
import os
import secrets
from pathlib import Path
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 20


def write(folder: Path, body: BinaryIO, *, prefix: str = "") -> Path:
    """Copy *body* from its start to a new file in *folder*, and sync it.

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
    make_folder(path.parent)
    if replace:
        new.replace(path)
    else:
        path.hardlink_to(new)
        new.unlink()
    sync(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and those above it, each synced."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(folder: Path) -> None:
    """Put a folder's names on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
