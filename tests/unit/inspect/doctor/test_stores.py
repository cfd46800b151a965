"""What the doctor says of the bucket."""

from typing import Any
from uuid import uuid4

import pytest

from kbackup.errors import StoreError
from kbackup.inspect import Check
from kbackup.inspect.examination import open_for, store_checks
from kbackup.stores import BucketFacts, LifecycleRule, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore, put_bytes
from tests.support.examined import levels, one, settings

ABORT = LifecycleRule("abort", "", 7, None)


class Bucket(MemoryStore):
    """A bucket that says of itself what it is told to."""

    def __init__(
        self, upload: StoreError | None = None, ignored: tuple[str, ...] = (), **facts: Any
    ) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        known: dict[str, Any] = {
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


def test_without_a_bucket_nothing_is_asked() -> None:
    """Without a bucket nothing is checked, and nothing is called good."""
    found = open_for(settings(None))

    assert isinstance(found, Check)
    assert ("warn", "not checked: no s3.bucket.name") == (found.level, found.text)


def test_a_store_that_cannot_be_listed_is_one_line() -> None:
    """Each cause is reported once, with the server's words and a fix."""
    denied = FaultyStore("503 503 503 503")

    found = list(store_checks(denied, settings(), writes=True))

    assert [("readable", "fail")] == [(check.name, check.level) for check in found]
    assert "503" in found[0].text


def test_an_object_that_cannot_be_read_is_found_out() -> None:
    """The right to list is not the right to read."""
    denied = FaultyStore("503", methods=frozenset({"head"}))
    put_bytes(denied, "topics/orders/partition=0/orders+0+0000000000.json", b"{}")

    assert {"readable": "fail"} == levels(store_checks(denied, settings(), writes=False))


@pytest.mark.parametrize("writes", [False, True])
def test_nothing_is_left_in_the_store(store: MemoryStore, writes: bool) -> None:
    """A probe is written only when asked for, and is gone afterwards."""
    watched = FaultyStore("ok " * 20, store, methods=frozenset({"put"}))

    found = levels(store_checks(watched, settings(), writes=writes))

    puts = [key for method, key, _ in watched.calls if method == "put"]
    assert (writes, writes) == ("writable" in found, bool(puts))
    assert [] == list(store.list(""))


def test_a_probe_lies_among_the_run_records(store: MemoryStore) -> None:
    """Even a probe that is left behind is never taken for a backup."""
    watched = FaultyStore("ok", store, methods=frozenset({"put"}))
    list(store_checks(watched, settings(topics_dir="a/topics"), writes=True))

    puts = [key for method, key, _ in watched.calls if method == "put"]
    assert [True] == [key.startswith("a/_kbackup/probe-") for key in puts]


@pytest.mark.parametrize(
    "script",
    [pytest.param("put 403", id="put"), pytest.param("head 403", id="head"),
     pytest.param("delete 403", id="delete")],
)  # fmt: skip
def test_a_step_that_is_denied_fails_the_write_probe(store: MemoryStore, script: str) -> None:
    """A sink needs every step of the write probe, so one that is denied fails it."""
    method, word = script.split()
    denied = FaultyStore(word, store, methods=frozenset({method}))

    assert "fail" == one(store_checks(denied, settings(), writes=True), "writable").level


def test_a_denied_upload_in_parts_fails_the_write_probe() -> None:
    """Small objects may be allowed where large ones are not."""
    bucket = Bucket(upload=StoreError("s3:AbortMultipartUpload on x", "AccessDenied", "allow it"))

    found = one(store_checks(bucket, settings(), writes=True), "writable")

    assert ("fail", "allow it") == (found.level, found.do)
    assert [] == list(bucket.list(""))


@pytest.mark.parametrize(("ignored", "level"), [((), "ok"), (("If-Match on PutObject",), "warn")])
def test_a_server_without_conditional_writes_is_named(ignored: tuple[str, ...], level: str) -> None:
    """If concurrent runs could replace more by less, doctor says so before a run."""
    bucket = Bucket(ignored=ignored)

    found = one(store_checks(bucket, settings(), writes=True), "conditional writes")

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
    """S3 refuses a request that is a quarter of an hour off; a lock is stale after five minutes."""
    assert (
        level
        == levels(store_checks(Bucket(clock_ahead_s=ahead_s), settings(), writes=False))["clock"]
    )


def test_a_clock_that_cannot_be_seen_is_not_called_good(store: MemoryStore) -> None:
    """Without a probe a store that has no date of its own shows no time."""
    found = one(store_checks(store, settings(), writes=False), "clock")

    assert ("warn", "not checkable: without --write-probe") == (found.level, found.text)
    assert "ok" == levels(store_checks(store, settings(), writes=True))["clock"]


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
        pytest.param(
            {"object_lock": "", "lock_days": 30}, {"object lock": "fail"}, id="no bucket for locks"
        ),
    ],
)
def test_the_bucket_is_judged_by_what_becomes_of_a_backup(
    facts: dict[str, Any], expected: dict[str, str]
) -> None:
    """Versions, locks and rules decide what is there on the day of the restore."""
    found = levels(store_checks(Bucket(**facts), settings(), writes=False))

    assert expected.items() <= found.items()


