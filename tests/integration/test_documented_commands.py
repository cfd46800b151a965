"""The commands of the documentation, run as they are written: two clusters, an S3 server, files.

Only the places are others: nothing listens on ``broker:9092``, and nobody has ``/etc/kbackup``.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.docs.test_docs import CHECKOUT, LINES, code_blocks, text
from tests.integration.product import LocalKafka, LocalS3
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster
from tests.support.registry import FakeRegistry

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(1200)]

LEFT_OUT: Final = {
    r"^demo": "starts a Kafka of its own: test_demo.py",
    r"^keys": "asks for a backup that is encrypted: test_encryption.py",
    r"--master": "asks for a cluster of Spark: test_round_trip.py has one",
    r"--undo": "asks for the id that an earlier run has printed: test_restore_groups.py",
    r"--public-key": "asks for a drill that was signed: tests/unit/catalog/test_drills.py",
    r"versions[.]as[.]of": "asks S3 for versions of a past day: tests/contract/test_object_lock.py",
}
"""Which commands are not run here, by a part of the line, and why."""

ENDS: Final = {
    r"sink repair orders:3:4200": 7,  # nothing that began there is missing
    r"--as-of 2026-11-21": 7,  # nothing had been backed up by then
    r"restore groups .*--to-time": 4,  # nor had anybody asked where a group stood
    r"restore access": 4,  # these clusters have no authoriser
    r"restore configs (?!.*(--dry-run|--yes))": 4,  # nobody is there to agree
    r"--follow": 143,
}
"""How those end that do not end with 0, by a part of the line."""

BEFORE: Final = {
    ("how-to/disaster", "restore groups"): "dr.properties --rename-prefix restored_",
    ("how-to/verify", "--against target"): "dr.properties --rename-prefix restored_",
    ("reference/commands", "--against target"): "dr.properties",
    ("reference/commands", "status --config standby"): "standby.properties",
    ("reference/commands", "restore configs --config dr"): "dr.properties --rename 'copy_of_$0'",
    ("reference/commands", "restore groups --config dr.properties billing"): "dr.properties",
}
"""What was restored before a command, by page and a part of its line, and what with."""

BEGINS_ANEW: Final = r"--rename-regex|--partition-map|-b my-bucket --deep"
"""Where a page turns to another day: what its commands have restored so far is not there."""

OTHERS: Final = {
    "docs/how-to/registry.md": {
        "-t orders": "-t framed", "--config s3.json": "--config avro.json",
    },
    "docs/reference/commands.md": {"-b my-bucket": "-b demo"},
}  # fmt: skip
"""Values that are not JSON, and a bucket from which no other page restores: by page."""

FOLLOWS_S: Final = 15
"""A run that follows starts in a third of it."""

PAGES: Final = sorted({page for page, _ in LINES} - {"docs/quick-start.md", "CHANGELOG.md"})


class Place:
    """A folder with the files that pages name, and what is behind the names in these."""

    def __init__(
        self,
        folder: Path,
        source: LocalKafka,
        target: LocalKafka,
        s3: LocalS3,
        registries: Mapping[str, FakeRegistry],
    ) -> None:
        self.folder = folder
        self.lake = Backup(s3, "lake")
        self.registry = registries["registry"]
        self.clusters = [TestCluster(each.bootstrap_servers) for each in (source, target)]
        self.names = {
            **{f"http://{name}:8081": each.url for name, each in registries.items()},
            "dr-kafka:9092": target.bootstrap_servers,
            **dict.fromkeys(("broker:9092", "kafka:9092"), source.bootstrap_servers),
            **dict.fromkeys(("/etc/kbackup", "/var/lib/node_exporter"), str(folder)),
            "/var/lib/kbackup": str(folder / "summaries"),  # their names are those of files
            "/mnt": str(folder / "mnt"),
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"KBACKUP_STORE_URL": s3.endpoint_url, "KBACKUP_LOCK_DIR": str(folder), "PATH": path}
        others = {name: said for name, said in os.environ.items() if "KBACKUP" not in name}
        self.environment = {**others, **s3.environment, **own}
        servers = (source.bootstrap_servers, target.bootstrap_servers)
        self._write_files(*servers, f"store.url={s3.endpoint_url}\n")

    def _write_files(self, source: str, target: str, store: str) -> None:
        bucket = "s3.bucket.name=backups\n"
        given = f"{bucket}bootstrap.servers={source}\n"
        connector = f"{given}topics.dir=connect\nname=s3\nformat.class=json\n"
        values = "value.converter=json\n"
        there = f"{bucket}bootstrap.servers={target}\n"
        generic = next(code_blocks(text(CHECKOUT / "docs" / "how-to" / "from-other-tools.md")))
        said = {
            "orders.properties": f"{given}topics=orders,payments\n",
            "s3.properties": f"{given}topics=orders,payments\n",
            "s3.json": f"{connector}{values}topics=orders\nflush.size=1000\n"
            "connector.class=io.confluent.connect.s3.S3SinkConnector\n",
            "s3-source.json": f"{connector}mode=RESTORE_BACKUP\n"
            "connector.class=io.confluent.connect.s3.source.S3SourceConnector\n",
            "common.yaml": given,
            "orders.json": "topics=orders\n",
            "dr.properties": f"{there}{store}",
            "standby.properties": f"bootstrap.servers={target}\ns3.bucket.name=standby\n",
            "generic.properties": generic,
            "avro.json": f"bootstrap.servers={target}\ns3.bucket.name=lake\ntopics=framed\n"
            "format.class=avro\n"
            "value.converter=io.confluent.connect.avro.AvroConverter\n",
        }
        for name, lines in said.items():
            form = {".json": '{{"{}":"{}"}}', ".yaml": "{}: {}"}.get(Path(name).suffix, "{}={}")
            pairs = [form.format(*line.split("=", 1)) for line in lines.split()]
            whole = "\n".join(pairs).replace("}\n{", ",")
            (self.folder / name).write_text(whole)
        (self.folder / "mnt" / "backup").mkdir(parents=True)
        (self.folder / "summaries").mkdir()
        (self.folder / "users.txt").write_text("alice:secret\n")
        (self.folder / "users.txt").chmod(0o600)
        for example in (CHECKOUT / "examples").glob("*sink.properties"):
            (self.folder / example.name).symlink_to(example)
        (self.folder / "quickstart-s3.properties").symlink_to(
            CHECKOUT / "examples" / "quickstart-s3.properties"
        )

    def fill(self) -> None:
        """Write records before and after the time that the pages name, and read some."""
        noon = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)
        value = b'{"customer":42,"region":"eu","user":{"country":"de"}}'
        source = self.clusters[0]
        for topic, partitions in KEPT.items():
            if topic == "framed":
                continue
            source.create(topic, partitions)
            for number in range(partitions):
                records = [
                    Record(key, value, (), noon + at * 9000)
                    for at in range(2200 if partitions > 1 else 6)
                    for key in (b"customer-42", b"c-42")
                ]
                source.write(topic, records, number)
        for group in ("billing", "audit"):
            source.commit(group, "orders", 100)
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
        number = self.registry.add("framed-value", schema)
        framed = [Record(b"k", number.to_bytes(5, "big") + bytes([2 * at])) for at in range(60)]
        source.create("framed")
        source.write("framed", framed)
        for key in ("clicks/1", "tables/users/1"):
            self.lake.client.put_object(
                Bucket="lake", Key=f"exports/{key}.json", Body=b'{"id":1}\n{"id":2}\n'
            )

    def tidy(self) -> None:
        """Delete what the commands of a page have restored."""
        for cluster, kept in zip(self.clusters, (KEPT, {}), strict=True):
            for topic in cluster.admin.list_topics(timeout=10).topics:
                if topic not in kept and not topic.startswith("__"):
                    cluster.delete(topic)

    def run(self, line: str, page: str = "", **more: str) -> tuple[int, str]:
        """Run a command in a shell; one that follows is stopped once it can have followed."""
        for name, meant in {**self.names, **OTHERS.get(page, {})}.items():
            line = re.sub(rf"(?<![\w-]){re.escape(name)}", meant, line)
        process = subprocess.Popen(
            ["bash", "-c", line], cwd=self.folder, env={**self.environment, **more},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, _ = process.communicate(timeout=FOLLOWS_S if "--follow" in line else 200)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        return process.returncode, out


KEPT: Final = {"orders": 4, "payments": 2, "profiles": 1, "s3_topic": 1, "system-test": 1,
               "framed": 1}  # fmt: skip
"""The topics of the cluster that is backed up, and how many partitions they have."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, class_archive: None) -> Iterator[Place]:
    """Two clusters, buckets with the names that pages have, a first backup in some of them."""
    with (
        LocalKafka() as source, LocalKafka() as target, LocalS3() as s3,
        FakeRegistry() as here, FakeRegistry() as there,
    ):  # fmt: skip
        buckets = ("my-bucket", "backups", "demo", "lake", "dr-backups", "second-bucket", "dr-copy",
                   "standby")  # fmt: skip
        for bucket in buckets:
            s3.create_bucket(bucket)
        registries = {"registry": here, "registry-of-the-target": there}
        folder = tmp_path_factory.mktemp("documented")
        found = Place(folder, source, target, s3, registries)
        found.fill()
        for words in (
            "orders.properties", "orders.properties -b my-bucket", "orders.properties -b demo",
            "orders.properties -b lake", "orders.properties -b standby", "s3.json",
        ):  # fmt: skip
            code, said = found.run(f"kbackup sink --config {words}")
            assert 0 == code, said
        yield found


