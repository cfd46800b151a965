"""The values of ``kafka.client``, on machines with a compiler and without."""

import pytest

from kbackup.kafka.native import library
from kbackup.native_build import UnavailableError, compiler


def usable(way: str) -> str:
    """The way, if it can be gone; nothing excuses a missing library where C can be compiled."""
    if way == "native" and compiler() is None:
        try:
            library()
        except UnavailableError as why:
            pytest.skip(str(why))
    return way
