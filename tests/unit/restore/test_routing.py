"""Restores whose transforms choose a topic for each record."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import JSON
from record_samples import batch_of

from kbackup.config import loading
from kbackup.errors import (
    BadRecordError,
    ConfigurationError,
    FeedbackLoopError,
    IllegalTopicNameError,
    MergedTopicsError,
    RefusedError,
    TargetNotEmptyError,
)
from kbackup.events import to_json
from kbackup.records import TopicPartition
from kbackup.restore import routing
from kbackup.restore.run import RestoreRun
from kbackup.runs.context import Environment, Stop
from tests.support.standby import Standby
from tests.support.target import MARKER, CrashError, Restoring
from tests.support.telling import telling

DAY_MS = 86_400_000
OTHER = {"value": b"of others"}
NOVEMBER_14 = 1_699_920_000_000
BY_DAY = {
    "transforms": "day",
    "transforms.day.type": "org.apache.kafka.connect.transforms.TimestampRouter",
}
BY_HEADER = {
    "transforms": "kind",
    "transforms.kind.type": "io.confluent.connect.transforms.ExtractTopic$Header",
    "transforms.kind.field": "kind",
}
BY_VALUE = {
    "transforms": "kind",
    "transforms.kind.type": "io.confluent.connect.transforms.ExtractTopic$Value",
    "transforms.kind.field": "kind",
    "value.converter": "json",
}


def cut(*rows: tuple[int, str | None], start_ms: int = NOVEMBER_14) -> pa.RecordBatch:
    """Return full records: offset, and the kind in header and value; a day between offsets."""
    return batch_of(
        [
            {"offset": at, "timestamp": start_ms + DAY_MS * at, "key": b"k",
             "value": b'{"kind":%s,"n":%d}' % (json.dumps(kind).encode(), at),
             "headers": [] if kind is None else [{"key": "kind", "value": kind.encode()}]}
            for at, kind in rows
        ]
    )  # fmt: skip


def restoring(
    properties: dict[str, str], *cuts: pa.RecordBatch, topic: str = "orders"
) -> Restoring:
    """Return a backup of full records, to be restored with these properties."""
    found = Restoring(properties=properties)
    found.backup.put(topic, 0, *cuts)
    return found


def copied(found: Restoring) -> dict[str, list[int]]:
    """Return the offsets in the backup of the records of each topic, in order."""
    return {
        where.topic: [row["offset"] for row in log.rows if row is not MARKER and row != OTHER]
        for where, log in found.cluster.logs.items()
    }


def restored(found: Restoring, **options: Any) -> dict[str, list[int]]:
    """Restore, and return what each topic has."""
    found.restore(**options)
    return copied(found)


KINDS: Sequence[pa.RecordBatch] = (
    cut((0, "a"), (1, "b"), (4, "a")), cut((5, "a"), (6, "a")), cut((7, "c"), (9, "b")),
)  # fmt: skip


@pytest.mark.parametrize("properties", [BY_HEADER, BY_VALUE])
def test_records_of_a_partition_go_to_the_topics_that_they_name(properties: dict[str, str]) -> None:
    """Each record is written once, to its own topic, in order; a rerun has nothing to do."""
    found = restoring(properties, *KINDS)

    assert {"a": [0, 4, 5, 6], "b": [1, 9], "c": [7]} == restored(found)
    assert [] == found.plan().units()


def test_a_value_that_names_its_topic_is_written_as_it_is() -> None:
    """Its converter does not write it again: no blank, digit or repeated field is lost."""
    values = [b' {"kind":"a",  "n":1.10e2, "x":"\\u00e9"}\n', b'{"kind":"b","kind":"a","f":0.10}']
    found = Restoring(properties=BY_VALUE)
    found.backup.put(
        "orders", 0, batch_of([{"offset": at, "value": each} for at, each in enumerate(values)])
    )
    found.restore()

    assert values == found.cluster.values("a")


def test_a_topic_for_each_day_has_its_name_from_the_renamed_topic() -> None:
    """TimestampRouter sees the name that --rename gives."""
    found = restoring(BY_DAY, cut((0, None), (1, None)), cut((2, None)))

    assert {
        "copy_of_orders-20231114": [0], "copy_of_orders-20231115": [1],
        "copy_of_orders-20231116": [2],
    } == restored(found)  # fmt: skip


def test_only_objects_with_records_of_a_topic_are_read_for_it() -> None:
    """The first topic reads all objects, since it counts what has no topic."""
    plan = restoring(BY_HEADER, *KINDS).plan()

    assert {"a": 3, "b": 2, "c": 1} == {unit.target.topic: len(unit.sets) for unit in plan.units()}
    assert {"a": 4, "b": 2, "c": 1} == {t.copy.target: t.records for t in plan.topics}


@pytest.mark.parametrize("crash_at", [1, 2])
def test_a_restore_that_died_goes_on_in_each_topic(crash_at: int) -> None:
    """Whatever commit it dies at, each record comes once."""
    found = restoring(BY_HEADER, *KINDS)
    with pytest.raises(CrashError):
        found.restore(crash_at=crash_at)

    assert {"a": [0, 4, 5, 6], "b": [1, 9], "c": [7]} == restored(found, run="r2")


def test_what_comes_later_goes_to_its_topics_and_to_new_ones() -> None:
    """A restore that is run again adds what the backup has gained, and the topics that are new."""
    found = restoring(BY_HEADER, *KINDS)
    found.restore()
    found.backup.put("orders", 0, cut((10, "d"), (11, "a")))

    assert {"a": [0, 4, 5, 6, 11], "b": [1, 9], "c": [7], "d": [10]} == restored(found, run="r2")


@pytest.mark.parametrize("crash_at", [0, 1, 2])
def test_values_without_offsets_are_routed_too(crash_at: int) -> None:
    """Objects of the connectors' layout go on by their rows, in each topic."""
    found = Restoring(properties=BY_VALUE)
    found.backup.put("orders", 0, *KINDS[:2], views=JSON)
    if crash_at:
        with pytest.raises(CrashError):
            found.restore(crash_at=crash_at)
    found.restore(run="r2")
    found.backup.put("orders", 0, KINDS[2], views=JSON)
    found.restore(run="r3")

    numbers = {
        name: [json.loads(value or b"")["n"] for value in found.cluster.values(name)]
        for name in found.cluster.ids
    }
    assert {"a": [0, 4, 5, 6], "b": [1, 9], "c": [7]} == numbers
    assert [] == found.plan().units()


