"""A cluster of three brokers of which one dies: nothing is lost, and nothing is said to be."""

import time
from contextlib import closing
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from tests.integration.product import BatchReader, KafkaSettings, LocalS3, Span
from tests.integration.product import TopicPartition as Partition
from tests.support.brokers import three_brokers
from tests.support.cluster import KEEP, TestCluster
from tests.support.command import Kbackup, places
from tests.support.in_process import WITHOUT_SPARK
from tests.support.large import LZ4, large_records, write_large
from tests.support.running import Running, running, wait_until

pytestmark = pytest.mark.integration

_PARTITIONS, _RECORDS = 6, 800
_GOES_ON_S = 15.0
"""A run is on again so soon after the new leaders are there."""


@pytest.mark.parametrize(
    "times", [1, pytest.param(3, marks=[pytest.mark.nightly, pytest.mark.timeout(1500)])]
)
def test_one_of_three_brokers_may_die(s3: LocalS3, times: int) -> None:
    """One of three is killed in the middle: each record once, no standstill, no early judgement."""
    topic, bucket = "hot", f"three-brokers-{times}"
    s3.create_bucket(bucket)
    with three_brokers() as brokers:
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        cluster = TestCluster(servers)
        new = NewTopic(topic, _PARTITIONS, 3, config=KEEP)
        cluster.admin.create_topics([new])[topic].result(30)
        write_large(cluster, topic, _PARTITIONS, _RECORDS, is_noise=True)
        kbackup = Kbackup(places(servers, s3, bucket), WITHOUT_SPARK)
        ends: list[tuple[int, list[Any]]] = []
        for at in range(times):
            number = 2 + at % 2
            victim = brokers[number - 1]
            into, group = ("--topics-dir", f"topics{at}"), ("--group", f"sink{at}")
            form, way = ((), LZ4) if at % 2 else (("--format", "log"), ())  # records, batches
            sink = ("sink", "-t", topic, "--flush-size", "100", *group, *into, *form)
            restore = ("restore", "--rename", f"copy{at}_$0", "--replication-factor", "3", *way)
            for words, kind in ((sink, "object"), ((*restore, *into), "progress")):
                wait_until(lambda: _is_in_sync(cluster), "all replicas")
                with running(kbackup, *words) as command:
                    command.wait_for(kind, 2)
                    victim.kill()
                    _goes_on(command, TestCluster(brokers[0].bootstrap_servers), number)
                    run = command.finish()
                ends.append((run.code, run.summary["errors"]))
                if len(ends) < 2 * times:
                    victim.restart()

        assert [(0, [])] * 2 * times == ends
        written = [large_records(at, _RECORDS, is_noise=True) for at in range(_PARTITIONS)]
        for partition in range(_PARTITIONS):
            records = cluster.read(topic, partition)  # in the order that the brokers gave them
            assert sorted(written[partition], key=str) == sorted(records, key=str)
            for at in range(times):
                assert records == cluster.read(f"copy{at}_{topic}", partition)


@pytest.mark.nightly
def test_the_replica_in_the_readers_rack_is_read() -> None:
    """The leader of the partition says who that is; it is asked itself by readers of its rack."""
    where = Partition("near", 0)
    with three_brokers() as brokers:
        cluster = TestCluster(brokers[0].bootstrap_servers)
        new = NewTopic(where.topic, 1, 3, config=KEEP)
        cluster.admin.create_topics([new])[where.topic].result(30)
        write_large(cluster, where.topic, 1, 400)
        wait_until(lambda: _is_in_sync(cluster), "all replicas")
        leader = cluster.admin.list_topics(where.topic).topics[where.topic].partitions[0].leader
        servers = {str(at): each.bootstrap_servers for at, each in enumerate(brokers, 1)}
        asked, counts = {}, set()
        for rack in servers:
            consumer = {"client.rack": rack}
            settings = KafkaSettings(servers[str(leader)], consumer=consumer)
            with closing(BatchReader(settings)) as reader:
                counts.add(sum(len(rows) for rows in reader.read(where, Span(0, 400))))
                asked[rack] = {f"{host}:{port}" for host, port in reader.brokers._connections}

    assert {400} == counts
    assert {rack: {servers[str(leader)], near} for rack, near in servers.items()} == asked


_MANY, _GROUPS = 500, 20
"""Partitions, of up to three records, and groups that stand in most of them."""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_groups_are_set_and_copies_compared_while_one_of_three_is_dead(s3: LocalS3) -> None:
    """Over 500 partitions, at any offset: new leaders and coordinators are waited for."""
    topic, chance = "wide", Random(500)
    s3.create_bucket(bucket := "three-brokers-groups")
    with three_brokers() as brokers:
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        cluster = TestCluster(servers)
        new = NewTopic(topic, _MANY, 3, config=KEEP)
        cluster.admin.create_topics([new])[topic].result(60)
        sizes = [chance.randrange(4) for _ in range(_MANY)]
        producer = cluster.producer()
        for at, size in enumerate(sizes):
            for number in range(size):
                producer.produce(topic, b"%d/%d" % (at, number), partition=at)
        assert 0 == producer.flush(60)
        stood = {
            f"g{group}": {at: chance.randint(0, sizes[at] + 1) for at in range(_MANY) if at % 7}
            for group in range(_GROUPS)
        }
        for group, offsets in stood.items():
            cluster.commit(group, topic, offsets)
        kbackup = Kbackup(places(servers, s3, bucket), WITHOUT_SPARK)
        kbackup.json("sink", "-t", topic)
        copied = ("-t", topic, "--rename-prefix", "copy_of_")
        kbackup.json("restore", *copied, "--replication-factor", "3")
        wait_until(lambda: _is_in_sync(cluster), "all replicas")

        brokers[1].kill()
        done = kbackup.json("restore", "groups", *copied)
        beside = [kbackup.json("restore", "verify", "--against", side, *words) for side, words in
                  (("target", copied), ("source", ("-t", topic)))]  # fmt: skip

        assert sorted(stood) == sorted(done.summary["groups"])
        for run in beside:
            assert sum(sizes) == sum(one["records"] for one in run.of("compared"))
        for group, offsets in stood.items():
            there = cluster.committed(group, f"copy_of_{topic}", range(_MANY))
            # behind the last record stands the marker of its transaction
            ends = [size + 1 if size else 0 for size in sizes]
            assert there == [
                -1001 if at not in offsets else offsets[at] if offsets[at] < size else ends[at]
                for at, size in enumerate(sizes)
            ]


def _goes_on(command: Running, alive: TestCluster, dead: int) -> None:
    """Wait for its end, as long as it makes progress once others lead what the dead one led."""
    wait_until(
        lambda: command.is_over or all(part.leader not in {-1, dead} for part in _parts(alive)),
        "new leaders",
    )
    seen, moved = 0, time.monotonic()
    while not command.is_over:
        now = len(command.of("progress"))
        if now > seen:
            seen, moved = now, time.monotonic()
        assert time.monotonic() - moved < _GOES_ON_S, "no progress without the broker"
        time.sleep(0.1)


def _is_in_sync(cluster: TestCluster) -> bool:
    return all(len(part.isrs) == 3 for part in _parts(cluster))


def _parts(cluster: TestCluster) -> list[Any]:
    """All partitions, those of Kafka's own topics among them, as a broker knows them."""
    topics = cluster.admin.list_topics(timeout=10).topics.values()
    return [part for topic in topics for part in topic.partitions.values()]
