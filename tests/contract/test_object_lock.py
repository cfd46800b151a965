"""A bucket whose versions are locked survives whoever has the sink's credentials."""

import http.client
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from s3fault import Fault, S3Faults

from tests.contract.product import (
    ALL,
    BackupReader,
    CopyRun,
    CorruptObjectError,
    EncryptedStore,
    Environment,
    Finding,
    FormatOptions,
    Found,
    Layout,
    LocalS3,
    Notes,
    ObjectNotFoundError,
    ReadOptions,
    RestoreRun,
    SinkRun,
    Stop,
    StoreError,
    StoreSettings,
    Summary,
    SystemClock,
    TopicPartition,
    backup_state,
    earlier,
    open_store,
    put_bytes,
    to_json,
    verify,
    verify_against_source,
    verify_task,
)
from tests.contract.test_encrypted import Everything
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import SilentLine
from tests.support.hand_clock import HandClock
from tests.support.in_threads import InThreads
from tests.support.in_turn import InTurn
from tests.support.invoked import invoke
from tests.support.query import SCHEMA
from tests.support.standby import Standby, Ticks
from tests.support.target import values
from tests.support.truth import client_of, way_to

PAGE = Path(__file__).parents[2] / "docs/how-to/ransomware.md"
AS_OF = "s3.versions.as.of"


class Earlier(SystemClock):
    """A clock that is hours behind: by it, objects are overwritten long after they were stored."""

    def ms(self) -> int:
        """Return ms since the epoch, hours ago."""
        return super().ms() - 3 * 3_600_000


class Locked:
    """A bucket with Object Lock, and a topic that is backed up to it as the page says."""

    clock = SystemClock()

    def __init__(self, server: LocalS3) -> None:
        self.server, self.client = server, client_of(server)
        self.bucket = f"locked-{uuid4().hex[:8]}"
        self.client.create_bucket(Bucket=self.bucket, ObjectLockEnabledForBucket=True)
        self.kafka = FakeKafka()
        (self.where,) = self.kafka.create("orders", 30)
        lines = [line.strip() for line in PAGE.read_text().splitlines()]
        self.said = dict(line.split("=") for line in lines if line.startswith("s3.object.lock."))

    def store(self, **more: Any) -> StoreSettings:
        """The way to the bucket."""
        options = {"s3.part.size": 5 * 2**20, "s3.retry.backoff.ms": 1, **more}
        return way_to(self.bucket, self.server, options)

    def sink(self, **given: Any) -> int:
        """Back up what is there."""
        settings = load(
            "sink", bootstrap_servers="h:1", s3_bucket_name=self.bucket, topics="orders", **given
        ).settings
        lock = {name: int(text) if text.isdigit() else text for name, text in self.said.items()}
        environment = Environment(self.kafka, self.store(**lock), InTurn(), self.clock)  # type: ignore[arg-type]
        done = to_json(SinkRun(settings, lambda _: None, Stop(), environment)())
        assert [] == done["errors"]
        return int(done["exit_code"])

    def restored(
        self,
        to: Any = None,
        url: Any = None,
        **more: Any,
    ) -> tuple[int, list[Any]]:
        """How a restore ends, and what it has written."""
        settings = load(
            "restore", bootstrap_servers="h:1", s3_bucket_name=self.bucket, rename="copy_of_$0"
        ).settings
        to = to or Standby()
        place = replace(self.store(**more), endpoint_url=url or self.server.endpoint_url)
        environment = Environment(to.target, place, to.tasks, SystemClock())
        done = to_json(RestoreRun(settings, lambda _: None, Stop(), environment)())
        self.warned = done["warnings"]
        self.errors = done["errors"]
        is_there = TopicPartition("copy_of_orders", 0) in to.target.logs
        return int(done["exit_code"]), to.target.values("copy_of_orders") if is_there else []

    def typed(self, *words: str, url: str | None = None) -> Any:
        """Run a command."""
        place = "--bucket", self.bucket, "--store-url", url or self.server.endpoint_url
        return invoke(*words, *place, **self.keys)

    @property
    def keys(self) -> dict[str, str]:
        """What the environment says of the server."""
        return {
            "AWS_ACCESS_KEY_ID": self.server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_access_key,
            "AWS_DEFAULT_REGION": self.server.region,
        }

    def found(self, *, deep: bool) -> set[str | None]:
        """The objects that a verify names."""
        settings, layout, options = self.store(), Layout(), ReadOptions()
        store = open_store(settings)
        told = verify(
            store, layout, options, Summary("v", "restore verify"), now=SystemClock().now(),
            notes=Notes(backup_state.read(store, layout, SystemClock())),
            read=partial(verify_task, settings, options, channel=SilentLine()) if deep else None,
        )  # fmt: skip
        return {one.key for one in told if isinstance(one, Finding)}

    def there(self) -> list[str]:
        """All that is there."""
        return [one.key for one in open_store(self.store()).list("")]

    def ruin(self) -> None:
        """Overwrite and delete all there is, ledger included, and what can be of its versions."""
        for key in self.there():
            self.client.put_object(Bucket=self.bucket, Key=key, Body=b"pay")
        for key in self.there()[::2]:
            self.client.delete_object(Bucket=self.bucket, Key=key)
        for page in self.client.get_paginator("list_object_versions").paginate(Bucket=self.bucket):
            for one in page.get("Versions", ()):
                try:
                    self.client.delete_object(
                        Bucket=self.bucket, Key=one["Key"], VersionId=one["VersionId"]
                    )
                except ClientError as error:
                    if "AccessDenied" not in str(error):
                        raise


