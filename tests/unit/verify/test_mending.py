"""A ledger that is damaged or lost, and objects that were removed on purpose."""

import pytest
from backup_samples import Backup, batch

from kbackup.catalog.ledger.rows import OBJECTS, TOPICS, TopicEntry, stored, table
from kbackup.catalog.ledger.stream import topic_stream, topics_stream
from kbackup.errors import ConfigurationError
from kbackup.naming import TemplateLayout, View
from kbackup.records import Facts, Span
from kbackup.runs import backup_state
from kbackup.verify.run import Acceptance
from tests.support.ledgers import (
    CLOCK,
    ID,
    WHERE,
    backup_with_ledger,
    by_ledger,
    damage,
    enter,
    mending,
    verified,
)


def forget_topics(backup: Backup) -> None:
    """Delete what the ledger says of topics."""
    for one in [*backup.store.list(topics_stream(backup.store, backup.layout, CLOCK).prefix)]:
        backup.store.delete(one.key)


def test_a_missing_object_is_named_by_the_ledger() -> None:
    """With its key and offsets, without any run record, and whoever stored it."""
    backup, keys = backup_with_ledger(range(10), range(10, 20), range(20, 30))
    backup.store.delete(keys[1])

    code, (found,) = verified(backup)

    expected = 7, "missing_object", keys[1], [10, 19]
    assert expected == (code, found["code"], found["key"], found["offsets"])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_the_ledger_says_of_objects_counts_where_that_of_topics_is_gone(at: int) -> None:
    """A missing object is named; that settings and partitions are not known is said."""
    backup, keys = backup_with_ledger(range(10), range(10, 20), range(20, 30))
    forget_topics(backup)
    said = by_ledger(backup)
    backup.store.delete(keys[at])

    found = by_ledger(backup)

    assert (0, ["no_ledger"]) == (
        said.exit_code, [each["code"] for each in said.summary["warnings"]],
    )  # fmt: skip
    assert (7, [("missing_object", keys[at])]) == (found.exit_code, found.errors)
    assert 1 == len(found.findings)


def test_what_was_stored_under_another_template_is_not_to_be_backed_up_again() -> None:
    """Where object.name.template has changed, verify says that, and how to read the object."""
    names = "{year}/{month}/{day}/{topic}-{partition}-{offset}"
    backup = Backup(layout=TemplateLayout(template=names))
    key = backup.put_blocks("2026/01/01", "orders", 0, [b"1", b"2"])
    row = stored(WHERE, key, View.VALUE, Facts(0, 1, 2, None, None, ""), 9, Span(0, 2), "r1", 0)
    topics = [TopicEntry("topic", "orders", "cluster-1", "id", 1)]
    topics_stream(backup.store, backup.layout, CLOCK).append(table(topics, TOPICS))
    topic_stream(backup.store, backup.layout, "orders", CLOCK).append(table([row], OBJECTS))
    backup.layout = TemplateLayout(template="{date}/{topic}_{partition}_{offset}")
    backup.put_blocks("2026-02-01", "orders", 0, [b"1"])

    found = by_ledger(backup)

    assert (7, [("missing_object", key)]) == (found.exit_code, found.errors)
    assert "object.name.template" in found.texts
    assert ["object.name.template" in error["do"] for error in found.summary["errors"]] == [True]
    assert "repair" not in {event.get("code") for event in found.events}


@pytest.mark.parametrize(
    ("cuts", "shallow", "deep", "codes"),
    [
        pytest.param([range(10), range(5, 15)], 15, 15, {"overlap"}, id="two"),
        pytest.param(
            [range(20), range(5, 10), range(8, 25)], 25, 25, {"overlap"}, id="one over two"
        ),
        pytest.param(
            [range(0, 20, 2), range(5, 15)], None, 15, {"overlap"}, id="offsets are missing"
        ),
        pytest.param([range(0, 20, 2), range(19, 25)], 16, 16, set(), id="no overlap"),
    ],
)
def test_records_in_several_objects_are_counted_once(
    cuts: list[range], shallow: int | None, deep: int, codes: set[str]
) -> None:
    """Names and ledger alone say how many they are, or that this is not known."""
    backup, _ = backup_with_ledger(*cuts)

    found = [by_ledger(backup, deep=way) for way in (False, True)]

    assert [shallow, deep] == [one.summary["records"] for one in found]
    assert [codes] * 2 == [{each["code"] for each in one.findings} for one in found]


