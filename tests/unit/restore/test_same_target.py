"""What a restore finds in a target that it has written to before: its position, its records."""

from typing import Any

import pytest
from backup_samples import JSON

from kbackup.errors import KbackupError, TargetNotEmptyError, TopicChangedError
from kbackup.kafka import Position
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from tests.support.target import COPY, FakeTarget, Log, Restoring, position, values

# What has become of the target


@pytest.mark.parametrize("code", ["target_emptied", "target_recreated"])
def test_a_target_that_was_emptied_or_created_again_is_filled_again(
    again: Restoring, code: str
) -> None:
    """From the start, with a warning, even if its log is as long as the old one's."""
    again.backup.put("orders", 0, range(10))
    again.restore()
    if code == "target_emptied":
        again.cluster.logs[COPY].delete(11)
    else:
        again.cluster.ids["copy_of_orders"] = "another"
        again.cluster.logs[COPY] = Log()

    plan = again.plan()
    again.restore(run="r2")

    assert [code] == [code for code, _ in plan.topics[0].warnings]
    assert values(range(10)) == again.cluster.values("copy_of_orders")


def test_a_recreated_target_with_strange_records_is_not_filled(again: Restoring) -> None:
    """A recreated target with other records is refused."""
    again.backup.put("orders", 0, range(10))
    again.restore()
    again.cluster.ids["copy_of_orders"] = "another"
    again.cluster.logs[COPY] = Log([{"value": b"x"}] * 11)

    with pytest.raises(TargetNotEmptyError):
        again.restore()


def _lose_the_first(log: Log) -> None:
    log.delete(3)


def _lose_the_last(log: Log) -> None:
    log.rows = log.rows[:4]


@pytest.mark.parametrize("lose", [_lose_the_first, _lose_the_last])
@pytest.mark.parametrize("if_exists", ["fail", "append", "resume"])
def test_a_target_that_lost_a_part_is_refused(
    again: Restoring, lose: object, if_exists: str
) -> None:
    """A target that lost some of its records is refused: it is neither complete nor empty."""
    again.backup.put("orders", 0, range(10))
    again.restore()
    lose(again.cluster.logs[COPY])  # type: ignore[operator]

    with pytest.raises(TopicChangedError):
        again.restore(if_exists=if_exists, yes=True)


def test_records_that_were_there_before_may_go(again: Restoring) -> None:
    """A restore that was added to a topic says nothing of the records in front of its own."""
    again.backup.put("orders", 0, range(10))
    again.cluster.create_topic("copy_of_orders", 1, 1, {})
    again.cluster.logs[COPY].rows = [{"value": b"old"}] * 7
    again.restore(if_exists="append", yes=True)
    again.cluster.logs[COPY].delete(7)
    again.backup.put("orders", 0, range(10, 12))

    again.restore(run="r2")

    assert values(range(12)) == again.cluster.values("copy_of_orders")


VALUES_KEY = "topics/orders/partition=0/orders+0+0000000000.json"

ELSEWHERE = RestoreSource("another", TopicPartition("clicks", 0))


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(Position(3, ""), id="by a consumer"),
        pytest.param(
            RestorePosition(ELSEWHERE, "", Cursor(3, 3)).position(Lane(COPY, Span(0, 0))),
            id="by another restore",
        ),
    ],
)
def test_a_position_that_is_moved_while_a_run_starts_stops_it(
    again: Restoring, moved: Position
) -> None:
    """A position that moves while a run starts stops it: somebody else writes to the topic."""
    again.backup.put("orders", 0, range(10))
    cluster = again.cluster

    class Moved(FakeTarget):
        def create_topic(self, *given: Any, **more: Any) -> str:
            topic_id = FakeTarget.create_topic(self, *given, **more)
            self.set_positions(again.plan().group, {COPY: moved})
            return topic_id

    again.cluster = Moved(cluster.ids, cluster.logs, groups=cluster.groups)

    with pytest.raises(KbackupError, match="has been moved"):
        again.restore()


def test_positions_stay_small(again: Restoring) -> None:
    """Positions stay below the 4,096 bytes that Kafka takes, however long the object's key."""
    directory = "\x01" * 900
    key = f"topics/orders/{directory}/orders+0+0000000000.json"
    again.backup.put("orders", 0, range(5), views=JSON)
    body = again.backup.body(VALUES_KEY)
    again.backup.replace(VALUES_KEY, body, to=key)
    again.store.delete(VALUES_KEY)

    again.restore(reading=ReadOptions())

    assert len(position(again).metadata) < 1000
