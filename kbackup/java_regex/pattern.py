"""A pattern that was accepted, and the error of one that was not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MATCH_TIMEOUT: Final = 1.0
"""Seconds a pattern may take over one name; a sound one takes microseconds."""

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
            TimeoutError: After `MATCH_TIMEOUT` seconds.
        """
        return self.compiled.fullmatch(name, timeout=MATCH_TIMEOUT) is not None

    def find(self, name: str) -> Any:
        """Return the first match in *name*, or None.

        Raises:
            TimeoutError: After `MATCH_TIMEOUT` seconds.
        """
        return self.compiled.search(name, timeout=MATCH_TIMEOUT)
