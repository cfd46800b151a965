"""A restore that follows, and whose transforms choose a topic for each record."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from record_samples import batch_of

from kbackup.records import Span, TopicPartition
from kbackup.stores import Store, StoreSettings
from tests.support.frozen_store import FrozenStore
from tests.support.standby import Standby, codes
from tests.support.target import CrashError

BY_HEADER = {
    "transforms": "kind",
    "transforms.kind.type": "io.confluent.connect.transforms.ExtractTopic$Header",
    "transforms.kind.field": "kind",
}


def store(standby: Standby, kinds: Sequence[str | None], start: int, topic: str = "orders") -> str:
    """Store one object, as a sink does: a record for each kind, or for none."""
    rows = [
        {"offset": at, "value": b"%d" % at, "timestamp": 1_700_000_000_000 + at,
         "headers": [] if kind is None else [{"key": "kind", "value": kind.encode()}]}
        for at, kind in enumerate(kinds, start)
    ]  # fmt: skip
    (key,) = standby.backup.put(topic, 0, batch_of(rows))
    standby.name(topic)
    standby.enter(topic, 0, [key], Span(start, start + len(kinds)))
    return key


def follow(standby: Standby, happens: Any, **options: Any) -> dict[str, Any]:
    """Follow with topics that a header chooses."""
    return standby.follow(happens, properties=BY_HEADER, rename=None, **options)


def copied(standby: Standby) -> dict[str, list[int]]:
    """The offsets in the backup of what each topic holds."""
    return {
        name: [int(v or b"") for v in standby.target.values(name)] for name in standby.target.ids
    }


def test_topics_that_turn_up_while_following_are_created_and_written_once(
    standby: Standby,
) -> None:
    """Each record goes to the topic that it names, in order, whenever that topic turned up."""
    store(standby, "aba", 0)

    def happens(look: int) -> bool:
        if look == 1:
            store(standby, "cab", 3)
        if look == 3:
            store(standby, "dd", 6)
        return look < 5

    summary = follow(standby, happens)

    assert {"a": [0, 2, 4], "b": [1, 5], "c": [3], "d": [6, 7]} == copied(standby)
    assert (143, 8, []) == (summary["exit_code"], summary["records"], summary["errors"])
    assert {"a", "b", "c", "d"} == {each["target"] for each in summary["plan"]}


def test_what_was_read_for_its_topics_is_not_read_for_them_again(standby: Standby) -> None:
    """A look reads only objects that are new."""
    store(standby, "ab", 0)

    def happens(look: int) -> bool:
        if look in (1, 2):
            store(standby, "ab", 2 * look)
        if look == 3:
            store(standby, "abc", 4)
        return look < 5

    follow(standby, happens)

    surveys = [[len(one.sets) for one in units] for units in standby.tasks.units[::2]]
    assert [[1], [1], [1], [3]] == surveys
    assert {"a": [0, 2, 4], "b": [1, 3, 5], "c": [6]} == copied(standby)


def test_a_run_that_was_killed_goes_on_in_each_topic(standby: Standby) -> None:
    """Whatever commit it dies at, the next run writes the rest, and nothing twice."""
    store(standby, "aba", 0)
    for crash_at in (1, 2):
        standby.target.crash_at = crash_at
        with pytest.raises(CrashError):
            follow(standby, lambda look: look < 3)
        store(standby, "cab", 3 * crash_at)
    standby.target.crash_at = 0

    summary = follow(standby, lambda look: look < 2)

    assert 143 == summary["exit_code"]
    assert {"a": [0, 2, 4, 7], "b": [1, 5, 8], "c": [3, 6]} == copied(standby)


def test_a_topic_that_must_not_be_written_to_holds_up_its_source_and_no_other(
    standby: Standby,
) -> None:
    """The topic that turns up is refused before a record of that look is written; others go on."""
    standby.target.create_topic("taken", 1, 1, {})
    taken = standby.target.logs[TopicPartition("taken", 0)].rows
    taken.append({"value": b"99"})
    store(standby, "a", 0)
    store(standby, "x", 0, "payments")

    def happens(look: int) -> bool:
        if look == 1:
            store(standby, ["a", "taken"], 1)
            store(standby, "x", 1, "payments")
        return look < 3

    summary = follow(standby, happens)

    assert {"a": [0], "x": [0, 1], "taken": [99]} == copied(standby)
    assert ["target_not_empty"] == codes(summary)

    taken.clear()
    follow(standby, lambda look: look < 2)

    assert {"a": [0, 1], "x": [0, 1], "taken": [2]} == copied(standby)


def test_two_sources_never_share_a_topic_whenever_it_turns_up(standby: Standby) -> None:
    """Records that name a topic which another topic's records go to are not written there."""
    store(standby, "a", 0)

    def happens(look: int) -> bool:
        if look == 1:
            store(standby, "b", 0, "payments")
        if look == 3:
            store(standby, "a", 1, "payments")
        return look < 5

    summary = follow(standby, happens)

    assert {"a": [0], "b": [0]} == copied(standby)
    assert "merged_topics" in codes(summary)


