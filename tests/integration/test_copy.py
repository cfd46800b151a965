"""A second copy of a backup, in another bucket, after the first one has gone."""

from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel

from tests.integration.product import LocalS3
from tests.support.backup import Backup
from tests.support.cluster import TestCluster
from tests.support.command import Kbackup
from tests.support.large import LZ4, large_records, write_large
from tests.support.running import running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


def test_a_restore_that_was_killed_goes_on_from_the_copy(
    kbackup: Kbackup,
    cluster: TestCluster,
    s3: LocalS3,
    bucket: str,
    backup: Backup,
    topic: str,
    tmp_path: Path,
) -> None:
    """The first bucket is emptied between: each record comes once, in order."""
    count = 1200
    cluster.create(topic, 2)
    write_large(cluster, topic, 2, count)
    records = [large_records(partition, count) for partition in range(2)]
    kbackup.json("sink", "-t", topic, "--flush-size", "150")
    s3.create_bucket(f"{bucket}-copy")
    config = tmp_path / "copy.properties"
    config.write_text(
        f"store.url={s3.endpoint_url}\ns3.region={s3.region}\n"
        f"aws.access.key.id={s3.access_key_id}\naws.secret.access.key={s3.secret_access_key}\n"
    )
    there = kbackup.with_environment(KBACKUP_S3_BUCKET_NAME=f"{bucket}-copy")
    target = f"copy_of_{topic}"
    restore = ("restore", "-t", topic, "--rename", "copy_of_$0", *LZ4)

    copied = kbackup.json("sink", "copy", "--to", f"s3://{bucket}-copy", "--to-config", str(config))
    with running(kbackup, *restore, "--max-bytes-per-second", "4000000") as command:
        committed = IsolationLevel.READ_COMMITTED
        wait_until(lambda: sum(cluster.end_offsets(target, committed)) > 0, "a commit")
        command.kill_group()
    there_before = sum(len(cluster.read(target, at)) for at in range(2))
    for key in list(backup.keys()):
        backup.client.delete_object(Bucket=bucket, Key=key)
    verified = there.json("restore", "verify")
    restored = there.json(*restore)

    assert 0 < there_before < 2 * count
    assert records == [cluster.read(target, at) for at in range(2)]
    assert 2 * count - there_before == restored.summary["records"]
    assert (16, []) == (copied.summary["sent"], verified.of("finding"))
