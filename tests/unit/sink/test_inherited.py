"""What a connector left is counted before its group is believed."""

from pathlib import Path
from typing import Any, BinaryIO

import pytest
from backup_samples import JSON, Backup, batch

from kbackup.clock import SystemClock
from kbackup.errors import CorruptObjectError, RefusedError, StoreError, TopicChangedError
from kbackup.events import to_json
from kbackup.kafka import Position
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import SinkPosition
from kbackup.sink.accounting import plan_partitions
from kbackup.sink.plan import SinkPartitionPlan, SinkPlan, make_plan
from kbackup.sink.start import Inherited, OpenedObject
from kbackup.stores.memory import MemoryStore
from tests.support.configurations import SINK, load
from tests.support.fake_kafka import FakeKafka
from tests.support.json_lines import LINES

LOG = Span(0, 90)
WHERE = TopicPartition("orders", 0)
KEY = "topics/orders/partition=0/orders+0+{:010}.json"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A connector's file."""
    path = tmp_path / "connector.properties"
    path.write_text(SINK + "bootstrap.servers=h:1\n")
    return path


def left(backup: Backup, *cuts: range, directory: str = "") -> None:
    """Store cuts as a connector does: nothing but the name says what they hold."""
    for cut in cuts:
        if directory:
            key = backup.put_in(directory, "orders", 0, cut, views=JSON)
        else:
            (key,) = backup.put("orders", 0, cut, views=JSON)
        backup.replace(key, backup.body(key), {})


def planned(
    backup: Backup, config: Path, committed: int | None, log: Span = LOG, **options: object
) -> SinkPlan:
    """The plan for a group that has committed this."""
    positions = {} if committed is None else {WHERE: Position(committed)}
    cluster = FakeKafka({"orders": "id"}, {WHERE: log}, positions)
    settings = load("sink", config, **options).settings
    return make_plan(settings, cluster, backup.store, SystemClock())  # type: ignore[arg-type]


def outcome(at: SinkPartitionPlan) -> tuple[int, list[str], list[Span]]:
    """Where it continues, what is said of it, and what is given up."""
    assert at.start is not None
    return at.start.offset, [code for code, _ in at.start.warnings], list(at.start.expired)


@pytest.mark.parametrize(
    ("committed", "log_start", "offset", "codes"),
    [
        pytest.param(9, 0, 9, [], id="they add up"),
        pytest.param(20, 0, 6, ["bucket_behind"], id="group ahead: the newest is read again"),
        pytest.param(20, 8, 9, ["bucket_behind"], id="group ahead, and the newest has expired"),
        pytest.param(6, 0, 6, ["group_behind"], id="a crash before the commit"),
        pytest.param(3, 0, 3, ["group_behind"], id="the group was set back to an object"),
        pytest.param(5, 0, 3, ["group_behind"], id="the group was set back into an object"),
        pytest.param(0, 0, 0, ["group_behind"], id="the group was set back to the beginning"),
        pytest.param(5, 4, 9, ["group_behind"], id="set back, but that object has expired"),
        pytest.param(None, 0, 6, ["offset_missing"], id="the group's offset expired"),
        pytest.param(None, 7, 9, ["offset_missing"], id="and so has the newest object's start"),
    ],
)
def test_the_group_is_believed_where_the_newest_object_agrees(
    committed: int | None, log_start: int, offset: int, codes: list[str], config: Path
) -> None:
    """Objects of three records end at offset 9; no hole arises, and no object is cut in two."""
    backup = Backup()
    left(backup, range(3), range(3, 6), range(6, 9))

    (at,) = planned(backup, config, committed, Span(log_start, 90)).partitions

    assert (offset, codes, []) == outcome(at)


@pytest.mark.parametrize(
    ("committed", "log_start", "offset"),
    [(9, 0, 9), (20, 8, 9), (5, 4, 9), (None, 7, 9), (20, 0, None), (5, 0, None), (None, 0, None)],
)
def test_values_are_not_written_again_under_another_name(
    committed: int | None, log_start: int, offset: int | None, config: Path
) -> None:
    """Compressed now, they would be there twice: where the group does not agree, it is refused."""
    backup = Backup()
    left(backup, range(3), range(3, 6), range(6, 9))
    options = {"s3_compression_type": "gzip"}

    (at,) = planned(backup, config, committed, Span(log_start, 90), **options).partitions

    if offset is None:
        assert isinstance(at.refusal, RefusedError)
        assert "as .json, would be stored again as .json.gz" in at.refusal.what
    else:
        assert at.start is not None
        assert offset == at.start.offset


