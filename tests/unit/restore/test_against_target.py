"""A restored topic beside the backup that it came from."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import JSON, TIME, Backup

from kbackup import records
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import OBJECTS, REMOVED, entries, of_object, table
from kbackup.clock import SystemClock
from kbackup.errors import KafkaError, RefusedError
from kbackup.inspect.peek import PeekTarget
from kbackup.naming import Layout
from kbackup.records import Span, TimestampType, TopicPartition
from kbackup.restore import against_target, transaction
from kbackup.restore.against_target import verify_against_target
from kbackup.restore.restored import RestoredPartition
from kbackup.runs import backup_state
from kbackup.runs.compare import PartitionCompared, are_same
from kbackup.runs.context import Environment
from kbackup.runs.position import RestorePosition
from kbackup.runs.report import Summary
from tests.support.grouped import forgotten, restored
from tests.support.in_threads import InThreads
from tests.support.ledgers import CLOCK, ID, WHERE, backup_with_ledger, enter
from tests.support.target import COPY, MARKER, CrashError, Log, Restoring, killed_half_way

FORGOTTEN = pytest.mark.parametrize("lacks_rows", [False, True])
"""With rows of translation, and without."""


@dataclass
class Beside:
    """What comparing has come to."""

    rows: Sequence[PartitionCompared]
    exit_code: int
    skipped: Mapping[str, int]
    errors: Sequence[str]
    advice: Sequence[str]
    warnings: Sequence[str]

    @property
    def row(self) -> PartitionCompared:
        """The only partition."""
        (row,) = self.rows
        return row


def compared(of: Restoring, **options: Any) -> Beside:
    """Compare the copy with the backup."""
    kafka: Any = of.cluster
    run_tasks: Any = InThreads()
    environment = Environment(kafka, of.backup.settings, run_tasks, SystemClock())
    summary = Summary("r", "restore verify")
    rows = [*verify_against_target(of.settings(**options), environment, summary, Event())]
    ended = summary.finish()
    errors = [str(one) for one in ended.errors]
    advice, warnings = [one.do for one in ended.errors], [one.code for one in ended.warnings]
    return Beside(rows, ended.exit_code, ended.skipped, errors, advice, warnings)


def log_of(of: Restoring) -> Log:
    """The copy."""
    log: Log = of.cluster.logs[COPY]
    return log


@FORGOTTEN
def test_a_copy_is_equal(*, lacks_rows: bool) -> None:
    """All records, with holes, in several transactions, after a kill."""
    of = Restoring()
    of.backup.put("orders", 0, range(5), [7, 8, 12], range(20, 40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "TRANSACTION_RECORDS", 3)
        with suppress(CrashError):
            of.restore(crash_at=4)
        of.restore()
    if lacks_rows:
        of.keep_rows()

    found = compared(of)

    assert (0, 28, "same") == (found.exit_code, found.row.records, found.row.state)


@pytest.mark.parametrize("before", [0, 4])
def test_a_copy_whose_position_kafka_has_forgotten_is_compared_by_its_rows(before: int) -> None:
    """All of it, and no record of others that stood before it."""
    of = Restoring()
    of.backup.put("orders", 0, range(5), [7, 8, 12], range(20, 40))
    if before:
        of.cluster.add_topic(COPY.topic, 1, {})
        log_of(of).rows += [{"offset": 0, "value": b"of others"}] * before
    options: dict[str, Any] = {"if_exists": "append", "yes": True} if before else {}
    of.restore(**options)
    forgotten(of)

    found = compared(of)
    assert (0, 28, "same") == (found.exit_code, found.row.records, found.row.state)
    log_of(of).rows[before + 1] = {**log_of(of).rows[before + 1], "value": b"altered"}
    assert 7 == compared(of).exit_code


def test_parts_are_compared_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows cut a partition into units; each record is in one of them."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 3)
    monkeypatch.setattr(against_target, "RECORDS_MOST", 7)
    of = restored(range(5), range(5, 40))
    log_of(of).rows[30] = {**log_of(of).rows[30], "value": b"altered"}

    found = compared(of)

    assert (7, 39, 1) == (found.exit_code, found.row.records, found.row.different)


@FORGOTTEN
@pytest.mark.parametrize("at", [0, 5, 9])
def test_an_altered_record_is_named(at: int, *, lacks_rows: bool) -> None:
    """One byte: exit 7, with offset and column."""
    of = restored(range(10), lacks_rows=lacks_rows)
    rows = log_of(of).rows
    rows[at] = {**rows[at], "value": b"altered"}

    found = compared(of)

    assert (7, 9, 1) == (found.exit_code, found.row.records, found.row.different)
    assert f"the first is offset {at} of the backup, {at} in Kafka: value" in found.errors[0]
    assert [(at, at)] == [(one.offset, one.kafka_offset) for one in found.row.differences]
    place, *_ = found.advice[0].partition("kbackup restore cat ")[2].split()
    assert PeekTarget("orders", None, 0, at) == PeekTarget.parse(place, Layout())


@FORGOTTEN
@pytest.mark.parametrize("at", [0, 5, 9])
def test_a_missing_record_is_named(at: int, *, lacks_rows: bool) -> None:
    """Whatever the rows say."""
    of = restored(range(10), lacks_rows=lacks_rows)
    log_of(of).rows[at] = MARKER

    found = compared(of)

    assert (7, 9, 1) == (found.exit_code, found.row.records, found.row.backup_only)
    assert [at] == [one.offset for one in found.row.differences]


@FORGOTTEN
@pytest.mark.parametrize("at", [0, 5])
def test_a_record_of_others_in_between_is_named(at: int, *, lacks_rows: bool) -> None:
    """By the offset that it has in the copy."""
    of = restored(range(10), lacks_rows=lacks_rows)
    rows = log_of(of).rows
    rows.insert(at, {**rows[at], "value": b"another"})

    found = compared(of)

    assert 7 == found.exit_code
    assert found.row.kafka_only or found.row.different


@FORGOTTEN
def test_what_was_written_since_is_behind(*, lacks_rows: bool) -> None:
    """A copy that is in use has more records."""
    of = restored(range(10), lacks_rows=lacks_rows)
    log_of(of).rows += [{**log_of(of).rows[0], "value": b"new"}]

    found = compared(of)

    assert 0 == found.exit_code
    assert 10 == found.row.records
    assert found.row.behind


def test_a_restore_that_was_stopped_is_not_the_whole() -> None:
    """What is there is equal, the rest is counted: 3."""
    of = killed_half_way()

    found = compared(of)

    assert (3, 5, 5) == (found.exit_code, found.row.records, found.row.left)
    assert "same, 5 not restored yet" == found.row.state


def test_what_retention_has_taken_is_counted() -> None:
    """Rows say which records they were; without, nothing can be said."""
    of = restored(range(10))
    log_of(of).delete(4)

    found = compared(of)

    assert (0, 6, 4) == (found.exit_code, found.row.records, found.row.expired)
    of.keep_rows()
    assert {"partitions_not_compared": 1} == compared(of).skipped


def test_of_a_target_that_is_emptied_nothing_was_compared() -> None:
    """Rows say how many records there were."""
    of = restored(range(10))
    log_of(of).delete(11)

    found = compared(of)

    assert (3, 0, 10) == counts(found)
    assert "Kafka has none of its records any more" == found.row.why


def test_an_object_that_is_gone_is_the_backups_fault() -> None:
    """What was restored from it cannot be compared: the backup is named, and not the copy."""
    backup, (first, _) = backup_with_ledger(range(5), range(5, 10))
    of = Restoring(backup)
    of.restore()
    backup.store.delete(first)

    found = compared(of)

    assert (7, "not comparable: 1 object of the backup is missing") == (
        found.exit_code, found.row.result
    )  # fmt: skip
    (error,) = found.errors
    assert error.startswith("orders-0 cannot be compared: the backup lacks objects that it had")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_a_restore_left_out_is_left_out_of_the_comparison(at: int) -> None:
    """With ``behavior.on.error=log`` the intact records are compared, and what is gone is named."""
    backup, keys = backup_with_ledger(range(5), range(5, 10), range(10, 15))
    backup.store.delete(keys[at])
    of = Restoring(backup)
    of.restore(behavior_on_error="log")

    found = compared(of, behavior_on_error="log")

    assert (3, 10, {"missing_objects": 1}) == (found.exit_code, found.row.records, found.skipped)
    assert ["missing_object"] == found.warnings
    assert 7 == compared(of).exit_code


def test_what_is_gone_since_it_was_restored_is_a_difference() -> None:
    """The copy has records that the backup lacks: no option makes these the same."""
    backup, keys = backup_with_ledger(range(5), range(5, 10))
    of = Restoring(backup)
    of.restore()
    backup.store.delete(keys[0])

    assert 7 == compared(of, behavior_on_error="log").exit_code


@pytest.mark.parametrize(
    ("window", "exit_code"),
    [
        ({"from_time": TIME + 5}, 0),
        ({"from_time": TIME + 4}, 7),
        ({"to_time": TIME + 5}, 7),
        ({"from_offset": 5}, 0),
    ],
)
def test_an_object_that_is_gone_matters_where_it_is_asked_for(
    window: dict[str, Any], exit_code: int
) -> None:
    """A restore of some records, by time as by offset, never needed the others."""
    backup, (first, _) = backup_with_ledger(range(5), range(5, 10))
    of = Restoring(backup)
    of.restore(**window)
    backup.store.delete(first)

    assert exit_code == compared(of, **window).exit_code


@FORGOTTEN
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_what_was_removed_from_the_backup_since_is_no_difference(
    gone: int, *, lacks_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has it, and what the backup still has is compared."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 3)
    backup, keys = backup_with_ledger(range(5), range(5, 9, 3), range(10, 14), range(14, 20))
    of = Restoring(backup)
    of.restore()
    if lacks_rows:
        of.keep_rows()
    _remove(backup, keys[:gone])
    left = 17 - (5, 7, 11)[gone - 1]

    found = compared(of)
    assert (0, left, "same") == (found.exit_code, found.row.records, found.row.state)
    rows = log_of(of).rows
    rows[-2] = {**rows[-2], "value": b"altered"}
    assert 7 == compared(of).exit_code


def test_what_was_removed_since_is_not_guessed() -> None:
    """What a restore of a window has read of it, nothing says."""
    backup, keys = backup_with_ledger(range(5), range(5, 10))
    of = Restoring(backup)
    of.restore(from_time=TIME + 2)
    _remove(backup, keys[:1])

    found = compared(of, from_time=TIME + 2)

    assert (3, {"partitions_not_compared": 1}) == (found.exit_code, found.skipped)
    assert "1 object that it had read" in str(found.row.why)


def test_what_the_target_has_deleted_of_removed_objects_is_no_difference() -> None:
    """Nothing tells how much of them is left there, though the first record was the backup's."""
    backup, keys = backup_with_ledger(range(5), range(5, 10))
    of = Restoring(backup)
    of.restore()
    log_of(of).delete(2)
    _remove(backup, keys[:1])

    found = compared(of)

    assert (3, {"partitions_not_compared": 1}) == (found.exit_code, found.skipped)


