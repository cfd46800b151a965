"""What a sink enters into the ledger, and what it learns from it when it starts."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from backup_samples import RECORD, SIBLINGS, TIME, Backup, batch

from kbackup.catalog.ledger.rows import OBJECTS, Entry, PartitionLedger, TopicLedger, entries, table
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock
from kbackup.errors import RefusedError, StoreError, TopicChangedError
from kbackup.kafka import Position
from kbackup.naming import View
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.runs import backup_state
from kbackup.runs.backup_state import BackupState
from kbackup.runs.position import SinkPosition
from kbackup.sink.accounting import RunLedger, topic_settings
from kbackup.sink.job import SinkUnit
from kbackup.sink.plan import SinkPlan, make_plan
from kbackup.testing import FaultyStore
from tests.support.configurations import WHOLE, load
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import FakePositions, FakeReader, SilentLine, run_task
from tests.support.verified import Verified

WHERE = TopicPartition("orders", 0)
ID = TopicIdentity("cluster-1", "id")
RUN = "2026-11-21T02:00:00Z-7f3a"


def cluster(end: int = 0, topic_id: str = "id", **topics: int) -> FakeKafka:
    """A cluster with ``orders``, of one partition, and *topics*, that are empty."""
    empty = {
        TopicPartition(name, at): Span(0, 0)
        for name, count in topics.items()
        for at in range(count)
    }
    return FakeKafka(
        {"orders": topic_id, **dict.fromkeys(topics, "other-id")}, {WHERE: Span(0, end), **empty},
        configs={name: {"retention.ms": "-1"} for name in ("orders", *topics)},
    )  # fmt: skip


def plan(backup: Backup, there: FakeKafka, **options: object) -> SinkPlan:
    """The plan of a sink."""
    settings = load("sink", **{**WHOLE, **options}).settings
    return make_plan(settings, there, backup.store, SystemClock())  # type: ignore[arg-type]


def begin(backup: Backup, there: Any, run: str = RUN, **options: object) -> None:
    """Enter what the driver of a run enters."""
    planned = plan(backup, there, **options)
    ledger = RunLedger(backup.store, backup.layout, run, SystemClock())
    ledger.begin(
        planned,
        there,
        TopicFilter([*planned.topics]),
        ReadOptions(),
        topic_settings(planned, there.topic_config(planned.topics)),
    )


def back_up(backup: Backup, first: int, end: int, views: tuple[Any, ...] = RECORD) -> None:
    """Run a task over these offsets of ``orders``."""
    unit = SinkUnit(WHERE, Span(first, end), identity=ID)
    run_task(
        backup, unit, FakeReader(batch(range(first, end))), FakePositions(), SilentLine(), views
    )


def read(backup: Backup) -> BackupState:
    """What the ledger says."""
    return backup_state.read(backup.store, backup.layout, SystemClock())


def partition(backup: Backup) -> PartitionLedger:
    """What the ledger says of ``orders``, partition 0."""
    found = topic_stream(backup.store, backup.layout, "orders", SystemClock()).read()
    return TopicLedger.of(entries(found.rows)).partition(0)


def test_an_object_is_in_the_ledger_before_its_offset_is_committed() -> None:
    """An object is entered, with all that is known of it and its cut, before its commit."""
    backup = Backup()

    back_up(backup, 5, 25, SIBLINGS)

    objects = partition(backup).objects
    heads = {key: backup.store.head(key) for key in objects}
    assert {entry.key for entry in backup.store.list("topics/")} == set(objects)
    assert ["headers", "keys", "value"] == sorted(str(one.view) for one in objects.values())
    for key, entry in objects.items():
        head = heads[key]
        assert head is not None
        assert (head.size, head.metadata["sha256"]) == (entry.bytes, entry.sha256)
        assert (5, 24, 20, 5, 25) == (
            entry.first, entry.last, entry.records, entry.cut_start, entry.next_offset,
        )  # fmt: skip
        assert (TIME + 5, TIME + 24, "r1") == (
            entry.min_timestamp, entry.max_timestamp, entry.run,
        )  # fmt: skip


def test_a_cut_that_cannot_be_entered_is_not_committed() -> None:
    """The object is there, the offset is not: the next run stores it again."""
    backup, positions = Backup(), FakePositions()
    store = FaultyStore("ok 503", backup.store, methods=frozenset({"put"}))

    with pytest.raises(StoreError):
        run_task(
            backup, SinkUnit(WHERE, Span(0, 20)), FakeReader(batch(range(20))), positions,
            SilentLine(), RECORD, store=store,
        )  # fmt: skip

    assert {} == positions.positions
    assert 1 == len(list(backup.store.list("topics/")))


def test_nothing_is_written_beside_the_backup_and_nothing_is_deleted() -> None:
    """Whatever else is in the bucket stays as it is."""
    backup = Backup()
    for key in ("README", "elsewhere/a", "topics/orders/partition=0/notes.txt"):
        backup.store.put(key, io.BytesIO(b"mine"), sha256="", metadata={})
    before = {entry.key: backup.body(entry.key) for entry in backup.store.list("")}

    begin(backup, cluster(20))
    back_up(backup, 0, 20, SIBLINGS)

    after = {entry.key for entry in backup.store.list("")}
    added = after - before.keys()
    assert {"topics", "_kbackup"} == {key.split("/")[0] for key in added}
    assert before == {key: backup.body(key) for key in after & before.keys()}


@pytest.mark.parametrize("flush_size", [20, 5])
def test_values_are_stored_after_their_keys_and_headers(flush_size: int) -> None:
    """A run that dies between them leaves siblings without a value; the next one mends the set."""
    backup = Backup()
    store = FaultyStore("ok ok 503", backup.store, methods=frozenset({"put"}))
    unit = SinkUnit(WHERE, Span(0, 20), identity=ID)
    line = SilentLine()

    with pytest.raises(StoreError):
        run_task(
            backup, unit, FakeReader(batch(range(20))), FakePositions(), line, SIBLINGS, store=store
        )
    half = {backup.layout.parse(entry.key).view for entry in backup.store.list("topics/")}
    for first in range(0, 20, flush_size):
        back_up(backup, first, first + flush_size, SIBLINGS)

    assert {View.KEY, View.HEADERS} == half
    entered = partition(backup).objects.values()
    assert ["headers", "keys", "value"] == sorted({str(one.view) for one in entered})
    assert {flush_size} == {one.records for one in entered}
    assert 0 == Verified(backup, deep=True).exit_code


def test_keys_whose_values_are_there_are_not_replaced_by_fewer() -> None:
    """Only what no values follow holds nothing."""
    backup = Backup()
    keys = backup.put("orders", 0, range(20), views=SIBLINGS, identity=ID)
    before = [backup.body(key) for key in keys]

    with pytest.raises(RefusedError, match="holds more records"):
        back_up(backup, 0, 5, SIBLINGS)

    assert before == [backup.body(key) for key in keys]


def test_where_a_longer_object_is_kept_the_ledger_says_what_is_there() -> None:
    """Where another run's longer object is kept, the ledger records what is there."""
    backup = Backup()
    (key,) = backup.put("orders", 0, range(30), identity=ID)

    back_up(backup, 0, 20)

    (entry,) = partition(backup).objects.values()
    head = backup.store.head(key)
    assert head is not None
    assert (30, 29, head.size) == (entry.records, entry.last, entry.bytes)


