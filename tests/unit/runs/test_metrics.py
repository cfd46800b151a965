"""Metrics of a backup: what they say, where they are written and served, and what is in the way."""

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kbackup.catalog import identity
from kbackup.catalog.recipients import PublicKey
from kbackup.catalog.rekeying import KeyKeeper
from kbackup.clock import rfc3339
from kbackup.config import loading
from kbackup.errors import ConfigurationError, KafkaError, KbackupError, LockedError, StoreError
from kbackup.events import Event, to_json
from kbackup.local.servers import free_ports
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.records import Span
from kbackup.runs import history
from kbackup.runs.context import Environment, RunContext, Stop
from kbackup.runs.history import RunRecord
from kbackup.runs.metrics import FRESH_S, LEDGER_S, METRICS, OWN_LABELS, Exporter, WatchedRuns
from kbackup.runs.status import RESTORE, SINK, Words
from kbackup.stores import Store, StoreSettings, open_store
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from kbackup.testing.stores import put_bytes
from kbackup.verify.run import Acceptance
from tests.support.ended import ended, row
from tests.support.hand_clock import HandClock
from tests.support.ledgers import WHERE, backup_with_ledger, mending
from tests.support.telling import telling
from tests.unit.catalog.test_keys import private_key, public_key, run, sinks

LAYOUT = Layout()
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ROW = to_json(
    row(
        committed=10, lag=2, records=10, objects=1, bytes_stored=99,
        complete_until="2026-11-21T11:59:50Z",
    )
)  # fmt: skip


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW.timestamp() * 1000)


def ran(store: Store, hours_ago: float, exit_code: int = 0, **more: Any) -> None:
    """Leave the record of a run."""
    run = history.new_run_id(NOW - timedelta(hours=hours_ago))
    history.write_run(store, LAYOUT, ended(run=run, exit_code=exit_code, **more))


def exporter(
    store: Store, clock: HandClock, of: Words = SINK, asked: TopicFilter = ALL, **more: Any
) -> Exporter:
    return Exporter(WatchedRuns(store, "s3://b", LAYOUT, clock, asked, of), **more)


def samples(written: Path | str) -> dict[str, float]:
    """The metrics in a file, by name and the values of the labels that not all of them have."""
    text = written.read_text() if isinstance(written, Path) else written
    return {
        " ".join([one.name, *(one.labels[each] for each in OWN_LABELS if one.labels.get(each))]):
        one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }  # fmt: skip


def looked(metrics: Exporter, *, is_away: bool = False) -> dict[str, float]:
    """The metrics that are written after a look at the bucket, which may be away."""
    with pytest.raises(StoreError) if is_away else nullcontext():
        metrics.look()
    with TemporaryDirectory() as folder:
        metrics.write(Path(folder, "out.prom"))
        return samples(Path(folder, "out.prom"))


def test_metrics_say_what_the_bucket_does(store: MemoryStore, clock: HandClock) -> None:
    """How old the backup is, how its newest run ended, and how far each partition is."""
    bare = {"topic": "orders", "partition": 1, "committed": None, "lag": 3}
    ran(store, 2, partitions=[ROW, bare], group="g")
    failed = [{"code": "kafka", "what": "a"}, {"code": "kafka", "what": "b"}]
    ran(store, 1, 5, seconds=12.5, records=3, objects=1, bytes_stored=7, errors=failed)

    found = looked(exporter(store, clock))

    assert {
        "kbackup_up": 1.0,
        "kbackup_last_success_timestamp_seconds": NOW.timestamp() - 7200,
        "kbackup_running": 0.0,
        "kbackup_last_run_timestamp_seconds": NOW.timestamp() - 3600,
        "kbackup_last_run_exit_code": 5.0,
        "kbackup_last_run_duration_seconds": 12.5,
        "kbackup_last_run_records": 3.0,
        "kbackup_last_run_objects": 1.0,
        "kbackup_last_run_bytes": 7.0,
        "kbackup_last_run_failures kafka": 2.0,
        **{
            f"{name} orders {partition}": value
            for name, partition, value in [
                ("kbackup_committed_offset", 0, 10.0),
                ("kbackup_lag_records", 0, 2.0),
                ("kbackup_lag_records", 1, 3.0),
                ("kbackup_lag_seconds", 0, 10.0),
                ("kbackup_lag_seconds", 1, 7200.0),
                ("kbackup_partition_records", 0, 10.0),
                ("kbackup_partition_records", 1, 0.0),
                ("kbackup_partition_objects", 0, 1.0),
                ("kbackup_partition_objects", 1, 0.0),
                ("kbackup_partition_bytes", 0, 99.0),
                ("kbackup_partition_bytes", 1, 0.0),
            ]
        },
    } == found


