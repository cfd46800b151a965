"""The statement that declares what a configuration writes."""

from typing import Any

import pytest
from backup_samples import BYTES, JSON, RECORD, SIBLINGS, Backup, batch

from kbackup.config import loading
from kbackup.errors import ConfigurationError, CorruptObjectError, IncompleteBackupError
from kbackup.events import to_json
from kbackup.inspect.ddl import statements
from kbackup.naming import DatedLayout, Layout
from kbackup.testing.stores import put_bytes
from tests.support.json_lines import LINES

PLACE = {"s3_bucket_name": "lake"}
AS_JSON = {"format_class": "json", "value_converter": "json"}
BY_TIME = {"partitioner_class": "time", "partition_duration_ms": "3600000", "locale": "en",
           "timezone": "UTC"}  # fmt: skip


def declared(
    backup: Backup, engine: str = "athena", database: str | None = None, **options: Any
) -> str:
    """The statement of the only topic."""
    settings = loading.load("ddl", options=PLACE | options, files=(), environ={}).settings
    (line,) = statements(settings, backup.store, engine, database)
    LINES.validate(to_json(line))
    return line.sql


def test_athena_gets_a_partition_for_each_of_the_topics() -> None:
    """Athena gets projected partitions, so that none has to be added."""
    backup = Backup()
    backup.put("orders.eu", 0, range(3))
    backup.put("orders.eu", 11, range(3))

    assert """\
CREATE EXTERNAL TABLE `db`.`orders_eu` (
  `offset` bigint,
  `timestamp` bigint,
  `timestamp_type` tinyint,
  `key` binary,
  `value` binary,
  `headers` array<struct<key:string,value:binary>>
)
PARTITIONED BY (
  `partition` int
)
STORED AS PARQUET
LOCATION 's3://lake/topics/orders.eu/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.partition.type' = 'integer',
  'projection.partition.range' = '0,11',
  'storage.location.template' = 's3://lake/topics/orders.eu/partition=${partition}/'
);""" == declared(backup, database="db")