@pytest.mark.parametrize(
    ("cuts", "shallow", "deep"),
    [
        pytest.param({"a": (range(10),), "b": (range(5, 15),)}, 15, 15, id="other cuts"),
        pytest.param(
            {"a": (range(0, 20, 2),), "b": (range(1, 20, 2),)}, 20, 20, id="one cut, side by side"
        ),
        pytest.param(
            {"a": (range(0, 20, 2),), "b": (range(1, 20, 2),), "c": (range(10, 30),)},
            30, 30, id="a later cut over both of one",
        ),
        pytest.param({"a": (range(0, 10, 2),), "b": (range(4, 12),)}, None, 10, id="lacking"),
    ],
)  # fmt: skip
def test_records_in_several_directories_are_counted_once(
    cuts: dict[str, tuple[range]], shallow: int | None, deep: int
) -> None:
    """A retry by another partitioner leaves the same records in other directories."""
    backup, _ = backup_with_ledger()
    for directory, (offsets,) in cuts.items():
        key = backup.put_in(directory, "orders", 0, offsets)
        cut = range(20) if offsets.step == 2 and offsets.stop == 20 else offsets
        enter(backup, key, cut)

    names, read = (by_ledger(backup, deep=way) for way in (False, True))

    assert [shallow, deep] == [one.summary["records"] for one in (names, read)]
    assert [] == read.findings


def test_other_records_in_another_directory_are_an_error() -> None:
    """A restore merges directories by offset, so two records of one offset would stop it."""
    backup, _ = backup_with_ledger()
    enter(backup, backup.put_in("a", "orders", 0, range(5)), range(5))
    key = backup.put_in("b", "orders", 0, batch(range(3, 6), value=b"another"))
    enter(backup, key, range(3, 6))

    assert ["overlap"] == [one["code"] for one in verified(backup, deep=True)[1]]


def test_the_command_that_backs_offsets_up_again_is_named() -> None:
    """With the place of each object that is missing."""
    backup, keys = backup_with_ledger(range(10), range(10, 20), range(20, 30))
    backup.store.delete(keys[1])
    backup.store.delete(keys[2])

    found = by_ledger(backup)

    (text,) = (one["text"] for one in found.events if one.get("code") == "repair")
    assert "orders:0:10,orders:0:20" in text
    (remaining,) = found.summary["remaining"]
    assert remaining["command"] == "kbackup sink repair orders:0:10,orders:0:20 --config FILE"


@pytest.mark.parametrize("folder", ["objects/", "topics/", ""])
def test_a_damaged_ledger_is_reported_and_rebuilt_from_the_objects(folder: str) -> None:
    """As if nothing had happened; also which topic it is, which the objects say."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    damage(backup, folder)

    assert 7 == verified(backup)[0]
    events = [*mending(backup).rebuild()]

    assert ["ledger_rebuilt"] == [event.code for event in events]
    assert (0, []) == verified(backup)
    said = backup_state.read(backup.store, backup.layout, CLOCK)
    assert ID == said.topics["orders"].identity
    rows = said.ledger(WHERE).objects
    assert {*keys} == {*rows}
    assert [(0, 10), (10, 20)] == [row.cut and row.cut[:2] for row in rows.values()]


@pytest.mark.parametrize("claimed", [100_001, 2**31 - 1, -1])
def test_a_number_of_partitions_that_no_topic_has_is_damage(claimed: int) -> None:
    """Verify says so, work is bounded by what is there, and rebuilding the ledger mends it."""
    backup, _ = backup_with_ledger(range(10))
    topics = [TopicEntry("topic", "orders", ID.cluster_id, ID.topic_id, claimed)]
    ledger = topics_stream(backup.store, backup.layout, CLOCK)
    ledger.rewrite(lambda _: table(topics, TOPICS))

    before, said = verified(backup)[0], backup_state.read(backup.store, backup.layout, CLOCK)
    list(mending(backup).rebuild())

    assert (7, {WHERE}) == (before, said.partitions())
    assert f"it gives orders {claimed} partitions" in said.damage[0].why
    assert (0, []) == verified(backup)
    assert 1 == backup_state.read(backup.store, backup.layout, CLOCK).topics["orders"].partitions


def test_a_rebuilt_ledger_still_misses_what_is_gone() -> None:
    """Rebuilding the ledger does not make a missing object pass: only accepting the loss does."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])

    list(mending(backup).rebuild())

    assert 7 == verified(backup)[0]


