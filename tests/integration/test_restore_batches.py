"""A restore sends batches as they are stored, exactly once, and what it cannot as records."""

import random

import pyarrow as pa
import pytest
from backup_samples import put_batches

from tests.integration.product import HEADER_BYTES, Batches, LocalS3, Store, start_kafka
from tests.integration.test_log import awkward
from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup
from tests.support.encoded import Sent, batch, sealed
from tests.support.fetched import enable, fetched, produced
from tests.support.large import back_up_large
from tests.support.running import ended

pytestmark = pytest.mark.integration

ALWAYS = str(2**63 - 1)
"""How old a record may be."""
KEPT = ("count", "last_delta", "base_timestamp", "max_timestamp", "records_crc", "length")
NOISE = random.Random(23)


def large_batch(codec: int, *, more: int = 0) -> bytes:
    """A batch of awkward records that is large however well it is compressed."""
    records = [
        Sent(NOISE.randbytes(30_000), b"k", [(b"before\0after", b"x"), (b"", None)], timestamp=5),
        Sent(b"zero", None, [(b"h%d" % at, b"") for at in range(70)], timestamp=0),
        Sent(None, b"", timestamp=-1),
        Sent(b"", None),
    ]
    return batch(0, records * (1 + more), codec)


def shapes(batches: list[Batches], plain: int = 0, packed: int = 0) -> list[tuple[int, ...]]:
    """What a copy of a batch has in common with it, of those with so many bytes, by their kind."""
    table = pa.Table.from_batches([each.headers for each in batches]).to_pylist()
    return [
        (row["attributes"] & 7, *(row[name] for name in KEPT))
        for row in table
        if row["length"] >= (packed if row["attributes"] & 7 else plain)
        and row["count"] == row["last_delta"] + 1
    ]


@pytest.mark.in_process
def test_awkward_batches_are_restored_as_they_are(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """Of each codec, with small ones, and aborted and interleaved transactions among them."""
    topic = cluster.create("raw-awkward", message_timestamp_before_max_ms=ALWAYS)
    awkward(cluster, topic)
    for codec in range(5):
        produced(cluster.servers, topic, large_batch(codec, more=0 if codec else 2))
        cluster.write(topic, varied(3))
    sunk = kbackup.json("sink", "-t", topic, "--format", "log", "--flush-size", "900").summary

    found = kbackup.json("restore", "-t", topic, "--rename", "copy_of_$0").summary

    assert cluster.read(topic) == cluster.read(f"copy_of_{topic}")
    copy = f"copy_of_{topic}"
    both = [fetched(cluster.servers, at, 0, cluster.ends(at)[1]) for at in (topic, copy)]
    originals, copies = shapes(both[0], plain=2**16, packed=2**14), shapes(both[1])
    following = iter(copies)
    assert all(each in following for each in originals)  # in their order
    assert 5 <= len(originals)
    assert sum(each[-1] for each in originals) == found["as_stored"] < found["bytes_written"]
    assert (sunk["records"], {}) == (found["records"], found["skipped"])
    words = ("-t", topic, "--against", "target", "--rename", "copy_of_$0")
    assert "ok" == kbackup.json("restore", "verify", *words).summary["result"]


@pytest.mark.in_process
def test_a_batch_that_was_altered_ends_a_restore_before_it(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """Object and offset are named, and nothing of it is committed."""
    topic = cluster.create("raw-altered", message_timestamp_before_max_ms=ALWAYS)
    for _ in range(3):
        produced(cluster.servers, topic, large_batch(0, more=2))
    (batches,) = fetched(cluster.servers, topic, 0, 36)
    data = bytearray(batches.data.to_pybytes())
    data[batches.headers["position"][2].as_py() + 300] ^= 1
    key, _ = put_batches(store, topic, [batches], altered=bytes(data))

    result = kbackup("restore", "-t", topic, "--rename", "copy_of_$0", "--json")

    (error,) = result.summary["errors"]
    assert (7, "corrupt", key) == (result.code, error["code"], error["key"])
    assert "the batch at offset 24" in error["why"]
    assert cluster.read(topic)[:24] == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
@pytest.mark.parametrize(
    "codec", [*(pytest.param(at, marks=pytest.mark.nightly) for at in (1, 2, 3)), 4]
)
def test_a_batch_that_cannot_be_unpacked_is_left_out_where_that_is_asked(
    kbackup: Kbackup, cluster: TestCluster, store: Store, codec: int
) -> None:
    """The cluster refuses it, whose CRC32C is right; what stands before it is restored."""
    topic = cluster.create(f"raw-sealed-{codec}", message_timestamp_before_max_ms=ALWAYS)
    for _ in range(3):
        produced(cluster.servers, topic, large_batch(codec))
    (batches,) = fetched(cluster.servers, topic, 0, 12)
    data = batches.data.to_pybytes()
    begin, end = (batches.headers["position"][at].as_py() for at in (1, 2))
    bad = sealed(4, b"\xff" * (end - begin - HEADER_BYTES), 4, 3, attributes=codec, times=(5, 5))
    key, _ = put_batches(store, topic, [batches], altered=data[:begin] + bad + data[end:])
    words = "restore", "-t", topic, "--json", "--rename"

    ignored = kbackup(*words, "copy_of_$0", "--behavior-on-error", "ignore")
    fails = kbackup(*words, "other_$0")

    assert (3, {"bad_objects": 1, "bad_records": 8}) == (ignored.code, ignored.summary["skipped"])
    assert cluster.read(topic)[:4] == cluster.read(f"copy_of_{topic}")
    (error,) = fails.summary["errors"]
    assert (7, "corrupt", key) == (fails.code, error["code"], error["key"])


@pytest.mark.nightly
def test_a_cluster_may_have_any_version_of_transactions(s3: LocalS3) -> None:
    """Their first protocol is spoken on all, also where a broker offers the second."""
    with start_kafka() as kafka:
        cluster = TestCluster(kafka.bootstrap_servers)
        words = ("--format", "log")
        large = back_up_large(cluster, s3, "raw-versions", 1, 500, *words, is_noise=True)
        for version in (2, 0, 1, 2):
            enable(kafka.bootstrap_servers, "transaction.version", version)
            ended(large.kbackup, *large.restore(f"v{version}_", by_batches=True))
            assert large.restored(cluster, f"v{version}_{large.topic}")
            cluster.delete(f"v{version}_{large.topic}")
