"""A restore of the backups of osodevops/kafka-backup: full records in segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kbackup.errors import CorruptObjectError, RefusedError
from kbackup.records import TopicPartition
from kbackup.runs import wiring
from tests.support.segments import COMPRESSIONS, Segment, SegmentRecord
from tests.support.target import MARKER, CrashError
from tests.support.verified import Verified
from tests.unit.restore.test_generic import Generic

NAMES = r"$1:.+/topics/([^/]+)/partition=(?<partition>\d+)/segment-(?<offset>\d+)\.bin.*"
AT = 1_577_836_800_000
EXTENSIONS = dict(zip(COMPRESSIONS, ("", ".zst", ".lz4"), strict=True))


@dataclass
class Segments(Generic):
    """Restores of a tool's backup ``daily`` below ``logs/``."""

    expressions: str = NAMES

    def __post_init__(self) -> None:
        self.properties = {"format.class": "kafka_backup", **self.properties}
        super().__post_init__()

    def store_segment(
        self,
        offsets: Sequence[int],
        partition: int = 0,
        compression: str = "zstd",
        name: int | None = None,
    ) -> None:
        """Store a segment, under the name that the tool gives it."""
        records = tuple(record(offset) for offset in offsets)
        data = Segment(records, compression).to_bytes()
        start = offsets[0] if name is None else name
        key = f"daily/topics/orders/partition={partition}/segment-{start:020d}.bin"
        self.put({key + EXTENSIONS[compression]: data})

    def rows(self, partition: int = 0) -> list[dict[str, Any]]:
        """The records of the target."""
        log = self.cluster.logs[TopicPartition("orders", partition)]
        return [row for row in log.rows if row is not MARKER]


def record(offset: int) -> SegmentRecord:
    """A record of which each part is another one's at another offset."""
    value = None if offset == 2 else b"v%d" % offset
    return SegmentRecord(offset, AT + offset, b"k", value, (("h", None),))


def test_a_backup_comes_back_whole() -> None:
    """Key, value, time and headers, in the partition that the name says and in order of offsets."""
    restoring = Segments()
    restoring.store_segment([10, 12], partition=1, compression="lz4")
    restoring.store_segment([0, 1, 2], partition=1)
    restoring.store_segment([2], partition=0, compression="none")
    restoring.put({"daily/manifest.json": b"{}"})

    restoring.run()

    assert [None] == [row["value"] for row in restoring.rows(0)]
    assert [record(at).row() for at in (0, 1, 2, 10, 12)] == [
        {**row, "offset": at, "timestamp_type": 1}
        for at, row in zip((0, 1, 2, 10, 12), restoring.rows(1), strict=True)
    ]


@pytest.mark.parametrize("dies", ["before the commit", "at a damaged segment"])
def test_each_record_comes_once_though_segments_overlap_and_the_restore_dies(dies: str) -> None:
    """The tool stores records again that it had not noted."""
    restoring = Segments()
    for offsets in ([0, 1, 2], [1, 2, 3], [3, 4], [7]):
        restoring.store_segment(offsets)
    if dies == "at a damaged segment":
        key = "daily/topics/orders/partition=0/segment-00000000000000000003.bin.zst"
        restoring.put({key: Segment((record(3), record(4))).to_bytes(crc=0)})
    with pytest.raises((CrashError, CorruptObjectError)):
        restoring.run(crash_at=2 if dies == "before the commit" else 0)
    restoring.store_segment([3, 4])
    restoring.store_segment([9])

    restoring.run(run="r2")
    restoring.run(run="r3")

    assert [b"v0", b"v1", None, b"v3", b"v4", b"v7", b"v9"] == [
        row["value"] for row in restoring.rows()
    ]


def test_a_restore_that_continues_reads_no_segment_again_but_the_last() -> None:
    """A segment's header says where it ends, which a restore that follows asks in each round."""
    restoring = Segments()
    for offsets in ([0, 1], [2, 3], [4, 5]):
        restoring.store_segment(offsets)
    restoring.run()
    restoring.store_segment([6])

    (report,) = restoring.restore(reading=wiring.reading(restoring.settings()), run="r2")

    assert (2, 1) == (report.done.objects, report.done.records)
    assert [*range(7)] == [row["timestamp"] - AT for row in restoring.rows()]


def test_a_segment_that_comes_late_is_not_overlooked() -> None:
    """Records below the position can no longer be restored in their place."""
    restoring = Segments()
    restoring.store_segment([0, 1])
    restoring.store_segment([4, 5])
    restoring.run()
    restoring.store_segment([2, 3])

    with pytest.raises(RefusedError, match="gained 2 records below offset 6"):
        restoring.run(run="r2")


def test_records_are_chosen_by_offset_and_time() -> None:
    """Segments know the offset and the time of each record."""
    restoring = Segments()
    restoring.store_segment([0, 1, 3])
    restoring.store_segment([4, 5])

    restoring.run(from_offset="1", to_time=str(AT + 5))

    assert [b"v1", b"v3", b"v4"] == [row["value"] for row in restoring.rows()]


def test_a_segment_under_another_name_stops_the_restore() -> None:
    """A segment whose first offset is not the one in its name is named, as is what to look for."""
    restoring = Segments()
    restoring.store_segment([5, 6], name=1)

    with pytest.raises(CorruptObjectError, match="first record has offset 5, its name says 1"):
        restoring.run()


@pytest.mark.parametrize("deep", [False, True])
def test_verify_finds_a_damaged_segment_when_it_reads_it(deep: bool) -> None:
    """Segments that are whole pass, and missing offsets are no fault: compaction leaves such."""
    restoring = Segments()
    restoring.store_segment([0, 1, 3])
    restoring.store_segment([3, 4])
    restoring.store_segment([9])
    how: dict[str, Any] = {
        "deep": deep, "only_format": "kafka_backup",
        "reading": wiring.reading(restoring.settings()),
    }  # fmt: skip
    sound = Verified(restoring.backup, **how)
    key = "daily/topics/orders/partition=0/segment-00000000000000000009.bin.zst"
    restoring.put({key: Segment((record(9),)).to_bytes(crc=0)})
    damaged = Verified(restoring.backup, **how)

    assert (0, 7 if deep else 0) == (sound.exit_code, damaged.exit_code), sound.events
