"""What the driver asks of a real cluster, where a fake would only agree with us."""

import threading

import pytest

from tests.integration.product import (
    Cluster,
    KafkaSettings,
    NewTopic,
    RefusedError,
    Span,
    TopicPartition,
)
from tests.support.cluster import TestCluster, send, varied

pytestmark = pytest.mark.integration


@pytest.fixture
def seen(cluster: TestCluster) -> Cluster:
    """The cluster as kbackup sees it."""
    return Cluster(KafkaSettings(cluster.servers))


def test_a_commit_under_way_is_waited_for(seen: Cluster, cluster: TestCluster, topic: str) -> None:
    """A transaction that is being committed is waited for: the audit of a restore counts it."""
    where = TopicPartition(cluster.create(topic), 0)
    producer = cluster.producer(transactional_id=f"tx-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, varied(20))
    producer.flush()
    later = threading.Timer(0.5, producer.commit_transaction)
    later.start()

    assert {where: Span(0, 0)} == seen.spans([where])
    assert {where: Span(0, 21)} == seen.settled_spans([where])
    later.join()


def test_a_topic_that_was_made_anew_is_seen_anew(
    seen: Cluster, cluster: TestCluster, topic: str
) -> None:
    """A recreated topic's partitions are seen, whatever the client remembers of the old topic."""
    seen.spans([TopicPartition(cluster.create(topic), 0)])
    cluster.delete(topic)
    cluster.create(topic, 5)

    assert [Span(0, 0)] == list(seen.spans([TopicPartition(topic, 4)]).values())


def test_a_transaction_that_stays_open_is_not_waited_for_long(
    seen: Cluster, cluster: TestCluster, topic: str
) -> None:
    """A span ends before an open transaction, so nobody waits for its records."""
    where = TopicPartition(cluster.create(topic), 0)
    cluster.write(topic, varied(5))
    producer = cluster.producer(transactional_id=f"tx-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, varied(20))
    producer.flush()

    assert {where: Span(0, 5)} == seen.settled_spans([where], wait_s=0.1)
    producer.abort_transaction()


def test_a_topic_that_another_restore_has_created_meanwhile_is_refused(
    seen: Cluster, cluster: TestCluster, topic: str
) -> None:
    """Of two restores that create one target the later one has to look again: nothing is broken."""
    cluster.create(topic)

    refusal = seen.create_topics([NewTopic(topic, 1, 1)])[topic]

    assert isinstance(refusal, RefusedError)
    assert ("refused", f"creating topic {topic} with 1 partition") == (refusal.code, refusal.what)
