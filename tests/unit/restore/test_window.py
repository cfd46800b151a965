"""A restore of some records: by offset, and as a topic was at a point in time."""

from typing import Any

import pytest
from backup_samples import JSON, TIME, batch

from kbackup.config import loading
from kbackup.config.property import moment
from kbackup.errors import KbackupError, TargetNotEmptyError
from kbackup.runs import wiring
from tests.support.target import CrashError, Restoring


@pytest.fixture
def some() -> Restoring:
    """A backup of offsets 0-29 in three objects; a record's timestamp is `TIME` and its offset."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(10), range(10, 20), range(20, 30))
    return restoring


def offsets(some: Restoring) -> list[int]:
    """The offsets, in the backup, of what the target holds."""
    return [int(value[5:-1]) for value in some.cluster.values("copy_of_orders") if value]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        pytest.param({"to_time": TIME + 13}, range(13), id="up to a time"),
        pytest.param({"from_time": TIME + 13}, range(13, 30), id="from a time"),
        pytest.param({"from_offset": 5, "to_offset": 25}, range(5, 25), id="offsets"),
        pytest.param({"from_offset": 5, "to_time": TIME + 7}, range(5, 7), id="both"),
        pytest.param({"to_offset": 10}, range(10), id="at an object's end"),
    ],
)
def test_only_the_records_asked_for_are_restored(
    some: Restoring, window: dict[str, Any], expected: range
) -> None:
    """From what they begin with, up to what they end with; a rerun finds nothing to do."""
    some.restore(**window)

    assert list(expected) == offsets(some)
    assert [] == some.plan(**window).units()


def test_objects_outside_are_not_opened(some: Restoring) -> None:
    """A damaged object keeps nobody from restoring what was before it."""
    (unit,) = some.plan(to_time=TIME + 10).units()

    assert [0] == [files.start_offset for files in unit.sets]


def test_an_object_outside_that_is_gone_is_not_missed() -> None:
    """By time as by offset: the records that are asked for are all there."""
    some = Restoring()
    _, last = some.backup.run("orders", 0, range(10), range(10, 20))
    some.store.delete(last)

    assert [] == some.plan(to_time=TIME + 10).refusals == some.plan(to_offset=10).refusals
    assert [7] == [error.exit_code for error in some.plan(to_time=TIME + 11).refusals]


def test_records_out_of_order_are_judged_one_by_one() -> None:
    """A producer's clock may jump: each record is in or out by its own timestamp."""
    restoring = Restoring()
    times = [5, 1, 9, 2, 7]
    rows = [batch([at], timestamp=TIME + time) for at, time in enumerate(times)]
    restoring.backup.put("orders", 0, *rows)

    restoring.restore(to_time=TIME + 6)

    assert [0, 1, 3] == offsets(restoring)


def test_a_record_without_a_timestamp_is_left_out_and_counted() -> None:
    """Nobody knows whether it was there at that time: it is counted as skipped, which is exit 3."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, batch([0]), batch([1], timestamp=-1), batch([2]))

    (report,) = restoring.restore(to_time=TIME + 100)

    assert [0, 2] == offsets(restoring)
    assert 1 == report.done.bad_records
    assert "1 record from offset 1 on has no timestamp" in report.own.skipped[0].what


def test_a_killed_restore_of_a_window_goes_on(some: Restoring) -> None:
    """The position moves past what is left out; what was committed is not written again."""
    window: dict[str, Any] = {"from_offset": 3, "to_offset": 27}
    some.backup.put("orders", 0, range(30, 40))
    with pytest.raises(CrashError):
        some.restore(crash_at=1, **window)

    some.restore(run="r2", **window)

    assert list(range(3, 27)) == offsets(some)


def test_another_window_is_another_restore(some: Restoring) -> None:
    """What a window left out is never taken for restored: the target is refused."""
    some.restore(to_time=TIME + 10)

    with pytest.raises(TargetNotEmptyError):
        some.restore(run="r2")
    with pytest.raises(TargetNotEmptyError):
        some.restore(run="r3", group=some.plan(to_time=TIME + 10).group)


def test_times_are_refused_where_none_are_stored() -> None:
    """Objects of values alone have no timestamps: neither all nor none of them may be guessed."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(10), views=JSON)

    with pytest.raises(KbackupError, match="does not say when its records were written"):
        restoring.restore(to_time=TIME)


