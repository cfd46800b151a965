"""Configuration files for the tests."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a configuration file nobody else can read."""

    def written(text: str, name: str = "f.properties") -> Path:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return written
