"""What is said of an object that cannot be read."""

import pyarrow as pa
import pytest
from backup_samples import JSON, Backup, batch

from kbackup.backup import catalog
from kbackup.backup.reading import read
from kbackup.errors import CorruptObjectError
from kbackup.flow.views import ReadOptions
from kbackup.records import TopicPartition


def test_a_record_that_cannot_be_made_of_a_file_is_named_by_its_place_in_it() -> None:
    """
    However large the file is, which is read in pieces.
    """
    backup = Backup()
    values = pa.array([b'"%s"' % (b"A" * 400_000)] * 8 + [b"7"], pa.binary())
    given = batch(range(100, 109)).set_column(4, "value", values)
    [key] = backup.put("orders", 0, given, views=JSON)
    options = ReadOptions(value_converter="bytes")
    found = catalog.read(backup.store, backup.layout, options.formats)

    with pytest.raises(CorruptObjectError, match="record 9: ") as caught:
        [*read(backup.store, found.sets[TopicPartition("orders", 0)][0], options)]

    assert key == caught.value.place["key"]
