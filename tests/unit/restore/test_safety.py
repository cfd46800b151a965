"""What forbids a restore before its first record."""

from dataclasses import replace

import pytest

from kbackup.config import loading
from kbackup.restore.checks import (
    Target,
    TopicCopy,
    collisions,
    grows,
    refusals,
    small_messages,
    too_large,
    warnings,
)
from tests.support.target import Restoring

COPY = TopicCopy("orders", "copy_of_orders", 3, is_same_cluster=True)
SAME = TopicCopy("orders", "orders", 3, is_same_cluster=True)
NOW = 1_800_000_000_000


def codes(copy: TopicCopy, target: Target, if_exists: str = "fail", *, creates: bool = True,
          allows_same_topic: bool = False) -> list[str]:  # fmt: skip
    """The codes of all refusals."""
    options = {
        "bootstrap_servers": "-", "s3_bucket_name": "b", "if_exists": if_exists,
        "create_topics": creates, "allow_same_topic": allows_same_topic,
    }  # fmt: skip
    settings = loading.load("restore", options=options, files=(), environ={}).settings
    partitions = target.partitions or copy.partitions
    found = refusals(replace(copy, there=target), settings, now_ms=NOW, partitions=partitions)
    return [error.code for error in found]


@pytest.mark.parametrize(
    ("copy", "target", "expected"),
    [
        pytest.param(COPY, Target(), [], id="a new topic"),
        pytest.param(COPY, Target(3), [], id="an empty topic"),
        pytest.param(COPY, Target(5), [], id="more partitions"),
        pytest.param(COPY, Target(2), ["fewer_partitions"], id="fewer partitions"),
        pytest.param(COPY, Target(3, 10), ["target_not_empty"], id="not empty"),
        pytest.param(COPY, Target(3, 0, True), [], id="not empty, but begun by this restore"),
        pytest.param(COPY, Target(3, 9, True), ["target_not_empty"], id="begun in a part of it"),
        pytest.param(SAME, Target(3), ["feedback_loop"], id="onto its own source"),
        pytest.param(SAME, Target(), [], id="its own source, which is gone"),
        pytest.param(replace(SAME, is_same_cluster=False), Target(3), [], id="another cluster"),
        pytest.param(
            replace(SAME, is_same_cluster=None), Target(3, 10),
            ["feedback_loop"], id="perhaps its own source",
        ),
        pytest.param(
            replace(SAME, is_same_cluster=None), Target(3), [], id="unknown source, but empty"
        ),
        pytest.param(
            replace(COPY, is_watched=True), Target(3), ["feedback_loop"], id="a sink reads it"
        ),
        pytest.param(
            replace(COPY, target="a/b"), Target(), ["illegal_topic_name"], id="illegal name"
        ),
        pytest.param(
            replace(COPY, target="__consumer_offsets"), Target(), ["illegal_topic_name"],
            id="internal topic",
        ),
        pytest.param(
            replace(COPY, oldest_timestamp=NOW - 1000),
            Target(3, config={"retention.ms": "500"}), ["retention"], id="would be deleted at once",
        ),
        pytest.param(
            replace(COPY, oldest_timestamp=NOW - 1000),
            Target(3, config={"message.timestamp.before.max.ms": "500"}), ["retention"],
            id="too old to be taken",
        ),
        pytest.param(
            replace(COPY, oldest_timestamp=NOW - 1000),
            Target(3, config={"retention.ms": "-1"}), [], id="kept for ever",
        ),
        pytest.param(
            replace(COPY, oldest_timestamp=NOW - 1000),
            Target(3, config={"retention.ms": "500", "cleanup.policy": "compact"}), ["retention"],
            id="compacted: keys would be lost",
        ),
    ],
)  # fmt: skip
def test_each_rule_refuses_what_it_should(
    copy: TopicCopy, target: Target, expected: list[str]
) -> None:
    """A restore that could lose or spoil data does not begin; a plain one does."""
    assert expected == codes(copy, target)


def test_what_the_operator_agreed_to_is_done() -> None:
    """Each refusal names the way past it, and that way works."""
    assert [] == codes(COPY, Target(3, 10), "append")
    assert [] == codes(SAME, Target(3), allows_same_topic=True)
    assert ["target_not_empty"] == codes(COPY, Target(3, 10), "resume")
    assert [] == codes(COPY, Target(3, 0, True), "resume")
    assert ["refused"] == codes(COPY, Target(), creates=False)
    assert ["target_not_empty"] == codes(COPY, Target(), "resume")
    internal = TopicCopy("__consumer_offsets", "__consumer_offsets", 1, True, False)
    assert [] == codes(internal, Target())


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({"retention.ms": "1000"}, ["retention"], id="old records, unknown age"),
        pytest.param({"retention.bytes": "1000"}, ["retention"], id="more than its size"),
        pytest.param(
            {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"},
            ["compacted", "append_time"], id="compaction and append time",
        ),
    ],
)  # fmt: skip
def test_what_a_target_changes_is_said(config: dict[str, str], expected: list[str]) -> None:
    """What may be deleted, or looks otherwise there, is the operator's to know."""
    copy = replace(COPY, there=Target(1, config=config))

    assert expected == [code for code, _ in warnings(copy)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({"retention.bytes": "999"}, ["retention"], id="fewer"),
        pytest.param({"retention.bytes": "1000"}, [], id="as many"),
        pytest.param({"retention.bytes": "-1"}, [], id="all"),
        pytest.param({"retention.bytes": "0", "cleanup.policy": "compact"}, [], id="compacted"),
        pytest.param({}, [], id="left to the cluster"),
    ],
)
def test_a_target_that_keeps_fewer_bytes_than_are_restored_is_refused(
    config: dict[str, str], expected: list[str]
) -> None:
    """What is larger than retention.bytes would be deleted while it is restored."""
    copy = replace(COPY, there=Target(1, config=config))

    assert expected == [error.code for error in too_large(copy, 1000)]


