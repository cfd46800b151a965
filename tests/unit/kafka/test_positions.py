"""The positions of a group whose broker accepts connections and answers nothing."""

import atexit
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as At

from kbackup.errors import KafkaError
from kbackup.kafka import KafkaSettings, Position, client
from kbackup.kafka.client import GroupPositions
from kbackup.records import TopicPartition
from kbackup.runs.position import SinkPosition
from tests.support.mock_kafka import MockKafka
from tests.support.raw_commit import commit_as_others_do

WHERE = TopicPartition("orders", 0)

_FROZEN = socket.create_server(("127.0.0.1", 0))
"""Closed at the end: a client that still waits when its test is over would complain for ever."""
atexit.register(_FROZEN.close)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupPositions]:
    """A group's positions, kept by a broker that is frozen, with a second's patience."""
    monkeypatch.setattr(client, "PATIENCE_S", 1.0)
    address = f"127.0.0.1:{_FROZEN.getsockname()[1]}"
    made = GroupPositions(KafkaSettings(address, timeout_s=1.0), "group")
    yield made
    begin = time.monotonic()
    made.close()  # the client itself would wait for minutes where a commit is unanswered
    assert time.monotonic() - begin < 30


def test_a_position_that_is_not_told_is_an_error_in_time(group: GroupPositions) -> None:
    """A position that the broker does not return is an error that names group and partition."""
    begin = time.monotonic()

    with pytest.raises(KafkaError, match="position of group group in orders-0"):
        group.read(WHERE)

    assert time.monotonic() - begin < 30


def test_a_commit_that_is_not_answered_is_an_error_in_time(
    group: GroupPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that the broker never answers is an error."""
    monkeypatch.setattr(group, "read", lambda _: Position(5))
    begin = time.monotonic()

    with pytest.raises(KafkaError, match="committing orders-0 offset 7 to group group"):
        group.advance(WHERE, Position(7))

    assert time.monotonic() - begin < 30


def play(group: GroupPositions, **calls: Callable[..., Any]) -> None:
    """Have the group's client do this, and leave as it does."""
    group._consumer = SimpleNamespace(close=group._consumer.close, **calls)


def test_an_answer_that_comes_late_is_not_taken_for_another_partitions(
    group: GroupPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of two partitions may be the same number."""
    monkeypatch.setattr(group, "read", lambda _: None)

    def poll(seconds: float) -> None:
        time.sleep(seconds)
        group._committed(None, [At("orders", 1, 7)])

    play(group, commit=lambda **_: None, poll=poll)

    with pytest.raises(KafkaError, match="orders-0 offset 7"):
        group.advance(WHERE, Position(7))


def test_an_error_of_the_partition_is_not_taken_for_no_position(group: GroupPositions) -> None:
    """An unfinished transaction is recognised, although only the partition's line mentions it."""
    error = ClientError(ClientError.UNSTABLE_OFFSET_COMMIT)
    unstable = SimpleNamespace(error=error, offset=-1001, metadata=None)
    play(group, committed=lambda *_: [unstable])

    with pytest.raises(KafkaError, match="position of group group in orders-0"):
        group.read(WHERE)


def test_many_positions_are_committed_in_one_request(group: GroupPositions) -> None:
    """A position that would move back is refused by name; one that fails at first is retried."""
    held, refused, commits = {1: 9}, [2], list[list[At]]()

    def poll(_seconds: float) -> None:
        for at in commits[-1]:
            if at.partition in refused:
                refused.remove(at.partition)
                group._committed(ClientError(ClientError.NOT_COORDINATOR), [at])
            else:
                held[at.partition] = at.offset
                group._committed(None, [at])

    play(
        group,
        committed=lambda asked, _timeout: [
            At(at.topic, at.partition, held.get(at.partition, -1001)) for at in asked
        ],
        commit=lambda *, offsets, asynchronous: commits.append(offsets * asynchronous),
        poll=poll,
    )

    errors = group.advance_all({TopicPartition("orders", at): Position(7) for at in range(4)})

    assert {1: "offset_moved"} == {where.partition: e.code for where, e in errors.items()}
    assert {0: 7, 1: 9, 2: 7, 3: 7} == held
    assert [[0, 2, 3], [2]] == [[at.partition for at in offsets] for offsets in commits]


def test_many_commits_that_are_not_answered_are_waited_for_once(group: GroupPositions) -> None:
    """A frozen broker delays a task by one second for all positions, not for each."""
    begin = time.monotonic()

    errors = group.advance_all({TopicPartition("orders", at): Position(7) for at in range(20)})

    assert time.monotonic() - begin < 30
    assert 20 == len(errors)


def test_a_position_that_another_client_committed_is_read(mock_kafka: MockKafka) -> None:
    """Metadata without a zero byte at the end, as others commit them, say what they said."""
    wheres = [TopicPartition(f"t{at // 4}", at % 4) for at in range(60)]
    lasts = {
        where: SinkPosition("topics/" + "ö" * at).position(at) for at, where in enumerate(wheres)
    }
    for topic in {where.topic for where in wheres}:
        mock_kafka.create(topic)
    connection = KafkaSettings(mock_kafka.bootstrap_servers)
    commit_as_others_do(mock_kafka.bootstrap_servers, "others", lasts)
    group = GroupPositions(connection, "others")

    by_task = group.read_all(wheres)
    by_driver = connection.cluster().committed("others", wheres)

    group.close()
    expected = [SinkPosition.beside(last) for last in lasts.values()]
    assert expected == [SinkPosition.beside(by_task[where]) for where in wheres]
    assert expected == [SinkPosition.beside(by_driver[where]) for where in wheres]
