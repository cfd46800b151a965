"""Consumer groups that go on in a restored topic, on a real cluster."""

import resource
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event, Thread
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At

from tests.integration.product import GroupOffset, KafkaSettings, restore_groups
from tests.integration.product import TopicPartition as Where
from tests.support.cluster import Record, TestCluster, send
from tests.support.command import Kbackup, Result
from tests.support.killing import kill_somewhen
from tests.support.running import running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

COPY = ("--rename-prefix", "copy_of_")


def standing(cluster: TestCluster, group: str, topic: str) -> int:
    """Where a group stands in partition 0; -1001 for nowhere."""
    (offset,) = cluster.committed(group, topic)
    return offset


def read_on(cluster: TestCluster, group: str, topic: str) -> list[bytes]:
    """What a consumer of a group reads in partition 0 until its end."""
    return [value for _, value in read_all(cluster, topic, 0, group)]


def behind(log: list[tuple[int, bytes]], offset: int) -> list[bytes]:
    """What a consumer reads that begins at an offset."""
    return [value for at, value in log if at >= offset]


def read_all(
    cluster: TestCluster, topic: str, partition: int, group: str = ""
) -> list[tuple[int, bytes]]:
    """Offsets and values of a partition from its beginning, or from where a group stands."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers, "group.id": group or "nobody",
            "enable.auto.commit": False, "enable.partition.eof": True,
            "isolation.level": "read_committed", "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 10,
        }
    )  # fmt: skip
    found = []
    at = At(topic, partition, 0)
    consumer.list_topics(topic, timeout=30)  # else it looks for the leader in half a second
    consumer.assign(consumer.committed([at], timeout=30) if group else [at])
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), message.value() or b""))
    consumer.close()
    return found


@pytest.fixture
def holey(kbackup: Kbackup, cluster: TestCluster, topic: str) -> Mapping[str, int]:
    """A restored topic with holes, and where groups stood in it: each offset there is."""
    cluster.create(topic)
    producer = cluster.producer(**{"transactional.id": topic})
    producer.init_transactions()
    for first, commits in zip((0, 6, 12), (True, False, True), strict=True):
        producer.begin_transaction()
        send(producer, topic, [Record(None, b"%d" % at) for at in range(first, first + 5)])
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)()
    stood = {f"g{offset}-{topic}": offset for offset in range(19)}
    with ThreadPoolExecutor() as pool:
        for group, offset in stood.items():
            pool.submit(cluster.commit, group, topic, offset, f"beside {offset}")
    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "-t", topic, *COPY)
    return stood


def test_each_group_reads_exactly_what_it_had_not_read(
    kbackup: Kbackup, cluster: TestCluster, topic: str, holey: Mapping[str, int]
) -> None:
    """At each offset, of a record, a marker, an aborted record or the end, nothing else is owed."""
    stored = [*range(5), *range(12, 17)]
    owed = {group: [b"%d" % at for at in stored if at >= stood] for group, stood in holey.items()}

    done = kbackup.json("restore", "groups", "-t", topic, *COPY)

    copy = f"copy_of_{topic}"
    assert (0, sorted(holey)) == (done.summary["exit_code"], sorted(done.summary["groups"]))
    with ThreadPoolExecutor() as pool:  # each waits longer than it works
        read = pool.map(lambda group: read_on(cluster, group, copy), holey)
        stand_at = pool.map(lambda group: standing(cluster, group, copy), holey)
    assert owed == dict(zip(holey, read, strict=True))
    unread = {line["group"]: line["unread"] for line in done.of("group_offset")}
    end = cluster.ends(copy)[1]
    assert {group: end - at for group, at in zip(holey, stand_at, strict=True)} == unread
    assert 0 == unread[f"g18-{topic}"]


@pytest.fixture
def copied(kbackup: Kbackup, cluster: TestCluster, topic: str) -> str:
    """A topic of ten records that was restored, in which one group stood at 4; the group."""
    cluster.create(topic)
    cluster.write(topic, [Record(None, b"%d" % at) for at in range(10)])
    cluster.commit(group := f"billing-{topic}", topic, 4, "beside")
    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "-t", topic, *COPY)
    return group


def in_copy(cluster: TestCluster, group: str, topic: str) -> object:
    """Where a group stands in the copy, with the bytes beside it; None for nowhere."""
    groups = KafkaSettings(cluster.servers).consumer_groups()
    found = dict(groups.offsets([group]))[group] or {}
    groups.close()
    return found.get(Where(f"copy_of_{topic}", 0))


def test_a_group_is_set_back_as_it_was(
    kbackup: Kbackup, cluster: TestCluster, topic: str, copied: str
) -> None:
    """One that had no offset has none again, one that had keeps its own, one that moved stays."""
    copy = f"copy_of_{topic}"
    words = ("restore", "groups", "-t", topic, *COPY)
    planned = kbackup.json(*words, "--dry-run")
    nothing = in_copy(cluster, copied, topic)
    first = kbackup.json(*words).summary["remaining"][0]["command"]
    was_set = in_copy(cluster, copied, topic)
    for _ in range(2):  # the second time nothing is left to set back
        assert [copied] == kbackup.json(*shlex.split(first)[1:]).summary["groups"]
    undone = in_copy(cluster, copied, topic)
    cluster.commit(copied, copy, 9, "own")
    unasked = kbackup.json(*words, expect=4)
    second = kbackup.json(*words, "--yes").summary["undo"]
    kbackup.json("restore", "groups", *COPY, "--undo", second)
    own = in_copy(cluster, copied, topic)
    cluster.commit(copied, copy, 7, "moved")
    moved = kbackup.json("restore", "groups", *COPY, "--undo", second, expect=4)

    assert ([4], None) == ([each["becomes"] for each in planned.of("group_offset")], nothing)
    assert (GroupOffset(4, b"beside\0"), None) == (was_set, undone)
    assert GroupOffset(9, b"own\0") == own
    assert "from 9 to 4: moving was not confirmed" in unasked.summary["errors"][0]["what"]
    assert ["refused"] == [each["code"] for each in moved.summary["errors"]]
    assert GroupOffset(7, b"moved\0") == in_copy(cluster, copied, topic)


NEW_PROTOCOL: Final = {"group.protocol": "consumer"}
"""KIP-848's."""