@pytest.fixture
def locked(s3_server: LocalS3) -> Locked:
    return Locked(s3_server)


def test_all_but_locks_and_marks_of_success_is_locked(locked: Locked) -> None:
    """For as long as the page says."""
    assert 0 == locked.sink()
    days = timedelta(days=int(locked.said["s3.object.lock.days"]))

    for key in locked.there():
        head = locked.client.head_object(Bucket=locked.bucket, Key=key)
        if key.startswith(("_kbackup/locks/", "_kbackup/success/")):
            assert "ObjectLockMode" not in head
        else:
            assert "COMPLIANCE" == head["ObjectLockMode"]
            left = head["ObjectLockRetainUntilDate"] - datetime.now(UTC)
            assert days - timedelta(hours=1) < left <= days


def test_what_was_deleted_and_overwritten_is_restored_whole(locked: Locked) -> None:
    """Ledger included, as the page says; what came to the bucket since is not believed."""
    assert 0 == locked.sink()
    locked.kafka.append(locked.where, 5)
    assert 0 == locked.sink()
    code, wanted = locked.restored()
    time.sleep(1.1)  # S3's times have seconds
    before = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    time.sleep(1.1)

    locked.ruin()

    assert 7 == locked.typed("restore", "verify").code
    command = next(
        line.split()
        for line in PAGE.read_text().splitlines()
        if line.startswith("$ kbackup restore verify")
    )
    words = [word if AS_OF not in word else f"{AS_OF}={before}" for word in command[2:]]
    words = [word for word in words if word not in ("-b", "my-bucket")]
    there = locked.there()
    told = locked.typed(*words)
    assert (0, "", there) == (told.code, told.stderr, locked.there())  # it is no proof of today
    assert (0, 35) == (code, len(wanted))
    assert (0, wanted) == locked.restored(**{AS_OF: before})
    listed = locked.typed("restore", "list", "-X", f"{AS_OF}={before}").stdout
    assert "35" in listed

    clean, held = f"clean-{uuid4().hex[:8]}", locked.there()
    locked.client.create_bucket(Bucket=clean)
    told = locked.typed("sink", "copy", "--to", f"s3://{clean}", "-X", f"{AS_OF}={before}")
    assert (0, "", held) == (told.code, told.stderr, locked.there())
    locked.bucket = clean
    assert 0 == locked.typed("restore", "verify").code
    assert (0, wanted) == locked.restored()