@pytest.mark.parametrize(
    ("options", "directory", "projection"),
    [
        pytest.param(
            {"partitioner_class": "hourly", "locale": "en", "timezone": "UTC"},
            "year=2026/month=11/day=22/hour=07",
            {
                "year.range": "2026,2036", "month.range": "1,12", "month.digits": "2",
                "hour.range": "0,23",
                "location": "year=${year}/month=${month}/day=${day}/hour=${hour}/",
            },
            id="hours",
        ),
        pytest.param(
            BY_TIME | {"path_format": "'y='YYYY/'m='M/'d='d"},
            "y=2026/m=11/d=22",
            {"y.range": "2026,2036", "m.range": "1,12", "location": "y=${y}/m=${m}/d=${d}/"},
            id="names of one's own, without zeros",
        ),
        pytest.param(
            BY_TIME | {"path_format": "YYYY/MM/dd/HH"},
            "2026/11/22/07",
            {
                "dt.type": "date", "dt.format": "yyyy/MM/dd/HH", "dt.interval.unit": "HOURS",
                "dt.range": "2026/11/22/07,NOW+1YEARS", "location": "${dt}/",
            },
            id="bare numbers are one date",
        ),
        pytest.param(
            BY_TIME | {"path_format": "'dt'=YYYY-MM-dd"},
            "dt=2026-11-22",
            {
                "dt.type": "date", "dt.format": "'dt'=yyyy-MM-dd", "dt.interval.unit": "DAYS",
                "dt.range": "dt=2026-11-22,NOW+1YEARS", "location": "${dt}/",
            },
            id="several numbers in a folder",
        ),
        pytest.param(
            {"partitioner_class": "field", "partition_field_name": "n,where.city"},
            "n=3/where.city=Bonn",
            {
                "n.type": "injected", "where_city.type": "injected",
                "location": "n=${n}/where.city=${where_city}/",
            },
            id="fields",
        ),
    ],
)  # fmt: skip
def test_athena_is_told_which_folders_there_are(
    options: dict[str, str], directory: str, projection: dict[str, str]
) -> None:
    """Directories by time and by field are columns of the table."""
    backup = Backup()
    backup.put_in(directory, "orders", 0, range(3), views=JSON)

    sql = declared(backup, **AS_JSON, **options)

    location = projection.pop("location")
    assert f"'storage.location.template' = 's3://lake/topics/orders/{location}'" in sql
    for name, value in projection.items():
        assert f"'projection.{name}' = '{value.replace(chr(39), chr(92) + chr(39))}'" in sql


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        pytest.param("n", "bigint", id="of the field's type"),
        pytest.param("N", "string", id="other capitals, which engines ignore"),
    ],
)
def test_a_field_that_names_its_folder_is_a_column_once(field: str, kind: str) -> None:
    """A field that names its folder is a partition column and not also a column of the files."""
    backup = Backup()
    rows = batch(range(3), value=b'{"n":3,"name":"a"}')
    backup.put_in(f"{field}=3", "orders", 0, rows, views=JSON)

    sql = declared(backup, "hive", partitioner_class="field", partition_field_name=field, **AS_JSON)

    assert f"(\n  `name` string\n)\nPARTITIONED BY (\n  `{field}` {kind}\n)" in sql


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ({}, "s3a://lake"),
        ({"store_url": "gs://lake/x"}, "gs://lake/x"),
        ({"store_url": "az://acc/lake/x"}, "abfss://lake@acc.dfs.core.windows.net/x"),
    ],
)
def test_hive_is_asked_to_find_the_folders(url: dict[str, str], place: str) -> None:
    """Hive gets no projection, and its own URL schemes."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=JSON)

    sql = declared(backup, "hive", **AS_JSON, **url)

    assert "ROW FORMAT SERDE 'org.apache.hive.hcatalog.data.JsonSerDe'" in sql
    assert f"LOCATION '{place}/topics/orders/'" in sql
    assert sql.endswith("MSCK REPAIR TABLE `orders`;")


@pytest.mark.parametrize("engine", ["athena", "hive"])
@pytest.mark.parametrize("others", [SIBLINGS, RECORD], ids=["keys and headers", "full records"])
def test_objects_that_are_no_rows_are_not_read_as_rows(engine: str, others: Any) -> None:
    """Athena and Hive read whatever is in a folder, so they are refused."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=JSON)
    backup.put("orders", 0, range(3, 6), views=others)

    with pytest.raises(ConfigurationError, match="other objects as rows"):
        declared(backup, engine, **AS_JSON)

    assert "pathGlobFilter '*[0-9]{.json,.json.gz}'" in declared(backup, "spark", **AS_JSON)


def test_the_folder_of_tombstones_is_none_of_the_table() -> None:
    """Spark is given the folders of rows alone."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=SIBLINGS)
    backup.put_in("tombstone", "orders", 0, range(3, 6), views=SIBLINGS[:1])

    sql = declared(backup, "spark", **AS_JSON)

    root = "s3a://lake/topics/orders/"
    assert f"path '{root}partition=*', basePath '{root}'" in sql


@pytest.mark.parametrize("engine", ["hive", "spark"])
def test_folders_that_only_athena_finds_are_refused_elsewhere(engine: str) -> None:
    """Folders without a column's name are refused for Hive and Spark, which would not find them."""
    backup = Backup()
    backup.put_in("2026/11/22", "orders", 0, range(3), views=JSON)

    with pytest.raises(ConfigurationError, match="does not find the folders"):
        declared(backup, engine, **AS_JSON, **BY_TIME, path_format="YYYY/MM/dd")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        pytest.param({"directory_delim": "_"}, "makes no folders", id="no folders"),
        pytest.param(BY_TIME | {"path_format": "xxxx/ww"}, "cannot be declared", id="weeks"),
    ],
)
def test_what_athena_cannot_count_is_refused(options: dict[str, str], what: str) -> None:
    """What Athena could not count is refused: a table must not lack rows."""
    backup = Backup(layout=Layout(directory_delim=options.get("directory_delim", "/")))
    backup.put("orders", 0, range(3), views=JSON)

    with pytest.raises(ConfigurationError, match=what):
        declared(backup, **AS_JSON, **options)


