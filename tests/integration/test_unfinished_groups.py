"""Groups of kinds that Kafka has begun to have: of Streams (KIP-1071), and share groups."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

from tests.integration.product import GroupOffset, KafkaSettings, LocalS3
from tests.integration.product import TopicPartition as Where
from tests.support.brokers import UnfinishedKafka
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup, places
from tests.support.in_process import WITHOUT_SPARK, InProcess
from tests.support.streams_member import StreamsMember

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

TOPIC, COPY = "orders", ("--rename-prefix", "copy_of_")


@pytest.fixture(scope="module")
def unfinished() -> Iterator[TestCluster]:
    """A cluster that has such groups, and a topic of ten records in each of two partitions."""
    with UnfinishedKafka() as kafka:
        cluster = TestCluster(kafka.bootstrap_servers)
        cluster.create(TOPIC, 2)
        for partition in range(2):
            cluster.write(TOPIC, [Record(None, b"%d" % at) for at in range(10)], partition)
        cluster.commit("any", TOPIC, 0)  # now there is a coordinator
        yield cluster


@pytest.fixture
def command(unfinished: TestCluster, s3: LocalS3, bucket: str) -> Kbackup:
    """The command, about that cluster."""
    return InProcess(places(unfinished.servers, s3, bucket), WITHOUT_SPARK)


def standing(cluster: TestCluster, group: str) -> Mapping[Where, GroupOffset]:
    """Where a group stands."""
    groups = KafkaSettings(cluster.servers).consumer_groups()
    try:
        return dict(groups.offsets([group]))[group] or {}
    finally:
        groups.close()


def test_a_group_of_streams_is_captured_and_set(command: Kbackup, unfinished: TestCluster) -> None:
    """Captured while it is at work, with the bytes beside its offsets, and set in a copy."""
    with StreamsMember(unfinished.servers, "app", TOPIC) as member:
        member.commit({0: (4, "time 17"), 1: (10, "")})
        again = command.json("sink", "-t", TOPIC)
    listed = command.json("restore", "list", "--consumer-groups").of("group")
    command.json("restore", "-t", TOPIC, *COPY)
    words = ("restore", "groups", "-t", TOPIC, *COPY, "app", "--rename-groups", "dr_$0")
    done = command.json(*words)
    behind_the_marker = 11  # which the restore's transaction ended with: its lag is 0
    set_to = {Where("copy_of_orders", 0): GroupOffset(4, b"time 17"),
              Where("copy_of_orders", 1): GroupOffset(behind_the_marker, b"")}  # fmt: skip

    assert [("app", 0, 4), ("app", 1, 10)] == sorted(
        (one["group"], one["partition"], one["offset"]) for one in listed if one["group"] == "app"
    )
    assert not [one for one in again.summary["warnings"] if "app" in one["text"]]
    assert {"streams"} == {one["protocol_type"] for one in listed if one["group"] == "app"}
    assert "streams_group" in {one["code"] for one in done.summary["warnings"]}
    assert ["dr_app"] == done.summary["groups"]
    assert set_to == standing(unfinished, "dr_app")


def test_a_group_of_streams_that_is_at_work_is_left_alone(
    command: Kbackup, unfinished: TestCluster
) -> None:
    """All groups are looked at before the first is set."""
    unfinished.commit("a", TOPIC, 3)
    with StreamsMember(unfinished.servers, "busy", TOPIC) as member:
        member.commit({0: (4, "")})
        command.json("sink", "-t", TOPIC)
        command.json("restore", "-t", TOPIC, "--rename-prefix", "second_")
        words = ("restore", "groups", "-t", TOPIC, "--rename-prefix", "second_", "a", "busy")
        refused = command.json(*words, expect=4)
        errors: list[Any] = refused.summary["errors"]

        assert [] == refused.summary["groups"], errors
        assert not any(at.topic == "second_orders" for at in standing(unfinished, "a"))
        assert {Where(TOPIC, 0)} == {*standing(unfinished, "busy")}
        assert "busy" in errors[0]["what"]


def test_a_share_group_is_named(command: Kbackup, unfinished: TestCluster) -> None:
    """It keeps no offsets that anybody could set: nothing of it is captured."""
    client = {"bootstrap.servers": unfinished.servers, "group.id": "shared"}
    with ShareConsumer(client) as consumer:
        consumer.subscribe([TOPIC])
        consumer.poll(1)
        done = command.json("sink", "-t", TOPIC)
        again = command.json("restore", "list", "--consumer-groups")
    left = command.json("sink", "-t", TOPIC)  # it is there without members, too

    for one in (done, left):
        said = {each["text"].partition(":")[0]: each["code"] for each in one.summary["warnings"]}
        assert (0, "groups_without_offsets") == (one.code, said.get("shared"))
    assert "shared" not in {one["group"] for one in again.of("group")}