def test_the_version_that_a_restore_would_read_is_thawed(locked: Locked) -> None:
    """An archived object that was deleted is asked for as it was stored."""
    locked.said = {}  # else nobody could archive it
    assert 0 == locked.sink()
    key = next(key for key in locked.there() if key.startswith("topics/"))
    one: Any = {"Bucket": locked.bucket, "Key": key}
    first = locked.client.head_object(**one)["VersionId"]
    locked.client.copy_object(**one, CopySource=one, StorageClass="GLACIER")
    stored = locked.client.head_object(**one)["VersionId"]
    locked.client.delete_object(**one, VersionId=first)
    locked.client.delete_object(**one)
    code, _ = locked.restored()
    (refusal,) = locked.errors
    taken = Fault(f"^POST .*restore.*versionId={stored}", "status", status=202)  # moto has no such

    with S3Faults(locked.server.endpoint_url, [taken]) as proxy:
        told = locked.typed("restore", "thaw", "-t", "orders", "--json", url=proxy.url)

    assert (4, True) == (code, "kbackup restore thaw -t orders" in refusal["do"])
    assert (0, [1]) == (told.code, [line["asked"] for line in told.lines if line["type"] == "thaw"])
    assert 1 == proxy.seen(taken.match)


def test_what_is_no_more_what_was_stored_is_named(locked: Locked) -> None:
    """Its current version is a delete marker, or not ours: of another size, or of the same."""
    for _ in range(3):
        assert 0 == locked.sink()
        locked.kafka.append(locked.where, 5)
    hidden, longer, alike = (key for key in locked.there() if key.startswith("topics/"))
    size = locked.client.head_object(Bucket=locked.bucket, Key=alike)["ContentLength"]
    locked.client.delete_object(Bucket=locked.bucket, Key=hidden)
    locked.client.put_object(Bucket=locked.bucket, Key=longer, Body=bytes(9999))
    locked.client.put_object(Bucket=locked.bucket, Key=alike, Body=bytes(size))

    assert {hidden, longer} == locked.found(deep=False)
    assert {hidden, longer, alike} == locked.found(deep=True)


def test_what_is_locked_is_not_expired(locked: Locked) -> None:
    """Nothing of it is deleted, not even by a marker; later all its versions are."""
    assert 0 == locked.sink()
    locked.kafka.append(locked.where, 5)
    assert 0 == locked.sink()
    there = [key for key in locked.there() if key.startswith("topics/")]
    expire = "sink", "expire", "--older-than", "0s", "--grace", "0s", "--yes"
    time.sleep(1.1)

    codes = [locked.typed(*expire).code for _ in range(2)]

    assert ([0, 3], there) == (codes, [key for key in locked.there() if key.startswith("topics/")])
    first = locked.client.list_object_versions(Bucket=locked.bucket, Prefix=there[0])["Versions"]
    past: Any = {"Mode": "GOVERNANCE", "RetainUntilDate": datetime.now(UTC) - timedelta(days=1)}
    for one in first:
        locked.client.put_object_retention(
            Bucket=locked.bucket, Key=one["Key"], VersionId=one["VersionId"], Retention=past
        )
    planned = locked.typed(*expire[:-1], "--dry-run", "--json").lines[-1]["estimate"]["requests"]
    with S3Faults(locked.server.endpoint_url) as proxy:
        assert 0 == locked.typed(*expire, url=proxy.url).code
    assert planned == proxy.seen(r"orders(\+|%2B)0") + 1  # and a part of the ledger
    left = locked.client.list_object_versions(Bucket=locked.bucket, Prefix=there[0])
    assert ([], []) == (left.get("Versions", []), left.get("DeleteMarkers", []))
    assert 0 == locked.typed("restore", "verify").code


