"""From an offset of the backup to where a consumer of the restored topic goes on."""

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from backup_samples import JSON, RECORD
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.catalog.groups import GROUPS, GroupEntry, TopicCapture, group_stream
from kbackup.catalog.ledger.rows import (
    OBJECTS,
    REMOVED,
    TOPICS,
    TopicEntry,
    entries,
    of_object,
    table,
)
from kbackup.catalog.ledger.stream import topic_stream, topics_stream
from kbackup.clock import SystemClock
from kbackup.errors import CorruptObjectError, KbackupError, RefusedError
from kbackup.events import to_json
from kbackup.kafka import BrokerSetting, GroupOffset
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.restore import transaction
from kbackup.restore.groups import GroupsOptions, GroupTranslated, captured_of
from tests.support.grouped import (
    capture,
    forgotten,
    grouped,
    groups_run,
    restored,
    rows_beside,
    set_groups,
    store_rows,
)
from tests.support.ledgers import CLOCK, ID, backup_with_ledger, enter
from tests.support.target import (
    COPY,
    MARKER,
    CrashError,
    Grouped,
    Log,
    Restoring,
    Row,
    killed_half_way,
)

WHERE = TopicPartition("orders", 0)


def translated(of: Restoring, offset: int, **options: Any) -> GroupTranslated:
    """Where a consumer goes on that was to read *offset* next."""
    return next(all_translated(of, [offset], **options))


def all_translated(
    of: Restoring, offsets: Iterable[int], **options: Any
) -> Iterator[GroupTranslated]:
    """Where consumers go on that were to read *offsets* next."""
    found = groups_run(of, **options).where((WHERE, offset) for offset in offsets)
    return (one for one in found if isinstance(one, GroupTranslated))


def owed(of: Restoring, offset: int) -> int:
    """The same, looked for in the target, record by record."""
    log: Log = of.cluster.logs[COPY]
    stand = [at for at, row in enumerate(log.rows) if row is not MARKER and row["offset"] >= offset]
    return log.start + stand[0] if stand else log.span.end_offset


@st.composite
def sets(draw: st.DrawFn) -> list[list[int]]:
    """Offsets of some file sets, with holes within and between them."""
    offsets = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=25)))
    ends = sorted(draw(st.sets(st.integers(1, len(offsets)), max_size=4)) | {len(offsets)})
    starts = [0, *ends[:-1]]
    return [offsets[start:end] for start, end in zip(starts, ends, strict=True)]


@settings(max_examples=50)
@given(
    sets=sets(),
    size=st.integers(1, 6),
    crashes=st.lists(st.integers(1, 6), max_size=3),
    is_forgotten=st.booleans(),
    window=st.sampled_from([{}, {"from_offset": "7"}, {"from_offset": "3", "to_offset": "30"}]),
)
def test_each_offset_becomes_that_of_the_first_record_owed(
    sets: list[list[int]], size: int, crashes: list[int], is_forgotten: bool, window: dict[str, Any]
) -> None:
    """With holes, a window, any transactions and kills, and whether rows are there or lost."""
    of = Restoring()
    of.backup.put("orders", 0, *sets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "TRANSACTION_RECORDS", size)
        for crash_at in crashes:
            with suppress(CrashError):
                of.restore(crash_at=crash_at, **window)
        of.restore(**window)
    if not of.cluster.groups:  # nothing is in the window
        return
    if is_forgotten:
        of.keep_rows()

    asked = range(sets[-1][-1] + 3)
    assert [owed(of, offset) for offset in asked] == [
        found.becomes for found in all_translated(of, asked, **window)
    ]