def test_a_topic_that_only_rows_about_its_objects_name_is_rebuilt_too() -> None:
    """Where what the ledger said of topics is gone, and the objects are: they stay missed."""
    backup, keys = backup_with_ledger(range(10))
    forget_topics(backup)
    backup.store.delete(keys[0])

    [*_] = mending(backup).rebuild()

    said = backup_state.read(backup.store, backup.layout, CLOCK)
    assert (1, 7) == (said.topics["orders"].partitions, verified(backup)[0])


@pytest.mark.parametrize(
    "acceptance",
    [Acceptance.parse(["orders:0:0-9"], None), Acceptance.parse([], "2999-01-01")],
    ids=["by offsets", "by date"],
)
def test_what_was_removed_on_purpose_is_not_missed_again(acceptance: Acceptance) -> None:
    """A loss that was accepted is not reported again, and any other is."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])

    events = [*mending(backup).accept(acceptance)]

    assert ["accepted_missing"] == [event.code for event in events]
    assert 0 == verified(backup)[0]
    backup.store.delete(keys[1])
    assert 7 == verified(backup)[0]


def test_the_error_names_the_command_that_accepts_the_loss() -> None:
    """What it says can be given as it is."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])
    (error,) = by_ledger(backup).summary["errors"]

    line = error["do"].partition("if it was removed on purpose: ")[2]
    list(
        mending(backup).accept(Acceptance.parse([line.removeprefix("kbackup sink accept ")], None))
    )

    assert 0 == verified(backup)[0]


def test_nothing_is_accepted_that_was_not_named() -> None:
    """Other offsets, another partition, or a date before it was stored."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    backup.store.delete(keys[0])

    for ranges, before in ((["orders:0:0-8"], None), (["orders:1:0-9"], None), ([], "2001-01-01")):
        list(mending(backup).accept(Acceptance.parse(ranges, before)))

    assert 7 == verified(backup)[0]


def test_a_topic_that_is_not_there_is_not_accepted() -> None:
    """A name with a slip would leave the loss as it is, and look as if it were accepted."""
    backup, _ = backup_with_ledger(range(10))

    with pytest.raises(ConfigurationError, match=r"nope is not among .*: orders") as it:
        list(mending(backup).accept(Acceptance.parse(["orders:0:0-9", "nope:0:0-1"], None)))

    assert "nope:0:0-1 cannot be accepted" == it.value.what


@pytest.mark.parametrize("text", ["orders:0", "orders:0:9-1", "a/b:0:1-2", "orders:x:1-2"])
def test_what_is_no_range_is_a_usage_error(text: str) -> None:
    """Offsets that cannot be read are a usage error, before the bucket is asked for anything."""
    with pytest.raises(ConfigurationError, match="is not a range of offsets"):
        Acceptance.parse([text], None)


def test_what_is_no_time_is_a_usage_error() -> None:
    """Dates, and times with their zone, are read."""
    assert Acceptance.parse([], "1970-01-02").before_ms == 86_400_000
    with pytest.raises(ConfigurationError, match="is not a time"):
        Acceptance.parse([], "yesterday")