@pytest.mark.parametrize(
    ("properties", "is_there"),
    [
        pytest.param({}, True, id="classic"),
        pytest.param(NEW_PROTOCOL, True, marks=pytest.mark.nightly, id="KIP-848"),
        pytest.param(
            {"group.instance.id": "one"}, False, marks=pytest.mark.nightly, id="static, just gone"
        ),
    ],
)
def test_a_group_with_a_member_is_refused_and_none_is_set(
    kbackup: Kbackup, cluster: TestCluster, topic: str, copied: str,
    properties: Mapping[str, str], *, is_there: bool,
) -> None:  # fmt: skip
    """All groups are looked at before the first is set."""
    other = f"audit-{topic}"
    cluster.commit(other, topic, 5)
    kbackup.json("sink", "-t", topic)
    member = cluster.join(copied, f"copy_of_{topic}", **properties)
    if not is_there:  # it is one until its session ends
        member.close()
    refused = kbackup.json("restore", "groups", "-t", topic, *COPY, expect=4)
    if is_there:
        member.close()

    assert "has 1 live member" in refused.summary["errors"][0]["what"]
    assert [] == refused.summary["groups"]
    assert -1001 == standing(cluster, other, f"copy_of_{topic}")


@pytest.mark.nightly
def test_a_group_of_the_new_protocol_goes_on(
    kbackup: Kbackup, cluster: TestCluster, topic: str, copied: str
) -> None:
    """KIP-848: it is captured as it stands, set once it is empty, and its consumer goes on."""
    client = {
        "bootstrap.servers": cluster.servers, "group.id": f"new-{topic}", **NEW_PROTOCOL,
        "enable.auto.commit": False, "auto.offset.reset": "earliest",
    }  # fmt: skip
    member = Consumer(client)
    member.subscribe([topic])
    read = [_next(member) for _ in range(3)]
    member.commit(offsets=[At(topic, 0, 3)], asynchronous=False)
    kbackup.json("sink", "-t", topic)  # while it is at work
    member.close()

    done = kbackup.json("restore", "groups", "-t", topic, *COPY)
    member = Consumer(client)
    member.subscribe([f"copy_of_{topic}"])
    read += [_next(member) for _ in range(7)]
    member.close()

    assert sorted([copied, f"new-{topic}"]) == sorted(done.summary["groups"])
    assert [b"%d" % at for at in range(10)] == read


def _next(consumer: Consumer) -> bytes | None:
    message = consumer.poll(60)
    assert message is not None
    value: bytes | None = message.value()
    return value


