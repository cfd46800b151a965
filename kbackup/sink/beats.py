"""Records of a run that does not end by itself."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from kbackup.errors import KbackupError

_log = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""Seconds between two records."""


class Beats:
    """Leaves a record of a run that does not end by itself, again and again.

    Without it, ``status --max-age`` would take a sink that follows for one that has died.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
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
                _log.warning("leaving a run record: %s", error)