@settings(max_examples=60)
@given(data=st.data(), sets=sets(), size=st.integers(1, 6), is_forgotten=st.booleans())
def test_what_was_removed_from_the_backup_since_is_passed_or_refused(
    data: st.DataObject, sets: list[list[int]], size: int, *, is_forgotten: bool
) -> None:
    """Any objects, all of them too: what cannot be told is refused, and by time as well."""
    backup, _ = backup_with_ledger()
    keys = backup.put("orders", 0, *sets, identity=ID)
    for key, own in zip(keys, sets, strict=True):
        enter(backup, key, range(own[0], own[-1] + 1))
    of = Restoring(backup, Grouped())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "TRANSACTION_RECORDS", size)
        of.restore()
    if is_forgotten:
        of.keep_rows()
    stood = data.draw(st.sets(st.integers(0, sets[-1][-1] + 2), min_size=1, max_size=5))
    capture(of.backup, **{f"g{offset}": offset for offset in stood})
    ledger = topic_stream(backup.store, backup.layout, "orders", CLOCK)
    gone = data.draw(st.sets(st.sampled_from(keys), min_size=1))
    rows = [row for row in entries(ledger.read().rows) if row.key in gone]
    ledger.append(table([of_object(REMOVED, row, "e1", 0) for row in rows], OBJECTS))

    kept = {at for key, own in zip(keys, sets, strict=True) if key not in gone for at in own}
    is_beginning = not is_forgotten and gone == {*keys[: len(gone)]}
    exact, by_time = (
        list(set_groups(of, by_time=by_time, dry_run=True)[1]) for by_time in (False, True)
    )
    for one, near in zip(exact, by_time, strict=True):
        goes_on = next((at for own in sets for at in own if at >= one.was), None)
        is_kept = goes_on is None or goes_on in kept
        if one.becomes is None:
            assert not (is_kept and is_beginning)
            assert is_kept == (near.becomes is not None)
        else:
            assert owed(of, one.was) == one.becomes
            assert is_kept == ("not compared" not in one.note)


@pytest.mark.parametrize("is_shorter", [False, True])
@pytest.mark.parametrize("has_rows", [False, True])
def test_no_group_passes_what_only_the_backup_lost(*, is_shorter: bool, has_rows: bool) -> None:
    """The last object is gone, or was stored again with less: the copy has all, unread."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    of = Restoring(backup, Grouped())
    of.restore()
    if not has_rows:
        of.keep_rows()
    if is_shorter:
        ledger = topic_stream(backup.store, backup.layout, "orders", CLOCK)
        rows = [row for row in entries(ledger.read().rows) if row.key == keys[1]]
        ledger.append(table([of_object(REMOVED, row, "e1", 0) for row in rows], OBJECTS))
    backup.store.delete(keys[1])
    if is_shorter:
        (key,) = backup.put("orders", 0, range(10, 13), identity=ID)
        enter(backup, key, range(10, 13))
    capture(backup, a=14, b=20)

    by_time, exact = (
        {one.group: one.becomes for one in set_groups(of, by_time=each, dry_run=True)[1]}
        for each in (True, False)
    )

    assert {"a": 14 if has_rows else None, "b": 21} == exact == by_time


def test_what_others_wrote_since_is_unread() -> None:
    """A group that had read all goes on at the first record of others, not at the end."""
    of = restored(range(5))
    log: Log = of.cluster.logs[COPY]
    log.rows += [{**log.rows[0], "value": b"new"}]

    found = translated(of, 5)

    assert (6, 1) == (found.becomes, found.unread)


def test_the_end_has_no_lag() -> None:
    """Behind the marker of the last transaction, where a consumer stands that has read all."""
    of = restored(range(5))

    assert [(6, 0), (6, 0), (4, 2)] == [
        (found.becomes, found.unread) for found in (translated(of, at) for at in (5, 9, 4))
    ]
    assert "4 beyond the backup" == translated(of, 9).note


def test_what_the_backup_does_not_begin_with_is_said() -> None:
    """A group that stood before the first record begins with that; a window begins as asked."""
    of = restored(range(10, 20))

    assert ["7 before the backup", ""] == [translated(of, at).note for at in (3, 10)]
    assert [0, 0] == [translated(of, at).becomes for at in (3, 10)]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("offset", [3, 9, 10])
def test_what_cannot_be_read_yet_is_not_the_end(
    offset: int, *, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers are waited for; behind an open transaction nothing is told, not even as a damage."""
    of = restored(range(10))
    stable = dict.fromkeys([COPY], Span(0, 4))

    def settle(ends: dict[TopicPartition, int], *_: Any) -> None:
        stable.update({} if is_open else {at: Span(0, end) for at, end in ends.items()})

    monkeypatch.setattr(of.cluster, "spans", lambda _wheres: stable)
    monkeypatch.setattr(of.cluster, "wait_for", settle)

    if is_open:
        assert "a transaction has been open since offset 4" == _refused(of, offset).why
    else:
        assert {3: 3, 9: 9, 10: 11}[offset] == translated(of, offset).becomes