def test_metrics_of_a_backup_that_never_ran(store: MemoryStore, clock: HandClock) -> None:
    """Never is a time long ago, so that an alert on age fires; how a run ended is left out."""
    assert {
        "kbackup_up": 1.0,
        "kbackup_last_success_timestamp_seconds": 0.0,
        "kbackup_running": 0.0,
    } == looked(exporter(store, clock))


def test_what_is_stored_comes_from_the_ledger(clock: HandClock) -> None:
    """Records, objects and bytes of each topic, summed once in ten minutes."""
    backup, stored = backup_with_ledger(range(5), range(5, 12))
    backup.store.delete(stored[0])
    [*mending(backup).accept(Acceptance([(WHERE, Span(0, 5))]))]
    metrics = exporter(backup.store, clock)
    first = looked(metrics)
    backup.store.delete(next(one.key for one in backup.store.list("_kbackup/ledger/")))

    clock.pass_s(LEDGER_S - 1)
    second = looked(metrics)

    name = "kbackup_stored_records orders"
    assert (12.0, 12.0) == (first[name], second[name])
    assert 2.0 == first["kbackup_stored_objects orders"]
    assert 1.0 == first["kbackup_stored_removed_objects orders"]
    removed = first["kbackup_stored_removed_bytes orders"]
    assert 0 < removed < first["kbackup_stored_bytes orders"]


def test_an_encrypted_backup_says_how_many_get_its_keys(
    store: MemoryStore, clock: HandClock, tmp_path: Path
) -> None:
    """One that loses its private key is not to be the only one; a damaged row says nothing."""
    identity.ensure(store, LAYOUT, "here", clock.now())
    paths = [private_key(tmp_path / name) for name in ("one", "two")]
    sinks(tmp_path, *paths).wrap(store)

    def found() -> float | None:
        return looked(exporter(store, clock)).get("kbackup_recipients")

    assert found() is None
    run(sinks(tmp_path, *paths), store)
    assert 2.0 == found()
    list(
        KeyKeeper(store, sinks(tmp_path)).rotate(
            public_key(paths[0]), PublicKey(public_key(paths[1]))
        )
    )
    assert 1.0 == found()
    for one in store.list("_kbackup/keys/"):
        put_bytes(store, one.key, b"what")
    assert found() is None


def test_copies_and_expiries_say_how_they_went(store: MemoryStore, clock: HandClock) -> None:
    """The newest of each, and when one last went well; of another selection, nothing."""
    asked: dict[str, Any] = {"command": "sink copy", "names": ["orders"]}
    failed = [{"code": "store", "what": "a"}]
    good = rfc3339(NOW - timedelta(hours=3))
    ran(store, 3, sent=7, sent_bytes=70, last_success=good, **asked)
    ran(store, 2, 6, sent=1, sent_bytes=9, last_success=None, errors=failed, **asked)
    ran(store, 1, sent=5, command="sink copy", names=["audit"])
    ran(store, -1, sent=6, **asked)
    ran(store, 24 * 101, deleted=4, command="sink expire")
    ran(store, 24 * 99, 3, deleted=2, deleted_bytes=20, command="sink expire")

    found = looked(exporter(store, clock, asked=TopicFilter(["orders"])))

    of_copy = {
        "timestamp_seconds": NOW.timestamp() - 7200,
        "success_timestamp_seconds": NOW.timestamp() - 3 * 3600,
        "exit_code": 6.0, "objects": 1.0, "bytes": 9.0, "failures store": 1.0,
    }  # fmt: skip
    of_expiry = {
        "timestamp_seconds": NOW.timestamp() - 99 * 86400,
        "success_timestamp_seconds": NOW.timestamp() - 99 * 86400,
        "exit_code": 3.0, "objects": 2.0, "bytes": 20.0,
    }  # fmt: skip
    wanted = {f"kbackup_last_copy_{name}": value for name, value in of_copy.items()}
    wanted |= {f"kbackup_last_expiry_{name}": value for name, value in of_expiry.items()}
    assert wanted == {
        name: value for name, value in found.items() if "_copy_" in name or "_expiry_" in name
    }


def test_a_copy_that_never_went_well_is_old(store: MemoryStore, clock: HandClock) -> None:
    """Never is a time long ago, so that an alert on age fires."""
    ran(store, 1, 6, command="sink copy", last_success=None)

    found = looked(exporter(store, clock))

    assert 0 == found["kbackup_last_copy_success_timestamp_seconds"]