def test_the_name_of_a_codec_is_another_name() -> None:
    """``.snappy.parquet`` ends with ``.parquet``."""
    inherited = Inherited(
        (0, 3), (OpenedObject("orders+0+3.snappy.parquet", 3, 3),),
        extensions=(".parquet", ".snappy.parquet"), values=".parquet",
    )  # fmt: skip

    with pytest.raises(RefusedError):
        inherited.start(WHERE, None, 0)
    assert (6, ()) == inherited.start(WHERE, 6, 0)


def test_a_log_that_ends_where_a_connectors_newest_object_begins_is_another(config: Path) -> None:
    """An object has a record: a log without that offset is of another topic, or was cut back."""
    backup = Backup()
    left(backup, range(3), range(3, 6), range(6, 9))

    (at,) = planned(backup, config, None, Span(0, 6)).partitions

    assert isinstance(at.refusal, TopicChangedError)


def test_what_expired_beyond_a_connectors_objects_is_a_gap(config: Path) -> None:
    """The group says that 9 to 19 are stored, no object holds them, and the log begins at 15."""
    backup = Backup()
    left(backup, range(9))

    (at,) = planned(backup, config, 20, Span(15, 90)).partitions

    assert (15, ["bucket_behind"], [Span(9, 15)]) == outcome(at)


@pytest.mark.parametrize(
    ("committed", "offset", "codes"),
    [
        pytest.param(16, 16, [], id="the directories of the last cut add up"),
        pytest.param(10, 10, ["group_behind"], id="a crash before the commit"),
        pytest.param(30, 10, ["bucket_behind"], id="ahead: the last cut is read again"),
    ],
)
def test_the_directories_of_a_cut_are_counted_together(
    committed: int | None, offset: int, codes: list[str], config: Path
) -> None:
    """A cut of six records is spread over three directories, whose offsets interleave."""
    backup = Backup()
    left(backup, range(4, 10, 2), range(10, 16, 2), directory="f=a")
    left(backup, range(5, 10, 2), range(11, 15, 3), directory="f=b")
    left(backup, range(13, 14), directory="f=c")

    (at,) = planned(backup, config, committed, flush_size="6").partitions

    assert (offset, codes, []) == outcome(at)


@pytest.mark.parametrize(("log_start", "exit_code"), [(4, 0), (0, 4), (5, 4)])
def test_several_directories_and_no_offset_are_begun_again_where_the_cuts_are_the_same(
    log_start: int, exit_code: int, config: Path
) -> None:
    """A log that begins elsewhere than the objects would be cut elsewhere, and stored twice."""
    backup = Backup()
    left(backup, range(4, 10, 2), range(10, 16, 2), directory="f=a")
    left(backup, range(5, 10, 2), range(11, 16, 2), directory="f=b")

    (at,) = planned(backup, config, None, Span(log_start, 90), flush_size="6").partitions

    if exit_code:
        assert at.refusal is not None
        assert (exit_code, None) == (at.refusal.exit_code, at.start)
    else:
        assert (log_start, ["offset_missing"], []) == outcome(at)


def test_what_was_counted_is_not_counted_again(config: Path) -> None:
    """The group keeps the object's name: the next run sees that it is there, and reads nothing."""
    backup = Backup()
    left(backup, range(3))
    (at,) = planned(backup, config, 3).partitions
    position = at.position()
    assert position is not None
    cluster = FakeKafka({"orders": "id"}, {WHERE: Span(0, 90)}, {WHERE: position})
    settings = load("sink", config).settings

    (again,) = make_plan(settings, cluster, backup.store, SystemClock()).partitions  # type: ignore[arg-type]
    backup.store.delete(KEY.format(0))
    (emptied,) = make_plan(settings, cluster, backup.store, SystemClock()).partitions  # type: ignore[arg-type]

    assert (3, KEY.format(0)) == (position.offset, SinkPosition.read(position.metadata).key)  # type: ignore[union-attr]
    assert (3, True, None) == (again.start.offset, again.seen.is_confirmed, again.seen.inherited)  # type: ignore[union-attr]
    assert (0, ["bucket_behind"], []) == outcome(emptied)


