"""ACLs, users and broker settings are captured where that is asked for, and only what is new."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kbackup import __version__
from kbackup.catalog import access
from kbackup.catalog.access import AccessBundle
from kbackup.clock import moment_of
from kbackup.errors import CorruptObjectError, NewerVersionError
from kbackup.events import Ended
from kbackup.kafka import Acl, BrokerSetting, ScramUser
from kbackup.naming import Layout
from kbackup.runs.context import Environment, RunContext, Stop
from kbackup.runs.status import status
from kbackup.sink import captures
from kbackup.sink.captures import AccessCapture
from kbackup.stores import StoreSettings, open_store, put_bytes, put_json
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.in_turn import InTurn
from tests.support.sinks import run_sink, sink_settings

READS = Acl("TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")
LAYOUT = Layout("topics")
ASKED: dict[str, Any] = {"topics": "orders", "cluster_capture": True}


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


def stored(store: StoreSettings) -> list[AccessBundle]:
    return list(access.newest_first(open_store(store), LAYOUT))


def test_what_the_cluster_says_is_stored_only_where_it_is_asked_for(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Names lie readable in the bucket, so a sink that was not told to stores none."""
    run_sink(kafka, store, topics="orders")
    nothing = stored(store)
    summary = run_sink(kafka, store, **ASKED)
    (bundle,) = stored(store)

    assert ([], {}) == (nothing, summary["skipped"])
    assert ((READS,), (ScramUser("app", "SCRAM-SHA-512", 8192),)) == (bundle.acls, bundle.users)


def test_settings_of_one_broker_and_defaults_are_left_out(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """What is set for the cluster is kept; a value that is not shown is null, not absent."""
    run_sink(kafka, store, **ASKED)

    assert {"log.retention.hours": "24", "ssl.key.password": None} == stored(store)[0].settings


def test_a_bundle_is_stored_only_if_it_differs(kafka: FakeKafka, store: StoreSettings) -> None:
    """The second run with nothing new stores none, the third one does."""
    run_sink(kafka, store, **ASKED)
    run_sink(kafka, store, **ASKED)
    same = stored(store)
    kafka.who.entries = set()
    run_sink(kafka, store, **ASKED)

    assert ([(READS,)], [(), (READS,)]) == (
        [each.acls for each in same], [each.acls for each in stored(store)],
    )  # fmt: skip


def test_what_is_denied_is_a_warning_and_the_rest_is_stored(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """Records are backed up, exit 3 says that a part is missing, and it is null, not empty."""
    kafka.who.denied = {"users"}
    summary = run_sink(kafka, store, **ASKED)
    (bundle,) = stored(store)

    assert (3, 10, {"missing_cluster_parts": 1}) == (
        summary["exit_code"], summary["records"], summary["skipped"],
    )  # fmt: skip
    assert ((READS,), ["users"]) == (bundle.acls, [*bundle.missing])
    assert bundle.users is None
    assert ["access_not_captured"] == [each["code"] for each in summary["warnings"]]


def test_status_says_when_access_was_captured(kafka: FakeKafka, store: StoreSettings) -> None:
    """How many of each; what the cluster did not give is not zero, and what is damaged is told."""
    opened, now = open_store(store), datetime.now(UTC)

    def look() -> Ended:
        return status(opened, LAYOUT, max_age_s=None, now=now)

    before = look().facts["access_kept"]
    kafka.who.denied = {"users"}
    run_sink(kafka, store, **ASKED)
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
    summary = run_sink(kafka, store, **ASKED)

    assert (3, {"missing_cluster_parts": 3}, []) == (
        summary["exit_code"], summary["skipped"], stored(store),
    )  # fmt: skip


def test_a_cluster_without_an_authoriser_is_no_failure(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """It has no ACLs: the bundle says why, and the run is good."""
    kafka.who.entries = None
    summary = run_sink(kafka, store, **ASKED)
    (bundle,) = stored(store)

    assert (0, None) == (summary["exit_code"], bundle.acls)
    assert {"acls": "the cluster has no authorizer"} == bundle.missing


def test_a_damaged_bundle_is_replaced_by_the_next_run(
    kafka: FakeKafka, store: StoreSettings
) -> None:
    """It keeps no run from capturing, and is named to whoever reads it."""
    run_sink(kafka, store, **ASKED)
    (entry,) = open_store(store).list(access.bundles_folder(LAYOUT))
    put_json(open_store(store), entry.key, {"v": 1})
    with pytest.raises(CorruptObjectError):
        stored(store)
    summary = run_sink(kafka, store, **ASKED)

    newest = next(access.newest_first(open_store(store), LAYOUT))
    assert (0, (READS,)) == (summary["exit_code"], newest.acls)


@pytest.mark.parametrize(
    ("said", "do"),
    [
        ({"version": "9.0"}, "use kbackup 9.0 or later"),
        ({}, "use the version that wrote it"),
        ({"version": "9.0rc1"}, "use kbackup 9.0rc1 or later"),
        ({"version": "9.0 of https://example.com"}, "use the version that wrote it"),
        ({"version": "9.0-from-example.com"}, "use the version that wrote it"),
        ({"version": "0.1.9"}, "use the version that wrote it"),
        ({"version": __version__}, "use the version that wrote it"),
        ({"version": f"{__version__}.0"}, "use the version that wrote it"),
    ],
)
def test_a_bundle_of_a_later_version_is_refused(
    said: dict[str, str], do: str, store: StoreSettings
) -> None:
    """What it does not understand, kbackup would take for missing; it advises no foreign text,

    and no version that is not later.
    """
    place = f"{access.bundles_folder(LAYOUT)}2026-11-21T02:00:00.000Z.json"
    put_json(open_store(store), place, {"v": 2, **said})

    with pytest.raises(NewerVersionError) as caught:
        stored(store)

    assert caught.value.do == (
        f"{do}; if no kbackup wrote it, restore the object from a copy, or choose an earlier one: "
        "--as-of"
    )


def test_a_run_that_follows_looks_every_ten_minutes(kafka: FakeKafka, store: StoreSettings) -> None:
    """A change that is undone within them is not seen; one that stays is."""
    clock = HandClock()
    environment = Environment(kafka, store, InTurn(), clock)  # type: ignore[arg-type]
    frame = RunContext.of("sink", sink_settings(**ASKED), lambda _: None, Stop(), environment)
    capture = AccessCapture(frame, open_store(store))
    found = []
    for _ in range(3):
        capture.turn()
        found.append(len(stored(store)))
        kafka.who.entries = set()
        clock.pass_s(captures.ACCESS_S / 2)

    assert [1, 1, 2] == found