@pytest.mark.parametrize(
    ("others", "target", "there", "expected"),
    [
        pytest.param([COPY], COPY.target, [], ["merged_topics"], id="two sources on one target"),
        pytest.param([replace(COPY, target="a.b")], "a_b", [], ["illegal_topic_name"], id="alike"),
        pytest.param([], "a_b", ["a.b"], ["illegal_topic_name"], id="like one that is there"),
        pytest.param([], "a_b", ["a.b", "a_b"], [], id="both are there"),
        pytest.param([], "a_b", ["ab"], [], id="another name"),
    ],
)
def test_topics_that_could_not_be_told_apart_are_refused(
    others: list[TopicCopy], target: str, there: list[str], expected: list[str]
) -> None:
    """Their records in one topic, or their names in Kafka's metrics, which have no dots."""
    found = collisions([*others, replace(COPY, source="payments", target=target)], there)

    assert expected == [error.code for error in found]


@pytest.mark.parametrize("partitions", [pytest.param(None, id="created"), 3])
@pytest.mark.parametrize(
    ("config", "is_compacted", "expected"),
    [
        pytest.param({"retention.ms": "60000"}, False, ["retention"], id="expires"),
        pytest.param({"message.timestamp.before.max.ms": "9"}, False, ["retention"], id="too old"),
        pytest.param({"cleanup.policy": "compact"}, False, ["retention"], id="compacted"),
        pytest.param({"cleanup.policy": "compact"}, True, [], id="as the original"),
        pytest.param({"retention.ms": "-1", "cleanup.policy": "delete"}, False, [], id="keeps all"),
        pytest.param({"retention.ms": "long"}, False, [], id="left to the cluster"),
    ],
)
def test_a_created_topic_is_judged_as_an_existing_one(
    partitions: int | None, config: dict[str, str], expected: list[str], *, is_compacted: bool
) -> None:
    """What would delete or refuse restored records is refused, whoever creates the topic."""
    original = {"cleanup.policy": "compact"} if is_compacted else {}
    copy = replace(COPY, oldest_timestamp=NOW - 86_400_000, original=original)

    assert expected == codes(copy, Target(partitions, config=config))


@pytest.mark.parametrize(
    ("original", "limit", "expected"),
    [
        pytest.param(2_000_000, 1_048_588, ["message_size"], id="smaller than the original's"),
        pytest.param(None, 20_000, ["message_size"], id="smaller than Kafka's default"),
        pytest.param(2_000_000, 2_000_000, [], id="as large"),
        pytest.param(None, 1_048_588, [], id="the default"),
        pytest.param(2_000_000, None, [], id="not known"),
    ],
)
def test_a_target_that_takes_smaller_messages_is_said(
    original: int | None, limit: int | None, expected: list[str]
) -> None:
    """The plan warns of a limit below the original's before a record is refused for its size."""
    copy = (
        COPY if original is None else replace(COPY, original={"max.message.bytes": str(original)})
    )

    assert expected == [code for code, _ in small_messages(copy, limit)]


@pytest.mark.parametrize(
    ("target", "follows", "creates", "expected"),
    [
        pytest.param(Target(2, 0, True), False, True, True, id="a copy of this restore's own"),
        pytest.param(Target(2, 0, True), False, False, False, id="nothing is to be created"),
        pytest.param(Target(2), False, True, False, id="a topic that somebody else made"),
        pytest.param(Target(2), True, True, True, id="no records, and the restore follows"),
        pytest.param(Target(2, 9), True, True, False, id="records of somebody else"),
        pytest.param(Target(3, 0, True), True, True, False, id="as many as the backup"),
        pytest.param(Target(), True, True, False, id="no topic"),
    ],
)
def test_only_a_copy_grows(target: Target, *, follows: bool, creates: bool, expected: bool) -> None:
    """Partitions are added to a copy of the restore's own, and never to a topic in others' use."""
    assert expected == grows(replace(COPY, there=target), follows=follows, creates=creates)


def test_a_plan_knows_the_names_that_the_cluster_has() -> None:
    """Kafka would refuse to create the topic, so the plan does."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5))
    restoring.cluster.create_topic("copy.of.orders", 1, 1, {})

    found = restoring.plan().refusals

    assert ["illegal_topic_name"] == [error.code for error in found]