def test_values_are_chosen_by_offset() -> None:
    """Objects of values alone know their offsets as well as their names do."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(10), range(10, 20), views=JSON)

    restoring.restore(from_offset=4, to_offset=12)

    assert list(range(4, 12)) == offsets(restoring)


def test_a_window_without_a_record_is_said(some: Restoring) -> None:
    """A window without a record creates the topic, writes nothing, and warns."""
    plan = some.plan(from_time=TIME + 1000)

    assert [] == plan.units()
    assert ["window_empty"] == [code for code, _ in plan.topics[0].warnings]


def test_an_object_missing_outside_of_the_window_is_not_missed(some: Restoring) -> None:
    """A loss among offsets that nobody asks for keeps nobody from restoring the others."""
    [key] = some.backup.put("orders", 0, range(30, 40))
    some.entries = {"orders": [some.backup.entry(key)]}
    some.store.delete(key)

    assert some.plan().refusals
    assert [] == some.plan(to_offset=20).refusals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T02:00:00Z", 1795226400000),
        ("2026-11-21T03:00:00+01:00", 1795226400000),
        ("2026-11-21 02:00Z", 1795226400000),
        ("2026-11-21", 1795219200000),
        ("1795226400000", 1795226400000),
        ("2026-11-21T02:00:00.0019Z", 1795226400001),
    ],
)
def test_times_are_rfc_3339_dates_or_milliseconds(text: str, expected: int) -> None:
    """A window's times are RFC 3339, dates in UTC, or milliseconds."""
    assert expected == moment(text)


@pytest.mark.parametrize("text", ["yesterday", "12", "2026-13-01", ""])
def test_other_times_are_refused(text: str) -> None:
    """A time that cannot be read is refused, with the forms that can."""
    with pytest.raises(ValueError, match="expected a time such as"):
        moment(text)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    """Exchanged ends are a mistake, not a restore of nothing."""
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "from_offset": 9, "to_offset": 9}
    settings = loading.load("restore", options=given, files=(), environ={}).settings

    with pytest.raises(KbackupError, match="--to-offset is not after --from-offset"):
        wiring.window(settings)


def test_values_with_holes_between_them_are_not_counted_out() -> None:
    """A value's offset is its place in the file only where no offset was left out."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(0, 20, 2), range(20, 30), views=JSON)

    with pytest.raises(KbackupError, match="does not say which offsets"):
        restoring.restore(to_offset=10)

    restoring.restore(from_offset=20, to_offset=25)
    assert list(range(20, 25)) == offsets(restoring)


def test_values_in_several_directories_are_not_counted_out() -> None:
    """A directory has some of a partition's offsets: its rows are no run of them."""
    restoring = Restoring()
    restoring.backup.put_in("region=eu", "orders", 0, range(0, 20, 2), views=JSON)
    restoring.backup.put_in("region=us", "orders", 0, range(1, 20, 2), views=JSON)

    with pytest.raises(KbackupError, match="does not say which offsets"):
        restoring.restore(to_offset=10)

    restoring.restore(to_offset=20)
    assert list(range(20)) == sorted(offsets(restoring))


@pytest.mark.parametrize("window", [{"to_offset": 20}, {"to_time": TIME}])
def test_what_a_connector_spread_over_directories_is_chosen_by_no_window(
    window: dict[str, Any],
) -> None:
    """Nothing says where such an object ends: the advice is none that the next run refuses."""
    restoring = Restoring()
    for directory, at in (("hour=01", range(20)), ("hour=02", range(20, 30))):
        key = restoring.backup.put_in(directory, "orders", 0, at, views=JSON)
        restoring.backup.replace(key, restoring.backup.body(key), metadata={})

    with pytest.raises(KbackupError, match="does not say") as caught:
        restoring.restore(**window)

    assert "--as-of" in caught.value.do
    assert "offset" not in caught.value.do