def test_a_partition_map_applies_within_each_topic() -> None:
    """Partitions that share those of a target keep their positions apart in each topic."""
    found = Restoring(properties=BY_HEADER)
    found.backup.put("orders", 0, cut((0, "a"), (1, "b")))
    found.backup.put("orders", 1, cut((0, "a"), (2, "a")))
    options: dict[str, Any] = {"partition_map": "modulo", "target_partitions": 1}

    assert {"a": [0, 0, 2], "b": [1]} == restored(found, **options)
    assert [] == found.plan(**options).units()


@pytest.mark.parametrize("on_error", ["fail", "ignore"])
def test_a_record_without_a_topic_is_bad_and_counted_once(on_error: str) -> None:
    """A restore that fails does so before its first record."""
    found = restoring(BY_HEADER, cut((0, "b"), (1, "a"), (2, None), (3, "a")))
    if on_error == "fail":
        with pytest.raises(BadRecordError, match="orders-0 offset 2"):
            found.restore(behavior_on_error=on_error)
        assert {} == copied(found)
        return

    reports = found.restore(on_error=on_error, behavior_on_error=on_error)

    assert {"b": [0], "a": [1, 3]} == copied(found)
    assert {"b": 1, "a": 0} == {each.own.target: each.done.bad_records for each in reports}
    assert all("no header 'kind'" in one.why for each in reports for one in each.own.skipped)


