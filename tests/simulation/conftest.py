"""``pytest tests/simulation --seed N`` plays one number again."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--seed``."""
    parser.addoption("--seed", type=int, default=None, help="play this number of the simulation")
