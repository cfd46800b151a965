import logging

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kbackup.kafka.client import CLIENT_LOG, QUIET_S, Folding

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
