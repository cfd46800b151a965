"""``pytest tests/simulation --seed N`` (``--mixture N``) plays one number again."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--seed`` and ``--mixture``."""
    parser.addoption("--seed", type=int, default=None, help="play this number of the simulation")
    parser.addoption("--mixture", type=int, default=None, help="play this mixture again")
