"""What becomes of the client library's errors."""

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.kafka.client import Complaints, kafka_error


@pytest.mark.parametrize(
    ("code", "do"),
    [
        pytest.param(Code.TOPIC_ALREADY_EXISTS, "run again", id="two restores at once"),
        pytest.param(Code.TOPIC_AUTHORIZATION_FAILED, "ACLs", id="denied"),
        pytest.param(Code._ALL_BROKERS_DOWN, "check bootstrap.servers", id="away"),
    ],
)
def test_an_error_says_what_to_do(code: int, do: str) -> None:
    """An error says what to do, without Kafka's error names."""
    found = kafka_error("creating topic orders", KafkaException(Code(code)))

    assert "creating topic orders" == found.what
    assert do in found.do


def test_the_last_complaint_that_says_something_is_the_reason() -> None:
    """That all brokers are down is said of every failure, and hides none of its reasons."""
    complaints = Complaints()

    for code, why in ((Code._SSL, "old"), (Code._SSL, "new"), (Code._FAIL, "3/3 brokers are down")):
        complaints(Code(code, why))

    assert ("new", 3) == (complaints.last, complaints.count)