def test_a_line_that_cannot_be_read_is_counted_once() -> None:
    """Each topic's restore reads the object, and one of them counts its bad lines."""
    found = Restoring(properties=BY_VALUE)
    (key,) = found.backup.put("orders", 0, cut((0, "b"), (1, "a"), (2, "a"), (3, "a")), views=JSON)
    lines = found.backup.body(key).split(b"\n")
    found.backup.replace(key, b"\n".join([*lines[:2], b"{", *lines[3:]]))

    reports = found.restore(on_error="log", behavior_on_error="log")

    assert {"b": [0], "a": [1, 3]} == copied(found)
    assert [0, 1] == sorted(each.done.bad_records for each in reports)
    assert [2] == [one.place["offset"] for each in reports for one in each.own.skipped]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("not/a topic", IllegalTopicNameError, id="no name for a topic"),
        pytest.param("__consumer_offsets", IllegalTopicNameError, id="Kafka's own"),
        pytest.param("taken", TargetNotEmptyError, id="has records of others"),
        pytest.param("orders", FeedbackLoopError, id="may be the original"),
    ],
)
def test_a_topic_that_a_record_names_passes_the_checks_before_anything_is_written(
    name: str, error: type[Exception]
) -> None:
    """One record that names a forbidden topic keeps the whole restore from it."""
    found = restoring(BY_HEADER, cut((0, "a"), (1, name)))
    for there in ("taken", "orders"):
        found.cluster.create_topic(there, 1, 1, {})
        found.cluster.logs[TopicPartition(there, 0)].rows.append(OTHER)

    with pytest.raises(error):
        found.restore()

    assert {"taken": [], "orders": []} == copied(found)


@pytest.mark.parametrize("name", ["not/a topic", "", "__consumer_offsets"])
def test_a_record_that_names_no_possible_topic_is_left_out_where_that_is_asked_for(
    name: str,
) -> None:
    """It is counted and named once, and the other records are restored."""
    found = restoring(BY_HEADER, cut((0, "a"), (1, name)), cut((2, "b")))

    reports = found.restore(on_error="log", behavior_on_error="log")

    assert {"a": [0], "b": [2]} == copied(found)
    assert 1 == sum(each.done.bad_records for each in reports)
    (bad,) = [one for each in reports for one in each.own.skipped]
    assert "orders-0 offset 1" in bad.what


def test_two_topics_are_not_mixed_in_one() -> None:
    """Records of two topics that name the same one could not be told apart again."""
    found = restoring(BY_HEADER, cut((0, "a")))
    found.backup.put("payments", 0, cut((0, "a")))

    with pytest.raises(MergedTopicsError, match="orders and payments"):
        found.restore()


