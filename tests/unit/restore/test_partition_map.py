"""Restores into more or fewer partitions: where records go, and that each comes once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import JSON, SIBLINGS, batch
from case_files import cases
from hypothesis import given
from hypothesis import strategies as st

from kbackup.errors import (
    FewerPartitionsError,
    GroupActiveError,
    TargetNotEmptyError,
    TopicChangedError,
)
from kbackup.records import TopicPartition
from kbackup.restore import accounting
from kbackup.restore.job import MODULO, PartitionMap, _of_key, murmur2, partitions_of, spread
from kbackup.restore.target import checked_by_cluster
from tests.support.standby import Standby
from tests.support.target import MARKER, CrashError, FakeTarget, Log, Restoring, values

COPY = "copy_of_orders"


@pytest.fixture
def restoring() -> Restoring:
    """An empty backup and an empty cluster."""
    return Restoring()


@dataclass
class Busy(FakeTarget):
    """A cluster in which somebody uses a group."""

    busy: str = ""

    def members(self, group: str) -> list[str]:
        """Of that group, one."""
        return ["console at /10.0.0.7"] if group == self.busy else []


def test_a_partitions_own_group_must_not_be_in_use() -> None:
    """A consumer of any partition's own group would move it under the restore."""
    restoring = Restoring(cluster=Busy())
    for at in range(2):
        restoring.backup.put("orders", at, batch(range(3)))
    plan = restoring.plan(partition_map="modulo", target_partitions=1)
    cluster: Any = restoring.cluster
    rights: Any = FakeTarget()
    assert not checked_by_cluster(plan, cluster, rights, None, asks_for_transactions=False).refusals

    cluster.busy = plan.groups[1]

    with pytest.raises(GroupActiveError, match=r"[.]1 has live members") as caught:
        checked_by_cluster(plan, cluster, rights, None, asks_for_transactions=False)
    assert "10.0.0.7" in caught.value.why


def held(restoring: Restoring, count: int) -> list[bytes]:
    """All values of the copy, sorted."""
    return sorted(
        value or b"" for at in range(count) for value in restoring.cluster.values(COPY, at)
    )


@pytest.mark.parametrize("case", cases("murmur2"))
def test_a_key_goes_where_kafkas_producer_sends_it(case: dict[str, Any]) -> None:
    """Kafka's own hash, and its own partition for any number of partitions."""
    key = pa.array([bytes.fromhex(case["key_hex"])], pa.binary())

    assert [case["murmur2"] & 0xFFFFFFFF] == murmur2(key).to_pylist()
    for count, partition in case["partition"].items():
        assert [partition] == partitions_of(key, count).to_pylist()


@given(st.lists(st.binary(max_size=20) | st.binary(min_size=250, max_size=270), max_size=30))
def test_a_column_of_keys_is_hashed_as_each_of_them(keys: list[bytes]) -> None:
    """A column of keys is hashed as each of its keys is, whatever their lengths."""
    assert [_of_key(key) for key in keys] == murmur2(pa.array(keys, pa.binary())).to_pylist()


def test_records_without_a_key_go_by_their_offsets() -> None:
    """A null key has no hash, an empty one has; each run sends a record to the same partition."""
    rows = pa.concat_batches([batch([5, 6, 11], key=None), batch([12], key=b"")])
    targets = [TopicPartition(COPY, at) for at in range(3)]

    found = {at.partition: part["offset"].to_pylist() for at, part in spread(rows, targets)}

    (empty,) = partitions_of(pa.array([b""], pa.binary()), 3).to_pylist()
    expected: dict[int, list[int]] = {2: [5, 11], 0: [6]}
    expected.setdefault(empty, []).append(12)
    assert expected == found


