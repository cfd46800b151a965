"""A stop requested by a signal."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """Tasks end at their next safe point once a stop is requested.

    Attributes:
        event: Set once asked.
        signal: Number of the signal, None if there is none.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal: int | None = None

    def ask(self, signal: int) -> None:
        """Ask to stop, because of *signal*."""
        self.signal = signal
        self.event.set()

    def is_set(self) -> bool:
        """Whether a stop is requested."""
        return self.event.is_set()


@contextmanager
def linked(first: threading.Event, second: threading.Event) -> Iterator[None]:
    """Set *second* too once *first* is set, as long as the context lasts."""

    def pass_on() -> None:
        while not second.is_set():
            if first.wait(0.1):
                second.set()

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        second.set()
        thread.join()
