from typing import Any

import pytest

from kbackup.cli.screens import (
    exit_reason,
    has_worked,
    headline,
    render_error,
    sentence,
    skip_sentence,
)
from kbackup.errors import CorruptObjectError, IllegalTopicNameError, KbackupError
from kbackup.events import PartitionCounts, RestoreTopic, TopicPlanned
from kbackup.naming import check_topic
from tests.support.ended import ended

DONE, CREATED = (
    TopicPlanned("a", "b", PartitionCounts(1), action, None, None, RestoreTopic(0, 0, 0, None))
    for action in ("done", "create")
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(
            KbackupError("orders was not read", "the broker said no", "ask again"),
            "error: orders was not read\n  why: the broker said no\n  do:  ask again",
            id="what, why, what to do",
        ),
        pytest.param(KbackupError("it failed"), "error: it failed", id="what alone"),
        pytest.param(
            CorruptObjectError("cut short", topic="orders", partition=0, offset=0),
            "error: cut short (topic orders, partition 0, offset 0)",
            id="place, partition 0",
        ),
        pytest.param(
            CorruptObjectError("a/b.avro is cut short", key="a/b.avro"),
            "error: a/b.avro is cut short",
            id="place that is named already",
        ),
        pytest.param(
            KbackupError("failed", "one\ntwo\n"),
            "error: failed\n  why: one\n       two",
            id="lines",
        ),
        pytest.param(KbackupError("a\x1b[2J"), "error: a\\x1b[2J", id="control characters"),
    ],
)
def test_what_an_error_says(error: KbackupError, text: str) -> None:
    """Each part has its line, and where more is said; a place is named, no part is empty."""
    assert f"{text}\n  more: kbackup explain {error.code}" == render_error(error.issue())


def test_names_made_of_dots_survive_a_sentence() -> None:
    """A sentence ends with one full stop, even after a name that ends with one."""
    with pytest.raises(IllegalTopicNameError) as caught:
        check_topic("..")

    assert "not the names '.' and '..'. choose" in sentence(caught.value.issue())


def test_a_narrow_error_hangs_below_itself() -> None:
    """On a narrow screen, the parts can still be distinguished."""
    error = KbackupError("the topic orders was not read", "no answer for 10 s").issue()

    assert """\
error: the topic orders
       was not read
  why: no answer for 10 s
  more: kbackup explain failed""" == render_error(error, 25)


