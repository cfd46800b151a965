"""Restored topics that get the settings of their originals, in a real cluster."""

import shlex
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
    cluster.write(topic, [one._replace(key=b"k%d" % at) for at, one in enumerate(varied(5))])
    kbackup.json("sink", "-t", topic)
    renamed = ("-t", topic, "--rename", "copy_of_$0")
    copy = f"copy_of_{topic}"
    restored = kbackup.json("restore", *renamed, "--topic-settings", "original")
    before = cluster.overridden(copy)

    remains = shlex.split(restored.summary["next"])[1:]
    refused = kbackup.json(*remains, expect=4)
    settled = kbackup.json(*remains, "--yes")
    again = kbackup.json("restore", "configs", *renamed, "--yes")

    assert 5 == restored.summary["records"]
    assert ["restore", "configs", "--topics", topic, *renamed[2:]] == remains
    assert ("delete", "-1", "600000") == (
        before["cleanup.policy"], before["retention.ms"], before["segment.ms"],
    )  # fmt: skip
    assert [] == refused.summary.get("settled", [])
    assert [copy] == settled.summary["settled"]
    assert [] == again.summary["settled"]
    assert original.items() <= cluster.overridden(copy).items()
    assert cluster.overridden(topic) == cluster.overridden(copy)
