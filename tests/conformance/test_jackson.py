"""JSON text against Jackson, case by case.

The cases were run through jackson-databind 2.21.2 on Java 25: ``readValue`` as ``Object``, then
``writeValueAsBytes``; null where it refused.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.product import jackson

VECTORS = json.loads((Path(__file__).parent / "cases" / "jackson_vectors.json").read_bytes())


def test_text_is_what_jackson_writes() -> None:
    """A JSON value is written character for character as a connector writes it."""
    accepted = [case for case in VECTORS if case["jackson"] is not None]
    column = pa.array([case["text"].encode() for case in accepted], pa.binary())

    assert [case["jackson"] for case in accepted] == jackson.canonical(column)[0].to_pylist()


@pytest.mark.parametrize(
    "text", [case["text"] for case in VECTORS if case["jackson"] is None], ids=repr
)
def test_what_jackson_refuses_is_refused(text: str) -> None:
    """Text that a connector refuses as JSON is refused here too."""
    texts, bad = jackson.canonical(pa.array([text.encode()], pa.binary()))

    assert ([None], [0]) == (texts.to_pylist(), [found.row for found in bad])