class Unseeing(S3Faults):
    """A server before which a role lacks a permission: its heads say nothing of locks."""

    def forward(self, *request: Any) -> http.client.HTTPResponse:
        """Leave out what such a role is not told."""
        answer = super().forward(*request)
        for name in [name for name in answer.headers if name.lower().startswith("x-amz-object-lo")]:
            del answer.headers[name]
        return answer


@pytest.mark.parametrize(
    ("query", "permission"),
    [
        ("retention", "s3:GetObjectRetention"),
        ("legal-hold", "s3:GetObjectLegalHold"),
        ("versions", "s3:ListBucketVersions"),
    ],
)
def test_who_may_not_see_locks_deletes_nothing(locked: Locked, query: str, permission: str) -> None:
    """A version of which nobody says that it is locked may be: what lacks is named."""
    assert 0 == locked.sink()
    locked.kafka.append(locked.where, 5)
    assert 0 == locked.sink()
    expire = "sink", "expire", "--older-than", "0s", "--grace", "0s", "--yes", "--json"
    time.sleep(1.1)
    assert 0 == locked.typed(*expire).code
    denied = Fault(rf"GET .*[?&]{query}", "status", status=403, code="AccessDenied")

    with Unseeing(locked.server.endpoint_url, [denied]) as proxy:
        done = locked.typed(*expire, url=proxy.url)

    (error,) = done.lines[-1]["errors"]
    assert (6, f"allow {permission}") == (done.code, error["do"])
    assert permission in error["what"]
    assert 0 == proxy.seen("^DELETE .*topics")


def test_a_role_that_deletes_no_versions_is_told_which_permission_it_lacks(
    locked: Locked,
) -> None:
    """It is another one than that to delete objects."""
    assert 0 == locked.sink()
    key = next(key for key in locked.there() if key.startswith("topics/"))
    denied = Fault("^DELETE .*versionId", "status", status=403, code="AccessDenied")

    with Unseeing(locked.server.endpoint_url, [denied]) as proxy:
        store: Any = open_store(replace(locked.store(), endpoint_url=proxy.url))
        with pytest.raises(StoreError, match="s3:DeleteObjectVersion on"):
            store.delete_versions(key)


class Attacked(Locked):
    """Such a bucket, objects of which go day by day while sinks go on."""

    def __init__(self, server: LocalS3) -> None:
        super().__init__(server)
        assert 0 == self.sink()
        for hurt in self.hurts():
            before = self.objects()[-1]
            self.kafka.append(self.where, 5)
            assert 0 == self.sink()
            hurt(before)
        self.hurt = self.objects(every=True)[:-1]

    def hurts(self) -> list[Callable[[str], None]]:
        """What is done to an object each day."""
        return [self.delete, self.lengthen, self.forge, self.replace]

    def objects(self, *, every: bool = False) -> list[str]:
        """What is there of the topic, or was."""
        if not every:
            return [key for key in self.there() if key.startswith("topics/")]
        found = self.client.list_object_versions(Bucket=self.bucket, Prefix="topics/")
        return sorted({one["Key"] for one in found["Versions"]})

    def put(self, key: str, body: bytes, **more: Any) -> None:
        """Overwrite an object."""
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body, **more)

    def delete(self, key: str) -> None:
        """Leave a delete marker, and below it what seems to be the object."""
        self.forge(key)
        self.client.delete_object(Bucket=self.bucket, Key=key)

    def lengthen(self, key: str) -> None:
        """Overwrite it with what is longer."""
        self.put(key, bytes(9999))

    def forge(self, key: str) -> None:
        """Overwrite it with other bytes, and the same words about them."""
        head = self.client.head_object(Bucket=self.bucket, Key=key)
        self.put(key, bytes(head["ContentLength"]), Metadata=head["Metadata"])

    def shorten(self, key: str) -> None:
        """Overwrite it with as many bytes, which say that they hold fewer records."""
        head = self.client.head_object(Bucket=self.bucket, Key=key)
        fewer = {
            "records": "1",
            "last-offset": head["Metadata"]["first-offset"],
            "sha256": "0" * 64,
        }
        self.put(key, bytes(head["ContentLength"]), Metadata={**head["Metadata"], **fewer})

    def relabel(self, key: str) -> None:
        """Overwrite it with itself, and other words about it."""
        head = self.client.get_object(Bucket=self.bucket, Key=key)
        self.put(key, head["Body"].read(), Metadata={**head["Metadata"], "partition": "7"})

    def replace(self, key: str) -> None:
        """Overwrite it with as many bytes, and nothing said of them, many times."""
        size = self.client.head_object(Bucket=self.bucket, Key=key)["ContentLength"]
        for number in range(3):
            self.put(key, bytes([number]) * size)