def test_a_restore_says_how_far_it_is(store: MemoryStore, clock: HandClock) -> None:
    """Objects read, of objects to be read, for each topic that is written to."""
    done = to_json(row(target="copy", planned_objects=8, objects=2, bytes_read=5))
    ran(store, 1, command="restore", group="standby", partitions=[done], bytes_read=5)

    found = looked(exporter(store, clock, RESTORE, TopicFilter(["orders"])))

    assert (8.0, 2.0, 5.0, 5.0) == (
        found["kbackup_restore_planned_objects standby orders 0 copy"],
        found["kbackup_partition_objects standby orders 0 copy"],
        found["kbackup_partition_bytes standby orders 0 copy"],
        found["kbackup_last_run_bytes"],
    )


def test_metrics_of_several_backups_can_be_told_apart(
    store: MemoryStore, clock: HandClock, tmp_path: Path
) -> None:
    """Each has the backup, whose runs, and of which topics, quoted as Prometheus reads it."""
    metrics = exporter(store, clock, asked=TopicFilter(pattern=r'a"\d'))

    metrics.look()
    metrics.write(tmp_path / "out.prom")

    text = (tmp_path / "out.prom").read_text()
    found = [one.labels for each in text_string_to_metric_families(text) for one in each.samples]
    expected = {"backup": "s3://b/topics", "command": "sink", "topics": r'a"\d'}
    assert [expected] * len(found) == found


def test_each_name_is_declared_once_and_is_as_prometheus_wants_it() -> None:
    """Names are unique, begin with kbackup_, and those in seconds say so."""
    names = [metric.name for metric in METRICS]

    assert sorted(set(names)) == sorted(names)
    assert [] == [name for name in names if not name.startswith("kbackup_")]
    assert [] == [
        one.name for one in METRICS if "_timestamp" in one.name and "_sec" not in one.name
    ]


def test_a_bucket_that_is_away_is_no_empty_backup(store: MemoryStore, clock: HandClock) -> None:
    """The metrics say so, and are else those of before."""
    ran(store, 2)
    faulty = FaultyStore("", store)
    metrics = exporter(faulty, clock)
    metrics.look()
    faulty.script = ["503"]

    found = looked(metrics, is_away=True)

    assert (0.0, NOW.timestamp() - 7200) == (
        found["kbackup_up"],
        found["kbackup_last_success_timestamp_seconds"],
    )


def test_of_a_bucket_that_never_answered_nothing_is_said(clock: HandClock) -> None:
    """That no success is known is not the same as that there was none."""
    assert {"kbackup_up": 0.0} == looked(exporter(FaultyStore("503"), clock), is_away=True)


unwritable = pytest.mark.parametrize(
    "place", ["none/out.prom", "", "\0"], ids=["in no folder", "a folder", "no name"]
)


@unwritable
def test_a_file_that_cannot_be_written_is_an_error(
    store: MemoryStore, clock: HandClock, tmp_path: Path, place: str
) -> None:
    """No folder is made for it: its name may be misspelt, and nobody would read it there."""
    with pytest.raises(ConfigurationError, match=r"metrics file .* cannot be written"):
        exporter(store, clock).write(tmp_path / place)

    assert [] == list(tmp_path.iterdir())


