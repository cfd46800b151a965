"""A connector's transforms through the whole command."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.product import LocalS3
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

OF_KAFKA = "org.apache.kafka.connect.transforms."


def configuration(path: Path, s3: LocalS3, bucket: str, topic: str, **more: str) -> str:
    """Write a connector's file, and return where it is."""
    given: dict[str, Any] = {
        "name": f"of-{topic}",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": topic,
        "s3.bucket.name": bucket,
        "store.url": s3.endpoint_url,
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "flush.size": "100",
        **more,
    }
    path.write_text(json.dumps(given))
    return str(path)


def test_a_connectors_chain_changes_and_leaves_out_what_it_says(
    kbackup: Kbackup, cluster: TestCluster, topic: str, s3: LocalS3, bucket: str, tmp_path: Path
) -> None:
    """Fields, filters and names by a chain: stored, verified and restored as the chain says."""
    cluster.create(topic)

    def kinds(at: int) -> bytes:
        return b'{"n": %d, "kind": "%s-%d"}' % (at, topic.encode(), at % 2)

    old: tuple[tuple[str, bytes | None], ...] = (("old", b""),)
    cluster.write(
        topic,
        [
            Record(b"k", kinds(at), old if at % 5 == 0 else (), 1_700_000_000_000 + at)
            for at in range(20)
        ],
    )
    config = configuration(
        tmp_path / "connector.json", s3, bucket, topic,
        **{
            "transforms": "drop,meta,copy,text",
            "transforms.copy.type": f"{OF_KAFKA}RegexRouter",
            "transforms.copy.regex": ".*",
            "transforms.copy.replacement": "copy_of_$0",
            "transforms.drop.type": f"{OF_KAFKA}Filter",
            "transforms.drop.predicate": "isOld",
            "predicates": "isOld",
            "predicates.isOld.type": f"{OF_KAFKA}predicates.HasHeaderKey",
            "predicates.isOld.name": "old",
            "transforms.meta.type": f"{OF_KAFKA}InsertField$Value",
            "transforms.meta.offset.field": "_offset",
            "transforms.meta.timestamp.field": "at",
            "transforms.text.type": f"{OF_KAFKA}TimestampConverter$Value",
            "transforms.text.field": "at",
            "transforms.text.target.type": "string",
            "transforms.text.format": "yyyy-MM-dd HH:mm:ss:SSS",
        },
    )  # fmt: skip

    done = kbackup.json("sink", "--config", config)
    again = kbackup.json("sink", "--config", config)
    verified = kbackup.json("restore", "verify", "--config", config)
    hide = tmp_path / "hide.properties"
    hide.write_text(
        "transforms=kind,name,hide\n"
        "transforms.kind.type=io.confluent.connect.transforms.ExtractTopic$Value\n"
        "transforms.kind.field=kind\n"
        f"transforms.name.type={OF_KAFKA}RegexRouter\n"
        "transforms.name.regex=.*\n"
        "transforms.name.replacement=hidden_$0\n"
        f"transforms.hide.type={OF_KAFKA}ReplaceField$Value\n"
        "transforms.hide.exclude=kind\n"
        "format.class=json\n"
        "value.converter=json\n"
    )
    restored = kbackup.json("restore", "--config", str(hide), "-t", f"copy_of_{topic}")

    store = Backup(s3, bucket)
    (key,) = store.keys("topics/")
    copy = f"copy_of_{topic}"
    assert f"topics/{copy}/partition=0/{copy}+0+0000000001.json" == key
    assert [
        {"n": at, "kind": f"{topic}-{at % 2}", "_offset": at, "at": f"2023-11-14 22:13:20:{at:03d}"}
        for at in range(20)
        if at % 5
    ] == [json.loads(line) for line in store.body(key).splitlines()]
    (row,) = done.summary["partitions"]
    assert (16, 4, 20) == (row["records"], row["filtered"], row["committed"])
    assert 0 == again.summary["records"]
    assert "ok" == verified.summary["result"]
    assert ("ok", 16) == (restored.summary["result"], restored.summary["records"])
    assert [copy] * 2 == [row["topic"] for row in restored.summary["partitions"]]
    for kind in range(2):
        there = [json.loads(one.value or b"") for one in cluster.read(f"hidden_{topic}-{kind}")]
        assert [at for at in range(20) if at % 5 and at % 2 == kind] == [one["n"] for one in there]
        assert [{"n", "_offset", "at"}] * len(there) == [set(one) for one in there]
