"""A group whose coordinator is not there yet."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from kbackup.kafka import KafkaSettings
from kbackup.kafka.client import patience_s, patiently


class Broker:
    """Answers with each of these errors once, and then with what was asked for."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __call__(self) -> str:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return "answer"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
        KafkaError._TRANSPORT,
        KafkaError._NOENT,  # "No leaders found"
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_a_new_cluster_is_waited_for(code: int) -> None:
    """A first run on a cluster that never had a group waits for the coordinator."""
    assert "answer" == patiently(Broker(code, code), 5)


def test_any_other_error_is_passed_on_at_once() -> None:
    """A denial is raised at once and not retried."""
    broker = Broker(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.NOT_COORDINATOR)
    with pytest.raises(KafkaException) as caught:
        patiently(broker, 5)

    assert KafkaError.GROUP_AUTHORIZATION_FAILED == caught.value.args[0].code()
    assert 1 == len(broker.codes)


def test_patience_ends() -> None:
    """A cluster that never gets a coordinator is an error within the timeout."""
    with pytest.raises(KafkaException):
        patiently(Broker(*[KafkaError.NOT_COORDINATOR] * 100), 0)


@pytest.mark.parametrize(
    ("timeout_s", "properties", "seconds"),
    [
        pytest.param(10, {}, 30, id="nothing asked for"),
        pytest.param(90, {}, 90, id="by --kafka-timeout"),
        pytest.param(10, {"request.timeout.ms": "120000"}, 120, id="by the producer's own"),
        pytest.param(10, {"socket.timeout.ms": "120000"}, 120, id="by the client's own"),
        pytest.param(10, {"request.timeout.ms": "500"}, 30, id="never less than usual"),
    ],
)
def test_who_asks_for_more_patience_gets_it(
    timeout_s: float, properties: dict[str, str], seconds: float
) -> None:
    """A giant record on a slow line takes longer than a silent broker is waited for."""
    settings = KafkaSettings("broker:9092", timeout_s=timeout_s)

    assert seconds == patience_s(settings, properties)
