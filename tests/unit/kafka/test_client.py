"""Errors, logs and waits of the client library."""

import logging
import threading

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kbackup.kafka import KafkaSettings
from kbackup.kafka.client import (
    CLIENT_LOG,
    QUIET_S,
    Complaints,
    Folding,
    kafka_error,
    patience_s,
    patiently,
    within,
)


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


RAW = (
    "FAIL [kbackup#producer-4] [thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: "
    "Connect to ipv4#127.0.0.1:1 failed: Connection refused"
)


def record() -> logging.LogRecord:
    """What the client hands over, again and again."""
    return logging.LogRecord("kafka", logging.ERROR, "", 0, RAW, None, None)


def test_one_line_of_the_client_says_an_outage() -> None:
    """A broker that cannot be reached is one warning a minute, in words; all else is for -v."""
    now = [0.0]
    folding = Folding(lambda: now[0])
    seen = []
    for second in range(70):
        now[0] = float(second)
        line = record()
        seen.append(line.getMessage() if folding.filter(line) else None)

    first = (
        "Kafka client: 127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: "
        "Connection refused (further lines: -v)"
    )
    assert {0: first, int(QUIET_S): first} == {at: text for at, text in enumerate(seen) if text}


def test_verbose_shows_every_line_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """With -v, every line of the client is logged in full."""
    caplog.set_level(logging.INFO, CLIENT_LOG.name)
    client = AdminClient({"bootstrap.servers": "127.0.0.1:1"}, logger=CLIENT_LOG)
    details: list[str] = []
    for _ in range(100):  # once, unless the client's own threads hardly get to run
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.2)
        client.poll(0)
        details = [line.getMessage() for line in caplog.records if line.levelno == logging.INFO]
        if details:
            break

    assert details
    assert all("FAIL [" in line for line in details)


class Broker:
    """Answers with each of these errors once, and then with what was asked for."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __call__(self) -> str:
        if self.codes:
            raise KafkaException(Code(self.codes.pop(0)))
        return "answer"


@pytest.mark.parametrize(
    "code",
    [
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code._WAIT_COORD,
        Code._TRANSPORT,
        Code._NOENT,  # "No leaders found"
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_a_new_cluster_is_waited_for(code: int) -> None:
    """A first run on a cluster that never had a group waits for the coordinator."""
    assert "answer" == patiently(Broker(code, code), 5)


def test_any_other_error_is_passed_on_at_once() -> None:
    """A denial is raised at once and not retried."""
    broker = Broker(Code.GROUP_AUTHORIZATION_FAILED, Code.NOT_COORDINATOR)
    with pytest.raises(KafkaException) as caught:
        patiently(broker, 5)

    assert Code.GROUP_AUTHORIZATION_FAILED == caught.value.args[0].code()
    assert 1 == len(broker.codes)


def test_patience_ends() -> None:
    """A cluster that never gets a coordinator is an error within the timeout."""
    with pytest.raises(KafkaException):
        patiently(Broker(*[Code.NOT_COORDINATOR] * 100), 0)


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


def test_a_call_that_returns_in_time_is_a_call() -> None:
    """A call that returns in time keeps its arguments, result and exception."""
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)

    assert 5 == within(60, lambda a, b: a + b, 2, 3)


def test_a_call_that_does_not_return_is_given_up() -> None:
    """A call that does not return is abandoned, and its caller continues."""
    end, ended = threading.Event(), threading.Event()

    with pytest.raises(TimeoutError):
        within(0.01, lambda: (end.wait(), ended.set()))

    assert not ended.is_set()
    end.set()
    assert ended.wait(60)
