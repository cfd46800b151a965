"""Which objects a deep verify reads: all, one part of several, or a sample."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Self

from kbackup.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Share:
    """Decides by a hash of the key; nothing but the key of an object changes its part.

    Attributes:
        part: The part to read, from 1.
        parts: How many there are; together they hold every object once.
        percent: How much to read of that, above 0, at most 100.
        seed: Samples of another seed are of other objects.
    """

    part: int = 1
    parts: int = 1
    percent: float = 100.0
    seed: str = ""

    @classmethod
    def parse(cls, part: str | None, sample: str | None, seed: str) -> Self:
        """Read ``--part 1/7`` and ``--sample 5%``.

        Raises:
            ConfigurationError: If one of them is not of that form.
        """
        number, numbers, percent = 1, 1, 100.0
        if part is not None:
            match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part.strip(), re.ASCII)
            number, numbers = map(int, match.groups()) if match else (0, 0)
            if not 1 <= number <= numbers:
                raise ConfigurationError(
                    f"--part {part} is not a part", do="write the first of seven as 1/7"
                )
        if sample is not None:
            match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*%?", sample.strip(), re.ASCII)
            percent = float(match.group(1)) if match else 0.0
            if not 0 < percent <= 100:
                raise ConfigurationError(
                    f"--sample {sample} is not a share", do="write one in twenty as 5%"
                )
        return cls(number, numbers, percent, seed)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.parts == 1 and self.percent >= 100

    def takes(self, key: str) -> bool:
        """Whether the object with *key* is to be read."""
        if _hash(key) % self.parts != self.part - 1:
            return False
        return self.percent >= 100 or _hash(f"{self.seed}\0{key}") / 2**64 < self.percent / 100


EVERYTHING: Final = Share()


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
