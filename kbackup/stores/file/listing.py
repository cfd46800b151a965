"""The keys of a folder, in the order of whole keys."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kbackup.stores import StoredObject
from kbackup.stores.file.status import etag, modified, refuse_link, status_of

_log: Final = logging.getLogger(__name__)

HIDDEN: Final = ".kbackup"
"""The store's own folder; no key begins with it, and nothing in it is listed."""


def walk(root: Path, prefix: str, after: str = "") -> Iterator[StoredObject]:
    """Yield what is below *root* under *prefix*, behind *after*, by key as UTF-8 bytes.

    Raises:
        StoreError: If a symbolic link is on the way.
    """
    open_folders = [_in_order(root, "", prefix)]
    while open_folders:
        key, entry = next(open_folders[-1], ("", None))
        if entry is None:
            open_folders.pop()
        elif key.endswith("/"):
            if key != f"{HIDDEN}/":
                open_folders.append(_in_order(entry.path, key, prefix))
        elif entry.is_symlink():
            refuse_link(Path(entry.path))
        elif not _is_text(key):
            _log.warning("%s is not listed: its name is not UTF-8", ascii(entry.path))
        elif key > after and key.startswith(prefix) and (status := status_of(entry)) is not None:
            yield StoredObject(key, status.st_size, modified(status), etag(status))


def _in_order(folder: Path | str, at: str, prefix: str) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """Return what *prefix* leads to in a folder whose key is *at*, keys of folders with a slash.

    A folder that was removed since it was listed holds nothing.
    """
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            key = at + entry.name
            if key.startswith(prefix) or prefix.startswith(f"{key}/"):
                is_folder = entry.is_dir(follow_symlinks=False)
                found.append((f"{key}/" if is_folder else key, entry))
    found.sort(key=lambda pair: os.fsencode(pair[0]))
    return iter(found)


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
