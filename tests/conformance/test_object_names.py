"""Keys against the connectors' own: what is written, and what is read or left alone."""

from typing import Any

import pytest
from case_files import cases

from tests.conformance.product import (
    FormatOptions,
    Layout,
    ObjectKey,
    ObjectKeyError,
    View,
    formats,
)

VIEWS = {View.VALUE: "value", View.KEY: "keys", View.HEADERS: "headers"}


@pytest.mark.parametrize("case", cases("object_names", part="encode"))
def test_a_key_is_put_together_as_the_connectors_do(case: dict[str, Any]) -> None:
    """A key is folder, topic, directory, partition, padded offset, extension, as theirs is."""
    layout = Layout(topics_dir=case["topics_dir"], offset_width=case.get("pad", 10))
    view = next((view for view in VIEWS if view and case["ext"].startswith(view)), View.VALUE)

    key = layout.key(
        ObjectKey(
            case["topic"],
            case["partition"],
            case["offset"],
            case["encoded"],
            case["ext"].removeprefix(view),
            view,
        )
    )

    assert case["key"] == key


def read(case: dict[str, Any]) -> ObjectKey | None:
    """Return what a key says, None where it is not of a backup or of the format."""
    try:
        found = Layout().parse(case["key"])
    except ObjectKeyError:
        return None
    wanted = {"avro": ".avro"}.get(case.get("format", ""), found.extension)
    known = formats.by_extension(found.extension, FormatOptions({})) is not None
    return found if found.extension == wanted and (known or wanted == ".avro") else None


@pytest.mark.parametrize("case", cases("object_names", part="decode"))
def test_a_key_is_read_or_left_alone(case: dict[str, Any]) -> None:
    """A listing may hold anything; a key that is not a backup's object is never taken for one."""
    found = read(case)

    if "result" in case:
        assert found is None
    else:
        assert found is not None
        assert (case["topic"], case["partition"], case["offset"], case["view"]) == (
            found.topic, found.partition, found.start_offset, VIEWS[found.view],
        )  # fmt: skip
