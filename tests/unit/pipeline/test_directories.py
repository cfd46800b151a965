"""Directories of records that have none, too long a one, or no value to take it from."""

from pathlib import Path

import pyarrow as pa
import pytest
from flow_samples import WHERE
from record_samples import batch_of

from kbackup.connect.schema import DATE, ConnectSchema, Type
from kbackup.naming import DIRECTORY_BYTES_MAX
from kbackup.partitioners.extractors import RecordExtractor, RecordFieldExtractor
from kbackup.partitioners.field import FieldPartitioner
from kbackup.partitioners.time_based import DailyPartitioner
from kbackup.pipeline.convert import NO_AFFIX, Affix, route
from kbackup.pipeline.rows import Part, Rows
from kbackup.stores import Names, StoreSettings
from kbackup.stores.file import FileStore


def by_field(*values: bytes | None, affix: Affix = NO_AFFIX, names: Names | None = None) -> Rows:
    """Return full records filed by a field of their JSON."""
    partitioner = FieldPartitioner()
    partitioner.configure({"partition.field.name": ("r",)})
    batch = batch_of([{"value": value} for value in values])
    rows = Rows(batch, (Part(batch),))
    return route(rows, WHERE, partitioner, RecordExtractor(), 0, affix=affix, names=names)


def by_day(rows: Rows, field: str) -> Rows:
    """Return rows filed by the day that a field of theirs says."""
    extractor, partitioner = RecordFieldExtractor(), DailyPartitioner()
    extractor.configure({"timestamp.field": field})
    partitioner.configure({"timezone": "UTC", "locale": "en"})
    return route(rows, WHERE, partitioner, extractor, 0)


def directories(rows: Rows) -> list[str]:
    """Return the directory of each row."""
    assert rows.directories is not None
    found: list[str] = rows.directories.cast(pa.string()).to_pylist()
    return found


def test_a_record_without_a_directory_is_named_and_its_neighbours_are_not() -> None:
    """A record that the field partitioner cannot place is reported by its offset and reason."""
    long = b'{"r":"%s"}' % (b"x" * DIRECTORY_BYTES_MAX)

    rows = by_field(b'{"r":"eu"}', b"not json", b'{"r":1.5}', b'{"s":1}', long, b'{"r":7}')

    assert ["r=eu", "r=7"] == directories(rows)
    assert [1, 2, 3, 4] == [bad.offset for bad in rows.bad]
    assert "512 bytes" in rows.bad[-1].why


@pytest.mark.parametrize(
    ("text", "in_s3", "in_a_folder"),
    [
        pytest.param("..", True, True, id="dots in a name"),
        pytest.param("a/b", True, True, id="two levels"),
        pytest.param("a/../b", False, False, id="one level up"),
        pytest.param("../../../../x", False, False, id="out of the folder"),
        pytest.param("a/./b", False, False, id="the same level"),
        pytest.param("http://a", True, False, id="a level without a name"),
        pytest.param("a/", True, False, id="an end without a name"),
        pytest.param("x" * 300, True, False, id="a level too long for a file"),
    ],
)
def test_a_record_whose_directory_the_store_cannot_have_is_a_bad_one(
    tmp_path: Path, text: str, *, in_s3: bool, in_a_folder: bool
) -> None:
    """The error policy decides, and its neighbours are stored; all runs failed for ever."""
    values = b'{"r":"eu"}', b'{"r":"%s"}' % text.encode(), b'{"r":7}'
    stores = None, FileStore(StoreSettings(f"file://{tmp_path}"))

    found = [by_field(*values, names=names) for names in stores]

    assert [in_s3, in_a_folder] == [f"r={text}" in directories(rows) for rows in found]
    assert [[] if fits else [1] for fits in (in_s3, in_a_folder)] == [
        [bad.offset for bad in rows.bad] for rows in found
    ]


def test_a_tombstone_has_a_directory() -> None:
    """A tombstone goes to the directory of a null field, or to that of its own timestamp."""
    batch = batch_of([{"value": None, "timestamp": 1_700_000_000_000}])

    by_time = by_day(Rows(batch, (Part(batch),)), "at")

    assert ["r=null"] == directories(by_field(None))
    assert ["year=2023/month=11/day=14"] == directories(by_time)


def test_a_time_that_no_date_can_name_is_said_to_be_one() -> None:
    """There is one, so that none was found would send its owner to look for it; 2^62 has a year."""
    batch = batch_of([{"value": b'{"at":%d}' % at} for at in (2**62, 2**63 - 1)])

    found = by_day(Rows(batch, (Part(batch),)), "at")

    assert ["year=146140482/month=04/day=24"] == directories(found)
    assert [(1, True)] == [
        (bad.offset, bad.why.endswith("or one that no date can name")) for bad in found.bad
    ]


def test_a_date_is_counted_in_days() -> None:
    """``RecordField`` on Connect's Date, also inside a struct, files under the date itself."""
    day = ConnectSchema(Type.INT32, optional=True, name=DATE, version=1)
    inner = ConnectSchema(Type.STRUCT, fields=(("on", day),))
    schema = ConnectSchema(Type.STRUCT, fields=(("at", inner),))
    values = pa.array([{"at": {"on": 19_000}}], schema.arrow())
    field = schema.of_column().on(pa.field("value", values.type))
    whole = batch_of([{"value": b"", "timestamp": 0}])
    batch = pa.RecordBatch.from_arrays([values], schema=pa.schema([field]))

    found = by_day(Rows(whole, (Part(batch, schema.of_column()),)), "at.on")

    assert ["year=2022/month=01/day=08"] == directories(found)
