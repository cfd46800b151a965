"""Where consumer groups stand, captured from a real cluster."""

import pytest

from tests.integration.product import (
    KafkaSettings,
    Layout,
    Store,
    SystemClock,
    TopicCapture,
    read_groups,
)
from tests.integration.product import TopicPartition as Where
from tests.support.cluster import TestCluster, send, varied
from tests.support.command import Kbackup

pytestmark = pytest.mark.integration

_TEXTS = ["", "a", "x" * 33, "é\u4e2d" * 50]


def kept(text: str) -> bytes:
    """What the client for Python commits of a text: a zero byte is behind it."""
    return text.encode() + b"\0"


def test_each_byte_beside_an_offset_is_known(cluster: TestCluster, topic: str) -> None:
    """What consumers keep beside their offsets is read byte for byte, in whatever group."""
    cluster.create(topic)
    cluster.write(topic, varied(20))
    names = [f"g{at}-{topic}" for at in range(len(_TEXTS))]
    for at, text in enumerate(_TEXTS):
        cluster.commit(names[at], topic, at, text)

    groups = KafkaSettings(cluster.servers).consumer_groups()
    listed = groups.listed()
    found = dict(groups.offsets(names))
    groups.close()
    assert listed.is_complete
    assert set(names) <= {each.name for each in listed.groups}
    assert [(at, kept(text)) for at, text in enumerate(_TEXTS)] == [
        (position.offset, position.metadata)
        for name in names
        for position in (found[name] or {}).values()
    ]


@pytest.mark.in_process
def test_a_capture_holds_what_a_consumer_committed(
    kbackup: Kbackup, cluster: TestCluster, store: Store, topic: str
) -> None:
    """A capture has a group's position with each byte beside it, also where no record is new."""
    cluster.create(topic)
    cluster.write(topic, varied(20))
    cluster.commit(f"billing-{topic}", topic, 7, _TEXTS[3])
    kbackup.json("sink", "-t", topic)
    before = rows(store, topic)
    cluster.commit(f"billing-{topic}", topic, 20, _TEXTS[2])
    again = kbackup.json("sink", "-t", topic)
    after = rows(store, topic)

    assert [(f"billing-{topic}", 7, kept(_TEXTS[3]), 20, None)] == before
    assert [(f"billing-{topic}", 20, kept(_TEXTS[2]), 20, None)] == after
    assert (0, 0) == (again.summary["records"], again.summary["exit_code"])
    assert 1 == kbackup.json("sink", "status").summary["captures"]["groups"]


@pytest.mark.in_process
def test_a_transaction_that_is_open_is_named_in_the_capture(
    kbackup: Kbackup, cluster: TestCluster, store: Store, topic: str
) -> None:
    """A marker behind the last record leaves nothing out, and an open transaction is named."""
    cluster.create(topic)
    producer = cluster.producer(**{"transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, varied(20))
    producer.commit_transaction()
    cluster.commit(f"billing-{topic}", topic, 21)
    kbackup.json("sink", "-t", topic)
    settled = captured(store, topic)
    producer.begin_transaction()
    send(producer, topic, varied(5))
    producer.flush()
    held_up = kbackup.json("sink", "-t", topic)
    unsettled = captured(store, topic)
    producer.abort_transaction()

    where = Where(topic, 0)
    assert (0, {}, {where: "transaction"}) == (
        held_up.summary["exit_code"], settled.unsettled, unsettled.unsettled,
    )  # fmt: skip
    assert [(21, None), (26, None)] == [
        (row.high_watermark, row.beyond) for each in (settled, unsettled) for row in each.offsets
    ]


@pytest.mark.in_process
def test_a_backup_without_captures_is_restored_and_verified_as_before(
    kbackup: Kbackup, cluster: TestCluster, store: Store, topic: str
) -> None:
    """Captures are beside the backup: without them restore and verify find what they found."""
    cluster.create(topic)
    cluster.write(topic, varied(20))
    cluster.commit(f"billing-{topic}", topic, 7)
    kbackup.json("sink", "-t", topic)
    beside = kbackup.json("restore", "verify", "-t", topic, "--deep").summary
    for key in [each.key for each in store.list("_kbackup/groups/")]:
        store.delete(key)
    without = kbackup.json("restore", "verify", "-t", topic, "--deep").summary
    restored = kbackup.json("restore", "-t", topic, "--rename-prefix", "copy_of_")
    status = kbackup.json("sink", "status").summary

    told = ("exit_code", "records", "objects", "partitions", "skipped", "warnings")
    assert [beside[name] for name in told] == [without[name] for name in told]
    assert (0, 20, None) == (
        restored.summary["exit_code"], restored.summary["records"], status["captures"],
    )  # fmt: skip


def rows(store: Store, topic: str) -> list[tuple[object, ...]]:
    """The newest capture of a topic."""
    return [
        (one.group, one.offset, one.metadata, one.high_watermark, one.beyond)
        for one in captured(store, topic).offsets
    ]


def captured(store: Store, topic: str) -> TopicCapture:
    """The newest capture of a topic."""
    return read_groups(store, Layout("topics"), SystemClock()).newest[topic]