def end_of(line: str) -> int:
    """Return the exit code of a command."""
    return next((code for part, code in ENDS.items() if re.search(part, line)), 0)


def lines_of(page: str) -> list[str]:
    """Return the commands of a page that are run, in order, up to a pipe into another program."""
    lines = [line.partition(" | ")[0] for name, line in LINES if name == page]
    return [line for line in dict.fromkeys(lines)
            if not any(re.search(part, line) for part in LEFT_OUT)]  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if lines_of(page)])
def test_the_commands_of_a_page_do_what_it_says(place: Place, page: str) -> None:
    """Who pastes them, one after the other, gets no error that the page does not speak of."""
    place.tidy()
    wrong = {}

    for line in lines_of(page):
        if re.search(BEGINS_ANEW, line):
            place.tidy()
        for (name, part), words in BEFORE.items():
            if name in page and part in line:
                place.tidy()
                assert 0 == place.run(f"kbackup restore --quiet --config {words}")[0]
        code, said = place.run(f"kbackup {line}", page)
        if code != end_of(line) or "Traceback" in said:
            wrong[line] = (code, said)

    assert {} == wrong


def test_the_quick_start_is_as_quick_as_it_says(place: Place) -> None:
    """Each line behind the demo's, as a shell takes it: nothing is missing between them."""
    place.tidy()
    page = text(CHECKOUT / "docs" / "quick-start.md").partition("## Look")[2]
    lines = [line[2:] for block in code_blocks(page) for line in block.splitlines()]
    (place.folder / "examples").symlink_to(CHECKOUT / "examples")
    given = {
        "KBACKUP_BOOTSTRAP_SERVERS": place.names["broker:9092"], "KBACKUP_S3_BUCKET_NAME": "demo"
    }  # fmt: skip

    ends = [place.run(line, **given) for line in lines]

    refused, missing = (next(at for at, line in enumerate(lines) if word in line)
                        for word in ("--dry-run", "exit code"))  # fmt: skip
    expected = [4 if at == refused else 0 for at in range(len(lines))]
    assert expected == [code for code, _ in ends], ends
    assert "exit code 7" in ends[missing][1]