def scraped(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return samples(answer.read().decode())


def test_what_is_served_is_renewed_now_and_then(store: MemoryStore, clock: HandClock) -> None:
    """However often it is scraped, the bucket is looked at no more often."""
    ran(store, 2, 5)
    name, (port,) = "kbackup_last_run_exit_code", free_ports(1)

    with exporter(store, clock).serving(f"127.0.0.1:{port}"):
        first = scraped(port)[name]
        ran(store, 1, 0)
        clock.pass_s(FRESH_S - 1)
        second = scraped(port)[name]
        clock.pass_s(1)
        third = scraped(port)[name]

    assert (5.0, 5.0, 0.0) == (first, second, third)
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_what_is_served_says_that_the_bucket_is_away(store: MemoryStore, clock: HandClock) -> None:
    """A scrape is answered all the same."""
    (port,) = free_ports(1)

    with exporter(FaultyStore("503", store), clock).serving(f"127.0.0.1:{port}"):
        found = scraped(port)

    assert {"kbackup_up": 0.0} == found


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is in use."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        yield busy.getsockname()[1]


def test_a_port_in_use_is_an_error(store: MemoryStore, clock: HandClock, taken: int) -> None:
    """It names the address, and what to give in its place."""
    with (
        pytest.raises(ConfigurationError, match=f"metrics cannot be served at 127.0.0.1:{taken}"),
        exporter(store, clock).serving(f"127.0.0.1:{taken}"),
    ):
        pass


# Of a run


class Run:
    """A run of a restore that does nothing, or fails.

    Attributes:
        told: What it told.
        seen: What its metrics said while it worked.
    """

    locks = ("orders",)

    def __init__(self, folder: Path, error: KbackupError | None = None, **options: Any) -> None:
        self.told: list[Event] = []
        self.seen: dict[str, float] = {}
        self.error = error
        self.beside: Run | None = None
        given = {
            "bootstrap_servers": "-",
            "s3_bucket_name": "b",
            "lock_dir": str(folder),
            **options,
        }
        settings = loading.load("restore", options=given, files=(), environ={}).settings
        self.port = settings.metrics_listen and int(settings.metrics_listen.rpartition(":")[2])
        self.store = StoreSettings(f"memory://{uuid4()}")
        kafka: Any = SimpleNamespace(cluster=lambda: None)
        tasks: Any = SimpleNamespace(end=lambda: None)
        environment = Environment(kafka, self.store, tasks, HandClock(NOW.timestamp() * 1000))
        self.context = RunContext.of("restore", settings, telling(self.told), Stop(), environment)

    def __call__(self) -> int:
        """Run; its exit code."""
        return self.context(self).exit_code

    def group(self, *_: Any) -> str:
        """Any."""
        return "g"

    def preview(self, *_: Any) -> None:
        """Plan nothing."""

    def work(self, *_: Any) -> bool:
        """Be scraped, and fail."""
        if self.port:
            self.seen = scraped(self.port)
        if self.beside is not None:
            self.beside()
        if self.error is not None:
            raise self.error
        return True

    def record(self, store: Store) -> None:
        """Leave one."""
        history.write_run(store, LAYOUT, self.finish())

    def finish(self) -> Any:
        """The summary of the context."""
        return self.context.finish().saying(group="g")


@unwritable
def test_a_run_without_its_metrics_file_is_a_good_one(tmp_path: Path, place: str) -> None:
    """What keeps metrics from being written is a warning, told once."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    run = Run(tmp_path, metrics_file=str(folder / place))

    assert 0 == run()

    assert ["no_metrics"] == [each["code"] for each in run.told]
    assert "the run goes on without" in run.told[0]["text"]


def test_a_run_whose_port_is_in_use_is_a_good_one(tmp_path: Path, taken: int) -> None:
    """What keeps metrics from being served is a warning."""
    run = Run(tmp_path, metrics_listen=f"{taken}")
    run.port = None

    assert 0 == run()

    assert ["no_metrics"] == [each["code"] for each in run.told]


def test_the_file_says_how_a_run_ended_that_left_no_record(tmp_path: Path) -> None:
    """A failure before any work is in the metrics; the last success is that of earlier runs."""
    out = tmp_path / "out.prom"
    run = Run(tmp_path, KafkaError("planning", "away"), metrics_file=str(out))
    ran(open_store(run.store), 2, command="restore", group="g")

    assert 5 == run()

    found = samples(out)
    assert 5.0 == found["kbackup_last_run_exit_code"]
    assert 1.0 == found["kbackup_last_run_failures kafka"]
    assert NOW.timestamp() - 7200 == (found["kbackup_last_success_timestamp_seconds"])


def test_a_run_that_has_not_ended_is_no_success(tmp_path: Path) -> None:
    """While a run works, its exit code is not known, and the last success is an earlier one's."""
    (port,) = free_ports(1)
    run = Run(tmp_path, metrics_listen=str(port), metrics_file=str(tmp_path / "out.prom"))

    assert 0 == run()

    success = "kbackup_last_success_timestamp_seconds"
    code = "kbackup_last_run_exit_code"
    assert (0.0, None) == (run.seen[success], run.seen.get(code))
    ended_with = samples(tmp_path / "out.prom")
    assert (NOW.timestamp(), 0.0) == (ended_with[success], ended_with[code])


def test_a_plan_writes_no_metrics(tmp_path: Path) -> None:
    """A dry run is no run."""
    run = Run(tmp_path, metrics_file=str(tmp_path / "out.prom"), dry_run=True)

    assert 0 == run()

    assert [] == list(tmp_path.glob("*.prom"))


def test_a_run_that_finds_the_lock_held_leaves_the_file_to_the_other(tmp_path: Path) -> None:
    """Crons overlap: the metrics are those of the run that works."""
    out = tmp_path / "out.prom"
    first, second = Run(tmp_path), Run(tmp_path, metrics_file=str(out))
    first.beside = second

    with pytest.raises(LockedError):
        first()

    assert not out.exists()


def test_what_a_run_knows_is_said_where_the_bucket_is_away(
    store: MemoryStore, clock: HandClock
) -> None:
    """The exit code of a run that could not reach the store is in the metrics."""
    own = RunRecord({"run": "2026-11-21T11:00:00Z-0000", "exit_code": 6, "partitions": [ROW]})

    found = looked(exporter(FaultyStore("503", store), clock, own=lambda: own), is_away=True)

    assert (0.0, 6.0) == (found["kbackup_up"], found["kbackup_last_run_exit_code"])