def test_a_plugin_from_elsewhere_describes_its_folders() -> None:
    """A partitioner that kbackup does not know is declared by what it says of its folders."""
    backup = Backup()
    backup.put_in("rest=2", "orders", 0, range(3))

    sql = declared(backup, "spark", partitioner_class="modulo")

    assert "PARTITIONED BY (`rest`)" in sql


@pytest.mark.parametrize(
    ("options", "views", "what"),
    [
        pytest.param({"partitioner_class": "by-value"}, RECORD, "by-value", id="a partitioner"),
        pytest.param(
            {"format_class": "bytes", "value_converter": "bytes"}, BYTES, "bytes", id="a format"
        ),
    ],
)
def test_a_plugin_that_describes_nothing_is_refused_by_name(
    options: dict[str, str], views: Any, what: str
) -> None:
    """No table is declared by guessing."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=views)

    with pytest.raises(ConfigurationError) as caught:
        declared(backup, **options)

    assert what in str(caught.value)
    assert "restore query" in caught.value.do


def test_a_topic_without_objects_has_no_columns_yet() -> None:
    """A topic without objects is exit code 7, as with every command."""
    with pytest.raises(IncompleteBackupError, match="no object"):
        declared(Backup(), topics="orders")


def test_objects_of_another_format_are_not_called_missing() -> None:
    """What is there is said by its format."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=BYTES)

    with pytest.raises(ConfigurationError, match="of the format bytes"):
        declared(backup, format_class="json", value_converter="json", topics="orders")


def in_blocks(line: bytes) -> Backup:
    """A backup in folders that topics share."""
    backup = Backup(layout=DatedLayout("logs", file_delim="-", offset_width=12))
    backup.put_blocks("2026-03-05", "orders", 0, [line, line])
    return backup


BLOCKS = {"format_class": "block_gzip", "topics_dir": "logs"}


@pytest.mark.parametrize(
    ("line", "column", "kind"),
    [
        pytest.param(b'{"n":1}', "`n` bigint", "json", id="objects"),
        pytest.param(b"no JSON", "`value` string", "text", id="text"),
    ],
)
def test_spark_reads_the_files_of_one_topic_in_folders_that_topics_share(
    line: bytes, column: str, kind: str
) -> None:
    """Where topics share folders, Spark reads one without indexes and names that begin alike."""
    backup = in_blocks(line)
    digits = "[0-9]"

    assert f"""\
CREATE OR REPLACE TEMPORARY VIEW `orders` (
  {column}
)
USING {kind}
OPTIONS (path 's3a://lake/logs/', pathGlobFilter 'orders-{digits * 5}-{digits * 12}*.gz', \
recursiveFileLookup 'true');""" == declared(backup, "spark", **BLOCKS)


@pytest.mark.parametrize("engine", ["athena", "hive"])
def test_folders_that_topics_share_are_refused_where_every_object_is_read(engine: str) -> None:
    """Folders that topics share are refused for Athena and Hive."""
    backup = in_blocks(b'{"n":1}')
    with pytest.raises(ConfigurationError) as caught:
        declared(backup, engine, **BLOCKS)

    assert "indexes and the objects of other topics" in caught.value.why


@pytest.mark.parametrize(
    ("form", "body", "what"),
    [
        ("avro", b"Obj\x01\x00" + bytes(16), "a schema that kbackup cannot read"),
        ("parquet", b"PAR1" + bytes(16), "the Parquet file is cut short or altered"),
    ],
)
def test_a_newest_object_that_cannot_be_read_is_named(form: str, body: bytes, what: str) -> None:
    """The columns follow from what it holds, so it ends the command."""
    backup = Backup()
    key = f"topics/orders/partition=0/orders+0+0000000000.{form}"
    put_bytes(backup.store, key, body)

    with pytest.raises(CorruptObjectError, match=what) as caught:
        declared(backup, format_class=form, value_converter="string")

    assert key in caught.value.what
    assert {"key": key} == caught.value.place
