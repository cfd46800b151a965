"""Run records and gaps."""

import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.errors import StoreError
from kbackup.events import Ended, to_json
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL
from kbackup.runs import history
from kbackup.runs.history import RunRecord
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore, put_bytes
from tests.support.ended import RUN, ended

LAYOUT = Layout()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def summary(hour: int = 2, command: str = "sink", **more: Any) -> Ended:
    run = f"2026-11-21T{hour:02d}:00:00Z-7f3a"
    return ended(run=run, command=command, **more)


def keys(store: MemoryStore) -> list[str]:
    return [entry.key for entry in store.list("")]


def names(found: list[RunRecord]) -> list[str]:
    return [record.run[11:13] for record in found]


def test_a_run_id_tells_the_start_in_utc() -> None:
    """Whatever zone the host is in, a run is named after the time in UTC."""
    now = datetime(2026, 11, 21, 4, 0, 0, 999_999, timezone(timedelta(hours=2)))

    run = history.new_run_id(now)

    assert re.fullmatch(r"2026-11-21T02:00:00Z-[0-9a-f]{4}", run) is not None


def test_what_is_no_text_keeps_no_record_from_being_left(store: MemoryStore) -> None:
    """An error may quote a file's name that is not UTF-8: the record has `?` in its place."""
    failed = ended(exit_code=1, errors=[{"code": "failed", "what": "/backup/\udcff is gone"}])

    history.write_run(store, LAYOUT, failed)
    history.write_success(store, LAYOUT, failed)

    assert ["/backup/? is gone"] == [one.trouble for one in history.runs(store, LAYOUT)]


@settings(deadline=None)
@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.timezones()))
def test_the_start_can_be_read_from_a_run_id(now: datetime) -> None:
    """A run id gives back the second it was made in."""
    run = history.new_run_id(now)

    assert now.astimezone(UTC).replace(microsecond=0) == RunRecord({"run": run}).started


@pytest.mark.parametrize(
    "run",
    [
        pytest.param("", id="empty"),
        pytest.param("7f3a", id="no time"),
        pytest.param("2026-02-31T02:00:00Z-7f3a", id="no such day"),
        pytest.param("2026-11-21T02:00:00Z-7f3a-sink", id="more than an id"),
    ],
)
def test_what_is_no_run_id_has_no_start(run: str) -> None:
    """A start is never guessed from something that only looks like a run id."""
    assert RunRecord({"run": run}).started is None


@pytest.mark.parametrize(
    ("topics_dir", "key"),
    [
        pytest.param("topics", "_kbackup/runs/2026-11-21T020000Z-7f3a-sink.json", id="default"),
        pytest.param("a/b", "a/_kbackup/runs/2026-11-21T020000Z-7f3a-sink.json", id="nested"),
        pytest.param("", "_kbackup/runs/2026-11-21T020000Z-7f3a-sink.json", id="none"),
    ],
)
def test_a_run_record_lies_beside_topics_dir(store: MemoryStore, topics_dir: str, key: str) -> None:
    """A run record is where the documentation says, under a name valid on any file system."""
    history.write_run(store, Layout(topics_dir), summary())

    assert [key] == keys(store)


def test_what_is_written_is_read(store: MemoryStore) -> None:
    """A record is the summary, with the topics.dir it is of."""
    written = summary(partitions=[{"topic": "orders", "partition": 0, "lag": None}])

    history.write_run(store, LAYOUT, written)

    assert [{**to_json(written), "topics_dir": "topics"}] == [
        one.said for one in history.runs(store, LAYOUT)
    ]


def test_runs_come_newest_first(store: MemoryStore) -> None:
    """The newest run is the first, in whatever order their records were stored."""
    for hour in (3, 23, 1, 2):
        history.write_run(store, LAYOUT, summary(hour))

    assert ["23", "03", "02", "01"] == names(list(history.runs(store, LAYOUT)))


def test_only_what_is_asked_for_is_read() -> None:
    """However many runs there are, looking at the newest reads one record."""
    store = FaultyStore("ok " * 100)
    for hour in range(5):
        history.write_run(store, LAYOUT, summary(hour))

    next(history.runs(store, LAYOUT))

    assert 1 == sum(method == "open" for method, _, _ in store.calls)


