"""Segments of osodevops/kafka-backup, as restores of objects of any name read them."""

import io
import struct
from typing import Any

import pyarrow as pa
import pytest

from kbackup import formats
from kbackup.config import loading
from kbackup.errors import ConfigurationError, CorruptObjectError, UnsupportedObjectError
from kbackup.formats import FormatOptions, kafka_backup
from kbackup.formats.kafka_backup import KafkaBackupFormat
from kbackup.naming import View
from kbackup.records import Facts
from tests.support.segments import COMPRESSIONS, RECORDS, Segment, SegmentRecord, sealed


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    """Return the records of a segment."""
    batches = read(data, **options)
    return [row for batch in batches for row in batch.to_pylist()]


def read(data: bytes, **options: Any) -> list[pa.RecordBatch]:
    given = FormatOptions(**options)
    return [*KafkaBackupFormat().read(io.BytesIO(data), View.RECORD, ".bin.zst", given)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_part_of_a_record_comes_back(compression: str) -> None:
    """Null and empty stay two things, in keys, values and headers; offsets may be missing."""
    found = rows(Segment(RECORDS, compression).to_bytes())

    assert found == [record.row() for record in RECORDS]
    assert [1, 0, 1] == [row["timestamp_type"] for row in found]


def test_the_bytes_are_those_of_the_published_layout() -> None:
    """A segment written byte for byte is read, so that writer and reader cannot err together."""
    data = bytes.fromhex(
        "4b42414b 01 00 0000"  # KBAK, version 1, not compressed
        "0100000000000000 0700000000000000 0700000000000000"  # one record, offsets 7 to 7
        "25000000 e803000000000000 0700000000000000"  # 37 bytes follow, timestamp 1000, offset 7
        "01000000 6b ffffffff"  # the key "k", no value
        "0100 0100 68 03000000 782d79"  # one header, h=x-y
        "ab95ec98 424b4145"  # CRC-32, BKAE
    )

    (row,) = rows(data)

    assert (
        data == Segment((SegmentRecord(7, 1000, b"k", None, (("h", b"x-y"),)),), "none").to_bytes()
    )
    assert (7, 1000, b"k", None) == tuple(
        row[part] for part in ("offset", "timestamp", "key", "value")
    )


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_segment_is_read_in_batches(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by a batch, and a record that is larger than a batch comes alone."""
    monkeypatch.setattr(kafka_backup, "READ_BYTES", 2**17)
    monkeypatch.setattr(kafka_backup, "_PIECE_BYTES", 2**16)
    records = tuple(
        SegmentRecord(at, at, None, bytes([at % 251]) * (2**19 if at == 500 else 1000))
        for at in range(1000)
    )

    found = read(Segment(records, compression).to_bytes())

    assert len(found) > 4
    assert max(batch.nbytes for batch in found) < 2**20
    assert pa.Table.from_batches(found)["value"].to_pylist() == [each.value for each in records]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_flipped_bit_or_a_missing_byte_is_damage(compression: str) -> None:
    """Not a row is read of a segment in which a bit differs, or that ends before its end."""
    data = Segment(RECORDS, compression).to_bytes()

    for at in range(len(data)):
        for altered in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            batches = KafkaBackupFormat().read(
                io.BytesIO(altered), View.RECORD, "", FormatOptions()
            )
            with pytest.raises(CorruptObjectError):
                next(batches)


SEGMENT = Segment(RECORDS, "none")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'[{"offset": 1}]', "JSON"),
        (b' {"topics": []}', "JSON"),
        (b"\x28\xb5\x2f\xfd" + bytes(60), "compressed as a whole"),
        (SEGMENT.to_bytes(version=2), "version 2, this program reads 1"),
        (SEGMENT.to_bytes(code=3), "compression is 3"),
    ],
)
def test_what_the_tool_keeps_otherwise_is_refused_and_not_called_damaged(
    data: bytes, why: str
) -> None:
    """The exit code is that of a refusal, and the message says what to do."""
    with pytest.raises(UnsupportedObjectError, match=why) as refused:
        next(KafkaBackupFormat().read(io.BytesIO(data), View.RECORD, "", FormatOptions()))

    assert (4, True) == (refused.value.exit_code, "kafka-backup" in refused.value.do)


TWO = RECORDS[:2]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"\x07" * 60, "encrypted, damaged", id="anything else"),
        pytest.param(b"KBAK", "too few", id="magic alone"),
        pytest.param(
            SEGMENT.to_bytes().replace(b"KBAK\1", b"KBAK\2"), "version was 1 and is now 2",
            id="version",
        ),
        pytest.param(
            SEGMENT.to_bytes().replace(b"KBAK", b"[BAK"), "not begin with KBAK", id="bracket"
        ),
        pytest.param(SEGMENT.to_bytes(end=b"BKAX"), "end with BKAE", id="footer"),
        pytest.param(SEGMENT.to_bytes(crc=7), "checksum", id="checksum"),
        pytest.param(SEGMENT.to_bytes(count=2), "2 records, and it holds more", id="more records"),
        pytest.param(SEGMENT.to_bytes(count=4), "4 records, and it holds 3", id="fewer records"),
        pytest.param(SEGMENT.to_bytes(count=2**63), "records at the offsets", id="many records"),
        pytest.param(SEGMENT.to_bytes(first=6), "first offset is 7", id="first offset"),
        pytest.param(SEGMENT.to_bytes(last=2**60), "last offset is", id="last offset"),
        pytest.param(Segment(TWO[::-1], "none").to_bytes(first=1, last=8), "first", id="order"),
        pytest.param(
            Segment((TWO[0], *TWO), "none").to_bytes(last=9), "follows offset 7", id="twice"
        ),
        pytest.param(sealed(SEGMENT.body()[:-1]), "ends within a record", id="cut record"),
        pytest.param(sealed(SEGMENT.body() + b"\0"), "ends within a record", id="a byte more"),
        pytest.param(sealed(struct.pack("<I", 30) + bytes(30)), "not as long", id="too long"),
        pytest.param(sealed(struct.pack("<I", 20) + bytes(40)), "not as long", id="too short"),
        pytest.param(
            sealed(struct.pack("<Iqqii", 26, 0, 0, -2, 0) + bytes(2)), "a length is -2", id="-2"
        ),
        pytest.param(
            sealed(struct.pack("<Iqqi", 26, 0, 0, 2**31 - 1) + bytes(6)), "not as long", id="key"
        ),
        pytest.param(
            sealed(struct.pack("<IqqiiH", 26, 0, 0, -1, -1, 65535)), "not as long", id="headers"
        ),
        pytest.param(
            sealed(struct.pack("<IqqiiHH", 33, 0, 0, -1, -1, 1, 1) + b"\xff" + bytes(4)),
            "not UTF-8", id="name",
        ),
        pytest.param(sealed(b"\x28\xb5\x2f\xfd", code=1), "zstd", id="zstd cut short"),
        pytest.param(sealed(b"", code=2), "no size", id="no LZ4 size"),
        pytest.param(sealed(b"\xff\xff\xff\xff\0", code=2), "cannot become", id="LZ4 bomb"),
        pytest.param(sealed(b"\x05\0\0\0\xf0", code=2), "Lz4", id="LZ4 cut short"),
        pytest.param(
            Segment(RECORDS, "lz4").to_bytes(lz4_more=1), "less than", id="LZ4 holds less"
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_segment_is_named(data: bytes, why: str) -> None:
    """A segment whose checksum fits is not believed for that, whoever wrote it."""
    with pytest.raises(CorruptObjectError) as caught:
        read(data)

    assert why in f"{caught.value}"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, Facts(7, 2**53 + 1, 3, None, None, "")),
        ({"version": 2}, None),
        ({"count": 0}, None),
        ({"first": -1}, None),
        ({"last": 8}, None),
    ],
)
def test_a_header_says_what_a_segment_holds(wrong: dict[str, int], expected: Facts | None) -> None:
    """A restore that continues asks headers, and believes none that contradicts itself."""
    form = KafkaBackupFormat()

    assert expected == form.extent(SEGMENT.to_bytes(**wrong)[: form.extent_bytes])
    assert form.extent(bytes(form.extent_bytes)) is None


def test_a_record_may_be_as_large_as_it_is_allowed_to_be() -> None:
    """A length beyond --max-record-bytes is refused before that much is read."""
    data = Segment((SegmentRecord(0, 0, None, bytes(100)),), "zstd").to_bytes()

    assert len(rows(data, max_record_bytes=100)) == 1
    with pytest.raises(CorruptObjectError) as caught:
        rows(data, max_record_bytes=99)
    assert "--max-record-bytes" in caught.value.do


def test_a_body_of_lz4_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LZ4 blocks are read as a whole, so there is a limit to them."""
    monkeypatch.setattr(kafka_backup, "LZ4_BYTES", 10)

    with pytest.raises(UnsupportedObjectError, match="too large"):
        read(Segment(RECORDS, "lz4").to_bytes())


def test_files_of_bytes_stay_bytes_unless_segments_are_asked_for() -> None:
    """The tool's segments are named .bin, as files of bytes are."""
    found = [
        formats.of_any_name(extension, FormatOptions(), only)[1]
        for extension in (".bin", ".bin.zst", ".bin.lz4")
        for only in (None, "kafka_backup")
    ]

    assert ["bytes", "kafka_backup"] * 2 + ["kafka_backup"] * 2 == found


BASE = [
    "mode=GENERIC", "format.class=kafka_backup", r"topic.regex.list=t:.*-(?<offset>\d+)\.bin.*",
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param(["format.class=kafka_backup"], "format.class", id="another mode"),
        pytest.param([*BASE[:2], "topic.regex.list=t:.*"], "topic.regex.list", id="no offset"),
        pytest.param([*BASE, "record.fields=value=v"], "record.fields", id="record.fields"),
        pytest.param(
            [*BASE, "file.metadata.headers.enable=true"], "file.metadata.headers.enable",
            id="headers of the object",
        ),
        pytest.param([*BASE, "store.kafka.keys=true"], "store.kafka.keys", id="keys"),
    ],
)  # fmt: skip
def test_what_segments_have_no_use_for_is_refused(given: list[str], name: str) -> None:
    """Properties that would have no effect on full records are refused by name."""
    options = {"bootstrap_servers": "-", "s3_bucket_name": "b"}

    with pytest.raises(ConfigurationError) as caught:
        loading.load("restore", options=options, files=(), environ={}, extra=given)

    assert name in str(caught.value)


@pytest.mark.parametrize("view", [[], ["view=record"], ["view=value"]])
def test_a_sink_cannot_write_segments(view: list[str]) -> None:
    """A sink that is asked for segments is refused in every layout, with the reason."""
    options = {"bootstrap_servers": "-", "s3_bucket_name": "b", "topics": ("t",)}
    extra = ["format.class=kafka_backup", "flush.size=1", *view]

    with pytest.raises(ConfigurationError, match="it can be read, but not written"):
        loading.load("sink", options=options, files=(), environ={}, extra=extra)
