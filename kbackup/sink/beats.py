"""What a run does again and again while its tasks work."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from kbackup.errors import KbackupError

_log = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""Seconds between two times."""


class Beats:
    """Does something every minute, beside what its context does.

    A sink that follows leaves a run record, or ``status --max-age`` would take it for dead; and
    the ledger is folded, so that reading it takes as long during a run as before.
    """

    def __init__(self, what: str, beat: Callable[[], None]) -> None:
        self._what, self._beat = what, beat
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._beat()
            except KbackupError as error:
                _log.warning("%s: %s", self._what, error)