def of_years(store: Store, now: datetime) -> list[str]:
    """Leave a run each quarter of an hour of the last days, and each day of two years before."""
    starts = [now - timedelta(minutes=15 * at) for at in range(300)]
    starts += [now - timedelta(days=at) for at in range(5, 730)]
    runs = [f"{start:%Y-%m-%dT%H:%M:%SZ}-7f3a" for start in starts]
    for run in runs:
        history.write_run(store, LAYOUT, ended(run=run))
    return runs


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(datetime(2026, 11, 21, 12, tzinfo=UTC), id="the middle of a month"),
        pytest.param(datetime(2027, 1, 1, 0, 10, tzinfo=UTC), id="the first of a year"),
        pytest.param(datetime(2028, 2, 29, 23, 59, tzinfo=UTC), id="the last of a month"),
    ],
)
def test_the_newest_of_many_runs_are_found_by_few_listings(now: datetime) -> None:
    """The last runs of a cron cost three short listings; who reads on gets every run once."""
    store = FaultyStore("ok " * 5_000)
    runs = of_years(store, now)
    listed = len(store.calls)

    newest = list(islice(history.runs(store, LAYOUT, "sink", now=now), 90))
    costs = [key for method, key, _ in store.calls[listed:] if method == "list"]
    everything = [record.run for record in history.runs(store, LAYOUT, "sink", now=now)]
    recent = history.RecentRuns.listed(store, LAYOUT, now)
    again = [one.run for one in history.runs(store, LAYOUT, "sink", now=now, recent=recent)]

    assert runs[:90] == [record.run for record in newest]
    assert (len(runs), runs) == (len(again), again)
    assert all(len(prefix) == len("_kbackup/runs/2026-11-21") for prefix in costs)
    assert runs == everything


@pytest.mark.parametrize(
    ("command", "hours"),
    [
        pytest.param("sink", ["03"], id="the start of another's name"),
        pytest.param("sink status", ["02"], id="two words"),
        pytest.param("restore", ["01"], id="one word"),
        pytest.param("verify", [], id="never run"),
        pytest.param(None, ["03", "02", "01"], id="all"),
    ],
)
def test_runs_of_one_command(store: MemoryStore, command: str | None, hours: list[str]) -> None:
    """The history of one command leaves out the runs of others."""
    for hour, of in enumerate(("restore", "sink status", "sink"), 1):
        history.write_run(store, LAYOUT, summary(hour, of))

    assert hours == names(list(history.runs(store, LAYOUT, command)))


def test_what_is_verified_each_day_hides_nothing_that_rarely_is(store: MemoryStore) -> None:
    """Of the last 100 days: the whole backup was verified before all of these."""
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    for days in range(99, 0, -1):
        run = history.new_run_id(now - timedelta(days=days))
        modes = ["deep" if days == 99 else "part"]
        history.write_run(store, LAYOUT, ended(run=run, command="restore verify", modes=modes))

    found = history.RecentRuns.listed(store, LAYOUT, now).proofs(ALL)

    ages = [(one.mode, one.passed and (now - one.passed).days) for one in found]
    assert [("deep", 99), ("part", 1)] == ages


def test_backups_side_by_side_keep_their_runs_apart(store: MemoryStore) -> None:
    """Two topics.dir share a folder of records, and each sees its own runs."""
    history.write_run(store, Layout("a"), summary(1))
    history.write_run(store, Layout("b"), summary(2))

    assert ["01"] == names(list(history.runs(store, Layout("a"))))


