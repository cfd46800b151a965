"""The JVM of a run, and what it prints."""

import io
import logging
from typing import Any

import pytest

from kbackup.engine import jvm
from kbackup.errors import SparkError


class Dead:
    """A JVM that has died."""

    def gateway(self, *_: Any) -> Any:
        """Find nobody there."""
        raise ConnectionResetError("reset by peer")

    def kill(self) -> None:
        """Do nothing more."""


def test_the_client_of_the_jvm_prints_nothing_by_itself() -> None:
    """
    What it raises is told once, and the silence of a JVM that was ended is no error.
    """
    dead: Any = Dead()

    with pytest.raises(SparkError):
        jvm._context("local", {}, dead, io.BytesIO())

    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.ERROR)
