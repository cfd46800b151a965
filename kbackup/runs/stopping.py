"""A stop that a signal asked for."""

import threading


class Stop:
    """Tasks end at their next safe point once somebody asked.

    Attributes:
        event: Set once asked.
        signal: Number of the signal, None without.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal: int | None = None

    def ask(self, signal: int) -> None:
        """Ask to stop, because of *signal*."""
        self.signal = signal
        self.event.set()

    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self.event.is_set()
