"""What is said of an object that cannot be read."""

import pyarrow as pa
import pytest
from backup_samples import BYTES, JSON, OPTIONS, Backup, batch

from kbackup.catalog import listing
from kbackup.catalog.claims import Reading
from kbackup.catalog.reading import read
from kbackup.errors import CorruptObjectError
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.records import TopicPartition


def test_a_record_that_cannot_be_made_of_a_file_is_named_by_its_place_in_it() -> None:
    """A bad record is named by its place in the whole file, however the file is read."""
    backup = Backup()
    values = pa.array([b"%s1" % (b" " * 400_000)] * 8 + [b"true"], pa.binary())
    given = batch(range(100, 109)).set_column(4, "value", values)
    [key] = backup.put("orders", 0, given, views=JSON)
    options = ReadOptions(value_converter="integer")
    found = listing.list_backup(backup.store, backup.layout, options.formats)

    with pytest.raises(CorruptObjectError, match="record 9: ") as caught:
        [*read(Reading(backup.store, options), found.sets[TopicPartition("orders", 0)][0])]

    assert key == caught.value.place["key"]


@pytest.mark.parametrize(
    ("name", "rows", "text"),
    [
        pytest.param("orders+0+0000000000.bin", 3, "it ends 1 row before", id="a value"),
        pytest.param("orders+0+0000000000.keys.bin", 3, "it has more rows than", id="a key"),
    ],
)
def test_a_separator_inside_a_value_is_named_as_the_likely_cause(
    name: str, rows: int, text: str
) -> None:
    """If a value contains the separator, the error says that rows may have been split."""
    views = (ViewSpec(View.KEY, "bytes", OPTIONS, "bytes"), *BYTES)
    backup = Backup()
    keys = backup.put("orders", 0, [0, 1], views=views)
    backup.replace(next(key for key in keys if key.endswith(name)), b"x\n" * rows, {})
    options = ReadOptions()
    found = listing.list_backup(backup.store, backup.layout, options.formats)

    with pytest.raises(CorruptObjectError) as caught:
        [*read(Reading(backup.store, options), found.sets[TopicPartition("orders", 0)][0])]

    assert text in caught.value.why
    assert "separator (format.bytearray.separator) comes back as several rows" in caught.value.why