def test_an_object_that_was_stored_with_less_and_removed_again_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy has more of it than was ever removed."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 5)
    backup, keys = backup_with_ledger(range(5), range(5, 10))
    of = Restoring(backup)
    of.restore()
    _remove(backup, keys[:1])
    backup.store.delete(keys[0])
    (key,) = backup.put("orders", 0, range(3), identity=ID)
    enter(backup, key, range(3))
    _remove(backup, [key])

    found = compared(of)

    assert (3, {"partitions_not_compared": 1}) == (found.exit_code, found.skipped)


def _remove(backup: Backup, keys: Sequence[str]) -> None:
    """Mark objects as removed."""
    ledger = stream.topic_stream(backup.store, backup.layout, "orders", CLOCK)
    rows = [row for row in entries(ledger.read().rows) if row.key in keys]
    ledger.append(table([of_object(REMOVED, row, "e1", 0) for row in rows], OBJECTS))


def test_an_object_that_is_gone_and_came_later_is_not_asked_for() -> None:
    """A restore of what had been stored before a time never needed it."""
    backup, _ = backup_with_ledger(range(5))
    (later,) = backup.put("orders", 0, range(5, 10), identity=ID)
    enter(backup, later, range(5, 10), after_ms=60_000)
    head = backup.store.head(later)
    assert head is not None
    then = int(head.modified.timestamp() * 1000) + 30_000
    said = backup_state.read(backup.store, backup.layout, SystemClock()).ledger(WHERE)
    of = Restoring(backup, entries={"orders": [*said.objects.values()]})
    of.restore(as_of=then)
    backup.store.delete(later)

    found = compared(of, as_of=then)

    assert (0, 5, "same") == (found.exit_code, found.row.records, found.row.state)


