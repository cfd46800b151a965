"""Retries: how often, and how long to wait.  The one owner of retries against a store."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

LONGEST_WAIT_S: Final = 20.0
"""No single wait is longer, however many attempts there were."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """A budget of attempts for one request.

    Attributes:
        total: Attempts in all, 1 for no retry.
        backoff_ms: Base of the wait: before retry *n* between half of ``backoff_ms * 2**(n - 1)``
            and all of it.
        sleep: Waits that many seconds.
    """

    total: int
    backoff_ms: int
    sleep: Callable[[float], None] = time.sleep

    def run(
        self, call: Callable[[], _T], about: str, transient: Callable[[Exception], str | None]
    ) -> _T:
        """Return what *call* returns, retrying while the budget lasts.

        Args:
            call: May be called several times.
            about: What it does, for the log.
            transient: Says in a few words why an error is worth another attempt; None: it is not.

        Raises:
            Exception: The last error of *call*.
        """
        attempt = 1
        while True:
            try:
                return call()
            except Exception as error:
                why = transient(error)
                if why is None or attempt >= self.total:
                    raise
                attempt = self.wait(attempt, about, why)

    def wait(self, attempt: int, about: str, why: str) -> int:
        """Log why attempt number *attempt* failed, wait, and return the number of the next."""
        longest = min(LONGEST_WAIT_S, self.backoff_ms / 1000 * 2 ** (attempt - 1))
        seconds = longest * random.uniform(0.5, 1)  # noqa: S311  # spreads clients, hides nothing
        _log.warning(
            "s3 %s on %s, attempt %d of %d in %.1fs",
            why,
            about,
            attempt + 1,
            self.total,
            seconds,
        )
        self.sleep(seconds)
        return attempt + 1
