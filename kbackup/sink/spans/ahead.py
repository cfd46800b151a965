"""Cuts of a span whose turn has not come: their files wait on local disk."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kbackup.flow.write import ClosedFile
from kbackup.sink.rejects import LeftOut
from kbackup.spool import free_bytes

BYTES_MOST: Final = 512 * 2**20
FILES_MOST: Final = 128
"""A task holds no more than this of a span before its turn, but for the cut that goes beyond."""

FREE_LEAST: Final = 2**30
"""While less than this is free in ``TMPDIR``, a task holds one cut only: whoever's turn it is has
to write there too, and fails where the others have filled the disk."""


@dataclass(frozen=True, slots=True)
class ClosedCut:
    """A cut whose files are complete.

    Attributes:
        files: In the order to store them.
        next_offset: The first offset after it.
        read: Bytes of the records read for it.
        lacks: What was left out of it.
    """

    files: tuple[ClosedFile, ...]
    next_offset: int
    read: int
    lacks: LeftOut

    def drop(self) -> None:
        """Throw the files away."""
        for file in self.files:
            file.body.close()


@dataclass(slots=True)
class Ahead:
    """What a task has read of a span before its turn.

    Attributes:
        free: Says how many bytes are free where it is held.
    """

    free: Callable[[], int] = free_bytes
    _cuts: deque[ClosedCut] = field(default_factory=deque)

    def add(self, cut: ClosedCut) -> None:
        """Hold a cut, on disk.

        Raises:
            NoSpaceError: If the disk is full; the cut is thrown away.
        """
        try:
            for file in cut.files:
                file.body.move_to_disk()
        except BaseException:
            cut.drop()
            raise
        self._cuts.append(cut)

    @property
    def is_full(self) -> bool:
        """Whether no more is to be held."""
        files = [file for cut in self._cuts for file in cut.files]
        if len(files) >= FILES_MOST or sum(file.body.size for file in files) >= BYTES_MOST:
            return True
        return bool(files) and self.free() < FREE_LEAST

    def __len__(self) -> int:
        return len(self._cuts)

    def pop(self) -> ClosedCut:
        """Return the first cut, which is the caller's then."""
        return self._cuts.popleft()

    def drop(self) -> None:
        """Throw everything away."""
        while self._cuts:
            self.pop().drop()