class AttackedLater(Attacked):
    """Objects are overwritten long after they were stored, which their times show."""

    clock = Earlier()

    def hurts(self) -> list[Callable[[str], None]]:
        """What only such times show before the objects are read."""
        return [self.forge, self.shorten, self.relabel]


@pytest.fixture
def attacked(s3_server: LocalS3) -> Attacked:
    return Attacked(s3_server)


def test_what_was_lost_day_by_day_is_restored_as_it_was_stored(attacked: Attacked) -> None:
    """No time has all of it; the ledger knows the checksum of each object, and that decides."""
    code, found = attacked.restored()

    assert (0, values(range(50))) == (code, found)
    (warned,) = attacked.warned
    assert "earlier_versions" == warned["code"]
    assert "2 objects were deleted or overwritten; the versions that were stored" in warned["text"]
    assert all(key in warned["text"] for key in attacked.hurt[:2])


def test_what_was_overwritten_later_is_restored_as_it_was_stored(s3_server: LocalS3) -> None:
    """Whatever it says of itself; what shows it is said before a record is written."""
    attacked = AttackedLater(s3_server)

    assert (0, values(range(45))) == attacked.restored()
    (warned,) = attacked.warned
    assert "2 objects were deleted or overwritten" in warned["text"]
    assert all(key in warned["text"] for key in attacked.hurt[1:])
    assert 7 == attacked.typed("restore", "verify").code