def test_a_copy_that_was_cut_short_is_found() -> None:
    """Who had read all does not stand behind the end of its log."""
    of = restored(range(10))
    log: Log = of.cluster.logs[COPY]
    del log.rows[8:]

    with pytest.raises(CorruptObjectError, match="ends before offset 11"):
        translated(of, 10)


def test_what_is_unread_is_the_lag_that_kafka_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the end of the log, behind what an open transaction has written."""
    of = restored(range(5))
    monkeypatch.setattr(of.cluster, "ends", lambda wheres: dict.fromkeys(wheres, 9))

    assert [5, 3] == [translated(of, at).unread for at in (4, 5)]


@pytest.mark.parametrize("lacks_rows", [False, True])
def test_a_record_that_is_not_the_backups_is_found(*, lacks_rows: bool) -> None:
    """The record at the new offset is compared: one changed byte is corrupt, and nothing is set."""
    of = restored(range(5))
    rows: list[Row] = of.cluster.logs[COPY].rows
    rows[3] = {**rows[3], "value": b"changed"}
    if lacks_rows:
        of.keep_rows()

    assert 2 == translated(of, 2).becomes
    with pytest.raises(CorruptObjectError) as error:
        translated(of, 3)
    assert 7 == error.value.exit_code


def test_what_the_target_has_deleted_is_lost() -> None:
    """An offset below the log's start becomes that, and the number that is lost is said."""
    of = restored(range(10))
    of.cluster.logs[COPY].delete(6)

    found = translated(of, 2)

    assert (6, 4) == (found.becomes, found.lost)
    assert (7, 0) == (translated(of, 7).becomes, translated(of, 7).lost)


def test_a_group_that_had_to_read_what_is_deleted_is_set_and_told() -> None:
    """At the beginning of the log, with exit 3: else its clients might begin at the end."""
    of = grouped(a=2, b=7)
    of.cluster.logs[COPY].delete(6)

    ended, _ = set_groups(of)

    assert (3, {"deleted_offsets": 4}) == (ended.exit_code, ended.skipped)
    stood = vars(of.cluster)["stood"]
    assert [6, 7] == [stood[group][COPY].offset for group in ("a", "b")]


@pytest.mark.parametrize("keeps", ["86400000", "-1", None])
def test_what_the_originals_retention_will_delete_is_said(keeps: str | None) -> None:
    """Of a group that had read all, nothing is deleted unread."""
    of = grouped(a=3, b=10)
    config = {} if keeps is None else {"retention.ms": keeps}
    entry = TopicEntry("topic", "orders", "", "", 1, compacted=False, config=config)
    topics_stream(of.store, Layout(), SystemClock()).append(table([entry], TOPICS))

    ended, _ = set_groups(of)

    said = [one.text for one in ended.warnings]
    assert (keeps == "86400000") == any(text.endswith("records not read by a") for text in said)
    assert ["a", "b"] == ended.facts["groups"]


def test_what_a_capture_lacks_is_said() -> None:
    """Groups that the sink could not see, and what their consumers had caused by then."""
    of = grouped()
    about = GroupEntry("topic", 2, "orders", is_complete=False, run="t", counter=2)
    rows = [about, replace(about, kind="offset", group="a", partition=0, offset=3),
            replace(about, kind="unsettled", partition=0, why="transaction")]  # fmt: skip
    group_stream(of.store, Layout(), SystemClock()).append(table(rows, GROUPS))

    ended, _ = set_groups(of)

    codes = ["groups_incomplete", "group_unsettled"]
    assert (0, codes) == (ended.exit_code, [one.code for one in ended.warnings])