@pytest.mark.nightly
def test_groups_are_set_after_kafka_has_forgotten_the_restore(
    kbackup: Kbackup, cluster: TestCluster, topic: str, copied: str
) -> None:
    """Its positions are gone with its group; its rows tell, and prove, the same."""
    words = ("-t", topic, *COPY)
    group = kbackup.json("restore", *words).summary["group"]
    before = kbackup.json("restore", "groups", *words, "--dry-run").of("group_offset")
    cluster.admin.delete_consumer_groups([group])[group].result(30)

    done = kbackup.json("restore", "groups", *words)
    beside = kbackup.json("restore", "verify", "--against", "target", *words)

    assert before == done.of("group_offset")
    assert 4 == standing(cluster, copied, f"copy_of_{topic}")
    assert [10] == [line["records"] for line in beside.of("compared")]


def test_groups_are_chosen_and_renamed(
    kbackup: Kbackup, cluster: TestCluster, topic: str, copied: str
) -> None:
    """By name or pattern; what no capture has is refused, with what to do."""
    words = ("restore", "groups", "-t", topic, *COPY)
    lacking = kbackup.json(*words, "nobody", expect=4)
    kbackup.json(*words, "--groups", "billing-.*", "--rename-groups", "dr_$0")
    at = kbackup.json(*words, "--where", f"{topic}:0@7", "--where", f"{topic}:0@10")

    assert ["no capture has nobody"] == [each["what"] for each in lacking.summary["errors"]]
    assert 4 == standing(cluster, f"dr_{copied}", f"copy_of_{topic}")
    assert -1001 == standing(cluster, copied, f"copy_of_{topic}")
    assert [(7, 7), (10, 11)] == [(one["was"], one["becomes"]) for one in at.of("group_offset")]


