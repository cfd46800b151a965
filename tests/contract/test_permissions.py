"""The permissions that the documentation gives each command are those that its requests need."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from s3fault import Fault, S3Faults

from tests.contract.product import BackupReader as Reader
from tests.contract.product import (
    Environment,
    Finding,
    Found,
    Layout,
    LocalS3,
    Notes,
    ReadOptions,
    RepairRun,
    RestoreRun,
    SinkRun,
    Stop,
    Summary,
    SystemClock,
    backup_state,
    checks,
    open_store,
    to_json,
    verify,
    verify_task,
)
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.fakes import SilentLine
from tests.support.in_process import tasks_in_threads
from tests.support.in_turn import InTurn
from tests.support.invoked import invoke
from tests.support.query import SCHEMA
from tests.support.standby import Standby
from tests.support.truth import client_of, way_to

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "secure.md"
BUCKET, OBJECTS, RECORDS = PLACES = "on the bucket", "on `topics/*`", "on `_kbackup/*`"

OF_REQUESTS: Final = {
    r"^GET /[^/?]+/?\?.*list-type=2": "s3:ListBucket",
    r"^GET /[^/?]+/?\?.*uploads": "s3:ListBucketMultipartUploads",
    r"^GET /[^/?]+/[^?].*uploadId": "s3:ListMultipartUploadParts",
    r"^(GET|HEAD) /[^/?]+/[^?]": "s3:GetObject",
    r"^POST .*\?restore": "s3:RestoreObject",
    r"^GET /[^/?]+/?\?versioning": "s3:GetBucketVersioning",
    r"^GET /[^/?]+/?\?lifecycle": "s3:GetLifecycleConfiguration",
    r"^GET /[^/?]+/?\?object-lock": "s3:GetBucketObjectLockConfiguration",
    r"^HEAD /[^/?]+/?$": "s3:ListBucket",
    r"^(PUT|POST) /[^/?]+/[^?]": "s3:PutObject",
    r"^DELETE .*uploadId": "s3:AbortMultipartUpload",
    r"^DELETE ": "s3:DeleteObject",
}


def needed(line: str) -> tuple[str, str]:
    """The action of a request, and what it is on."""
    action = next(action for pattern, action in OF_REQUESTS.items() if re.search(pattern, line))
    key = re.sub(r"^\w+ /[^/?]+/?", "", line).split("?")[0]
    assert key == "" or key.startswith(("_kbackup/", "topics/")), line
    return action, BUCKET if not key else RECORDS if key.startswith("_kbackup/") else OBJECTS


def documented() -> dict[str, set[tuple[str, str]]]:
    """What the table gives each command: actions, and what each is on."""
    _, _, table = PAGE.read_text().partition("|".join(("|command", *PLACES)))
    found: dict[str, set[tuple[str, str]]] = {}
    for row in table.partition("\n\n")[0].splitlines()[2:]:
        commands, *cells = (re.findall("`(.+?)`", cell) for cell in row.split("|")[1:-1])
        grants = zip(cells, PLACES, strict=True)
        given = {(action, place) for actions, place in grants for action in actions}
        found |= dict.fromkeys(commands, given)
    return found


class Bench:
    """A bucket behind a proxy, a topic to back up, and a cluster to restore to."""

    def __init__(self, server: LocalS3, proxy: S3Faults) -> None:
        self.server, self.proxy = server, proxy
        self.bucket = f"allowed-{uuid4().hex[:8]}"
        server.create_bucket(self.bucket)
        options = {"s3.part.size": 5 * 2**20, "s3.retry.backoff.ms": 1}
        self.store = replace(way_to(self.bucket, server, options), endpoint_url=proxy.url)
        self.kafka = FakeKafka()
        (self.where,) = self.kafka.create("orders", 30)

    def sink(self, **options: object) -> dict[str, Any]:
        """Back up what is there, or plan it."""
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": self.bucket, "topics": "orders"}
        settings = load("sink", **given, **options).settings
        environment = Environment(self.kafka, self.store, InTurn(), SystemClock())  # type: ignore[arg-type]
        return to_json(SinkRun(settings, lambda _: None, Stop(), environment)())

    def sinks(self) -> None:
        """A first run, a second one, one that continues without its group, and one that fails."""
        for offset in range(30):
            self.kafka.values[self.where, offset] = os.urandom(400_000)
        assert 0 == self.sink()["exit_code"]
        self.kafka.append(self.where, 5)
        assert 0 == self.sink()["exit_code"]
        self.kafka.positions_.clear()
        assert 0 == self.sink()["exit_code"]
        self.kafka.values[self.where, 35] = os.urandom(11 * 2**20)
        self.kafka.append(self.where, 1)
        self.proxy.faults[:] = [Fault("PUT .*partNumber=2", "status", status=403)]
        assert 6 == self.sink()["exit_code"]
        self.proxy.faults.clear()

    def repair(self) -> None:
        """Store an object again, in parts, once without success."""
        client = client_of(self.server)
        listed = client.list_objects_v2(Bucket=self.bucket, Prefix="topics/")["Contents"][0]
        client.delete_object(Bucket=self.bucket, Key=listed["Key"])
        settings = load(
            "sink", repair="orders:0:0", bootstrap_servers="h:1", s3_bucket_name=self.bucket,
            topics="orders",
        ).settings  # fmt: skip
        environment = Environment(self.kafka, self.store, InTurn(), SystemClock())  # type: ignore[arg-type]
        for code, faults in (6, [Fault("PUT .*partNumber=2", "status", status=403)]), (0, []):
            self.proxy.faults[:] = faults
            done = to_json(RepairRun(settings, lambda _: None, Stop(), environment)())
            assert code == done["exit_code"], done

    def restore(self, **options: object) -> None:
        """Restore all there is, or plan it."""
        settings = load(
            "restore", bootstrap_servers="h:1", s3_bucket_name=self.bucket, rename="copy_of_$0",
            **options,
        ).settings  # fmt: skip
        standby = Standby()
        environment = Environment(standby.target, self.store, standby.tasks, SystemClock())  # type: ignore[arg-type]
        assert (
            0 == to_json(RestoreRun(settings, lambda _: None, Stop(), environment)())["exit_code"]
        )

    def plan(self) -> None:
        """Plan a restore by the ledger, and without one: of objects that it does not know."""
        self.restore(dry_run=True)
        client = client_of(self.server)
        listed = client.list_objects_v2(Bucket=self.bucket, Prefix="_kbackup/ledger/")["Contents"]
        keys = [found["Key"] for found in listed]
        ledger = [client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys]
        for key in keys:
            client.delete_object(Bucket=self.bucket, Key=key)
        self.restore(dry_run=True)
        for key, body in zip(keys, ledger, strict=True):
            client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def follow(self) -> None:
        """Look twice for what is new."""
        found = Standby().follow(
            lambda look: look < 2, s3_bucket_name=self.bucket, store=self.store, no_lock=False,
            bootstrap_servers="h:1",
        )  # fmt: skip
        assert 143 == found["exit_code"]

    def read(self) -> None:
        """Read everything, as a query does."""
        settings = load(
            "query", s3_bucket_name=self.bucket, store_url=self.proxy.url,
            aws_access_key_id=self.server.access_key_id,
            aws_secret_access_key=self.server.secret_access_key, s3_region=self.server.region,
        ).settings  # fmt: skip
        reader = Reader(Found.read(settings), SCHEMA)
        assert 35 == sum(
            batch.num_rows for chunk in reader.partitions() for batch in reader.read(chunk)
        )

    def verify(self) -> None:
        """Read everything, as ``verify --deep`` does."""
        store, layout, options = open_store(self.store), Layout(), ReadOptions()
        summary = Summary("a-run", "restore verify")
        found = verify(
            store, layout, options, summary, now=SystemClock().now(),
            notes=Notes(backup_state.read(store, layout, SystemClock())),
            read=lambda units: verify_task(self.store, options, units, SilentLine()),
        )  # fmt: skip
        assert [] == [one for one in found if isinstance(one, Finding)]

    def left(self) -> None:
        """Verify all there is as a part; it leaves a run record too."""
        with tasks_in_threads():
            self.typed("restore", "verify", "--part", "1/1")

    def thaw(self) -> None:
        """Ask for an object that was archived, and for its ledger."""
        client = client_of(self.server)
        for prefix in ("topics/", "_kbackup/ledger/"):
            listed = client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)["Contents"][0]
            client.copy_object(
                Bucket=self.bucket, Key=listed["Key"], StorageClass="GLACIER",
                CopySource={"Bucket": self.bucket, "Key": listed["Key"]},
            )  # fmt: skip
        self.typed("restore", "thaw")

    def expire(self) -> None:
        """Mark objects as removed, and delete them."""
        for _ in range(2):
            self.typed("sink", "expire", "--older-than", "0s", "--grace", "0s", "--yes")

    def accept(self) -> None:
        """Accept that an object was removed on purpose."""
        client = client_of(self.server)
        listed = client.list_objects_v2(Bucket=self.bucket, Prefix="topics/")["Contents"][0]
        client.delete_object(Bucket=self.bucket, Key=listed["Key"])
        self.typed("sink", "accept", "--before", "2100-01-01")

    def examine(self, *, writes: bool) -> None:
        """Check the bucket, as ``doctor`` does."""
        settings = load("doctor", bootstrap_servers="h:1", s3_bucket_name=self.bucket).settings
        found = list(checks(open_store(self.store), settings, writes=writes))
        assert "fail" not in {check.level for check in found}

    def typed(self, *words: str) -> None:
        """Run a command that needs no Kafka."""
        done = invoke(
            *words, "--bucket", self.bucket, "--store-url", self.proxy.url,
            AWS_ACCESS_KEY_ID=self.server.access_key_id,
            AWS_SECRET_ACCESS_KEY=self.server.secret_access_key,
            AWS_DEFAULT_REGION=self.server.region,
        )  # fmt: skip
        assert 0 == done.code, done.stderr

    def copied(self, folder: Path) -> None:
        """Copy it to a folder, and see that all is there."""
        for _ in range(2):
            self.typed("sink", "copy", "--to", f"file://{folder}")

    def pruned(self, *options: str) -> None:
        """Abort an unfinished upload."""
        key = "topics/orders/partition=0/orders+0+0000000099.record.zstd.parquet"
        client_of(self.server).create_multipart_upload(Bucket=self.bucket, Key=key)
        self.typed("sink", "abort-uploads", "--older-than", "0s", *options)


@pytest.fixture
def bench(s3_server: LocalS3) -> Iterator[Bench]:
    with S3Faults(s3_server.endpoint_url) as proxy:
        yield Bench(s3_server, proxy)


def test_each_command_makes_the_requests_that_its_policy_allows_and_no_others(
    bench: Bench, tmp_path: Path
) -> None:
    """An action that is missing denies a run at night; one too many is a risk for nothing."""
    work: dict[str, Callable[[], object]] = {
        "sink": bench.sinks,
        "sink --dry-run": lambda: (bench.kafka.positions_.clear(), bench.sink(dry_run=True)),
        "sink status": lambda: bench.typed("sink", "status"),
        "sink repair": bench.repair,
        "sink reindex": lambda: bench.typed("sink", "reindex"),
        "sink ddl": lambda: bench.typed("sink", "ddl"),
        "sink abort-uploads --dry-run": lambda: bench.pruned("--dry-run"),
        "sink abort-uploads": bench.pruned,
        "sink copy": lambda: bench.copied(tmp_path),
        "restore": bench.restore,
        "restore --follow": bench.follow,
        "restore --dry-run": bench.plan,
        "restore status": lambda: bench.typed("restore", "status"),
        "restore query": bench.read,
        "restore list": lambda: bench.typed("restore", "list"),
        "restore verify": lambda: bench.typed("restore", "verify"),
        "restore verify --deep": lambda: (bench.verify(), bench.left()),
        "restore cat": lambda: bench.typed("restore", "cat", "orders:0@3"),
        "doctor": lambda: bench.examine(writes=False),
        "doctor --write-probe": lambda: bench.examine(writes=True),
        "restore thaw": bench.thaw,
        "sink expire": bench.expire,
        "sink accept": bench.accept,
    }
    made = {}
    for command, do in work.items():
        before = len(bench.proxy.log)
        do()
        made[command] = {needed(line) for line, _ in bench.proxy.log[before:]}

    assert documented() == made