def test_topics_are_known_with_their_settings_before_anything_is_stored() -> None:
    """Empty ones too, and only the settings that are their own."""
    backup = Backup()

    begin(backup, cluster(audit=3), topics="orders,audit")

    found = read(backup)
    assert {"audit": 3, "orders": 1} == {n: e.partitions for n, e in sorted(found.topics.items())}
    assert ("other-id", {"retention.ms": "-1"}) == (
        found.topics["audit"].topic_id, found.topics["audit"].config,
    )  # fmt: skip
    assert {TopicPartition("audit", at) for at in range(3)} | {WHERE} == found.partitions()
    assert [("orders", "audit")] == [tuple(sorted(one.names, reverse=True)) for one in found.sinks]


def test_nothing_is_entered_where_nothing_has_changed() -> None:
    """A run that finds nothing new enters nothing in the ledger."""
    backup = Backup()
    begin(backup, cluster())
    before = [entry.key for entry in backup.store.list("_kbackup/")]

    begin(backup, cluster(), "2026-11-22T02:00:00Z-7f3a")

    assert before == [entry.key for entry in backup.store.list("_kbackup/")]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param("", id="somebody set the group back"),
        pytest.param(SinkPosition(identity=ID).to_metadata(), id="a commit failed"),
    ],
)
def test_what_expired_after_it_was_stored_is_no_gap(metadata: str) -> None:
    """The group stands before the log's start, and the bucket holds all that is between them."""
    backup, there = Backup(), cluster(10)
    begin(backup, there)
    back_up(backup, 0, 10)
    there.logs[WHERE] = Span(7, 12)
    there.positions_[WHERE] = Position(2, metadata)

    (at,) = plan(backup, there).partitions

    assert at.start is not None
    assert (7, ()) == (at.start.offset, at.start.expired)


@pytest.mark.parametrize("committed", [None, 12])
def test_a_lost_position_goes_on_after_the_last_cut_that_is_whole(committed: int | None) -> None:
    """An object of a cut that was never entered counts for nothing: it may be one of several."""
    backup = Backup()
    begin(backup, cluster(100))
    back_up(backup, 0, 10)
    backup.put("orders", 0, range(10, 20), identity=ID)
    there = cluster(100)
    if committed is not None:
        there.positions_[WHERE] = Position(committed)

    (at,) = plan(backup, there).partitions

    assert at.start is not None
    assert 10 == at.start.offset


def test_the_ledger_knows_a_recreated_topic_when_all_objects_are_gone() -> None:
    """A recreated topic is recognized by the ledger though no object is left, and not entered."""
    backup = Backup()
    begin(backup, cluster())

    (at,) = plan(backup, cluster(50, "new-id")).partitions
    begin(backup, cluster(50, "new-id"))

    assert isinstance(at.refusal, TopicChangedError)
    assert "id" == read(backup).topics["orders"].topic_id