def test_a_group_is_set_by_time_where_nothing_tells_its_offset(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A partition map spreads records: by time a group misses none here, and exits 3."""
    cluster.create(topic)
    at_ms = 1_700_000_000_000
    cluster.write(topic, [Record(b"k%d" % at, b"%d" % at, (), at_ms + at) for at in range(40)])
    cluster.commit(group := f"billing-{topic}", topic, 23)
    kbackup.json("sink", "-t", topic)
    cluster.create(copy := f"copy_of_{topic}", 3)
    mapped = ("-t", topic, *COPY, "--partition-map", "key")
    kbackup.json("restore", *mapped)
    kbackup.json("restore", "groups", *mapped, expect=4)
    done = kbackup.json("restore", "groups", *mapped, "--by-time", expect=3)

    assert all(one["is_approximate"] for one in done.of("group_offset"))
    rest = [behind(read_all(cluster, copy, at), offset)
            for at, offset in enumerate(cluster.committed(group, copy, range(3)))]  # fmt: skip
    assert {b"%d" % at for at in range(23, 40)} == {value for part in rest for value in part}


def test_groups_follow_a_standby(kbackup: Kbackup, cluster: TestCluster, topic: str) -> None:
    """As the copy reaches what a sink captured; one that another hand has moved is left alone."""
    cluster.create(topic)
    group, copy = f"billing-{topic}", f"copy_of_{topic}"

    def go_on(first: int, stands: int) -> None:
        cluster.write(topic, [Record(None, b"%d" % at) for at in range(first, first + 10)])
        cluster.commit(group, topic, stands)
        kbackup.json("sink", "-t", topic)

    go_on(0, 4)
    words = ("restore", "-t", topic, *COPY, "--follow", "--follow-groups", "billing-.*")
    with running(kbackup, *words, "--s3-poll-interval-ms", "200") as follower:
        wait_until(lambda: 4 == standing(cluster, group, copy), "the first capture")
        go_on(10, 17)
        wait_until(lambda: 17 < standing(cluster, group, copy), "the second capture")
        stood = standing(cluster, group, copy)
        unread = read_on(cluster, group, copy)
        cluster.commit(group, copy, 2, "own")
        go_on(20, 25)
        follower.wait_for("warning")
        follower.signal(signal.SIGTERM)
        ended = follower.finish()

    assert (18, [b"17", b"18", b"19"]) == (stood, unread)
    assert 2 == standing(cluster, group, copy)
    assert "group_left_alone" in [one["code"] for one in ended.of("warning")]


@pytest.mark.nightly
def test_captures_of_two_sinks_count_together(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A group over topics that two cron lines back up: each offset is of its own capture."""
    group, stood = f"billing-{topic}", {topic: 4, f"{topic}-other": 7}
    for name, offset in stood.items():
        cluster.create(name)
        cluster.write(name, [Record(None, b"%d" % at) for at in range(10)])
        cluster.commit(group, name, offset)
        kbackup.json("sink", "-t", name)
    words = (*(word for name in stood for word in ("-t", name)), *COPY)
    kbackup.json("restore", *words)
    done = kbackup.json("restore", "groups", *words)

    assert stood == {name: standing(cluster, group, f"copy_of_{name}") for name in stood}
    assert 2 == len({one["taken"] for one in done.of("group_offset")})


@pytest.mark.nightly
def test_a_group_that_is_joined_after_the_look_stays_and_the_others_are_set(
    kbackup: Kbackup, cluster: TestCluster, topic: str, copied: str, monkeypatch: Any
) -> None:
    """The broker refuses what is to be set for it."""
    cluster.commit(other := f"audit-{topic}", topic, 5)
    kbackup.json("sink", "-t", topic)
    member = cluster.join(copied, f"copy_of_{topic}")
    monkeypatch.setattr(restore_groups, "_live", lambda *_: iter(()))
    done = kbackup.json("restore", "groups", "-t", topic, *COPY, expect=4)
    member.close()

    assert ([other], [f"setting the offsets of group {copied}"]) == (
        done.summary["groups"], [each["what"] for each in done.summary["errors"]]
    )  # fmt: skip
    assert [-1001, 5] == [standing(cluster, each, f"copy_of_{topic}") for each in (copied, other)]


def process(cluster: TestCluster, into: str, out: str, group: str, stop: Event | None) -> None:
    """Copy records exactly once, a few in a transaction, until told to stop, or all are read."""
    reset = "error" if stop is None else "earliest"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers, "group.id": group, "auto.offset.reset": reset,
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    producer = cluster.producer(**{"transactional.id": out})
    producer.init_transactions()
    consumer.subscribe([into])
    while stop is None or not stop.is_set():
        messages = consumer.consume(5, 1)
        if not messages and stop is None and consumer.assignment():
            break
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            producer.produce(out, message.value())
        at = consumer.position(consumer.assignment())
        if messages:
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()


@pytest.mark.nightly
def test_no_output_of_an_application_is_missing_once_it_goes_on(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """One that reads, writes and commits in transactions, and is at work while it is backed up."""
    out, group, stop = f"{topic}-out", f"app-{topic}", Event()
    for name in (topic, out):
        cluster.create(name)
    count = 2_000
    cluster.write(topic, [Record(None, b"%d" % at) for at in range(count)])
    work = Thread(target=process, args=(cluster, topic, out, group, stop))
    work.start()
    try:
        wait_until(lambda: cluster.ends(out)[1] > 100, "the application")
        kbackup.json("sink", "-t", topic, "-t", out)
    finally:
        stop.set()
        work.join()
    words = ("-t", topic, "-t", out, *COPY)
    kbackup.json("restore", *words)
    kbackup.json("restore", "groups", *words)
    stood = standing(cluster, group, f"copy_of_{topic}")
    before = len(read_all(cluster, f"copy_of_{out}", 0))
    process(cluster, f"copy_of_{topic}", f"copy_of_{out}", group, None)

    assert 0 < stood < count
    assert stood <= before  # what was written with its offset is there
    there = {value for _, value in read_all(cluster, f"copy_of_{out}", 0)}
    assert {b"%d" % at for at in range(count)} == there


COUNT: Final = 20
"""Partitions of the groups' topic; the first stays empty."""

Stood = Mapping[tuple[str, int], int]
"""Where groups stood, by partition."""


def stand(cluster: TestCluster, topic: str, groups: Sequence[str], chance: Random) -> Stood:
    """Let groups stand at offsets of every kind, some behind the end, or nowhere."""
    ends = [cluster.ends(topic, at)[1] for at in range(COUNT)]
    stood = {
        (group, at): chance.randrange(ends[at] + 3)
        for group in groups
        for at in range(COUNT)
        if chance.random() < 0.8
    }
    for group in groups:
        cluster.commit(group, topic, {at: to for (of, at), to in stood.items() if of == group})
    return stood


def produce(producer: Producer, topic: str, chance: Random) -> int:
    """Write transactions, of which some are aborted; return how many records the others have."""
    written = 0
    for _ in range(12):
        producer.begin_transaction()
        sent = 0
        for partition in range(1, COUNT):
            for _ in range(chance.randrange(4)):
                value = f"{partition}/{chance.random()}".encode()
                key = b"%d" % chance.randrange(6)  # which compaction finds again
                producer.produce(topic, value, key, partition)
                sent += 1
        producer.flush()
        if chance.random() < 0.7:
            producer.commit_transaction()
            written += sent
        else:
            producer.abort_transaction()
        time.sleep(0.11)  # the next one begins a new segment
    return written


def stop_compaction(cluster: TestCluster, topic: str) -> int:
    """Let it take no more, and return how many records it has left."""
    cluster.configure(topic, cleanup_policy="delete")
    left, before = -1, -2
    while left != before:  # one that had begun goes on
        time.sleep(2)
        before, left = left, sum(len(read_all(cluster, topic, at)) for at in range(COUNT))
    return left


def check(
    cluster: TestCluster, topic: str, copy: str, stood: Stood, window: Sequence[int] | None = None
) -> None:
    """See that each group reads in the copy what it had not read of the topic, and no more."""
    logs = {(of, at): read_all(cluster, of, at) for of in (topic, copy) for at in range(COUNT)}
    for group in {group for group, _ in stood}:
        there = cluster.committed(group, copy, range(COUNT))
        for at, offset in enumerate(there):
            if (group, at) not in stood:
                assert -1001 == offset
                continue
            log = [one for one in logs[topic, at] if window is None or one[0] in window]
            assert behind(log, stood[group, at]) == behind(logs[copy, at], offset)


@pytest.mark.nightly
def test_sixty_groups_over_twenty_partitions(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """At offsets of every kind each reads what is owed: in holes, a window, after kills, twice."""
    groups, chance = [f"g{at}-{topic}" for at in range(60)], Random(7)
    cluster.create(
        topic, COUNT, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )  # fmt: skip
    producer = cluster.producer(**{"transactional.id": topic})
    producer.init_transactions()
    written = produce(producer, topic, chance)
    assert stop_compaction(cluster, topic) < written
    stood = stand(cluster, topic, groups, chance)
    kbackup.json("sink", "-t", topic, "--flush-size", "5")
    cluster.create(copy := f"copy_of_{topic}", COUNT + 2)
    for _ in range(3):
        with running(kbackup, "restore", "-t", topic, *COPY) as command:
            kill_somewhen(command, chance, lambda: any(cluster.end_offsets(copy)))
    kbackup.json("restore", "-t", topic, *COPY)
    done = kbackup.json("restore", "groups", "-t", topic, *COPY)

    assert sorted(groups) == sorted(done.summary["groups"])
    check(cluster, topic, copy, stood)
    added = {cluster.committed(group, copy, [at])[0] for group in groups for at in (20, 21)}
    assert {0} == added

    window = ("--rename-prefix", "some_of_", "--from-offset", "7", "--to-offset", "22")
    kbackup.json("restore", "-t", topic, *window)
    kbackup.json("restore", "groups", "-t", topic, *window)

    check(cluster, topic, f"some_of_{topic}", stood, range(7, 22))

    produce(producer, topic, chance)
    later = stand(cluster, topic, groups, chance)
    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "-t", topic, *COPY)
    kbackup.json("restore", "groups", "-t", topic, *COPY, "--yes")

    check(cluster, topic, copy, {**stood, **later})
    assert 0 == kbackup.json("restore", "verify", "--against", "target", "-t", topic, *COPY).code


RECORDS: Final = 50_000_000
MEMORY: Final = 512 * 2**20


def _limited() -> None:
    """Give this process no more memory of its own, and each thread a small stack of it."""
    resource.setrlimit(resource.RLIMIT_STACK, (2**20, 2**20))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_groups_in_fifty_million_records_are_set_in_little_memory(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Anywhere in them: what is looked for is found by rows, not by a map of all records."""
    partitions, chance = 4, Random(50)
    cluster.create(topic, partitions)
    producer = cluster.producer(compression_type="lz4", batch_num_messages=100_000)
    for number in range(RECORDS):
        if not number % 100_000:
            producer.flush()
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert 0 == producer.flush(60)
    stood = {
        f"g{at}-{topic}": [chance.randrange(RECORDS // partitions) for _ in range(partitions)]
        for at in range(20)
    }
    for group, offsets in stood.items():
        cluster.commit(group, topic, dict(enumerate(offsets)))
    kbackup.json("sink", "-t", topic, "--flush-size", "100000", timeout=900)
    kbackup.json("restore", "-t", topic, *COPY, timeout=900)

    words = ("restore", "groups", "-t", topic, *COPY, "--json")
    itself = Kbackup(kbackup.environment)  # and not what the tests run it by
    out, err = itself.start(*words, preexec_fn=_limited).communicate(timeout=600)

    done = Result(0, out, err)
    assert sorted(stood) == sorted(done.summary["groups"]), f"{out}{err}"
    for line in done.of("group_offset"):
        consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "nobody"})
        consumer.assign([At(line["target"], line["partition"], line["becomes"])])
        value, owed = _next(consumer), line["was"] * partitions + line["partition"]
        consumer.close()
        assert b"%d" % owed == value
