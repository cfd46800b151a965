"""What a query need not read: columns that nobody wants."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backup_samples import RECORD, SIBLINGS, Backup, batch

from kbackup.errors import ConfigurationError
from kbackup.inspect.source import BackupSource
from kbackup.pipeline.views import ViewSpec
from tests.support.query import SCHEMA, found, read


@pytest.mark.parametrize("views", [RECORD, SIBLINGS])
def test_some_columns_are_those_of_all(tmp_path: Path, views: tuple[ViewSpec, ...]) -> None:
    """Each alone, and together, as the whole table has them."""
    backup = Backup.in_folder(tmp_path)
    odd = batch([5], key=None, value=b"", headers=[]) if views is RECORD else range(5, 6)
    keys = backup.put("orders", 3, range(5), odd, views=views)
    whole = found(backup, keys)
    table = read(whole)

    for names in ([name] for name in SCHEMA.names):
        assert table.select(names) == read(whole, *names)
    assert table.select(["value", "topic", "key"]) == read(whole, "value", "topic", "key")


def test_records_that_two_objects_hold_are_compared_whole(tmp_path: Path) -> None:
    """However little a query wants of them, two records at one offset are damage."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("orders", 0, range(10), batch(range(5, 12), value=b"another"))

    with pytest.raises(RuntimeError, match="a different record at offset 5"):
        read(found(backup, keys), "offset")


def test_siblings_that_nobody_wants_are_not_opened(tmp_path: Path) -> None:
    """Keys and headers are columns too."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("orders", 0, range(5), views=SIBLINGS)
    (beside,) = [key for key in keys if ".keys." in key]
    backup.replace(beside, backup.body(beside)[:-9])

    assert 5 == len(read(found(backup), "value", "headers"))
    with pytest.raises(RuntimeError, match="kbackup-error"):
        read(found(backup), "key")


def test_a_column_that_there_is_not_is_refused() -> None:
    """A schema of one's own names some of the table's columns."""
    schema: Any = SimpleNamespace(names=["offset", "price"])

    with pytest.raises(ConfigurationError, match="no column price"):
        BackupSource({}).reader(schema)
