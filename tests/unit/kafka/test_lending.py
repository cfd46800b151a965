"""Positions that writers share, and what the end of a transaction means."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from kbackup.kafka import KafkaSettings, TakenOverError
from kbackup.kafka.client import Complaints, Lending
from kbackup.kafka.writer import meaning
from kbackup.records import TopicPartition


def test_writers_of_a_group_share_its_positions_until_the_last_has_left() -> None:
    """Who borrows the same group's positions has the same client; the last to leave closes it."""
    lending = Lending()
    settings, same = (KafkaSettings("127.0.0.1:1", consumer={"log_level": "0"}) for _ in range(2))
    first, second = lending.borrow(settings, "g"), lending.borrow(same, "g")
    others = [lending.borrow(settings, "h"), lending.borrow(settings, "g", alone=True)]

    lending.give_back(first)
    second.for_transaction()  # which a closed client refuses
    third = lending.borrow(settings, "g")
    lending.give_back(second)
    lending.give_back(third)
    later = lending.borrow(settings, "g")

    assert first is second is third
    assert 4 == len({id(each) for each in (first, *others, later)})
    for each in (*others, later):
        lending.give_back(each)


@pytest.mark.parametrize(
    ("open_s", "ended"), [pytest.param(None, False, id="new"), pytest.param(312.0, True, id="old")]
)
def test_the_cluster_may_have_ended_a_transaction_that_was_open_too_long(
    open_s: float | None, *, ended: bool
) -> None:
    """The client's error is that of another restore taking over; the age says what it may be."""
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    where = TopicPartition("orders", 70)

    error = meaning(where, "sending its position", fenced, Complaints(), None, open_s)

    assert isinstance(error, TakenOverError)
    assert (True, ended) == ("another restore" in error.why, "open for 312 s" in error.why)