def test_a_damaged_newest_object_stops_its_partition(config: Path) -> None:
    """Nobody can say where it ends, so nothing is written after it."""
    backup = Backup()
    left(backup, range(3))
    backup.replace(KEY.format(0), b'{"n":0}\n{"n":', {})

    (at,) = planned(backup, config, 3).partitions

    assert isinstance(at.refusal, CorruptObjectError)
    assert KEY.format(0) in at.refusal.what


@pytest.mark.parametrize("why", ["archived", "denied"])
def test_a_newest_object_that_may_not_be_read_stops_its_partition_alone(
    why: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The neighbour, whose newest object can be counted, is backed up."""
    backup = Backup()
    left(backup, range(3))
    (key,) = backup.put("orders", 1, range(3), views=JSON)
    backup.replace(key, backup.body(key), {})
    whole = MemoryStore.open

    def opened(self: MemoryStore, key: str) -> BinaryIO:
        if key == KEY.format(0):
            raise StoreError(f"getting object {key}", why, status=403)
        return whole(self, key)

    monkeypatch.setattr(MemoryStore, "open", opened)
    other = TopicPartition("orders", 1)
    positions = {WHERE: Position(3), other: Position(3)}
    cluster = FakeKafka({"orders": "id"}, {WHERE: LOG, other: LOG}, positions)
    settings = load("sink", config).settings

    plan = make_plan(settings, cluster, backup.store, SystemClock())  # type: ignore[arg-type]

    refused, goes_on = plan.partitions
    assert isinstance(refused.refusal, StoreError)
    assert 6 == refused.refusal.exit_code
    assert (3, [], []) == outcome(goes_on)


def test_a_group_set_back_is_not_marked_with_an_object_that_comes_after_it(config: Path) -> None:
    """The next run counts again, and dates of upload are looked up from the first object on."""
    backup = Backup()
    left(backup, range(3), range(3, 6), range(6, 9))

    (at,) = planned(backup, config, 3).partitions
    unit = at.unit()

    assert at.position() is None
    assert unit is not None
    assert (3, None) == (unit.span.start_offset, unit.commit_metadata)


def test_a_connector_that_took_over_again_is_believed_again(config: Path) -> None:
    """The ledger knows the first object; a connector wrote the second one since."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=JSON)
    left(backup, range(3, 6))

    (at,) = planned(backup, config, 6).partitions

    assert (6, [], []) == outcome(at)


def test_the_plan_says_where_the_connector_left_off_and_what_comes_next(config: Path) -> None:
    """Each partition has a line with the group's offset, the newest object and the next one."""
    backup = Backup()
    left(backup, range(3), range(3, 6))

    (planned_line,) = plan_partitions(planned(backup, config, 6), load("sink", config).settings)
    line = to_json(planned_line)

    LINES.validate(line)
    assert ("to do", 6, 6, 90, KEY.format(6)) == tuple(
        line[name] for name in ("state", "committed", "start", "end", "next_key")
    )
    assert {"key": KEY.format(3), "first": 3, "records": 3} == line["newest"]


def test_the_next_objects_directory_is_not_guessed(config: Path) -> None:
    """Where the records decide it, the plan names no key."""
    options: dict[str, Any] = {"partitioner_class": "field", "partition_field_name": "region"}
    plan = planned(Backup(), config, None, **options)

    (planned_line,) = plan_partitions(plan, load("sink", config, **options).settings)
    line = to_json(planned_line)

    assert line["next_key"] is None


def test_a_connectors_json_is_the_same_in_another_order_of_keys() -> None:
    """Java's hash map orders the keys of an object; the same records still replace it."""
    backup = Backup()
    rows = batch(range(2), value=b'{"b":1.0E1,"a":"x"}')
    (key,) = backup.put("orders", 0, rows, views=JSON)
    ours = backup.body(key)
    backup.replace(key, b'{"a":"x","b":10.0}\n' * 2, {})

    backup.put("orders", 0, rows, views=JSON)

    assert ours == backup.body(key)
