"""A restore that follows and meets what fails or is refused: it is set aside, the rest goes on."""

import json
from io import BytesIO
from pathlib import Path

from kbackup.errors import KafkaError, StoreError
from kbackup.records import TopicPartition
from tests.support.standby import Standby, codes
from tests.support.target import values

TERMINATED = 143
COPY_1 = "copy_of_orders", 1


def test_a_partition_that_fails_is_set_aside_and_the_others_go_on(standby: Standby) -> None:
    """A partition that fails is reported once, and continued after growing pauses."""
    bad = TopicPartition("copy_of_orders", 0)
    standby.sink("orders", 0, range(5), partitions=2)
    standby.sink("orders", 1, range(5), partitions=2)
    standby.target.faults[bad] = KafkaError("writing", "not now")

    def happens(look: int) -> bool:
        standby.sink("orders", 1, range(5 * look, 5 * look + 5), partitions=2)
        return look < 40

    first = standby.follow(happens)
    tried = sum(unit.target == bad for units in standby.tasks.units for unit in units)
    del standby.target.faults[bad]
    second = standby.follow(lambda look: look < 2)

    assert (5, 143) == (first["exit_code"], second["exit_code"])
    assert ["orders-0 is set aside: writing: not now"] == standby.warned("set_aside")
    assert 8 <= tried <= 14
    assert ([], values(range(205))) == (second["errors"], standby.target.values(*COPY_1))
    assert values(range(5)) == standby.target.values("copy_of_orders")


def test_what_failed_goes_on_in_the_same_run(standby: Standby) -> None:
    """Once the fault has passed, the partition is restored, and the run is a good one again."""
    where = TopicPartition("copy_of_orders", 0)
    standby.sink("orders", 0, range(5))
    standby.target.faults[where] = StoreError("get", "503 Slow Down")

    def happens(look: int) -> bool:
        if look == 3:
            del standby.target.faults[where]
        return look < 20

    summary = standby.follow(happens)

    assert (143, []) == (summary["exit_code"], summary["errors"])
    assert ["orders-0: the restore goes on"] == standby.warned("goes_on")
    assert values(range(5)) == standby.target.values("copy_of_orders")


def test_a_topic_that_is_refused_does_not_keep_others_back(standby: Standby) -> None:
    """A target with somebody else's records is left alone, and the run says so at its end."""
    standby.target.create_topic("copy_of_orders", 1, 1, {})
    standby.target.logs[TopicPartition("copy_of_orders", 0)].rows.append({"value": b"mine"})
    for topic in ("orders", "payments"):
        standby.sink(topic, 0, range(3))

    summary = standby.follow(lambda look: look < 3)

    assert (4, ["target_not_empty"]) == (summary["exit_code"], codes(summary))
    assert [b"mine"] == standby.target.values("copy_of_orders")
    assert values(range(3)) == standby.target.values("copy_of_payments")
    assert summary["last_success"] is None


def test_a_copy_that_may_not_grow_waits_for_the_permission(standby: Standby) -> None:
    """Without ALTER, or with --no-create-topics, the topic is set aside with what to do."""
    standby.sink("orders", 0, range(3))
    standby.follow(lambda look: look < 2)
    standby.sink("orders", 1, range(4), partitions=2)
    standby.sink("payments", 0, range(5))
    standby.target.forbidden = frozenset({"ALTER"})

    denied = standby.follow(lambda look: look < 2)
    manual = standby.follow(lambda look: look < 2, create_topics=False)
    standby.target.forbidden = frozenset()
    allowed = standby.follow(lambda look: look < 2)

    assert [(5, ["kafka"]), (4, ["fewer_partitions"]), (143, [])] == [
        (run["exit_code"], codes(run)) for run in (denied, manual, allowed)
    ]
    assert "ALTER is denied" in denied["errors"][0]["why"]
    assert values(range(5)) == standby.target.values("copy_of_payments")
    assert values(range(4)) == standby.target.values("copy_of_orders", 1)


def test_a_damaged_object_stops_its_own_partition_only(standby: Standby) -> None:
    """What is before it is restored, what is after it is not, and its neighbours go on."""
    _, damaged, _ = standby.sink("orders", 0, range(3), range(3, 6), range(6, 9), partitions=2)
    standby.sink("orders", 1, range(3), partitions=2)
    standby.backup.replace(damaged, bytes(len(standby.backup.body(damaged))))

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("orders", 1, range(3, 8), partitions=2)
        return look < 3

    summary = standby.follow(happens)

    assert 7 == summary["exit_code"]
    assert values(range(3)) == standby.target.values("copy_of_orders")
    assert values(range(8)) == standby.target.values(*COPY_1)


