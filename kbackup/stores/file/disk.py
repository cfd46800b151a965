"""Puts files, and the names of files, on the disk for all threads of a store together.

A sync is a wait, mostly for the journal of the file system, and a few waits side by side take as
long as one.  So what threads ask for meanwhile is synced in one round, each folder of it once.

Each put still returns once its object would outlast a power cut, so whoever enters it into a ledger
or commits an offset after it needs no other order.  To wait until the commit would save no more: an
object in a partition's folder of its own needs four syncs, of two files and of two folders.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kbackup import durable

_THREADS: Final = 16
"""Syncs of a round that wait side by side: of eight objects, their bodies and their facts."""

_NAMED_MOST: Final = 20_000
"""Folders whose names are remembered as synced."""


class Disk:
    """The syncs of one store.  Safe to use from several threads.

    What was written or moved before `sync` was called is on the disk once it returns: a round
    takes only what was asked for before it began.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS)
        self._asking = threading.Lock()  # guards the next round
        self._syncing = threading.Lock()  # held while a round goes on
        self._next = _Round()
        self._named: set[Path] = set()

    def sync(self, *paths: Path) -> None:
        """Put files, or the names in folders, on the disk; return once they are.

        Raises:
            OSError: If one of *paths* cannot be; what others ask for is none of the caller's.
        """
        with self._asking:
            mine = self._next
            mine.take(paths)
        with self._syncing:
            if not mine.is_over:  # else another thread has synced for this one
                with self._asking:
                    self._next = _Round()
                mine.sync(self._pool)
        mine.check(paths)

    def sync_names(self, moves: durable.Moves, folders: Iterable[Path], root: Path) -> None:
        """Put the names that *moves* gave on the disk, and those of the folders they are in.

        A folder that is found there may be another thread's, or a killed process's, whose name was
        never synced.  So each is synced into the one above it, once for each store.

        Args:
            moves: What was moved; `durable.Moves.take` names their folders.
            folders: Where to.
            root: The store's, which is there.
        """
        above = {
            at
            for folder in folders
            for at in (folder, *folder.parents)
            if at != root and at.is_relative_to(root) and at not in self._named
        }
        self.sync(*{*moves.take(), *(at.parent for at in above)})
        if len(self._named) >= _NAMED_MOST:  # of dated folders there is no end
            self._named.clear()
        self._named |= above


class _Round:
    """Paths that are synced together."""

    def __init__(self) -> None:
        self._done: dict[Path, Future[None]] = {}
        self._paths: dict[Path, None] = {}
        self.is_over = False

    def take(self, paths: Iterable[Path]) -> None:
        """Take in what to sync."""
        self._paths.update(dict.fromkeys(paths))

    def sync(self, pool: ThreadPoolExecutor) -> None:
        """Sync all of it; `check` says what came of it."""
        self._done = {path: pool.submit(durable.sync, path) for path in self._paths}
        for done in self._done.values():
            done.exception()
        self.is_over = True

    def check(self, paths: Iterable[Path]) -> None:
        """Raise the first error of *paths*."""
        for path in paths:
            self._done[path].result()
