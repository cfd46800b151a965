"""What a run does again and again while its tasks work."""

import logging
import threading
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""Seconds between two times, where nothing else is said."""


class Beats:
    """Does something again and again, beside what its context does.

    A run that follows leaves a run record, or ``status --max-age`` would take it for dead; and a
    sink folds the ledger, so that reading it takes as long during a run as before.  What fails is
    logged and tried again: the run goes on without it, and what depends on it grows old where it
    can be seen.
    """

    def __init__(
        self, what: str, beat: Callable[[], None], every_s: float = BEAT_S, *, at_once: bool = False
    ) -> None:
        self._what, self._beat, self._every_s, self._at_once = what, beat, every_s, at_once
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while self._at_once or not self._ended.wait(self._every_s):
            self._at_once = False
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001  (its next turn may go better)
                _log.warning("%s: %s", self._what, error)
