"""The connectors' behaviour, case by case: the files of cases, and another folder of such files.

``KBACKUP_CASES`` names a folder with files of the same names and forms; without it the copies
beside the conformance tests are run.
"""

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

FOLDER: Final = Path(
    os.environ.get("KBACKUP_CASES", Path(__file__).parent / "conformance" / "cases")
)


def document(name: str) -> dict[str, Any]:
    """Return a file of cases, empty where the folder has none of that name."""
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        return {}
    found: dict[str, Any] = yaml.safe_load(path.read_bytes())
    return found


def cases(name: str, kind: str | None = None, part: str = "cases") -> list[Any]:
    """Return the cases of a file, one parameter each; of one *kind* only where it is given."""
    return [
        pytest.param(case, id=str(case.get("id", number)))
        for number, case in enumerate(document(name).get(part, []))
        if kind is None or case["kind"] == kind
    ]