def test_what_only_reading_shows_is_logged_in_one_line(
    attacked: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    """However many objects were overwritten."""
    overwritten = [*attacked.hurt[2:], attacked.objects()[-1]]
    attacked.forge(overwritten[-1])

    assert (0, values(range(50))) == attacked.restored()

    (line,) = (one for one in caplog.messages if "overwritten" in one)
    assert "3 objects were overwritten; what was stored is read: " in line
    assert all(key in line for key in overwritten)


def test_a_verify_says_whether_what_was_stored_is_still_there(attacked: Attacked) -> None:
    """Each object that was hurt is named, with what hides it."""
    told = [
        one
        for deep in ([], ["--deep"])
        for one in attacked.typed("restore", "verify", *deep, "--json").lines
    ]

    said = {one["key"]: one["text"] for one in told if one["type"] == "finding"}
    assert attacked.hurt == [*said]
    assert "still there under a delete marker, and restores read it" in said[attacked.hurt[0]]
    for key in attacked.hurt[1:]:
        assert "still there under another object, and restores read it" in said[key]


def test_what_was_lost_is_copied_and_printed_as_it_was_stored(attacked: Attacked) -> None:
    """The copy is whole, in a bucket that has no versions."""
    clean = f"clean-{uuid4().hex[:8]}"
    attacked.client.create_bucket(Bucket=clean)

    printed = attacked.typed("restore", "cat", "orders", "-c", "99", "--json")
    told = attacked.typed("sink", "copy", "--to", f"s3://{clean}", "--json")

    assert (0, 50) == (printed.code, len(printed.stdout.splitlines()))
    assert (0, ["earlier_versions"]) == (
        told.code, [one["code"] for one in told.lines if one["type"] == "warning"]
    )  # fmt: skip
    attacked.bucket = clean
    assert 0 == attacked.typed("restore", "verify", "--deep").code
    assert (0, values(range(50)), []) == (*attacked.restored(), attacked.warned)


def test_what_was_overwritten_is_queried_as_it_was_stored(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query answers about what a restore would deliver."""
    for name, text in attacked.keys.items():
        monkeypatch.setenv(name, text)
    url = attacked.server.endpoint_url
    found = Found.read(load("query", s3_bucket_name=attacked.bucket, store_url=url).settings)

    reader = BackupReader(found, SCHEMA)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert values(range(50)) == [value for each in batches for value in each["value"].to_pylist()]


def test_what_was_overwritten_is_compared_as_it_was_stored(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where digests do not show at once that the source has the same."""
    monkeypatch.setattr("kbackup.verify.against_source._METHODS", ())
    settings = load("against", bootstrap_servers="h:1", s3_bucket_name=attacked.bucket).settings
    environment = Environment(attacked.kafka, attacked.store(), InThreads(), SystemClock())  # type: ignore[arg-type]
    said = backup_state.read(open_store(attacked.store()), Layout(), SystemClock())
    summary = Summary("r", "restore verify")

    (row,) = verify_against_source(settings, environment, said, summary, Event())

    assert (0, 50) == (summary.finish().exit_code, row.records)


def test_what_was_overwritten_is_copied_as_it_was_stored(attacked: Attacked) -> None:
    """Also where nothing but reading shows it."""
    clean = f"clean-{uuid4().hex[:8]}"
    attacked.client.create_bucket(Bucket=clean)

    assert 0 == attacked.typed("sink", "copy", "--to", f"s3://{clean}").code

    attacked.bucket = clean
    assert (0, values(range(50)), []) == (*attacked.restored(), attacked.warned)


def test_a_restore_goes_on_over_what_was_lost_meanwhile(locked: Locked) -> None:
    """It writes nothing twice."""
    to, attacked = Standby(), Attacked(locked.server)

    first = attacked.restored(to)
    before = attacked.objects()[-1]
    attacked.kafka.append(attacked.where, 5)
    assert 0 == attacked.sink()
    attacked.delete(before)
    attacked.lengthen(attacked.objects()[-1])

    assert (0, values(range(50))) == first
    assert (0, values(range(55))) == attacked.restored(to)


def test_a_version_that_goes_before_it_is_read_is_missed(locked: Locked) -> None:
    """The backup is not sound; the store has answered."""
    assert 0 == locked.sink()
    key = next(key for key in locked.there() if key.startswith("topics/"))
    store: Any = open_store(locked.store())

    with pytest.raises(ObjectNotFoundError) as raised:
        store.at({key: "gone"}).open(key)

    assert (7, "missing_object") == (raised.value.exit_code, raised.value.code)


@pytest.mark.parametrize(
    ("query", "permission"),
    [
        ("GET .*[?&]versions", "s3:ListBucketVersions"),
        ("HEAD .*[?&]versionId", "s3:GetObjectVersion"),
    ],
)
def test_who_may_not_read_versions_is_told(attacked: Attacked, query: str, permission: str) -> None:
    """A restore is refused as in a bucket without versions."""
    denied = Fault(query, "status", status=403, code="AccessDenied")

    with S3Faults(attacked.server.endpoint_url, [denied]) as proxy:
        code, found = attacked.restored(url=proxy.url)
        verified = attacked.typed("restore", "verify", "--json", url=proxy.url)

    assert (7, []) == (code, found)
    assert any(f"allow {permission}" in one["text"] for one in attacked.warned)
    told = [one["text"] for one in verified.lines if one["type"] == "finding"]
    assert 7 == verified.code
    assert all(f"allow {permission}" in text for text in told)


def test_in_a_sound_bucket_no_version_is_asked_for(locked: Locked) -> None:
    """Versions cost nothing where nothing was lost, nor where it was accepted."""
    for _ in range(2):
        assert 0 == locked.sink()
        locked.kafka.append(locked.where, 5)
    with S3Faults(locked.server.endpoint_url) as proxy:
        assert (0, values(range(35))) == locked.restored(url=proxy.url)
        assert 0 == proxy.seen("versions|versionId")

    first = next(key for key in locked.there() if key.startswith("topics/"))
    locked.client.delete_object(Bucket=locked.bucket, Key=first)
    assert 0 == locked.typed("sink", "accept", "orders:0:0-29").code
    with S3Faults(locked.server.endpoint_url) as proxy:
        assert (0, values(range(30, 35))) == locked.restored(url=proxy.url)
        assert 0 == proxy.seen("versions|versionId")


LISTED = "[?&]versions"


def test_what_was_lost_together_is_looked_for_together(locked: Locked) -> None:
    """A request lists the versions of many objects; a verify says of each what hides it."""
    assert 0 == locked.sink(flush_size=3)
    lost = [key for key in locked.there() if key.startswith("topics/")][:-1]
    for key in lost[::2]:
        locked.client.delete_object(Bucket=locked.bucket, Key=key)
    for key in lost[1::2]:
        locked.client.put_object(Bucket=locked.bucket, Key=key, Body=bytes(9999))

    with S3Faults(locked.server.endpoint_url) as proxy:
        assert (0, values(range(30))) == locked.restored(url=proxy.url)
        restored = proxy.seen(LISTED)
        told = locked.typed("restore", "verify", "--json", url=proxy.url).lines

    assert (1, 1) == (restored, proxy.seen(LISTED) - restored)
    said = {one["key"]: one["text"] for one in told if one["type"] == "finding"}
    assert {*lost} == said.keys()
    assert all("what was stored is still there under" in text for text in said.values())


def test_a_restore_that_follows_looks_once_for_what_was_lost(locked: Locked) -> None:
    """Until more is lost: then for that alone."""
    assert 0 == locked.sink(flush_size=10)
    first, second, _ = (key for key in locked.there() if key.startswith("topics/"))
    locked.client.delete_object(Bucket=locked.bucket, Key=first)
    standby, seen = Standby(), list[int]()

    with S3Faults(locked.server.endpoint_url) as proxy:

        def happens(look: int) -> bool:
            seen.append(proxy.seen(LISTED))
            if look == 2:
                locked.client.delete_object(Bucket=locked.bucket, Key=second)
            locked.kafka.append(locked.where, 5)
            assert 0 == locked.sink()
            return look < 4

        place = replace(locked.store(), endpoint_url=proxy.url)
        standby.follow(happens, store=place, s3_bucket_name=locked.bucket)

    assert [1, 1, 2, 2] == seen
    assert values(range(45)) == standby.target.values("copy_of_orders")


def test_a_copy_that_follows_reads_what_was_brought_back(s3_server: LocalS3) -> None:
    """And looks once for what was lost before."""
    locked, seen = Locked(s3_server), list[int]()
    locked.said, locked.bucket = {}, f"kept-{uuid4().hex[:8]}"
    client, clean = locked.client, f"clean-{uuid4().hex[:8]}"
    for name in (locked.bucket, clean):
        client.create_bucket(Bucket=name)
    enabled: Any = {"Status": "Enabled"}
    client.put_bucket_versioning(Bucket=locked.bucket, VersioningConfiguration=enabled)
    assert 0 == locked.sink()
    (key,) = (key for key in locked.there() if key.startswith("topics/"))
    stored = client.get_object(Bucket=locked.bucket, Key=key)
    client.delete_object(Bucket=locked.bucket, Key=key)
    summary, stop = Summary("r", "sink copy"), Stop()

    with S3Faults(s3_server.endpoint_url) as proxy:

        def happens(look: int) -> bool:
            seen.append(proxy.seen(LISTED))
            if look == 2:
                body, said = stored["Body"].read(), stored["Metadata"]
                client.put_object(Bucket=locked.bucket, Key=key, Body=body, Metadata=said)
                old = stored["VersionId"]
                client.delete_object(Bucket=locked.bucket, Key=key, VersionId=old)
                client.delete_object(Bucket=clean, Key=key)
            return look < 3

        stop.event = Ticks(HandClock(), happens, stop)
        source = open_store(replace(locked.store(), endpoint_url=proxy.url))
        target = open_store(replace(locked.store(), url=f"s3://{clean}"))
        copy = CopyRun(
            source, target, Layout(), FormatOptions(), ALL, SystemClock(), summary, stop, poll_s=1
        )
        told = [to_json(one) for one in copy()]

    assert [1, 1, 1] == seen
    assert ["earlier_versions"] == [one["code"] for one in told if one["type"] == "warning"]
    assert {} == summary.standing


@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_was_stored_is_found_among_many_versions(s3_server: LocalS3, is_sealed: bool) -> None:
    """Whatever others say of themselves; a version that has no id too."""
    locked, key = Locked(s3_server), "topics/a"
    locked.bucket = f"kept-{uuid4().hex[:8]}"
    locked.client.create_bucket(Bucket=locked.bucket)
    with S3Faults(s3_server.endpoint_url) as proxy:
        keys = Everything()

        def opened() -> Any:
            store = open_store(replace(locked.store(), endpoint_url=proxy.url))
            return EncryptedStore(store, keys) if is_sealed else store

        store = opened()
        put_bytes(store, key, b"as it was stored")
        put_bytes(store, "topics/a.keys", b"beside it")
        head = store.head(key)
        sought = {key: (head.size, head.metadata["sha256"])}
        assert {} == earlier(store, sought)
        assert 0 == proxy.seen("[?&]versions")
        enabled: Any = {"Status": "Enabled"}
        locked.client.put_bucket_versioning(Bucket=locked.bucket, VersioningConfiguration=enabled)
        for body, said in (
            (bytes(head.size), head.metadata),
            (bytes(head.size), {}),
            (b"longer" * 9, {}),
        ):
            locked.client.put_object(Bucket=locked.bucket, Key=key, Body=body, Metadata=said)
        locked.client.delete_object(Bucket=locked.bucket, Key=key)

        store = opened()
        first, forged = earlier(store, sought)[key]
        then = store.at({key: first.version})
        with then.open(key) as whole, then.open_range(key, 3, 2) as part:
            assert (b"as it was stored", b"it") == (whole.read(), part.read())
        assert (key, head.size, head) == (first.key, first.size, then.head(key))
        with pytest.raises(CorruptObjectError):
            store.at({key: forged.version}).open(key)
        assert store.head(key) is None
        with then.open("topics/a.keys") as other:
            assert b"beside it" == other.read()
        assert 1 == proxy.seen("[?&]versions")


def test_of_values_what_was_lost_beside_them_is_read_as_it_was_stored(locked: Locked) -> None:
    """Values, keys or headers, each where it was hurt."""
    parts = {
        "format_class": "json", "value_converter_schemas_enable": False, "flush_size": 1000,
        "store_kafka_keys": True, "keys_format_class": "json", "store_kafka_headers": True,
        "headers_format_class": "json",
        "key_converter": "org.apache.kafka.connect.storage.StringConverter",
    }  # fmt: skip
    for _ in range(4):
        assert 0 == locked.sink(**parts)
        locked.kafka.append(locked.where, 5)
    whole = locked.restored()
    by_set = sorted(key for key in locked.there() if key.startswith("topics/"))
    values_of = [key for key in by_set if ".keys." not in key and ".headers." not in key]
    locked.client.delete_object(Bucket=locked.bucket, Key=values_of[0])
    for key, name in zip(values_of[1:3], ("keys", "headers"), strict=True):
        beside = next(one for one in by_set if one.startswith(key[:-5]) and f".{name}." in one)
        locked.client.put_object(
            Bucket=locked.bucket, Key=beside, Body=b'"longer than it was"' * 99
        )

    assert (0, 45) == (whole[0], len(whole[1]))
    assert whole == locked.restored()
    assert "3 objects were" in locked.warned[0]["text"]