def test_records_without_a_topic_count_once(standby: Standby) -> None:
    """As long as no record of a partition has a topic, and after the first one that has."""
    store(standby, [None, None], 0)

    def happens(look: int) -> bool:
        if look == 2:
            store(standby, ["a", None], 2)
        return look < 5

    early = follow(standby, lambda look: look < 2, behavior_on_error="ignore")
    summary = follow(standby, happens, behavior_on_error="ignore")

    assert ({"bad_records": 2}, {"bad_records": 3}) == (early["skipped"], summary["skipped"])
    assert "no_topic_chosen" in {each["code"] for each in early["warnings"]}
    assert "no_topic_chosen" not in {each["code"] for each in summary["warnings"]}
    assert {"a": [2]} == copied(standby)
    named = [each["text"] for each in summary["warnings"] if each["code"] == "skipped"]
    assert ["orders-0 offset 0", "orders-0 offset 1", "orders-0 offset 3"] == [
        text.partition(":")[0] for text in named
    ]


@dataclass(frozen=True)
class _Archive(StoreSettings):
    store: FrozenStore | None = None

    def open(self) -> Store:
        assert self.store is not None
        return self.store


def test_what_was_read_may_be_archived_while_what_is_new_goes_on(standby: Standby) -> None:
    """Only objects that were not read for their topics yet have to be readable."""
    archive = FrozenStore()
    standby.backup.settings = _Archive("memory://archive", store=archive)
    key = store(standby, "ab", 0)

    def happens(look: int) -> bool:
        if look == 1:
            archive.classes[key] = "GLACIER"
            store(standby, "cb", 2)
        return look < 4

    summary = follow(standby, happens)

    assert {"a": [0], "b": [1, 3], "c": [2]} == copied(standby)
    assert [] == summary["errors"]


def test_a_topic_whose_objects_are_gone_is_set_aside_alone_until_they_are_back(
    standby: Standby,
) -> None:
    """It keeps no other from being restored, and the run does not forget it."""
    key = store(standby, "a", 0)
    store(standby, "x", 0, "payments")
    with standby.backup.store.open(key) as body:
        whole, head = body.read(), standby.backup.store.head(key)
    assert head is not None

    def happens(look: int) -> bool:
        if look == 1:
            standby.backup.store.delete(key)
        if look == 2:
            store(standby, "x", 1, "payments")
        return look < 8

    summary = follow(standby, happens)
    put = standby.backup.store.put
    put(key, io.BytesIO(whole), sha256=head.metadata["sha256"], metadata=head.metadata)
    again = follow(standby, lambda look: look < 3)

    assert {"a": [0], "x": [0, 1]} == copied(standby)
    assert [("incomplete", "orders")] == [(one["code"], one["topic"]) for one in summary["errors"]]
    (aside,) = standby.warned("set_aside")
    assert (True, []) == (aside.startswith("orders is set aside"), again["errors"])