def test_objects_without_a_ledger_are_taken_over_once() -> None:
    """The ledger takes over the objects that are there, and a second run enters nothing."""
    backup = Backup()
    keys = backup.put("orders", 0, range(10), range(20, 30))

    begin(backup, cluster(100))
    begin(backup, cluster(100))

    found = partition(backup)
    assert {*keys} == set(found.objects)
    assert {(0, 10, 10), (20, 30, 10)} == {
        (entry.cut_start, entry.next_offset, entry.records) for entry in found.objects.values()
    }
    assert 1 == topic_stream(backup.store, backup.layout, "orders", SystemClock()).read().loose


def test_a_refused_run_says_nothing_of_the_topic() -> None:
    """Without a ledger, a run over a recreated topic enters none."""
    backup = Backup()
    backup.put("orders", 0, range(10), identity=ID)
    recreated = cluster(50, "new-id")
    begin(backup, recreated)

    assert [] == list(backup.store.list("_kbackup/ledger/"))
    assert UNKNOWN == read(backup).identity("orders")
    assert plan(backup, cluster(50)).partitions[0].refusal is None


def test_a_run_folds_what_many_parts_were_added_to() -> None:
    """The next reader opens one snapshot, and no part."""
    backup = Backup()
    ledger = RunLedger(backup.store, backup.layout, RUN, SystemClock())
    stream = topic_stream(backup.store, backup.layout, "orders", SystemClock())
    for at in range(70):
        stream.append(table([Entry("object", 0, at, at, f"k{at}")], OBJECTS))
        ledger.note("orders")

    ledger.fold()

    found = stream.read()
    assert (70, 0) == (len(found.rows), found.loose)


def test_a_run_that_goes_on_after_objects_that_the_ledger_lacks_enters_them() -> None:
    """A run that died before entering its object leaves nothing that could vanish unseen."""
    backup = Backup()
    begin(backup, cluster(10))  # the topic is in the ledger, nothing of it is stored
    store = FaultyStore("ok 503", backup.store, methods=frozenset({"put"}))
    unit, reader = SinkUnit(WHERE, Span(0, 10), identity=ID), FakeReader(batch(range(10)))
    with pytest.raises(StoreError):
        run_task(backup, unit, reader, FakePositions(), SilentLine(), RECORD, store=store)
    before = partition(backup).objects

    begin(backup, cluster(20))

    (key,) = (entry.key for entry in backup.store.list("topics/"))
    assert {} == before
    assert [(key, 0, 9, 10)] == [
        (one.key, one.first, one.last, one.next_offset)
        for one in partition(backup).objects.values()
    ]
    assert 10 == plan(backup, cluster(20)).partitions[0].start.offset  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("identity", "changes", "expired"),
    [
        pytest.param(ID, {}, (Span(10, 12), Span(20, 25)), id="all of a cut"),
        pytest.param(ID, {"cut-files": "2"}, (Span(10, 25),), id="one of a cut's two files"),
        pytest.param(ID, {"cut-files": ""}, (Span(10, 25),), id="it does not say what cut"),
        pytest.param(
            TopicIdentity("cluster-1", "other"), {}, (Span(10, 25),), id="a copy of another topic's"
        ),
    ],
)
def test_what_a_killed_run_stored_has_not_expired(
    identity: TopicIdentity, changes: Mapping[str, str], expired: Sequence[Span]
) -> None:
    """What a killed run stored without entering it has not expired when retention takes it."""
    backup, there = Backup(), cluster(30)
    begin(backup, there)
    back_up(backup, 0, 10)
    (key,) = backup.put("orders", 0, range(12, 20), identity=identity)
    head = backup.store.head(key)
    assert head is not None
    with backup.store.open(key) as file:
        body = io.BytesIO(file.read())
    backup.store.put(key, body, sha256="", metadata={**head.metadata, **changes})
    backup.put("orders", 0, range(26, 28), identity=ID)
    there.logs[WHERE] = Span(25, 40)
    there.positions_[WHERE] = Position(10)

    (at,) = plan(backup, there).partitions

    assert at.start is not None
    assert (25, tuple(expired)) == (at.start.offset, at.start.expired)


@pytest.mark.parametrize(
    ("folder", "start", "codes"),
    [
        pytest.param("topics", 10, [], id="the same"),
        pytest.param("elsewhere", 0, ["bucket_behind"], id="another"),
    ],
)
def test_a_position_counts_for_the_topics_dir_that_its_object_is_in(
    folder: str, start: int, codes: list[str]
) -> None:
    """With another backup's group in the same bucket a run would leave out what that one has."""
    backup, there = Backup(), cluster(20)
    begin(backup, there)
    back_up(backup, 0, 10)
    (key,) = partition(backup).objects
    there.positions_[WHERE] = Position(10, SinkPosition(key, 9, ID, run="r1").to_metadata())

    (at,) = plan(backup, there, **{"topics.dir": folder}).partitions

    assert at.start is not None
    assert (start, codes) == (at.start.offset, [code for code, _ in at.start.warnings])
