"""A sink killed at any moment loses nothing, and shows no half object."""

import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.product import LocalKafka, LocalS3
from tests.support.backup import Backup, StoredFile
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup, places
from tests.support.in_process import WITHOUT_SPARK
from tests.support.killing import (
    GATES_KILLS,
    KILLS,
    kill_somewhen,
    kill_workers,
    shows_what_is_safe,
)
from tests.support.large import TOYS
from tests.support.running import ended, running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.crash]

PARTITIONS = 4

SINK = ("--flush-size", "500")
"""Many cuts: the working phase takes seconds."""

LAYOUTS = {
    "one directory": SINK,
    "third party's": ("--flush-size", "1500", "--partitioner", "modulo"),
    "by value": ("--flush-size", "3000", "--partitioner", "by-value"),
    "batches": ("--flush-size", "500", "--format", "log"),
}
"""How the objects of a partition are spread over directories: over one, three and six; and as the
broker has them."""

_NUMBER = itertools.count()


@dataclass(frozen=True)
class Reference:
    """What a run without faults leaves of a topic."""

    topic: str
    written: dict[int, list[Record]]
    files: dict[str, StoredFile]


@dataclass
class Source:
    """A topic, and the objects that one undisturbed run makes of it in each layout."""

    topic: str
    written: dict[int, list[Record]]
    kafka: LocalKafka
    s3: LocalS3
    _files: dict[str, dict[str, StoredFile]] = field(default_factory=dict)

    def reference(self, layout: str) -> Reference:
        """What a run without faults leaves in a layout; it is made once."""
        if layout not in self._files:
            bucket = f"crash-reference-{len(self._files)}"
            self.s3.create_bucket(bucket)
            kbackup = _kbackup(self.kafka, self.s3, bucket, WITHOUT_SPARK)
            ended(kbackup, "sink", "-t", self.topic, *LAYOUTS[layout])
            backup = Backup(self.s3, bucket)
            for partition, records in self.written.items():
                assert records == backup.records(self.topic, partition)
            self._files[layout] = backup.files()
        return Reference(self.topic, self.written, self._files[layout])


@pytest.fixture(scope="session")
def source(kafka: LocalKafka, s3: LocalS3, cluster: TestCluster) -> Source:
    """A topic of all kinds of records."""
    topic = "crash-source"
    cluster.create(topic, PARTITIONS)
    written = {p: varied(20_000 + 100 * p, p) for p in range(PARTITIONS)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)
    return Source(topic, written, kafka, s3)


@pytest.fixture
def reference(source: Source) -> Reference:
    """What a run without faults leaves in one directory a partition."""
    return source.reference("one directory")


def _kbackup(kafka: LocalKafka, s3: LocalS3, bucket: str, module: str = "kbackup") -> Kbackup:
    return Kbackup(places(kafka.bootstrap_servers, s3, bucket, PYTHONPATH=str(TOYS)), module)


def _facts(files: dict[str, StoredFile]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {key: (file.sha256, file.offsets) for key, file in files.items()}


@pytest.mark.parametrize(
    ("seed", "layout", "kills_due"),
    [
        pytest.param(1, "third party's", GATES_KILLS, marks=pytest.mark.one_process),
        pytest.param(0, "one directory", KILLS, marks=pytest.mark.nightly),
        pytest.param(2, "by value", KILLS, marks=pytest.mark.nightly),
        pytest.param(4, "batches", 50, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_a_sink_killed_again_and_again_loses_nothing_and_cuts_the_same(
    seed: int,
    layout: str,
    kills_due: int,
    kafka: LocalKafka,
    s3: LocalS3,
    cluster: TestCluster,
    source: Source,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """After each kill what was said is stored, at last the objects of a run without faults."""
    chance, reference = random.Random(seed), source.reference(layout)
    topic, expected = reference.topic, _facts(reference.files)
    summary = tmp_path / "summary.json"
    words = ("sink", "-t", topic, *LAYOUTS[layout], "--summary-file", str(summary))
    is_one = request.node.get_closest_marker("one_process") is not None
    module = WITHOUT_SPARK if is_one else "kbackup"
    kills = 0
    while kills < kills_due:
        bucket = f"crash-sink-{next(_NUMBER)}"
        s3.create_bucket(bucket)
        kbackup, backup = _kbackup(kafka, s3, bucket, module), Backup(s3, bucket)
        group = kbackup.json("sink", "plan", "-t", topic).summary["group"]
        while kills < kills_due:
            with running(kbackup, *words) as command:
                if not kill_somewhen(command, chance, lambda: command.of("object")):
                    assert 0 == command.finish().code
                    break
                kills += 1
                command.leave_nothing()
            seen = _facts(backup.files())
            assert seen.items() <= expected.items()
            assert not summary.exists() or json.loads(summary.read_text())["type"] == "summary"
            committed = cluster.committed(group, topic, range(PARTITIONS))
            assert shows_what_is_safe(command, committed)
            for partition, offset in enumerate(committed):
                below = {
                    key
                    for key, file in reference.files.items()
                    if file.partition == partition and file.start < offset
                }
                assert below <= seen.keys()
        else:
            ended(kbackup, *words)
        assert expected == _facts(backup.files())
        assert 0 == json.loads(summary.read_text())["exit_code"]
        summary.unlink()


@pytest.mark.nightly
def test_a_sink_outlives_its_python_workers(
    kafka: LocalKafka, s3: LocalS3, cluster: TestCluster, reference: Reference
) -> None:
    """Killed workers are replaced: exit 0, objects as without faults, each record counted once."""
    bucket = f"crash-worker-{next(_NUMBER)}"
    s3.create_bucket(bucket)
    kbackup = _kbackup(kafka, s3, bucket)

    with running(kbackup, "sink", "-t", reference.topic, *SINK) as command:
        command.wait_for("object", 20)
        killed = kill_workers(command)
        result = command.finish()

    assert (0, True) == (result.code, killed > 0), result.stdout
    assert _facts(reference.files) == _facts(Backup(s3, bucket).files())
    assert sum(map(len, reference.written.values())) == result.summary["records"]
    assert len(reference.files) == result.summary["objects"]
    group = result.summary["group"]
    ends = [len(records) for records in reference.written.values()]
    assert ends == cluster.committed(group, reference.topic, range(PARTITIONS))


def test_a_dead_driver_of_a_sink_leaves_no_orphans(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """When only the driver is killed, its JVM and its Python workers end by themselves."""
    cluster.create(topic, 2)
    cluster.write(topic, varied(100))

    with running(kbackup, "sink", "-t", topic, "--follow") as command:
        wait_until(command.workers, "a Python worker")
        command.process.kill()
        command.process.wait()

        command.leave_nothing()
