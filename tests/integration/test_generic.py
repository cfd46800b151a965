"""Objects that no sink has named, restored to a real cluster."""

from pathlib import Path

import pytest

from tests.support.cluster import TestCluster
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


def test_objects_of_any_name_are_restored_to_the_topics_that_their_keys_name(
    kbackup: Kbackup, cluster: TestCluster, tmp_path: Path
) -> None:
    """Rows that hold full records, in the partition and order that their names say."""
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "g-rows-1-7.json").write_text('{"k":"b","v":"late"}')
    (folder / "g-rows-1-0.json").write_text('{"k":"a","v":{"n":1}}\n{"k":null,"v":null}\n')
    (folder / "README.txt").write_text("not asked for")

    result = kbackup.json(
        "restore", "--store-url", f"file://{tmp_path}", "--topics-dir", "exports",
        "--mode", "GENERIC", "--topic-regex-list",
        r"$1:exports/(g-rows)-(?<partition>\d)-(?<offset>\d+)\.json",
        "-X", "record.fields=key=k,value=v",
    )  # fmt: skip

    found = [(record.key, record.value) for record in cluster.read("g-rows", 1)]
    assert [(b"a", b'{"n":1}'), (None, None), (b"b", b"late")] == found
    codes = [warning["code"] for warning in result.summary["warnings"]]
    assert "unmatched_objects" in codes