@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        pytest.param({"exit_code": 0}, "", id="good"),
        pytest.param(
            {"exit_code": 3, "skipped": {"bad_records": 2, "large_records": 1, "tombstones": 9}},
            "exit 3: 3 records skipped (2 bad, 1 large)",
            id="records of two kinds, tombstones as asked for",
        ),
        pytest.param(
            {"exit_code": 3, "skipped": {"foreign_objects": 1200, "missing_offsets": 7}},
            "exit 3: 1\u2009200 foreign objects skipped, 7 offsets missing",
            id="objects and offsets",
        ),
        pytest.param(
            {"exit_code": 3, "skipped": {"bad_objects": 1, "foreign_objects": 1}},
            "exit 3: 1 bad object skipped, 1 foreign object skipped",
            id="one of each",
        ),
        pytest.param(
            {"exit_code": 3, "skipped": {"timestamps_of_0_ms_written_as_1_ms": 1}},
            "exit 3: 1 timestamp of 0 ms written as 1 ms",
            id="a timestamp",
        ),
        pytest.param(
            {"exit_code": 3, "skipped": {"missing_objects": 1}},
            "exit 3: 1 object missing",
            id="one object",
        ),
        pytest.param(
            {"exit_code": 3, "skipped": {"incomplete_partitions": 2}},
            "exit 3: 2 partitions incomplete",
            id="what an earlier run left out",
        ),
        pytest.param({"exit_code": 3}, "exit 3: records or objects were skipped", id="unnamed"),
        pytest.param(
            {"exit_code": 3, "reason": "kept in orders-dlq"},
            "exit 3: kept in orders-dlq",
            id="given",
        ),
        pytest.param(
            {"exit_code": 7, "errors": [{}, {}]},
            "exit 7: the backup is corrupt, incomplete, or lacks what was asked for (2 errors)",
            id="two errors",
        ),
        pytest.param(
            {"exit_code": 7, "errors": [{"code": "outdated"}]},
            "exit 7: the newest good run is too old, or there is none",
            id="outdated",
        ),
        pytest.param(
            {"exit_code": 7, "errors": [{"code": "outdated"}, {"code": "corrupt"}]},
            "exit 7: the backup is corrupt, incomplete, or lacks what was asked for (2 errors)",
            id="outdated and more",
        ),
        pytest.param(
            {"exit_code": 5, "errors": [{"code": "registry"}]},
            "exit 5: the Schema Registry cannot be used",
            id="the service, which is not Kafka",
        ),
        pytest.param({"exit_code": 143}, "exit 143: stopped by SIGTERM", id="stopped"),
        pytest.param({"exit_code": 77}, "exit 77: failed", id="a code nobody knows"),
    ],
)
def test_the_reason_of_an_exit_code(summary: dict[str, Any], reason: str) -> None:
    """A code other than 0 is explained in one line."""
    assert reason == exit_reason(ended(**summary))


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        pytest.param({"result": "ok", "records": 5}, "sink finished", id="done"),
        pytest.param({"result": "ok", "records": 0}, "sink finished, nothing new", id="idle"),
        pytest.param(
            {"command": "restore", "result": "ok", "records": 0, "plan": [DONE]},
            "restore finished, nothing new",
            id="an idle restore",
        ),
        pytest.param(
            {"command": "restore", "result": "ok", "records": 0, "plan": [DONE, CREATED]},
            "restore finished",
            id="an empty topic created",
        ),
        pytest.param(
            {
                "command": "restore",
                "result": "ok",
                "records": 0,
                "plan": [DONE],
                "warnings": [{"code": "partitions_added"}],
            },
            "restore finished",
            id="partitions added",
        ),
        pytest.param({"result": "stopped", "records": 5}, "sink stopped", id="stopped"),
        pytest.param({"result": "failed"}, "sink failed", id="failed"),
    ],
)
def test_the_headline(summary: dict[str, Any], line: str) -> None:
    """The first line of a result says how the run ended."""
    assert line == headline(ended(**summary))


@pytest.mark.parametrize(
    ("summary", "is_so"),
    [
        pytest.param({"result": "failed"}, False, id="Kafka down at the start"),
        pytest.param(
            {"result": "failed", "partitions": [{"records": 0, "state": "to do"}]},
            False,
            id="planned, nothing begun",
        ),
        pytest.param(
            {"result": "failed", "partitions": [{"records": 0, "state": "up to date"}]},
            False,
            id="nothing to do there",
        ),
        pytest.param(
            {"result": "failed", "partitions": [{"records": 7, "state": "to do"}]},
            True,
            id="some records are safe",
        ),
        pytest.param(
            {"result": "failed", "partitions": [{"records": 0, "state": "failed"}]},
            True,
            id="failed on the way",
        ),
        pytest.param({"result": "stopped", "partitions": []}, True, id="stopped"),
    ],
)
def test_whether_there_is_something_to_go_on_with(summary: dict[str, Any], is_so: bool) -> None:
    """A command that never began does not advise continuing it."""
    assert is_so == has_worked(ended(**summary))


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("objects_without_ledger", "1 object without ledger", "2 objects without ledger"),
        ("objects_not_entered", "1 object not entered", "2 objects not entered"),
        ("partitions_not_compared", "1 partition not compared", "2 partitions not compared"),
        (
            "partitions_with_removed_objects",
            "1 partition with removed objects",
            "2 partitions with removed objects",
        ),
        (
            "topics_with_other_timestamps",
            "1 topic with other timestamps",
            "2 topics with other timestamps",
        ),
        (
            "records_of_unregistered_schemas",
            "1 record of unregistered schemas",
            "2 records of unregistered schemas",
        ),
        ("locked_topics", "1 locked topic skipped", "2 locked topics skipped"),
        ("other_format_objects", "1 other format object skipped", "2 other format objects skipped"),
        ("missing_captures", "1 capture missing", "2 captures missing"),
        ("incomplete_captures", "1 capture incomplete", "2 captures incomplete"),
    ],
)
def test_one_is_singular_and_only_what_was_skipped_is_called_so(
    name: str, one: str, two: str
) -> None:
    """What was written with another timestamp, or not compared, was not skipped."""
    assert (one, two) == (skip_sentence({name: 1}), skip_sentence({name: 2}))
