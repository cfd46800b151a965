"""A group's positions, lent to all writers of a process that are open side by side.

A client of its own for each writer would have to connect, find the group's coordinator and connect
there, for one request; the writers of a thousand small topics do not wait for that.
"""

import threading

from kbackup.kafka import KafkaSettings
from kbackup.kafka.positions import Positions


class Lending:
    """Positions that are open as long as anyone has them.  Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: list[tuple[KafkaSettings, str | None, Positions]] = []

    def borrow(self, settings: KafkaSettings, group: str, *, alone: bool = False) -> Positions:
        """Return a group's positions, opened if nobody has them; `give_back` them once.

        Args:
            settings: The cluster.
            group: Whose.
            alone: Nobody else is to have them: only one thread may `Positions.advance`.  What is
                shared may be read, and named to a transaction, by several at once.
        """
        with self._lock:
            wanted = settings, None if alone else group
            same = (lent for *whose, lent in self._lent if not alone and (*whose,) == wanted)
            positions = next(same, None) or Positions(settings, group)
            self._lent.append((*wanted, positions))
            return positions

    def give_back(self, positions: Positions) -> None:
        """Take back what was borrowed; the last one who does closes it."""
        with self._lock:
            place = next(at for at, (*_, lent) in enumerate(self._lent) if lent is positions)
            del self._lent[place]
            is_last = all(lent is not positions for *_, lent in self._lent)
        if is_last:
            positions.close()


WRITERS = Lending()
"""What the writers of this process share: they read, and have a producer commit for them."""
