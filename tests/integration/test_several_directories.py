"""A partition spread over directories by a third party's partitioner, with a real Kafka and S3."""

from pathlib import Path

import pytest
from s3fault import Fault, S3Faults

from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.one_process]

TOYS = Path(__file__).parents[1] / "toys"


def test_a_run_that_ends_between_two_objects_of_a_cut_leaves_no_hole(
    kbackup: Kbackup, cluster: TestCluster, proxy: S3Faults, topic: str
) -> None:
    """A crash between files of a cut is mended, even without a group, and the order is kept."""
    toys = kbackup.with_environment(
        PYTHONPATH=str(TOYS), KBACKUP_STORE_URL=proxy.url, KBACKUP_S3_PART_RETRIES="1"
    )
    cluster.create(topic)
    records = varied(1000)
    cluster.write(topic, records)
    words = ("sink", "-t", topic, "--partitioner", "modulo", "--flush-size", "300")

    proxy.faults = [Fault("PUT .*rest(=|%3D)1/", "status", after=1)]  # in the second cut
    broken = toys.json(*words, expect=6)
    group = broken.of("start")[0]["group"]
    after = cluster.committed(group, topic)
    cluster.admin.delete_consumer_groups([group])[group].result(30)
    proxy.faults = []
    toys.json(*words)
    toys.json("restore", "verify", "--deep")
    toys.json("restore", "--rename", "copy_of_$0")

    assert [300] == after
    assert records == cluster.read(f"copy_of_{topic}")