@pytest.mark.parametrize("policy", ["log", "ignore"])
def test_what_the_restore_has_left_out_is_counted(policy: str, monkeypatch: Any) -> None:
    """A damaged object once, though many units read it, and bad lines: exit 3, as the restore."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 3)
    monkeypatch.setattr(against_target, "RECORDS_MOST", 4)
    of = Restoring()
    _, key, _ = of.backup.put("orders", 0, range(10), range(10, 20), range(20, 30))
    of.backup.replace(key, b"PAR1 damaged PAR1")
    of.restore(on_error=policy)

    found = compared(of, behavior_on_error=policy)

    assert (3, 20, {"bad_objects": 1}) == (found.exit_code, found.row.records, found.skipped)
    assert 7 == compared(of).exit_code


def test_bad_lines_that_the_restore_has_left_out_are_counted() -> None:
    """Of values: the rest of their object was restored, and is equal."""
    of = Restoring()
    (key,) = of.backup.put("orders", 0, range(10), views=JSON)
    of.backup.replace(key, of.backup.body(key).replace(b'{"n":4}', b"{"))
    of.restore(on_error="log")

    found = compared(of, behavior_on_error="log")

    assert (3, 9, {"bad_records": 1}) == (found.exit_code, found.row.records, found.skipped)


def test_what_is_deleted_before_a_row_that_is_lost_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the log begins among records of which no row speaks, none is taken for another."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 3)
    of = restored(*(range(at, at + 3) for at in (0, 3, 6, 9)))
    rows = [row.target_first for row in of.translated()]
    assert [0, 4, 8, 12] == rows

    log_of(of).delete(5)
    assert (0, 8, 4) == counts(compared(of))
    of.keep_rows(of.translated()[1:])
    assert (0, 8, 1) == counts(compared(of))
    of.keep_rows(of.translated()[1:])
    assert {"partitions_not_compared": 1} == compared(of).skipped


def counts(found: Beside) -> tuple[int, int, int]:
    """Exit code, records, and those that are gone."""
    return found.exit_code, found.row.records, found.row.expired


def test_what_compaction_has_taken_is_counted() -> None:
    """In a compacted topic a record may be gone, and none may be another one."""
    of = restored(range(10))
    log_of(of).rows[4] = log_of(of).rows[9] = MARKER
    of.cluster.configs[COPY.topic] = {"cleanup.policy": "compact"}

    found = compared(of)

    assert (0, 8, 2) == (found.exit_code, found.row.records, found.row.compacted)
    log_of(of).rows[5] = {**log_of(of).rows[5], "key": b"another"}
    assert (7, 1) == (compared(of).exit_code, compared(of).row.different)
    of.keep_rows()
    assert "no translation row" in compared(of).row.why


def test_a_target_whose_settings_may_not_be_read_is_not_judged() -> None:
    """It may be compacted: what it lacks would be called lost."""
    of = restored(range(10))
    of.cluster.forbidden = frozenset({"DESCRIBE_CONFIGS"})

    with pytest.raises(KafkaError, match="settings of copy_of_orders cannot be read"):
        compared(of)


def test_a_time_that_the_broker_sets_is_not_compared() -> None:
    """Each record says whose time it has, whatever the topic's setting has become since."""
    of = restored(range(10))
    rows = log_of(of).rows
    rows[:5] = [
        {**row, "timestamp": 5, "timestamp_type": int(TimestampType.LOG_APPEND)} for row in rows[:5]
    ]

    assert (0, 10) == (compared(of).exit_code, compared(of).row.records)
    rows[7] = {**rows[7], "timestamp": 5}
    of.cluster.configs[COPY.topic] = {"message.timestamp.type": "LogAppendTime"}
    found = compared(of)
    assert (7, 9, "timestamp") == (found.exit_code, found.row.records, named(found))
    rows[3] = {**rows[3], "value": b"another"}
    assert (7, 8, "value") == (
        compared(of).exit_code,
        compared(of).row.records,
        named(compared(of)),
    )