def test_nothing_to_restore_is_refused_at_once_where_it_is_all_there_is(standby: Standby) -> None:
    """A run that could only wait for a person ends, as a restore that does not follow."""
    standby.target.create_topic("copy_of_orders", 1, 1, {})
    standby.target.logs[TopicPartition("copy_of_orders", 0)].rows.append({"value": b"mine"})
    standby.sink("orders", 0, range(3))

    summary = standby.follow(lambda look: look < 3)

    assert (4, [], 1) == (summary["exit_code"], standby.waited, standby.tasks.ended)


def test_records_are_added_to_others_only_where_somebody_agreed(standby: Standby) -> None:
    """The question is asked when the run begins; a topic that comes later wants --yes."""
    for topic in ("orders", "payments"):
        standby.target.create_topic(f"copy_of_{topic}", 1, 1, {})
        standby.target.logs[TopicPartition(f"copy_of_{topic}", 0)].rows.append({"value": b"mine"})
    standby.sink("orders", 0, range(3))
    asked: list[str] = []

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("payments", 0, range(3))
        return look < 3

    summary = standby.follow(
        happens, agree=lambda question: not asked.append(question), if_exists="append"
    )

    assert ["copy_of_orders: not empty. Add the backup's records to it?"] == asked
    assert [b"mine", *values(range(3))] == standby.target.values("copy_of_orders")
    assert ([b"mine"], 4) == (standby.target.values("copy_of_payments"), summary["exit_code"])


def test_a_cluster_that_goes_away_is_waited_for(standby: Standby) -> None:
    """The run tries again, less and less often, and goes on; away at the start, it ends."""
    standby.sink("orders", 0, range(3))

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("orders", 0, range(3, 6))
            standby.target.is_away = True
        if look == 6:
            standby.target.is_away = False
        return look < 30

    summary = standby.follow(happens)
    standby.target.is_away = True

    assert (143, values(range(6))) == (
        summary["exit_code"], standby.target.values("copy_of_orders"),
    )  # fmt: skip
    assert 5 == standby.follow(lambda _: True)["exit_code"]


def test_two_topics_are_never_written_to_one(standby: Standby) -> None:
    """A topic that comes later and would be mixed with another one is refused."""
    standby.sink("orders", 0, range(3))

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("other", 0, range(30, 33))
        return look < 3

    summary = standby.follow(happens, rename="all")

    assert (4, "merged_topics") == (summary["exit_code"], codes(summary)[0])
    assert values(range(3)) == standby.target.values("all")


def test_somebody_elses_records_in_the_target_are_noticed(standby: Standby) -> None:
    """What a visit has written is counted in the target: a difference is exit 7 in the end."""
    standby.sink("orders", 0, range(3))
    where = TopicPartition("copy_of_orders", 0)

    def happens(look: int) -> bool:
        if look == 1:
            standby.sink("orders", 0, range(3, 6))
            standby.target.beside[where] = {"value": b"not ours"}
        return look < 3

    summary = standby.follow(happens)

    assert (7, ["audit"]) == (summary["exit_code"], codes(summary))


def test_the_skip_list_names_a_missing_object_at_once(standby: Standby, tmp_path: Path) -> None:
    """Whoever reads the list while the restore follows finds it there, and once."""
    path = tmp_path / "skipped.jsonl"
    gone, *_ = standby.sink("orders", 0, range(5), range(5, 10))
    standby.backup.store.delete(gone)
    seen: list[str] = []

    def happens(look: int) -> bool:
        seen[:] = path.read_text().splitlines()
        standby.sink("orders", 0, range(10 * look, 10 * look + 5))
        return look < 3

    standby.follow(happens, behavior_on_error="log", skipped_file=str(path))

    assert [f"orders-0: {gone} is missing"] == [json.loads(line)["what"] for line in seen]


def test_the_skip_list_names_each_foreign_object_once(standby: Standby, tmp_path: Path) -> None:
    """While the restore follows, with those that come later; however often the bucket is listed."""
    path = tmp_path / "skipped.jsonl"
    standby.sink("orders", 0, range(5))
    standby.backup.store.put("topics/one.txt", BytesIO(b"1"), sha256="", metadata={})

    def happens(look: int) -> bool:
        if look == 2:
            standby.backup.store.put("topics/two.txt", BytesIO(b"2"), sha256="", metadata={})
        return look < 5

    standby.follow(happens, skipped_file=str(path))

    listed = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert ["topics/one.txt", "topics/two.txt"] == listed