def test_fewer_partitions_take_all_records_each_once(restoring: Restoring) -> None:
    """Partition 4 of a backup goes to partition 1 of three, in order."""
    for partition in range(5):
        restoring.backup.put("orders", partition, range(10 * partition, 10 * partition + 10))

    restoring.restore(partition_map="modulo", target_partitions=3)
    restoring.backup.put("orders", 4, range(50, 55))
    restoring.restore(run="r2", partition_map="modulo", target_partitions=3)

    assert values(range(20, 30)) == restoring.cluster.values(COPY, 2)
    shared = restoring.cluster.values(COPY, 1)
    assert sorted(values(range(10, 20), range(40, 55))) == sorted(v or b"" for v in shared)
    assert values(range(40, 55)) == [v for v in shared if v in values(range(40, 55))]
    (topic,) = restoring.plan(partition_map="modulo", target_partitions=3).topics
    assert ("done", []) == (topic.action, list(topic.units))


@pytest.mark.parametrize("views", [pytest.param(SIBLINGS, id="siblings"), "record"])
@pytest.mark.parametrize("crash_at", [1, 2])
def test_a_restore_by_key_that_died_goes_on(
    restoring: Restoring, views: Any, crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every commit, in all partitions together: each record comes once, where its key says."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 4)
    more = {} if views == "record" else {"views": views}
    restoring.backup.put("orders", 0, range(6), range(6, 12), **more)
    restoring.backup.put("orders", 1, range(20, 32), **more)
    options: dict[str, Any] = {"partition_map": "key", "target_partitions": 4}

    with pytest.raises(CrashError):
        restoring.restore(run="r1", crash_at=crash_at, **options)
    restoring.restore(run="r2", **options)

    assert sorted(values(range(12), range(20, 32))) == held(restoring, 4)
    for partition in range(4):
        rows = restoring.cluster.logs[TopicPartition(COPY, partition)].rows
        keys = pa.array([row["key"] for row in rows if row is not MARKER], pa.binary())
        assert {partition} >= set(partitions_of(keys, 4).to_pylist())
    assert "done" == restoring.plan(**options).topics[0].action


def test_a_partition_whose_position_was_lost_is_not_restored_twice(restoring: Restoring) -> None:
    """Its records are among those of others of the same target, and cannot be told."""
    for partition in range(3):
        restoring.backup.put("orders", partition, range(10))
    options: dict[str, Any] = {"partition_map": "modulo", "target_partitions": 2}
    restoring.restore(**options)
    group = restoring.plan(**options).group
    del restoring.cluster.groups[f"{group}.0"]

    with pytest.raises(TargetNotEmptyError):
        restoring.restore(run="r2", **options)


def test_a_partition_without_objects_has_a_position_for_those_that_come(
    restoring: Restoring,
) -> None:
    """Records that come later do not pass for records whose position was lost."""
    restoring.backup.put("orders", 2, range(10))
    options: dict[str, Any] = {"partition_map": "modulo", "target_partitions": 2}
    restoring.restore(**options)
    restoring.backup.put("orders", 0, range(40, 45))

    restoring.restore(run="r2", **options)

    assert values(range(10), range(40, 45)) == restoring.cluster.values(COPY, 0)


def test_a_run_that_died_before_its_first_record_begins_again(restoring: Restoring) -> None:
    """Some beginnings are committed and others are not, and nothing was written."""
    for partition in range(3):
        restoring.backup.put("orders", partition, range(10))
    options: dict[str, Any] = {"partition_map": "modulo", "target_partitions": 2}
    plan = restoring.plan(**options)
    restoring.cluster.create_topic(COPY, 2, 1, {})
    (topic,) = restoring.plan(**options).topics
    restoring.work(topic.beginnings[1], plan.group)

    restoring.restore(run="r2", **options)

    assert sorted(values(range(10)) * 3) == held(restoring, 2)


def test_another_number_of_partitions_is_another_restore(restoring: Restoring) -> None:
    """A topic that got partitions since would hold records of one key in two of them."""
    restoring.backup.put("orders", 0, range(10))
    restoring.restore(partition_map="key", target_partitions=2)
    restoring.cluster.logs[TopicPartition(COPY, 2)] = Log()

    with pytest.raises(TargetNotEmptyError):
        restoring.restore(run="r2", partition_map="key")


def test_a_target_that_lost_one_of_its_partitions_is_refused(restoring: Restoring) -> None:
    """The lost records share the target with others."""
    restoring.backup.put("orders", 0, range(20))
    restoring.restore(partition_map="key", target_partitions=2)
    log = restoring.cluster.logs[TopicPartition(COPY, 0)]
    log.delete(log.span.end_offset)

    with pytest.raises(TopicChangedError):
        restoring.restore(run="r2", partition_map="key")


def test_the_refusal_of_fewer_partitions_names_the_way_out(restoring: Restoring) -> None:
    """The refusal names --partition-map, which works, and the plan states the order."""
    restoring.backup.put("orders", 2, range(10), views=JSON)
    restoring.cluster.create_topic(COPY, 2, 1, {})

    with pytest.raises(FewerPartitionsError) as caught:
        restoring.restore()
    (topic,) = restoring.plan(partition_map="modulo").topics

    assert "--partition-map modulo or key" in caught.value.do
    assert [] == list(topic.refusals)
    (text,) = [text for code, text in topic.warnings if code == "partition_map"]
    assert "stay in order" in text


def test_a_topic_is_created_with_the_partitions_asked_for(restoring: Restoring) -> None:
    """More than the backup has is fine; fewer need a map."""
    restoring.backup.put("orders", 1, range(10))

    with pytest.raises(FewerPartitionsError, match="would have 1 partition, the backup has 2"):
        restoring.restore(target_partitions=1)
    restoring.restore(target_partitions=5)

    assert 5 == len(restoring.cluster.logs)
    assert values(range(10)) == restoring.cluster.values(COPY, 1)


def test_the_audit_adds_up_what_several_partitions_wrote_to_one(restoring: Restoring) -> None:
    """Their records and markers together are what the log has grown by."""
    for partition in range(4):
        restoring.backup.put("orders", partition, range(10))
    restoring.cluster.create_topic(COPY, 3, 1, {})
    spans = restoring.plan(partition_map="key").spans

    def written(reports: Sequence[Any]) -> list[accounting.Written]:
        cluster: Any = restoring.cluster
        return accounting.written(cluster, spans, reports, exactly_once=True)

    reports = restoring.restore(partition_map="key")
    found = written(reports)
    restoring.cluster.logs[TopicPartition(COPY, 0)].rows.append({"value": b"somebody's"})

    assert 40 == sum(entry.records for entry in found)
    assert all(entry.is_plain for entry in found)
    assert [False] == [e.is_plain for e in written(reports) if e.target.partition == 0]


def test_positions_are_those_of_source_and_target() -> None:
    """Each partition of the backup has a group of its own, unless each has a target of its own."""
    found = PartitionMap(MODULO, "g")

    assert ["g.7", [TopicPartition(COPY, 1)]] == [
        found.group_of(7), found.targets(TopicPartition("orders", 7), COPY, 3)
    ]  # fmt: skip
    assert "g" == PartitionMap("same", "g").group_of(7)


@pytest.mark.parametrize("how", ["modulo", "key"])
def test_a_restore_that_follows_takes_what_comes_into_other_partitions(how: str) -> None:
    """A standby may have fewer partitions than its original."""
    standby = Standby()
    standby.sink("orders", 0, range(10), partitions=3)

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("orders", 2, range(50, 60), partitions=3)
        return look < 4

    summary = standby.follow(happens, partition_map=how, target_partitions=2)

    found = [v or b"" for at in range(2) for v in standby.target.values(COPY, at)]
    assert sorted(values(range(10), range(50, 60))) == sorted(found)
    assert (143, 20, []) == (summary["exit_code"], summary["records"], summary["errors"])
