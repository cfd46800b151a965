"""How long a run that follows leaves alone what has just failed: longer and longer."""

_DOUBLINGS_MAX = 16


def growing_s(failures: int, first_s: float, longest_s: float, jitter: float) -> float:
    """Return how long to wait after so many *failures* in a row: each pause is twice the last.

    Args:
        failures: 1 or more.
        first_s: The first pause, in seconds.
        longest_s: No pause is longer, in seconds.
        jitter: 0 to 1; spreads what failed together over half the pause.
    """
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)) * (1 - jitter / 2)
