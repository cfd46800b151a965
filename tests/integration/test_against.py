"""What was backed up and what was restored, compared record by record, on a real cluster."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final

import pytest

from tests.integration.product import KafkaSettings, Position
from tests.integration.product import TopicPartition as Where
from tests.support.cluster import Record, TestCluster, send
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

COPY: Final = ("--rename-prefix", "copy_of_")


def records(count: int) -> list[Record]:
    """Records with all that a record can have, null, empty and absent among them."""
    return [
        Record(
            (None, b"", b"k%d" % at)[at % 3], (b"v%d" % at, None, b"", b"\0" * 100)[at % 4],
            (("n", b"%d" % at), ("n", None), ("", b""))[: at % 4], 1_700_000_000_000 + at,
        )
        for at in range(count)
    ]  # fmt: skip


@pytest.fixture
def holey(kbackup: Kbackup, cluster: TestCluster, topic: str) -> int:
    """A topic with holes that was backed up and restored; how many records it holds."""
    cluster.create(topic, 2)
    producer = cluster.producer(**{"transactional.id": topic})
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        send(producer, topic, records(60))
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)()
    kbackup.json("sink", "-t", topic, "--flush-size", "25")
    kbackup.json("restore", "-t", topic, *COPY)
    return 120


def test_both_sides_are_the_same(
    kbackup: Kbackup, cluster: TestCluster, topic: str, holey: int
) -> None:
    """With aborted transactions, markers, and records written since on either side."""
    for name in (topic, f"copy_of_{topic}"):
        cluster.write(name, records(3))

    source = kbackup.json("restore", "verify", "-t", topic, "--against", "source")
    target = kbackup.json("restore", "verify", "-t", topic, "--against", "target", *COPY)

    for done in (source, target):
        lines = done.of("compared")
        assert (0, holey) == (done.summary["exit_code"], sum(one["records"] for one in lines))
        assert 3 <= sum(one["behind"] for one in lines)
        assert not any(one["differences"] for one in lines)
    assert 5 == sum(one["proven"] for one in source.of("compared"))
    proofs = kbackup.json("sink", "status", "-t", topic).summary["proofs"]
    assert {"source": True, "target": True} == {
        one["mode"]: one["exit_code"] == 0 and one["passed"] == one["started"] for one in proofs
    }


Alter = Callable[[Sequence[Record]], Sequence[Record]]


def changed(at: int, **columns: Any) -> Alter:
    """One record with other columns."""

    def alter(rows: Sequence[Record]) -> Sequence[Record]:
        return [*rows[:at], rows[at]._replace(**columns), *rows[at + 1 :]]

    return alter


ALTERED: Mapping[str, tuple[int, str, Alter]] = {
    "value": (20, "value", changed(20, value=b"w20")),
    "null for empty": (22, "value", changed(22, value=None)),
    "key": (5, "key", changed(5, key=b"")),
    "headers": (31, "headers", changed(31, headers=(("n", None), ("n", b"31"), ("", b"")))),
    "a millisecond": (0, "timestamp", changed(0, timestamp=1_700_000_000_001)),
    "missing at the head": (0, "only in the backup", lambda rows: rows[1:]),
    "missing": (30, "only in the backup", lambda rows: [*rows[:30], *rows[31:]]),
    "missing at the end": (59, "only in the backup", lambda rows: rows[:-1]),
    "swapped": (
        10,
        "key, value, headers, timestamp",
        lambda rows: [*rows[:10], rows[11], rows[10], *rows[12:]],
    ),
    "doubled": (31, "only in Kafka", lambda rows: [*rows[:31], *rows[30:]]),
}
"""How a copy is altered: the offset and what is said there."""


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_copy_is_named_at_its_offset(
    kbackup: Kbackup, cluster: TestCluster, topic: str, name: str
) -> None:
    """What another hand has written behind the copy, and a position that calls it the copy."""
    at, what, alter = ALTERED[name]
    cluster.create(topic)
    cluster.write(topic, records(60))
    kbackup.json("sink", "-t", topic)
    group = kbackup.json("restore", "-t", topic, *COPY).summary["group"]
    begin = cluster.ends(copy := f"copy_of_{topic}")[1]
    cluster.write(copy, alter(records(60)))
    kafka = KafkaSettings(cluster.servers).cluster()
    (position,) = kafka.committed(group, [Where(copy, 0)]).values()
    said = json.loads(position.metadata)
    said["log"] = [begin, begin]
    said.pop("translated")
    moved = Position(position.offset, json.dumps(said, separators=(",", ":")))
    kafka.set_positions(group, {Where(copy, 0): moved})

    words = ("restore", "verify", "-t", topic, "--against", "target", *COPY)
    done = kbackup.json(*words, expect=7)

    (line,) = done.of("compared")
    first = line["differences"][0]
    stands = first["kafka_offset"] - begin if first["offset"] is None else first["offset"]
    assert (at, what) == (stands, first["what"])


@pytest.mark.nightly
def test_a_live_source_is_never_called_different(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A hundred times, while records are written, expire, and are superseded."""
    quick: Any = {"segment_ms": "100", "delete_retention_ms": "0"}
    cluster.create(topic, retention_ms="8000", **quick)
    cluster.create(keyed := f"{topic}-keyed", cleanup_policy="compact",
                   min_cleanable_dirty_ratio="0.01", **quick)  # fmt: skip
    stop = Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            for name in (topic, keyed):
                now = int(time.time() * 1000)
                rows = [Record(b"%d" % (at % 7), b"%d" % at, (), now)
                        for at in range(number, number + 20)]  # fmt: skip
                cluster.write(name, rows)
            number += 20
            time.sleep(0.05)

    work = Thread(target=write)
    work.start()
    words = ("-t", topic, "-t", keyed)
    seen = {"behind": 0, "expired": 0, "compacted": 0}
    try:
        for turn in range(100):
            if turn % 5 == 0:
                assert kbackup("sink", *words).code in (0, 3)  # what had expired before it
            done = kbackup("restore", "verify", "--against", "source", *words, "--json")
            assert done.code in (0, 3), done.stdout
            for line in done.of("compared"):
                assert not line["differences"]
                seen = {name: count + (line[name] or 0) for name, count in seen.items()}
    finally:
        stop.set()
        work.join()

    assert all(seen.values()), seen
