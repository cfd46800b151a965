"""A backup as Spark's data source, without Spark."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from backup_samples import JSON, TIME, Backup, batch
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThan

from kbackup.config.loading import load
from kbackup.errors import ConfigurationError, KbackupError, RefusedError
from kbackup.inspect.query import mentioned
from kbackup.inspect.source import Found, QueryReader
from kbackup.records import Facts
from tests.support.query import SCHEMA


def found(folder: Path, **options: object) -> Found:
    """Return what a folder holds."""
    given = {"store_url": f"file://{folder}", **options}
    return Found.read(load("query", options=given, files=(), environ={}).settings)


def read(of: Found, *filters: Filter) -> pa.Table:
    """Return the rows of a source, read as Spark reads them."""
    reader = QueryReader(of, SCHEMA)
    assert list(filters) == list(reader.pushFilters(list(filters)))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, SCHEMA)


def test_each_record_is_a_row(tmp_path: Path) -> None:
    """Null, empty and absent stay three things, in key, value and headers."""
    odd = batch([5], key=None, value=b"", headers=[{"key": "h", "value": None}])
    Backup.in_folder(tmp_path).put("orders", 3, range(5), odd)

    table = read(found(tmp_path))

    assert list(range(6)) == table["offset"].to_pylist()
    assert {"orders"} == set(table["topic"].to_pylist())
    last = table.slice(5).to_pylist()[0]
    assert (None, b"") == (last["key"], last["value"])
    assert [{"key": "h", "value": None}] == last["headers"]
    assert datetime.fromtimestamp((TIME + 5) / 1000, UTC) == last["timestamp"]


@pytest.mark.parametrize("timestamp", [-1, 2**62, -(2**62)])
def test_what_is_no_timestamp_to_spark_is_null(tmp_path: Path, timestamp: int) -> None:
    """A record without a timestamp, or with one beyond what Spark can count, has none."""
    Backup.in_folder(tmp_path).put("orders", 0, batch([0], timestamp=timestamp))

    assert [None] == read(found(tmp_path))["timestamp"].to_pylist()


def test_values_alone_are_rows_too(tmp_path: Path) -> None:
    """A connector's objects have values and offsets, and null for what they do not store."""
    Backup.in_folder(tmp_path).put("orders", 0, range(3), views=JSON)

    table = read(found(tmp_path))

    assert [b'{"n":0}', b'{"n":1}', b'{"n":2}'] == table["value"].to_pylist()
    assert [None] * 3 == table["timestamp"].to_pylist()


def test_values_beside_full_records_are_one_row_each(tmp_path: Path) -> None:
    """A query answers about what a restore would deliver: each record once, or it is refused."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, range(10), range(10, 20), views=JSON)
    backup.put("orders", 0, range(6, 14))
    backup.put("pay", 0, range(10), range(6, 16), views=JSON)

    assert [*range(20)] == read(found(tmp_path, topics="orders"))["offset"].to_pylist()
    with pytest.raises(RefusedError, match="hold these offsets"):
        found(tmp_path, topics="pay")


def test_conditions_keep_every_record_that_meets_them(tmp_path: Path) -> None:
    """Conditions that Spark passes on rule out only objects without an answer."""
    backup = Backup.in_folder(tmp_path)
    for partition in range(2):
        backup.put("orders", partition, range(10), range(10, 20))
    moment = datetime.fromtimestamp((TIME + 12) / 1000, UTC)
    late = moment + timedelta(microseconds=1)

    one = read(found(tmp_path), EqualTo(("partition",), 1), GreaterThan(("offset",), 15))
    early = read(found(tmp_path), LessThan(("timestamp",), late), In(("partition",), (0, 7)))

    assert {1} == set(one["partition"].to_pylist())
    assert {16, 17, 18, 19} <= set(one["offset"].to_pylist())
    assert {0} == set(early["partition"].to_pylist())
    assert set(range(13)) <= set(early["offset"].to_pylist())


def test_partitions_of_the_settings_are_the_only_ones(tmp_path: Path) -> None:
    """``--partitions`` and ``-t`` narrow what there is to ask."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, range(3))
    backup.put("orders", 1, range(3))
    backup.put("pay", 0, range(3))

    table = read(found(tmp_path, topics="orders", partitions="1"))

    rows_of = zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)
    assert {("orders", 1)} == set(rows_of)


def test_a_damaged_object_is_named(tmp_path: Path) -> None:
    """The error that Spark wraps can be found again in its text."""
    (key,) = Backup.in_folder(tmp_path).put("orders", 0, range(3))
    path = tmp_path / key
    path.write_bytes(path.read_bytes()[:-40])

    with pytest.raises(RuntimeError, match=r"kbackup-error:.*corrupt"):
        read(found(tmp_path))


def test_a_topic_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A name that was asked for and is not in the backup is an error, never an empty table."""
    Backup.in_folder(tmp_path).put("orders", 0, range(3))

    with pytest.raises(KbackupError, match="pay is not in the backup"):
        found(tmp_path, topics="pay")


def test_topics_whose_rows_do_not_know_their_offsets_are_named(tmp_path: Path) -> None:
    """A query warns where values may have wrong offsets."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("pay", 0, range(0, 6, 2), views=JSON) + backup.put("orders", 0, range(3))
    keys += backup.put("audit", 0, range(4), views=JSON)
    lasts = zip(keys, (4, 2, 3), (3, 3, 4), strict=True)
    facts = {key: Facts(0, last, count, None, None, "ab") for key, last, count in lasts}

    assert ["pay"] == replace(found(tmp_path), facts=facts).counted()


def test_only_topics_that_a_query_names_become_tables() -> None:
    """A backup of a thousand topics is not looked through for a query of one."""
    assert ["orders"] == mentioned("SELECT * FROM Orders", ["orders", "pay"])
    with pytest.raises(ConfigurationError, match="names no topic"):
        mentioned("select 1", ["orders"])


def test_topics_that_only_capitals_tell_apart_are_not_taken_for_each_other() -> None:
    """Spark ignores case in names: only named topics are tables, and ambiguity is exit 2."""
    there = ["Orders", "orders", "pay"]

    assert ["Orders"] == mentioned("select * from Orders", there)
    assert ["Orders", "orders", "pay"] == mentioned("select 1 from orders, Orders, PAY", there)
    with pytest.raises(ConfigurationError, match="which topic orders is"):
        mentioned("select * from ORDERS", there)
