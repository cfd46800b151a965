"""Where logs end, asked of brokers that come and go."""

from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as At

from tests.contract.product import PATIENCE_S, Cluster, KafkaSettings, Span, TopicPartition
from tests.support.cluster import varied
from tests.support.mock_kafka import MockKafka

TIMED_OUT = -1


class Offset(NamedTuple):
    """What the client says of a partition."""

    offset: int


class Outdated:
    """A client that answers the first questions as it does while leaders change."""

    def __init__(self, client: Any, *answers: int) -> None:
        self._client, self._answers = client, list(answers)
        self.looked_up = 0

    def list_topics(self, **options: Any) -> Any:
        """The leaders."""
        self.looked_up += 1
        return self._client.list_topics(**options)

    def list_offsets(self, asked: dict[At, Any], **options: Any) -> dict[At, "Future[Any]"]:
        """The next answer for all partitions, then the broker's."""
        if not self._answers:
            return dict(self._client.list_offsets(asked, **options))
        offset, found = self._answers.pop(0), dict[At, "Future[Any]"]()
        for at in asked:
            found[at] = Future()
            if offset == TIMED_OUT:
                found[at].set_exception(KafkaException(Code(Code._TIMED_OUT)))
            else:
                found[at].set_result(Offset(offset))
        return found


@pytest.fixture
def where(mock_kafka: MockKafka, topic: str) -> TopicPartition:
    """A partition with ten records."""
    mock_kafka.write(topic, varied(10), 1)
    return TopicPartition(topic, 1)


@pytest.fixture
def cluster(mock_kafka: MockKafka) -> Cluster:
    """The cluster that it is in."""
    return Cluster(KafkaSettings(mock_kafka.bootstrap_servers))


def test_a_leader_that_died_has_no_end(
    cluster: Cluster, where: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the client says -1001 of a leader out of reach, the leaders are looked up again."""
    client = Outdated(cluster._admin, -1001, -1001)
    monkeypatch.setattr(cluster, "_admin", client)

    assert ({where: 10}, 2) == (cluster.ends([where]), client.looked_up)


def test_a_cluster_that_is_slow_has_all_of_its_time(
    cluster: Cluster, where: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first question is given up early; the second one is not."""
    client = Outdated(cluster._admin, TIMED_OUT)
    monkeypatch.setattr(cluster, "_admin", client)

    assert ({where: 10}, 1) == (cluster.ends([where]), client.looked_up)


def test_an_end_that_is_too_old_is_asked_for_again(
    cluster: Cluster, where: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader that answers with an earlier end is not believed before it has caught up."""
    monkeypatch.setattr(cluster, "_admin", Outdated(cluster._admin, 0, 7, 7, 0, 7, 7))

    assert {where: Span(0, 10)} == cluster.settled_spans([where], {where: 10})


def test_an_end_that_stays_too_old_is_told_in_the_end(
    cluster: Cluster, where: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that was cut back is not waited for without end."""
    monkeypatch.setattr(*PATIENCE_S, 0.1)

    assert {where: Span(0, 10)} == cluster.settled_spans([where], {where: 11})