def test_two_runs_of_one_name_are_both_kept(store: MemoryStore) -> None:
    """Run ids are short: where two hosts made the same one, no record replaces the other."""
    history.write_run(store, Layout("a"), summary())
    history.write_run(store, Layout("b"), summary())
    history.write_run(store, Layout("b"), summary())

    assert [["02"], ["02"], 2] == [
        names(list(history.runs(store, Layout("a")))),
        names(list(history.runs(store, Layout("b")))),
        len(keys(store)),
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"", id="cut to nothing"),
        pytest.param(b'{"run":"2026-11', id="cut short"),
        pytest.param(b"\xff\xfe", id="not text"),
        pytest.param(b"[1]", id="another kind of JSON"),
        pytest.param(b"{}", id="an empty object"),
        *(
            pytest.param(
                b'{"run":"2026-11-21T02:00:00Z-7f3a","command":"sink","topics_dir":"%s",%s}'
                % (LAYOUT.topics_dir.encode(), field),
                id=field.decode(),
            )
            for field in (
                b'"partitions":null',
                b'"partitions":[5]',
                b'"partitions":[{}]',
                b'"partitions":[{"topic":"a","partition":0,"lag":"x"}]',
                b'"partitions":[{"topic":"a","partition":0,"bytes_read":{}}]',
                b'"partitions":[{"topic":"a","partition":0,"target":5}]',
                b'"names":5',
                b'"exit_code":[]',
                b'"result":5',
                b'"group":[]',
                b'"errors":5',
                b'"seconds":"x"',
                b'"seconds":-1.5',
                b'"records":-4200',
                b'"deleted":9223372036854775808',
            )
        ),
    ],
)
def test_a_damaged_record_counts_as_missing(store: MemoryStore, damaged: bytes) -> None:
    """A damaged run record is passed over and hides no other."""
    history.write_run(store, LAYOUT, summary(1))
    history.write_run(store, LAYOUT, summary(3))
    put_bytes(store, "_kbackup/runs/2026-11-21T020000Z-7f3a-sink.json", damaged)

    assert ["03", "01"] == names(list(history.runs(store, LAYOUT)))


@pytest.mark.parametrize("word", ["corrupt", "missing"])
def test_a_record_that_cannot_be_opened_counts_as_missing(store: MemoryStore, word: str) -> None:
    """A record whose bytes are wrong, or which is gone by now, is passed over."""
    for hour in (1, 2):
        history.write_run(store, LAYOUT, summary(hour))
    faulty = FaultyStore(word, store, methods=frozenset({"open"}))

    assert ["01"] == names(list(history.runs(faulty, LAYOUT)))


@pytest.mark.parametrize(
    "script", [pytest.param("503", id="list"), pytest.param("ok 503", id="read")]
)
def test_a_store_that_fails_is_not_a_store_without_runs(store: MemoryStore, script: str) -> None:
    """A store that fails is an error, never taken for a backup without run records."""
    history.write_run(store, LAYOUT, summary())

    with pytest.raises(StoreError):
        list(history.runs(FaultyStore(script, store), LAYOUT))


def test_foreign_objects_among_the_records_are_passed_over(store: MemoryStore) -> None:
    """A foreign file among the run records is ignored."""
    history.write_run(store, LAYOUT, summary())
    put_bytes(store, "_kbackup/runs/README.txt", b"hands off")
    put_bytes(store, "_kbackup/runs/zzz/2026-11-21T020000Z-7f3a-sink.json", b"{}")

    assert ["02"] == names(list(history.runs(store, LAYOUT)))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"exit_code": 0}, "2026-11-21T02:00:00+00:00", id="good: its start"),
        pytest.param({"exit_code": 3}, "2026-11-21T02:00:00+00:00", id="with skips"),
        pytest.param({"exit_code": 5}, None, id="failed"),
        pytest.param({"exit_code": 143}, None, id="stopped"),
        pytest.param(
            {"exit_code": 5, "last_success": "2026-11-20T02:00:00Z"},
            "2026-11-20T02:00:00+00:00",
            id="failed, knows of an earlier one",
        ),
        pytest.param({"exit_code": 5, "last_success": None}, None, id="failed, knows of none"),
        pytest.param({"exit_code": 5, "last_success": "soon"}, None, id="no time"),
        pytest.param({}, None, id="empty"),
    ],
)
def test_what_a_record_says_of_success(record: dict[str, Any], expected: str | None) -> None:
    """Only a run that exits 0 or 3 is a success, and it covers what was there when it started."""
    found = RunRecord({"run": RUN, **record} if record else {}).success

    assert expected == (None if found is None else found.isoformat())


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["orders"], "2026-11-21T02:00:00+00:00", id="its own"),
        pytest.param(["orders", "payments"], None, id="of other topics"),
    ],
)
def test_a_sink_learns_of_its_last_success_in_one_request(
    store: MemoryStore, names: list[str], expected: str | None
) -> None:
    """However many runs of other topics came between, their records are neither listed nor read."""
    good = summary(names=["orders"], last_success="2026-11-21T02:00:00Z")
    history.write_success(store, LAYOUT, good)
    script = "ok 503" if expected else "ok"

    found = history.kept_success(FaultyStore(script, store), LAYOUT, (tuple(names), None)).success

    assert expected == (None if found is None else found.isoformat())
