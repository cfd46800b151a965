"""A cluster of three brokers of which one dies: nothing is lost, and nothing is said to be."""

import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kbackup.kafka import KafkaSettings
from kbackup.kafka.fetch import BatchReader
from kbackup.records import Span, TopicPartition
from tests.integration.product import LocalS3
from tests.support.brokers import three_brokers
from tests.support.cluster import KEEP, TestCluster
from tests.support.command import Kbackup
from tests.support.in_process import WITHOUT_SPARK
from tests.support.large import LZ4, large_records, write_large
from tests.support.running import Running, running, wait_until

pytestmark = pytest.mark.integration

_PARTITIONS, _RECORDS = 6, 800
_GOES_ON_S = 30.0
"""New leaders are there in 3 s here, and a run is on again 15 s later on a quiet machine."""


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
        write_large(cluster, topic, _PARTITIONS, _RECORDS)
        kbackup = Kbackup(
            {
                "KBACKUP_BOOTSTRAP_SERVERS": servers,
                "KBACKUP_STORE_URL": s3.endpoint_url,
                "KBACKUP_S3_BUCKET_NAME": bucket,
                **s3.environment,
            },
            WITHOUT_SPARK,
        )
        ends: list[tuple[int, list[Any]]] = []
        for at in range(times):
            victim = brokers[1 + at % 2]
            into = ("--topics-dir", f"topics{at}")
            sink = ("sink", "-t", topic, "--flush-size", "100", "--group", f"sink{at}", *into)
            restore = ("restore", "--rename", f"copy{at}_$0", "--replication-factor", "3", *LZ4)
            for words, kind in ((sink, "object"), ((*restore, *into), "progress")):
                wait_until(lambda: _is_in_sync(cluster), "all replicas")
                with running(kbackup, *words) as command:
                    command.wait_for(kind, 2)
                    victim.kill()
                    _goes_on(command)
                    run = command.finish()
                ends.append((run.code, run.summary["errors"]))
                victim.restart()

        assert [(0, [])] * 2 * times == ends
        for partition in range(_PARTITIONS):
            records = cluster.read(topic, partition)  # in the order that the brokers gave them
            assert sorted(large_records(partition, _RECORDS), key=str) == sorted(records, key=str)
            for at in range(times):
                assert records == cluster.read(f"copy{at}_{topic}", partition)


@pytest.mark.nightly
def test_the_replica_in_the_readers_rack_is_read() -> None:
    """The leader of the partition says who that is; it is asked itself by readers of its rack."""
    where = TopicPartition("near", 0)
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


def _goes_on(command: Running) -> None:
    """Wait for its end, as long as it makes progress."""
    seen, moved = 0, time.monotonic()
    while not command.is_over:
        now = len(command.of("progress"))
        if now > seen:
            seen, moved = now, time.monotonic()
        assert time.monotonic() - moved < _GOES_ON_S, "no progress without the broker"
        time.sleep(0.1)


def _is_in_sync(cluster: TestCluster) -> bool:
    topics = cluster.admin.list_topics(timeout=10).topics.values()
    parts = [part for topic in topics for part in topic.partitions.values()]
    return all(len(part.isrs) == 3 for part in parts)
