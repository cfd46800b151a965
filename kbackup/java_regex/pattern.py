"""A pattern that was accepted, and the error of one that was not."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import thread_time
from typing import Any, Final

from kbackup.plurals import counted

MATCH_TIMEOUT: Final = 1.0
"""Seconds a pattern may take over one name; a sound one takes microseconds."""

ALL_TIMEOUT: Final = 10.0
"""Seconds a pattern may take over all names that a process has for it..."""

NAME_S: Final = 0.001
"""...and for each of them."""

IN_DOUBT: Final = "its text may differ in Java, as it is repeated, or inside a look-around or (?>)"


class PatternError(ValueError):
    """A pattern that Java refuses, or that may mean something else here; the text says why."""


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A pattern that means here what it means in Java.

    Attributes:
        compiled: The pattern as the engine knows it.
        group_count: Capturing groups in it.
        names: Numbers of the groups that have names.
        doubtful: Numbers of the groups in which Java may see other text.
    """

    compiled: Any  # the `regex` library is untyped
    group_count: int
    names: Mapping[str, int]
    doubtful: frozenset[int]

    def matches(self, name: str) -> bool:
        """Return whether the whole of *name* matches.

        Raises:
            TimeoutError: If it takes too long: `whole`.
        """
        return self.whole(name) is not None

    def whole(self, name: str) -> Any:
        """Return the match of the whole of *name*, or None.

        Raises:
            TimeoutError: After `MATCH_TIMEOUT` seconds, or where it has taken more than
                `ALL_TIMEOUT` over all names; it says which.
        """
        return self._timed(self.compiled.fullmatch, name)

    def find(self, name: str) -> Any:
        """Return the first match in *name*, or None.

        Raises:
            TimeoutError: As `whole`.
        """
        return self._timed(self.compiled.search, name)

    def _timed(self, match: Callable[..., Any], name: str) -> Any:
        taken, begun = _taken[self.compiled.pattern], thread_time()
        try:
            found = match(name, timeout=MATCH_TIMEOUT)
        except TimeoutError:
            raise TimeoutError(f"more than {MATCH_TIMEOUT:g} s over one name") from None
        taken.seconds += thread_time() - begun
        taken.names += 1
        if taken.seconds > ALL_TIMEOUT + NAME_S * taken.names:
            raise TimeoutError(f"{taken.seconds:.0f} s over {counted(taken.names, 'name')}")
        return found


@dataclass(slots=True)
class _Taken:
    """What a pattern has taken in this process."""

    seconds: float = 0.0
    names: int = 0


_taken: Final[dict[str, _Taken]] = defaultdict(_Taken)
