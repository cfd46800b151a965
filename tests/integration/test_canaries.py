"""Nothing of an encrypted backup's records is to be seen outside, whenever a run is killed."""

from pathlib import Path

import pytest

from tests.integration.test_encryption import new_key
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.running import running

pytestmark = [pytest.mark.integration, pytest.mark.one_process, pytest.mark.crash]

CANARY = b"CANARY-7c1f"
RECORDS = 30_000
KILLS = 3


def _record(number: int) -> Record:
    text = b"%s-%d" % (CANARY, number)
    return Record(b"k-" + text, b"v-" + text * 4, (("h", b"h-" + text),))


@pytest.mark.nightly
def test_no_canary_lies_in_bucket_tmpdir_or_log(
    kbackup: Kbackup, cluster: TestCluster, topic: str, backup: Backup, tmp_path: Path
) -> None:
    """Objects, metadata, captures, what is spooled, printed and logged: after kills, too."""
    cluster.create(topic, 2)
    records = [_record(n) for n in range(RECORDS)]
    for partition in range(2):
        cluster.write(topic, records, partition)
    scratch, log = tmp_path / "tmp", tmp_path / "log"
    scratch.mkdir()
    recipient, text = new_key(tmp_path / "one.pem"), "org.apache.kafka.connect.converters."
    reader = kbackup.with_environment(
        TMPDIR=str(scratch),
        KBACKUP_ENCRYPTION_IDENTITY_FILE=str(tmp_path / "one.pem"),
        KBACKUP_STORE_KAFKA_KEYS="true",
        KBACKUP_STORE_KAFKA_HEADERS="true",
        KBACKUP_KEYS_FORMAT_CLASS="bytes",
        KBACKUP_KEY_CONVERTER=f"{text}ByteArrayConverter",
        KBACKUP_HEADERS_FORMAT_CLASS="json",
    )
    sink = reader.with_environment(
        KBACKUP_ENCRYPTION_IDENTITY_FILE="",
        KBACKUP_ENCRYPTION_RECIPIENTS=recipient,
        KBACKUP_ENCRYPTION_KEY_FILE=str(tmp_path / "backup.key"),
    )
    words = (
        "sink", "-t", topic, "--format", "bytes", "--value-converter", f"{text}ByteArrayConverter",
        "--flush-size", "2000", "--log-file", str(log),
    )  # fmt: skip
    said = []
    for kill in range(KILLS):
        with running(sink, *words) as command:
            command.wait_for("object", 3 * kill + 1)
            command.kill_group()
            said.append(str(command.finish()))
    said.append(str(sink.json(*words)))
    said.append(str(reader.json("restore", "--rename", "copy_of_$0")))

    shown = [*map(str.encode, said), log.read_bytes()]
    shown += [path.read_bytes() for path in scratch.rglob("*") if path.is_file()]
    objects = backup.keys()
    shown += [backup.body(key) for key in objects]
    shown += [
        str(backup.client.head_object(Bucket=backup.bucket, Key=key)["Metadata"]).encode()
        for key in objects
    ]
    assert [] == [body[:200] for body in shown if CANARY in body]
    assert any("/partition=" in key for key in objects)
    for partition in range(2):
        restored = cluster.read(f"copy_of_{topic}", partition)
        assert [one[:3] for one in records] == [one[:3] for one in restored]  # values have no times
