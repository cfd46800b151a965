"""What a run repeats while its tasks work."""

import logging
import threading
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""The default interval in seconds."""


class Beats:
    """Repeats an action in the background of its context.

    A run that follows writes its run record, or ``status --max-age`` would take it for dead; a
    sink folds the ledger, so that reading it stays as fast during a run as before.  A failure is
    logged and the action retried: the run continues without it, and ``status`` shows what has
    become old.
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
