"""Directories by time and by field through the whole command: written, verified, restored."""

import json
from urllib.parse import unquote

import pytest

from tests.integration.product import Store
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

REGIONS = ["eu", "us", None, "a/b", "ünï"]
DAY_MS = 86_400_000


def records(partition: int) -> list[Record]:
    """Return 90 records of three days, five regions and a tombstone, late ones among them."""
    found = []
    for at in range(90):
        value = json.dumps({"n": at, "region": REGIONS[at % 5]}).encode()
        time = 1_700_000_000_000 + (at // 30) * DAY_MS - (DAY_MS if at % 17 == 9 else 0)
        found.append(Record(b"k%d" % at, None if at == 44 else value, (), time + partition))
    return found


@pytest.mark.parametrize(
    ("words", "directories"),
    [
        pytest.param(
            ["daily", "--timezone", "America/New_York", "--locale", "en"],
            {f"year=2023/month=11/day={day}" for day in (13, 14, 15, 16)},
            id="daily",
        ),
        pytest.param(
            ["field", "--partition-field-name", "region", "--flush-size", "40"],
            {f"region={'null' if region is None else region}" for region in REGIONS},
            id="field",
        ),
    ],
)
def test_what_is_spread_over_directories_comes_back_in_order(
    words: list[str], directories: set[str],
    kbackup: Kbackup, cluster: TestCluster, topic: str, store: Store,
) -> None:  # fmt: skip
    """Every record is in the directory of its day or field, and each partition is whole again."""
    cluster.create(topic, 2)
    for partition in range(2):
        cluster.write(topic, records(partition), partition)

    kbackup.json("sink", "-t", topic, "--partitioner", *words)
    verified = kbackup.json("restore", "verify", "--deep")
    kbackup.json("restore", "--rename", "copy_of_$0")

    keys = [unquote(entry.key) for entry in store.list(f"topics/{topic}/")]
    assert directories == {key.split("/", 2)[2].rpartition("/")[0] for key in keys}
    assert 180 == verified.summary["records"]
    for partition in range(2):
        assert records(partition) == cluster.read(f"copy_of_{topic}", partition)
