"""Restores that are run again against a real cluster: its topic ids, its logs, its groups."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from backup_samples import Backup

from tests.integration.product import partitions_of
from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


def test_a_restore_goes_on_with_what_the_backup_and_the_target_have_become(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """What was added comes; a target emptied in part is refused, an emptied one filled again."""
    cluster.create(topic)
    records = varied(30)
    cluster.write(topic, records[:10])
    group = kbackup.json("sink", "-t", topic).summary["group"]
    restore = ("restore", "--rename", "copy_of_$0")
    target = f"copy_of_{topic}"
    kbackup.json(*restore)

    cluster.commit(group, topic, 0)
    cluster.write(topic, records[10:])
    kbackup.json("sink", "-t", topic)
    more = kbackup.json(*restore)

    assert (20, records) == (more.summary["records"], cluster.read(target))

    cluster.delete_records(target, {0: 5})
    refused = kbackup.json(*restore, expect=4)
    cluster.delete_records(target, {0: cluster.end_offsets(target)[0]})
    emptied = kbackup.json(*restore)

    assert ["topic_changed"] == [error["code"] for error in refused.summary["errors"]]
    assert ["target_emptied"] == [warning["code"] for warning in emptied.of("warning")]
    assert records == cluster.read(target)

    cluster.delete(target)
    cluster.create(target, message_timestamp_before_max_ms=str(2**62))
    kbackup.json(*restore)

    assert records == cluster.read(target)


def test_a_topic_comes_back_as_it_was_backed_up_at_a_time(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """By when it was stored: a rerun ends there too, and a time among its runs tells them apart."""
    cluster.create(topic)
    records = varied(30)
    cluster.write(topic, records[:10])
    kbackup.json("sink", "-t", topic)
    then = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(0.01)
    cluster.write(topic, records[10:20])
    kbackup.json("sink", "-t", topic)
    restore = ("restore", "-t", topic, "--rename", "copy_of_$0", "--as-of", then)

    first = kbackup.json(*restore)
    cluster.write(topic, records[20:])
    kbackup.json("sink", "-t", topic)
    again = kbackup.json(*restore)
    shown = kbackup.json("restore", "list", topic, "--as-of", then)

    assert records[:10] == cluster.read(f"copy_of_{topic}")
    assert (10, 0) == (first.summary["records"], again.summary["records"])
    assert f"first stored before {then.replace('+00:00', 'Z')}" == first.summary["window"]
    assert [10] == [row["records"] for row in shown.of("partition")]


def test_records_go_by_key_into_another_number_of_partitions(
    kbackup: Kbackup, cluster: TestCluster, topic: str, tmp_path: Path
) -> None:
    """Each record once, over partitions that a second run finds complete; the audit adds up."""
    backup = Backup.in_folder(tmp_path)
    for partition in range(3):
        backup.put(topic, partition, range(20 * partition, 20 * partition + 20))
    restore = (
        "restore", "--store-url", f"file://{tmp_path}", "--rename", "copy_of_$0",
        "--partition-map", "key", "--target-partitions", "2", "--max-records-per-second", "1000",
    )  # fmt: skip

    first = kbackup.json(*restore)
    again = kbackup.json(*restore)

    assert (60, "plain", 0) == (
        first.summary["records"], first.summary["audit"], again.summary["records"],
    )  # fmt: skip
    found = [cluster.read(f"copy_of_{topic}", at) for at in range(2)]
    for at, records in enumerate(found):
        keys = pa.array([record.key for record in records], pa.binary())
        assert [at] * len(records) == partitions_of(keys, 2).to_pylist()
    values = sorted(record.value or b"" for records in found for record in records)
    assert sorted(b'{"n":%d}' % at for at in range(60)) == values