def test_a_record_that_compaction_took_leaves_the_next_one() -> None:
    """In a compacted target the offset stays, and the consumer begins at what follows."""
    of = restored(range(10))
    log: Log = of.cluster.logs[COPY]
    log.rows[4] = log.rows[9] = MARKER
    of.cluster.configs[COPY.topic] = {"cleanup.policy": "compact"}

    assert [4, 9] == [translated(of, at).becomes for at in (4, 9)]


def _refused(of: Restoring, offset: int, **options: Any) -> KbackupError:
    with pytest.raises(RefusedError) as error:
        translated(of, offset, **options)
    return error.value


def test_what_is_not_restored_yet_is_refused() -> None:
    """A restore that was killed has not come to all offsets: they are not the end of the copy."""
    of = killed_half_way()

    assert 3 == translated(of, 3).becomes
    assert "has not reached offset 8" in _refused(of, 8).what


def test_a_topic_that_was_made_again_is_refused() -> None:
    """Its records are not those that were restored, whatever the group's position says."""
    of = restored(range(5))
    of.cluster.ids[COPY.topic] = "another"

    assert "another id" in _refused(of, 2).what


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rename": "other_$0"}, "there is no other_orders-0"),
        ({"partition_map": "key"}, "cannot be translated"),
        ({"to_offset": "3"}, "has not been restored"),
    ],
)
def test_another_restore_is_refused(options: dict[str, str], text: str) -> None:
    """What was restored by other options says nothing of this restore."""
    of = restored(range(5))

    assert text in _refused(of, 2, **options).what


def test_values_without_offsets_are_refused() -> None:
    """A guess of which record is which is no proof."""
    of = restored(range(5), views=JSON)

    assert "values without offsets" in _refused(of, 2).why


def test_rows_of_an_earlier_restore_do_not_count() -> None:
    """A restore that is begun anew in the same topic, behind the first one, has rows of its own."""
    of = restored(range(5))
    store_rows(of, rows_beside(of))
    of.cluster.groups.clear()
    of.restore(if_exists="append", yes=True)

    assert [6, 8, 12] == [translated(of, at).becomes for at in (0, 2, 5)]


def test_its_line_says_what_it_is() -> None:
    """The JSON line of an offset has the fields of the schema."""
    of = restored(range(5))

    line = to_json(replace(translated(of, 2), group="g"))

    expected = {
        "type": "group_offset", "topic": "orders", "partition": 0, "group": "g",
        "target": "copy_of_orders", "target_partition": 0, "was": 2, "becomes": 2, "unread": 4,
        "lost": 0, "note": "", "is_approximate": False,
        "taken": None,
    }  # fmt: skip
    assert expected == {name: line[name] for name in expected}


def test_a_row_of_an_earlier_topic_of_the_name_keeps_its_id() -> None:
    """Captures of some groups may be older than the topic: it must show what they are of."""
    head = GroupEntry("topic", 2, "orders", "cluster", "new")
    old = GroupEntry("offset", 1, "orders", "cluster", "old", group="a", partition=0, offset=3)
    rows = old, replace(old, topic_id="", group="b")

    found = captured_of(["orders"], {"orders": TopicCapture(head, 1, rows)}, None)["orders"]

    assert ["old", "new"] == [row.topic_id for row in found.offsets]


def test_groups_are_set_with_the_bytes_beside_them() -> None:
    """Each group that was captured; an offset beyond the backup has no lag."""
    of = grouped(a=3, b=12)

    ended, _ = set_groups(of)

    assert (0, ["a", "b"]) == (ended.exit_code, ended.facts["groups"])
    expected = {"a": {COPY: GroupOffset(3, b"m")}, "b": {COPY: GroupOffset(11, b"m")}}
    assert expected == vars(of.cluster)["stood"]