def named(found: Beside) -> str:
    """What the first difference is."""
    return found.row.differences[0].what


def test_values_without_offsets_are_compared_by_their_order() -> None:
    """Objects as the connectors write them."""
    of = Restoring()
    of.backup.put("orders", 0, range(5), range(5, 10), views=JSON)
    of.restore()

    assert (0, 10) == (compared(of).exit_code, compared(of).row.records)
    log_of(of).rows[7] = {**log_of(of).rows[7], "value": b"{}"}
    assert 7 == compared(of).exit_code


def test_a_window_is_compared_as_it_was_restored() -> None:
    """What was not asked for is not missing."""
    of = restored(range(10), range(10, 20), from_offset="3", to_offset="14")

    found = compared(of, from_offset="3", to_offset="14")

    assert (0, 11) == (found.exit_code, found.row.records)
    with pytest.raises(RefusedError):
        compared(of)


def test_rows_of_what_was_committed_since_are_not_yet_compared() -> None:
    """A restore that goes on has stored them after its position was read here."""
    of = restored(range(10))
    (row,) = of.translated()
    later = replace(row, first=10, last=19, target_first=11, target_last=20)
    log_of(of).rows += [dict(one) for one in log_of(of).rows[:10]]
    of.keep_rows((row, later))

    found = compared(of)

    assert (0, 10) == (found.exit_code, found.row.records)


