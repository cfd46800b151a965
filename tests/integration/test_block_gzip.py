"""The block-gzip sink's own file through the whole command, and its objects back into Kafka."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.product import LocalS3, Store
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

ORIGINALS = Path(__file__).parent.parent / "conformance" / "block_gzip"


def test_the_connectors_file_writes_its_objects_and_they_come_back(
    kbackup: Kbackup, cluster: TestCluster, store: Store, bucket: str, s3: LocalS3, tmp_path: Path
) -> None:
    """The connector's own file writes its names, pointer and bytes, and all commands find them."""
    if "system-test" in cluster.admin.list_topics(timeout=10).topics:
        cluster.delete("system-test")
    cluster.create("system-test", 3)
    texts = gzip.decompress((ORIGINALS / "system-test-00000-000000000000.gz").read_bytes())
    values = texts.splitlines()
    cluster.write("system-test", [Record(b"k", value) for value in values], 0)
    path = tmp_path / "sink.properties"
    path.write_text(
        "name=s3-sink\nconnector.class=com.deviantart.kafka_connect_s3.S3SinkConnector\n"
        f"tasks.max=3\ntopics=system-test\ns3.bucket={bucket}\ns3.prefix=systest\n"
        f"s3.endpoint={s3.endpoint_url}\ns3.path_style=true\nlocal.buffer.dir={tmp_path}\n"
        "compressed_block_size=67108864\ns3.compression.level=6\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
    )
    config = ("--config", str(path))
    today = datetime.now(UTC).date()

    kbackup.json("sink", *config)

    keys = [entry.key for entry in store.list("systest/") if "_kbackup" not in entry.key]
    days = {key.split("/")[1] for key in keys if "/last_chunk_index." not in key}
    assert days <= {(today + timedelta(days=late)).isoformat() for late in (0, 1)}
    (day,) = days
    stem = f"systest/{day}/system-test-00000-000000000000"
    pointer = "systest/last_chunk_index.system-test-00000.txt"
    assert [f"{stem}.gz", f"{stem}.index.json", pointer] == sorted(keys)
    for key, name in ((f"{stem}.gz", ".gz"), (f"{stem}.index.json", ".index.json")):
        with store.open(key) as body:
            original = ORIGINALS / f"system-test-00000-000000000000{name}"
            assert original.read_bytes() == body.read()
    with store.open(pointer) as body:
        assert f"{stem}.index.json".encode() == body.read()

    restored = kbackup.json("restore", *config, "--rename", "copy_of_$0")
    assert 100 == restored.summary["records"]
    assert [(None, value) for value in values] == [
        (copy.key, copy.value) for copy in cluster.read("copy_of_system-test")
    ]
    assert 100 == kbackup.json("restore", "verify", *config).summary["records"]
    shown = kbackup("restore", "cat", *config, "system-test:0@42", "-c", "1", "--json")
    assert {"counter": 42, "foo": "bar"} == json.loads(json.loads(shown.stdout)["payload"])