@pytest.mark.parametrize("wrong", ["live", "record"])
def test_one_group_that_cannot_be_set_keeps_all_as_they_are(wrong: str) -> None:
    """All are looked at first: members of one, or a record that differs at its place."""
    of = grouped(a=3, b=5)
    if wrong == "live":
        vars(of.cluster)["live"].add("b")
    else:
        rows: list[Row] = of.cluster.logs[COPY].rows
        rows[5] = {**rows[5], "value": b"changed"}

    ended, _ = set_groups(of)

    assert (4 if wrong == "live" else 7, []) == (ended.exit_code, ended.facts["groups"])
    assert {} == vars(of.cluster)["stood"]


def test_a_consumer_that_joins_in_between_leaves_its_group_alone() -> None:
    """The broker refuses that group, which is named; the others are set."""
    of = grouped(a=3, b=5)
    vars(of.cluster)["joined"].add("a")

    ended, _ = set_groups(of)

    assert (4, ["b"]) == (ended.exit_code, ended.facts["groups"])
    assert {"b"} == vars(of.cluster)["stood"].keys()


@pytest.mark.parametrize("before", [{}, {COPY: GroupOffset(1, b"own")}])
@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_group_that_a_broker_takes_in_part_is_set_back(
    before: dict[TopicPartition, GroupOffset], *, is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses a partition alone, as for bytes beside the offset: whole or untouched, or said."""
    of = Restoring(cluster=Grouped())
    for partition in (0, 1):
        of.backup.put("orders", partition, range(10))
    of.restore()
    capture(of.backup, a=(3, 3))
    cluster: Any = of.cluster
    cluster.refused.add(TopicPartition(COPY.topic, 1))
    cluster.stood["a"] = dict(before)
    clients = type(cluster.consumer_groups())
    alter = clients.alter

    def joined(self: Any, group: str, offsets: Any) -> None:
        try:
            alter(self, group, offsets)
        finally:
            cluster.joined.update({group} if is_stuck else ())

    monkeypatch.setattr(clients, "alter", joined)

    ended, _ = set_groups(of, yes=True)

    why = "part of it may be set" if is_stuck else "it is as it was"
    assert (4, []) == (ended.exit_code, ended.facts["groups"])
    assert [True] == [one.why.endswith(why) for one in ended.errors]
    assert is_stuck or before == cluster.stood["a"]


@pytest.mark.parametrize("joined", [True, False])
def test_groups_whose_members_nobody_can_ask_for_come_first(joined: bool) -> None:
    """Those of Streams (KIP-1071): if the broker refuses one of them, none is set."""
    of = grouped(a=3, streams=5)
    vars(of.cluster)["unseen"].add("streams")
    if joined:
        vars(of.cluster)["joined"].add("streams")

    ended, _ = set_groups(of)

    expected = ([], 4) if joined else (["streams", "a"], 0)
    assert expected == (ended.facts["groups"], ended.exit_code)
    assert joined == (vars(of.cluster)["stood"] == {})


def test_a_dry_run_sets_nothing() -> None:
    """It says what would be set."""
    of = grouped(a=3)

    ended, told = set_groups(of, dry_run=True)

    assert (0, [3]) == (ended.exit_code, [one.becomes for one in told])
    assert {} == vars(of.cluster)["stood"]


@pytest.mark.parametrize(
    ("names", "pattern", "code"), [((), None, 0), (("a",), None, 4), ((), "a", 4)]
)
def test_without_a_group_nothing_is_to_be_set(
    names: tuple[str, ...], pattern: str | None, code: int
) -> None:
    """No group had an offset: that is said; one that is asked for is refused."""
    ended, _ = set_groups(grouped(), *names, pattern=pattern)

    assert code == ended.exit_code
    assert ([] if code else ["no_groups"]) == [one.code for one in ended.warnings]


def test_a_topic_without_a_capture_is_refused() -> None:
    """Nothing tells where its groups stood."""
    ended, _ = set_groups(restored(range(10), cluster=Grouped()))

    assert (4, ["refused"]) == (ended.exit_code, [one.code for one in ended.errors])


def test_partitions_that_the_source_never_had_are_read_from_their_beginning() -> None:
    """Else a consumer that begins at the latest offset would skip their first records."""
    of = grouped(a=3)
    of.cluster.logs[TopicPartition(COPY.topic, 1)] = Log([{"value": b"new"}], 4)
    row = TopicEntry("topic", "orders", partitions=1, counter=1)
    topics_stream(of.store, Layout(), SystemClock()).append(table([row], TOPICS))

    _, told = set_groups(of)

    assert [(3, 3), (None, 4)] == [(one.was, one.becomes) for one in told]


def test_a_damaged_ledger_and_damaged_rows_are_told() -> None:
    """What the restore is known by is damaged: that is said, and offsets are counted."""
    of = grouped(a=3)
    stream = topics_stream(of.store, Layout(), SystemClock())
    stream.append(table([TopicEntry("topic", "orders", partitions=1)], TOPICS))
    store_rows(of, rows_beside(of))
    damaged = [next(iter(of.store.list(at))).key for at in (stream.prefix, "_kbackup/restores/")]
    for key in damaged:
        of.store.put(key, io.BytesIO(b"no Parquet"), sha256="", metadata={})

    ended, told = set_groups(of)

    assert (0, [3]) == (ended.exit_code, [one.becomes for one in told if hasattr(one, "becomes")])
    assert damaged == [one.place["key"] for one in ended.warnings]


def test_an_object_that_was_left_out_is_counted() -> None:
    """The group goes on behind it: some that it had to read are in no copy, which is exit 3."""
    of = Restoring(cluster=Grouped())
    _, key, _ = of.backup.put("orders", 0, range(5), range(5, 10), range(10, 15))
    of.backup.replace(key, b"PAR1 damaged PAR1")
    of.restore(on_error="log")
    capture(of.backup, a=7, b=2)

    ended, told = set_groups(of, behavior_on_error="log")

    assert [6, 2] == [one.becomes for one in told]
    assert (3, {"bad_objects": 1}) == (ended.exit_code, ended.skipped)


@pytest.mark.parametrize("before", [0, 4])
def test_rows_tell_what_a_forgotten_position_did(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every offset becomes what it did before; also in a topic that others had written to."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 3)
    of = Restoring()
    of.backup.put("orders", 0, range(5), [7, 8, 12], range(20, 30))
    if before:
        of.cluster.add_topic(COPY.topic, 1, {})
        rows: list[Row] = of.cluster.logs[COPY].rows
        rows += [{"offset": 0, "value": b"of others"}] * before
    options: dict[str, Any] = {"if_exists": "append", "yes": True} if before else {}
    of.restore(**options)
    asked = range(32)
    exact = [(one.becomes, one.unread) for one in all_translated(of, asked)]

    forgotten(of)

    assert exact == [(one.becomes, one.unread) for one in all_translated(of, asked)]


def test_where_rows_leave_it_open_a_forgotten_position_is_told_from_none() -> None:
    """One whose first rows are lost, and a restore of some records in a group of any name."""
    of = grouped(a=3)
    (group,) = of.cluster.groups
    never = set_groups(of, group="other")[0]
    forgotten(of)
    named = set_groups(of, group=group)[0]

    assert [4, 4] == [never.exit_code, named.exit_code]
    assert "--rename" in never.errors[0].do
    assert "offsets.retention.minutes" in named.errors[0].why
    assert "into a new topic" in named.errors[0].do


@pytest.mark.parametrize(
    ("lacking", "answers"),
    [
        (0, {2: None, 5: None, 9: None}),
        (1, {2: 2, 5: 6, 9: 12}),
        (-1, {2: 2, 5: 6, 9: 12, 10: None}),
    ],
)
def test_a_row_that_is_lost_with_the_position_is_not_guessed(
    lacking: int, answers: dict[int, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first, one between others, the last."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 3)
    of = restored(*(range(at, at + 3) for at in range(0, 12, 3)))

    forgotten(of, lacking)

    for offset, becomes in answers.items():
        if becomes is None:
            assert 4 == _refused(of, offset).exit_code
        else:
            assert becomes == translated(of, offset).becomes


@pytest.mark.parametrize(
    ("there", "options", "told"),
    [
        ([], {}, ["a-store-changelog", "a-x-repartition"]),
        (["a-store-changelog", "a-x-repartition"], {}, []),
        (["a-store-changelog"], {}, ["a-x-repartition"]),
        (["copy_of_a-store-changelog", "a-x-repartition"], {}, ["a-store-changelog"]),
        (["dr_a-store-changelog", "a-x-repartition"], {"renamed": "dr_$0"}, ["dr_a-x-repartition"]),
        (["hidden"], {}, ["a-x-repartition"]),
    ],
)
def test_internal_topics_that_a_streams_application_will_not_find_are_named(
    there: list[str], options: dict[str, str], told: list[str]
) -> None:
    """Of those that the backup knows: not restored, or under another name than the group's."""
    of = grouped(a=3, store=5, **{"a-2": 5})
    names = "orders", "a-store-changelog", "a-x-repartition", "ab-changelog", "a-2-y-changelog"
    rows = [TopicEntry("topic", name, partitions=1) for name in names]
    topics_stream(of.store, Layout(), SystemClock()).append(table(rows, TOPICS))
    if there == ["hidden"]:  # this principal may not see whether it is there
        of.cluster.denied.add("a-store-changelog")
    for name in there:
        of.cluster.add_topic(name, 1, {})

    ended, _ = set_groups(of, "a", "store", topics="orders", **options)

    texts = [one.text for one in ended.warnings if one.code == "streams_renamed"]
    said = f"a is an application of Kafka Streams, which will not find {', '.join(told)}"
    assert ([said] if told else []) == texts


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("dry_run", [False, True])
def test_groups_that_a_new_application_of_streams_cannot_join_are_named(
    *, is_there: bool, dry_run: bool
) -> None:
    """By the protocol that they had; one that is of Streams in the target is joined as ever."""
    of = restored(range(10), cluster=Grouped())
    capture(of.backup, 1, "streams", app=3)
    if is_there:
        vars(of.cluster)["unseen"].add("dr_app")

    ended, _ = set_groups(of, renamed="dr_$0", dry_run=dry_run)

    said = [one.text for one in ended.warnings if one.code == "streams_group"]
    assert 0 == ended.exit_code
    assert is_there == (not said)
    if said:
        assert said[0].startswith("dr_app: before Kafka 4.2, ")
        assert said[0].endswith("start it with group.protocol=classic")


@pytest.mark.parametrize(
    ("renamed", "why"),
    [
        ("dr", "a would have it too"),
        ("", "its new name is empty"),
        ("the restore's", "keeps its own positions there"),
    ],
)
def test_a_name_that_a_group_cannot_have_is_refused(renamed: str, why: str) -> None:
    """One of two would lose its offsets, or the restore its positions: none is set."""
    of = grouped(a=3, b=12)
    own = of.plan().group

    ended, told = set_groups(of, renamed=own if renamed == "the restore's" else renamed)

    assert (4, []) == (ended.exit_code, told)
    assert why in ended.errors[0].why
    assert not any(vars(of.cluster)["stood"].values())


@pytest.mark.parametrize("group", ["app", "", "a\nb"])
def test_a_group_of_any_name_is_renamed(group: str) -> None:
    """Kafka asks little of a name, and one that stays would be a group of somebody else."""
    assert f"dr_{group}" == GroupsOptions(renamed="dr_$0").name(group)


def approximate(of: Restoring, offset: int, **options: Any) -> GroupTranslated:
    """Where a consumer goes on by time."""
    return translated(of, offset, by_time=True, **options)


@pytest.mark.parametrize("how", ["modulo", "key"])
def test_by_time_no_record_that_is_owed_is_passed(how: str) -> None:
    """Of several partitions in one, or one in several: some may come again, none is left out."""
    of = Restoring(cluster=Grouped())
    for partition in range(3):
        of.backup.put("orders", partition, range(10))
    options: dict[str, Any] = {"partition_map": how, "target_partitions": 2}
    of.restore(**options)
    capture(of.backup, g=(3, 7, 20))

    refused, _ = set_groups(of, partition_map=how)
    ended, told = set_groups(of, by_time=True, partition_map=how)

    assert (4, 3) == (refused.exit_code, ended.exit_code)
    assert "--by-time" in refused.errors[0].do
    assert {"approximate_offsets": len(told)} == ended.skipped
    found: dict[TopicPartition, GroupOffset] = vars(of.cluster)["stood"]["g"]
    assert 2 == len(found)
    owed = {
        "modulo": {0: [*range(3, 10)], 1: [*range(7, 10)]},
        "key": {0: [*range(3, 10)], 1: [*range(3, 10)]},
    }[how]
    for where, offset in found.items():
        log: Log = of.cluster.logs[where]
        behind = log.rows[offset.offset - log.start :]
        read = [row["offset"] for row in behind if row is not MARKER]
        every = (row["offset"] for row in log.rows if row is not MARKER)
        assert owed[where.partition][0] <= read[0]
        assert {at for at in every if at in owed[where.partition]} <= {*read}


def test_by_time_what_is_exact_stays_exact() -> None:
    """Only an offset that cannot be told goes by time."""
    of = restored(range(10))

    found = approximate(of, 4)

    assert (4, False) == (found.becomes, found.is_approximate)


def test_by_time_counts_where_rows_are_unclear() -> None:
    """Two restores say different things of the same records: their times tell, and that is said."""
    of = restored(range(10))
    (row,) = rows_beside(of)
    store_rows(of, [replace(row, first=2, target_first=40, target_last=47, records=8)])

    assert "--by-time" in _refused(of, 4).do
    found = approximate(of, 4)
    end = approximate(of, 10)

    assert (4, True) == (found.becomes, found.is_approximate)
    assert "may repeat or skip" in found.note
    assert (11, 0) == (end.becomes, end.unread)


@pytest.mark.parametrize("how", ["values", "append"])
def test_by_time_nothing_is_guessed_where_there_is_no_time(how: str) -> None:
    """Values without times, and a copy that has times of its own, are refused."""
    options: dict[str, Any] = {} if how == "values" else {"partition_map": "modulo"}
    of = restored(range(5), views=JSON if how == "values" else RECORD, **options)
    if how == "append":
        of.cluster.configs[COPY.topic] = {"message.timestamp.type": "LogAppendTime"}

    with pytest.raises(RefusedError) as error:
        approximate(of, 2, **options)

    assert "cannot be translated by time" in error.value.what


@pytest.mark.parametrize("kept", [None, 10_080, "denied"])
def test_how_long_the_cluster_keeps_offsets_is_said(kept: int | str | None) -> None:
    """Nobody commits for a group without members: its offsets expire."""
    of = grouped(billing=4)
    if kept == "denied":
        of.cluster.who.denied.add("settings")
    elif kept is not None:
        setting = BrokerSetting(str(kept), is_default=True)
        of.cluster.who.brokers["offsets.retention.minutes"] = setting

    ended, _ = set_groups(of)

    assert (0, 604_800 if kept == 10_080 else None) == (
        ended.exit_code, ended.facts["offsets_kept_s"]
    )  # fmt: skip


def test_what_was_never_asked_for_may_be_missing() -> None:
    """A window had left it out: a group before the window goes on where the copy begins."""
    backup, keys = backup_with_ledger(range(10), range(10, 20))
    of = Restoring(backup, Grouped())
    of.restore(from_offset=10)
    before = translated(of, 5, from_offset=10).becomes
    backup.store.delete(keys[0])

    assert before == translated(of, 5, from_offset=10).becomes == owed(of, 10)
