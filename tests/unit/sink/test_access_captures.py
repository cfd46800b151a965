"""ACLs, users and broker settings are captured where that is asked for, and only what is new."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import access
from kbackup.catalog.access import AccessBundle
from kbackup.clock import Clock, SystemClock, moment_of
from kbackup.config import Settings
from kbackup.errors import CorruptObjectError, NewerVersionError
from kbackup.events import Ended
from kbackup.kafka import Acl, BrokerSetting, ScramUser
from kbackup.naming import Layout
from kbackup.runs.context import Environment, RunContext, Stop
from kbackup.runs.status import status
from kbackup.sink import captures
from kbackup.sink.captures import AccessCapture
from kbackup.sink.run import SinkRun
from kbackup.stores import StoreSettings, open_store, put_bytes, put_json
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.in_threads import InThreads
from tests.support.telling import telling

READS = Acl("TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")
LAYOUT = Layout("topics")


@pytest.fixture
def store() -> StoreSettings:
    return StoreSettings(f"memory://{uuid4()}")


@pytest.fixture
def kafka() -> FakeKafka:
    found = FakeKafka()
    found.create("orders", 10)
    found.who.entries = {READS}
    found.who.people = {("app", "SCRAM-SHA-512"): 8192}
    found.who.brokers = {
        "log.retention.hours": BrokerSetting("24", is_default=False),
        "num.partitions": BrokerSetting("1", is_default=True),
        "node.id": BrokerSetting("7", is_default=False),
        "ssl.key.password": BrokerSetting(None, is_default=False),
    }
    return found


def configured(*, asked: bool = True) -> Settings:
    """A sink that is asked for the access of its cluster, or not."""
    given: dict[str, Any] = {"cluster_capture": True} if asked else {}
    return load(
        "sink", topics="orders", bootstrap_servers="h:1", s3_bucket_name="b", no_lock=True, **given
    ).settings


def environment(kafka: FakeKafka, store: StoreSettings, clock: Clock) -> Environment:
    """What a run works with."""
    return Environment(kafka, store, InThreads(), clock)  # type: ignore[arg-type]


def back_up(kafka: FakeKafka, store: StoreSettings, *, asked: bool = True) -> Ended:
    """A sink's summary."""
    return SinkRun(
        configured(asked=asked), telling([]), Stop(), environment(kafka, store, SystemClock())
    )()


def stored(store: StoreSettings) -> list[AccessBundle]:
    return list(access.newest_first(open_store(store), LAYOUT))


def test_what_the_cluster_says_is_stored_only_where_it_is_asked_for(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Names lie readable in the bucket, so a sink that was not told to stores none."""
    back_up(kafka, store, asked=False)
    nothing = stored(store)
    ended = back_up(kafka, store)
    (bundle,) = stored(store)

    assert ([], {}) == (nothing, ended.skipped)
    assert ((READS,), (ScramUser("app", "SCRAM-SHA-512", 8192),)) == (bundle.acls, bundle.users)


def test_settings_of_one_broker_and_defaults_are_left_out(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """What is set for the cluster is kept; a value that is not shown is null, not absent."""
    back_up(kafka, store)

    assert {"log.retention.hours": "24", "ssl.key.password": None} == stored(store)[0].settings


def test_a_bundle_is_stored_only_if_it_differs(kafka: FakeKafka, store: StoreSettings) -> None:
    """The second run with nothing new stores none, the third one does."""
    back_up(kafka, store)
    back_up(kafka, store)
    same = stored(store)
    kafka.who.entries = set()
    back_up(kafka, store)

    assert ([(READS,)], [(), (READS,)]) == (
        [each.acls for each in same], [each.acls for each in stored(store)],
    )  # fmt: skip


def test_what_is_denied_is_a_warning_and_the_rest_is_stored(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Records are backed up, exit 3 says that a part is missing, and it is null, not empty."""
    kafka.who.denied = {"users"}
    ended = back_up(kafka, store)
    (bundle,) = stored(store)

    assert (3, 10, {"missing_cluster_parts": 1}) == (ended.exit_code, ended.records, ended.skipped)
    assert ((READS,), ["users"]) == (bundle.acls, [*bundle.missing])
    assert bundle.users is None
    assert ["access_not_captured"] == [each.code for each in ended.warnings]


def test_status_says_when_access_was_captured(kafka: FakeKafka, store: StoreSettings) -> None:
    """How many of each; what the cluster did not give is not zero, and what is damaged is told."""
    opened, now = open_store(store), datetime.now(UTC)

    def look() -> Ended:
        return status(opened, LAYOUT, max_age_s=None, now=now)

    before = look().facts["access_kept"]
    kafka.who.denied = {"users"}
    back_up(kafka, store)
    found = look().facts["access_kept"]

    (bundle,) = stored(store)
    assert (None, moment_of(bundle.taken), 1, None) == (
        before, found.taken, found.acls, found.users
    )  # fmt: skip
    (entry,) = opened.list(access.bundles_folder(LAYOUT))
    put_bytes(opened, entry.key, b"{}")
    assert ["corrupt"] == [one.code for one in look().warnings]


def test_all_that_is_denied_stores_nothing(kafka: FakeKafka, store: StoreSettings) -> None:
    """A bundle without parts would hide nothing, and say nothing."""
    kafka.who.denied = {"acls", "users", "settings"}
    ended = back_up(kafka, store)

    assert (3, {"missing_cluster_parts": 3}, []) == (ended.exit_code, ended.skipped, stored(store))


def test_a_cluster_without_an_authoriser_is_no_failure(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """It has no ACLs: the bundle says why, and the run is good."""
    kafka.who.entries = None
    ended = back_up(kafka, store)
    (bundle,) = stored(store)

    assert (0, None) == (ended.exit_code, bundle.acls)
    assert {"acls": "the cluster has no authoriser"} == bundle.missing


def test_a_damaged_bundle_is_replaced_by_the_next_run(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """It keeps no run from capturing, and is named to whoever reads it."""
    back_up(kafka, store)
    (entry,) = open_store(store).list(access.bundles_folder(LAYOUT))
    put_json(open_store(store), entry.key, {"v": 1})
    with pytest.raises(CorruptObjectError):
        stored(store)
    ended = back_up(kafka, store)

    newest = next(access.newest_first(open_store(store), LAYOUT))
    assert (0, (READS,)) == (ended.exit_code, newest.acls)


def test_a_bundle_of_a_later_version_is_refused(store: StoreSettings) -> None:
    """What it does not understand, kbackup would take for missing."""
    place = f"{access.bundles_folder(LAYOUT)}2026-11-21T02:00:00.000Z.json"
    put_json(open_store(store), place, {"v": 2, "version": "9.0"})

    with pytest.raises(NewerVersionError):
        stored(store)


def test_a_run_that_follows_looks_every_ten_minutes(kafka: FakeKafka, store: StoreSettings) -> None:
    """A change that is undone within them is not seen; one that stays is."""
    clock = HandClock()
    frame = RunContext.of(
        "sink", configured(), telling([]), Stop(), environment(kafka, store, clock)
    )
    capture = AccessCapture(frame, open_store(store))
    found = []
    for _ in range(3):
        capture.turn()
        found.append(len(stored(store)))
        kafka.who.entries = set()
        clock.pass_s(captures.ACCESS_S / 2)

    assert [1, 1, 2] == found
