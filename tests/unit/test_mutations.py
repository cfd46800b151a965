"""The lists of mutations fit the code: what ``tools/mutate.py`` tries can be tried."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def tool() -> Any:
    """The checkout's ``tools/mutate.py``."""
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module  # as its dataclass needs it
    spec.loader.exec_module(module)
    return module


TOOL = tool()


@pytest.mark.parametrize("room", TOOL.rooms())
def test_each_mutation_can_be_put_in(room: str) -> None:
    """The text that an entry replaces stands once in its file, and its tests exist."""
    stale = [(one.says, one.problem()) for one in TOOL.read(room)]

    assert stale
    assert [] == [each for each in stale if each[1] is not None]
