"""Read ahead while earlier records are written: a thread that stays a few items ahead.

A restore waits for Kafka to take records, and for objects to come; side by side each hides the
other.  Decoding runs outside Python's global lock, so it uses another core where there is one.
"""

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Item = TypeVar("Item")

DEPTH: Final = 2
"""Items read ahead: what this adds to memory, beside the one the thread has in hand."""

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _End:
    """The source has no more items, or has failed."""

    error: BaseException | None


class Ahead(Generic[Item]):
    """Reads a source in a thread of its own; a context manager that ends it.

    Args:
        source: Begun and exhausted in the thread.
        depth: Items that may wait.
    """

    def __init__(self, source: Iterable[Item], depth: int = DEPTH) -> None:
        self._source = source
        self._read: queue.Queue[Item | _End] = queue.Queue(depth)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def __iter__(self) -> Iterator[Item]:
        """Yield the items; raise what the source raised."""
        while not isinstance(found := self._read.get(), _End):
            yield found
        if found.error is not None:
            raise found.error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        self._thread.join()

    def _run(self) -> None:
        end = _End(None)
        try:
            for item in self._source:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  (raised where the items are used)
            end = _End(error)
        finally:
            if isinstance(self._source, Generator):
                self._source.close()
        self._put(end)

    def _put(self, item: Item | _End) -> bool:
        """Hand *item* over; False if nobody waits for it any more."""
        while not self._left.is_set():
            try:
                self._read.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False