def test_a_header_that_the_restore_has_added_is_expected() -> None:
    """Given the restore's options, what was written is what should have been."""
    of = restored(range(10), offset_header="at")

    assert 0 == compared(of, offset_header="at").exit_code
    assert 7 == compared(of).exit_code


def test_a_partition_that_is_not_there_is_refused() -> None:
    """Nothing that is chosen would be called the same."""
    with pytest.raises(RefusedError, match="is chosen"):
        compared(restored(range(10)), partitions="7")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_copy_that_was_never_made_is_refused(*, is_there: bool) -> None:
    """The topic is not there, or nobody has restored to it."""
    of = Restoring()
    of.backup.put("orders", 0, range(10))
    if is_there:
        of.cluster.add_topic(COPY.topic, 1, {})

    with pytest.raises(RefusedError, match="has not been restored"):
        compared(of)


def test_a_map_that_spreads_records_is_refused() -> None:
    """Records of a partition stand in several, where order says nothing."""
    of = restored(range(10))

    with pytest.raises(RefusedError, match="cannot be compared"):
        compared(of, partition_map="key")


def test_a_partition_of_which_there_is_nothing_is_empty() -> None:
    """It has been restored as nothing, which is right."""
    of = restored(range(10))
    of.cluster.logs[TopicPartition(COPY.topic, 1)] = Log()

    assert ["same"] == [row.state for row in compared(of).rows]


def test_ids_of_schemas_are_those_of_another_registry() -> None:
    """What follows an id is compared; that the ids are not is said."""
    of = restored(range(3))
    of.keep_rows(of.translated(), ids=(("value", 1, 7),))
    rows = log_of(of).rows[:3]
    one, two = (
        pa.RecordBatch.from_pylist([{**row, "value": head + b"v"} for row in rows], records.SCHEMA)
        for head in (b"\0\0\0\0\1", b"\0\0\0\0\7")
    )
    (position,) = [each[COPY] for each in of.cluster.groups.values()]
    read = RestorePosition.read(COPY, position)
    assert read is not None
    with_ids = RestoredPartition(*read, (), (), 3, Span(0, 4))
    without = replace(with_ids, position=replace(read[0], ids=None))

    assert [True, False] == [
        are_same(each.as_kept(one), each.as_kept(two)) for each in (with_ids, without)
    ]
    found = compared(of)
    assert (0, ["schema_ids_not_compared"]) == (found.exit_code, found.warnings), found