def test_a_topic_for_each_record_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that differs from record to record does not fill a cluster with topics."""
    monkeypatch.setattr(routing, "TOPICS_MOST", 2)
    found = restoring(BY_HEADER, cut((0, "a"), (1, "b")), cut((2, "c")))

    with pytest.raises(RefusedError, match="more than 2 topics"):
        found.restore()


def test_a_topic_that_was_emptied_is_restored_again_alone() -> None:
    """Topics keep their positions independently."""
    found = restoring(BY_HEADER, *KINDS)
    found.restore()
    found.cluster.create_topic("b", 1, 1, {})

    assert {"a": [0, 4, 5, 6], "b": [1, 9], "c": [7]} == restored(found, run="r2")


def run_of(standby: Standby, properties: dict[str, str], stop: Stop, **options: Any) -> Any:
    """Return the summary of a whole run."""
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "no_lock": True, **options}
    settings = loading.load(
        "restore", options=given, files=(), environ={},
        extra=[f"{name}={value}" for name, value in properties.items()],
    ).settings  # fmt: skip
    environment = Environment(
        standby.target,  # type: ignore[arg-type]
        standby.backup.settings,
        standby.tasks,
        standby.time,
    )
    return to_json(RestoreRun(settings, telling(standby.told), stop, environment)())


def test_a_plan_names_the_topics_and_a_run_writes_them(standby: Standby) -> None:
    """A plan reads without Spark and ends as the run would."""
    standby.backup.put("orders", 0, *KINDS)

    plan = run_of(standby, BY_HEADER, Stop(), dry_run=True)
    asked = [*standby.tasks.units]
    done = run_of(standby, BY_HEADER, Stop())

    planned = [(each["source"], each["target"], each["records"]) for each in plan["plan"]]
    assert [("orders", "a", 4), ("orders", "b", 2), ("orders", "c", 1)] == planned
    assert (0, []) == (plan["exit_code"], asked)
    assert (0, 7, "plain") == (done["exit_code"], done["records"], done["audit"])
    assert {"a": 4, "b": 2, "c": 1} == {each["target"]: each["records"] for each in done["topics"]}
    assert 3 == len(done["partitions"])


def test_a_backup_of_which_nothing_is_left_is_said(standby: Standby) -> None:
    """A topic without a record that names another is not restored; its records count as skipped."""
    standby.backup.put("orders", 0, cut((0, None), (1, None)))
    keeps = BY_HEADER | {"behavior.on.error": "ignore"}

    done = run_of(standby, keeps, Stop())

    assert ["skipped", "skipped", "no_topic_chosen"] == [each["code"] for each in done["warnings"]]
    assert (3, {"bad_records": 2}, {}) == (
        done["exit_code"], done["skipped"], standby.target.ids,
    )  # fmt: skip


def test_a_run_that_is_stopped_while_it_looks_for_topics_writes_nothing(standby: Standby) -> None:
    """The same command starts again."""
    standby.backup.put("orders", 0, *KINDS)
    stop = Stop()
    stop.ask(15)

    done = run_of(standby, BY_HEADER, stop)

    assert (143, "stopped", {}) == (done["exit_code"], done["result"], standby.target.ids)
    assert 0 == run_of(standby, BY_HEADER, Stop())["exit_code"]


def test_schemas_are_not_registered_for_topics_that_are_not_known(standby: Standby) -> None:
    """Subjects are named after topics, which only the records name."""
    standby.backup.put("orders", 0, *KINDS)

    with pytest.raises(ConfigurationError, match="schemas cannot be registered"):
        run_of(standby, BY_HEADER | {"schema.registry.url": "http://127.0.0.1:1"}, Stop())


@pytest.mark.parametrize(("on_error", "code"), [("fail", 7), ("log", 3)])
def test_a_backup_of_which_everything_is_gone_is_not_restored_to_no_topic(
    standby: Standby, on_error: str, code: int
) -> None:
    """Objects that are missing are reported even where no record is left that names a topic."""
    [key] = standby.sink("orders", 0, range(5))
    standby.backup.store.delete(key)

    done = run_of(standby, BY_HEADER | {"behavior.on.error": on_error}, Stop())

    missing = {} if on_error == "fail" else {"missing_objects": 1}
    assert (code, missing) == (done["exit_code"], done["skipped"])
    assert "no_topic_chosen" in {each["code"] for each in done["warnings"]}


def test_a_record_that_turns_up_below_what_is_restored_is_not_passed_over() -> None:
    """An object that was put back before the others is refused, as in a restore to one topic."""
    found = restoring(BY_HEADER, cut((5, "b"), (6, "a")), cut((7, "c"), (8, "c")))
    found.restore()
    found.backup.put("orders", 0, cut((0, "d"), (1, "b")))

    with pytest.raises(RefusedError, match="gained 2 records below offset 9"):
        found.restore(run="r2")


def test_a_backup_whose_first_objects_expire_is_restored_further() -> None:
    """The topic that counts what has no topic may change; each goes on where it stands."""
    found = restoring(BY_HEADER)
    first, *_ = found.backup.put("orders", 0, *(cut((at, "ab"[at % 2])) for at in range(4)))
    found.restore()
    found.backup.store.delete(first)
    found.backup.put("orders", 0, cut((4, "b"), (5, "a")))

    assert {"a": [0, 2, 5], "b": [1, 3, 4]} == restored(found, run="r2")


def test_values_before_and_after_full_records_are_routed() -> None:
    """Two parts of one object of values are two: none of them is left out of the topics' shares."""
    found = restoring(BY_VALUE)
    rows = cut(*((at, "ab"[at % 2]) for at in range(10)))
    found.backup.put("orders", 0, rows, views=JSON)
    found.backup.put("orders", 0, rows.slice(4, 2))

    found.restore()

    assert {"a": 5, "b": 5} == {topic: len(rows) for topic, rows in copied(found).items()}
