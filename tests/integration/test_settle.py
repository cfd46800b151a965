"""Restored topics that get the settings of their originals, in a real cluster."""

from typing import Any

import pytest

from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


def test_a_restored_topic_is_settled_once_somebody_has_looked(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """The copy keeps everything at first, then has what its original had, and nothing else."""
    original: dict[str, Any] = {
        "cleanup.policy": "compact",
        "segment.ms": "600000",
        "retention.ms": "86400000",
    }
    changed: Any = {name.replace(".", "_"): value for name, value in original.items()}
    cluster.create(topic, **changed)
    cluster.write(topic, varied(5))
    kbackup.json("sink", "-t", topic)
    renamed = ("-t", topic, "--rename", "copy_of_$0")
    copy = f"copy_of_{topic}"
    kbackup.json("restore", *renamed, "--topic-settings", "original")
    before = cluster.overridden(copy)

    refused = kbackup.json("restore", "configs", *renamed, expect=4)
    settled = kbackup.json("restore", "configs", *renamed, "--yes")
    again = kbackup.json("restore", "configs", *renamed, "--yes")

    assert ("delete", "-1", "600000") == (
        before["cleanup.policy"], before["retention.ms"], before["segment.ms"],
    )  # fmt: skip
    assert [] == refused.summary.get("settled", [])
    assert [copy] == settled.summary["settled"]
    assert [] == again.summary["settled"]
    assert original.items() <= cluster.overridden(copy).items()
    assert cluster.overridden(topic) == cluster.overridden(copy)