@pytest.mark.parametrize(("days", "is_said"), [(29, False), (30, False), (31, True)])
def test_a_rule_that_hides_what_is_locked_is_named(days: int, *, is_said: bool) -> None:
    """It deletes nothing then, and a restore finds the objects missing all the same."""
    rules = (ABORT, LifecycleRule("old", "topics/", None, 30))
    bucket = Bucket(object_lock="on", lock_days=days, rules=rules)

    found = one(store_checks(bucket, settings(), writes=False), "expiration")

    assert is_said == (f"their lock lasts {days} days" in found.text)


@pytest.mark.parametrize(
    ("rules", "level", "said"),
    [
        pytest.param([], "ok", "billed, until somebody deletes it", id="no rule"),
        pytest.param([("logs/", 3)], "ok", "until somebody", id="a rule for others"),
        pytest.param([("", 40), ("topics/", 30)], "ok", "for 30 days, by rule v30", id="long"),
        pytest.param([("", 29)], "warn", "29 days by rule v29, and the lock", id="short"),
    ],
)
def test_what_was_overwritten_is_kept_as_long_as_locks_last(
    rules: list[tuple[str, int]], level: str, said: str
) -> None:
    """A lock begins when an object is stored: of an old one, a rule for versions is all."""
    given = (ABORT, *(LifecycleRule(f"v{days}", at, None, None, days) for at, days in rules))
    bucket = Bucket(object_lock="GOVERNANCE 30 days", lock_days=30, rules=given)

    found = one(store_checks(bucket, settings(), writes=False), "versions")

    assert level == found.level
    assert said in found.text


def test_where_nothing_is_versioned_no_versions_are_judged() -> None:
    """That there are none is said already."""
    bucket = Bucket(versioning="", rules=(ABORT, LifecycleRule("v", "", None, None, 1)))

    assert "versions" not in levels(store_checks(bucket, settings(), writes=False))


def test_what_a_cloud_cannot_be_asked_is_named(store: MemoryStore) -> None:
    """With the command that shows it; a folder has no such rules."""

    class Cloud(MemoryStore):
        def untold(self) -> tuple[str, str]:
            return "its rules", "look at them"

    cloud = Cloud(StoreSettings("memory://cloud"))
    found = one(store_checks(cloud, settings(), writes=False), "retention")

    assert ("warn", "not checkable: its rules") == (found.level, found.text)
    assert "retention" not in levels(store_checks(store, settings(), writes=False))


def test_what_is_denied_is_called_not_checkable() -> None:
    """A fact that the server denies is called not checkable, neither good nor bad."""
    bucket = Bucket(versioning=None, untold={"versioning": "AccessDenied (403)"})

    found = one(store_checks(bucket, settings(), writes=False), "versioning")

    assert "not checkable: AccessDenied (403)" == found.text
