"""Which numbers a night plays: a fifth of them, and all of them in five nights."""

import os
from typing import Final

NIGHTS: Final = 5


def tonight(numbers: range) -> range:
    """Return the numbers of the night that ``SIMULATED_NIGHT`` counts; all of them without it."""
    night = os.environ.get("SIMULATED_NIGHT")
    return numbers if night is None else numbers[int(night) % NIGHTS :: NIGHTS]
