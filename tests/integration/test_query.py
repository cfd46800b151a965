"""A backup asked in SQL, by the command and from a Spark session."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backup_samples import JSON, SIBLINGS, Backup

from tests.integration.product import (
    BackupSource,
    ConfigurationError,
    DatedLayout,
    EngineSettings,
    KbackupError,
    answered,
    ask,
    check_reads,
    find_java,
    loading,
    needed,
    number_of_rows,
    session,
    statements,
)
from tests.support.command import Kbackup
from tests.support.query import found as found_in

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spark(class_archive: None) -> Iterator[Any]:
    """A session that the programs here share: each has tables of its own in it.

    The archive is made before: that takes a Spark in this process, which may have one at a time.
    """
    with session(EngineSettings(java=find_java())) as begun:
        yield begun()


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Two topics whose names differ by capitals; the key of an object, which is cut short."""
    backup = Backup.in_folder(tmp_path)
    key, _ = backup.put("orders.eu", 0, range(10), range(10, 30))
    backup.put("orders.eu", 1, range(5))
    backup.put("Orders.eu", 0, range(3))
    body = (tmp_path / key).read_bytes()
    (tmp_path / key).write_bytes(body[: len(body) // 2])
    return key


ASKED = "select partition, count(*) n, max(cast(value as string)) top from `orders.eu`"
WHOLE = f"{ASKED} where offset >= 12 or partition = 1 group by 1 order by 1"


def test_a_query_opens_only_what_its_conditions_leave(
    spark: Any, tmp_path: Path, damaged: str
) -> None:
    """Damage that a query does not need changes nothing, else it is exit 7; capitals matter."""
    found = found_in(Backup.in_folder(tmp_path))
    narrow = f"{ASKED} where offset >= 12 and (select count(*) from `Orders.eu`) = 3 group by 1"

    with pytest.raises(KbackupError) as whole:
        ask(WHOLE, found, EngineSettings(), spark.newSession)
    rows = ask(narrow, found, EngineSettings(), spark.newSession).rows

    assert (7, True) == (whole.value.exit_code, damaged in whole.value.what)
    assert [{"partition": 0, "n": 18, "top": '{"n":29}'}] == rows.to_pylist()


def test_what_the_ledger_counts_is_what_spark_counts(spark: Any, tmp_path: Path) -> None:
    """The command does not start Spark for it: name, type and number are the same."""
    backup = Backup.in_folder(tmp_path)
    found = found_in(backup, backup.put("orders", 0, range(10), range(10, 25)))

    for sql, name in (
        ("select count(*) from orders", "count(1)"),
        ("select count(*) n from orders", "n"),
    ):
        rows = ask(sql, found, EngineSettings(), spark.newSession).rows
        assert (told := number_of_rows("orders", found, name)) is not None
        assert rows.to_pylist() == told.rows.to_pylist()
        assert rows.schema.types == told.rows.schema.types


@pytest.mark.nightly
def test_a_query_of_a_damaged_object_is_exit_7(
    kbackup: Kbackup, tmp_path: Path, damaged: str
) -> None:
    """The command names the object; in the gate it answers a query in `test_log`."""
    result = kbackup("restore", "query", WHOLE, "--store-url", f"file://{tmp_path}", "--json")

    assert 7 == result.code
    assert damaged in "".join(result.stderr.split())  # a long path is folded


@pytest.mark.nightly
def test_what_spark_does_not_understand_is_said_in_one_line(
    kbackup: Kbackup, tmp_path: Path
) -> None:
    """A name that wants backquotes is exit 2 and says so, without a trace of the JVM."""
    Backup.in_folder(tmp_path).put("orders.eu", 0, range(3))

    result = kbackup(
        "restore", "query", "select * from orders.eu", "--store-url", f"file://{tmp_path}"
    )

    assert 2 == result.code
    assert "`orders.eu` in backquotes" in result.stderr
    assert "org.apache" not in result.stderr


ALL = (
    "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers",
)  # fmt: skip
NEEDS = {
    "select count(*) from a": {"a": ((), ())},
    "select count(*) from a where 5 > offset or offset between 7 and 9 and partition = 1": {
        "a": (("partition", "offset"), (("<", 5), (">=", 7), ("<=", 9)))
    },
    "select a.offset from a join b on a.key = b.key and b.offset > 7": {
        "a": (("offset", "key"), None), "b": (("offset", "key"), None),
    },
    "select key from (select * from a where value is null union all select * from b)": {
        "a": (("key", "value"), None), "b": (("key",), None),
    },
    "select * from a where exists (select 1 from b where b.topic = a.topic)": {
        "a": (ALL, None), "b": (("topic",), ()),
    },
    "with c as (select * from a) select count(*), (select max(value) from b) from c, c d": {
        "a": ((), ()), "b": (("value",), None),
    },
    "select headers[0].key from a where 1 = 1 or (select count(*) from b) = 2": {
        "a": (("headers",), None),
    },
}  # fmt: skip
"""What queries use of two tables: columns, and comparisons where rows of an object are alike."""


def test_a_query_is_planned_before_it_is_run(spark: Any) -> None:
    """What Spark's optimizer leaves of it is what it needs."""
    found = {}
    for sql in NEEDS:
        of_tables = needed(spark, sql, ["a", "b"]).items()
        found[sql] = {name: (need.columns, need.comparisons) for name, need in of_tables}

    assert NEEDS == found


@pytest.mark.nightly
def test_what_a_query_does_not_need_changes_no_answer(spark: Any, tmp_path: Path) -> None:
    """Answers are those of whole tables, by name, type and value, and so are refusals."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("a", 0, range(10), range(10, 20), range(20, 45))
    keys += backup.put("a", 1, range(5), range(7, 30), range(25, 40))
    keys += backup.put("b", 0, range(6), range(6, 10), views=SIBLINGS)
    found = found_in(backup, keys)
    queries = [
        *NEEDS, "select * from a", "select topic, partition from a", "select nope from a",
        "select count(offset), max(timestamp) from a", "select count(*) from a natural join b",
        "select (select count(*) from b where b.partition = a.partition) from a",
        "select offset < 20, count(*) from a group by 1", "select value from b",
        "select * except (value) from a", "select a.*, b.key k from a left join b using (offset)",
        "select key, headers from a where offset in (select offset from b where value is not null)",
        "select count(*) from a where offset < 10 or offset > 24", "select 1/0 from a",
        "select partition, count(*) from a where `offset` in (3, 12) group by cube (partition)",
    ]  # fmt: skip

    def outcome(ask: Callable[[str], Any], sql: str) -> tuple[Any, ...]:
        try:
            rows = ask(sql)
        except Exception as error:  # noqa: BLE001  (whatever it is, it has to be the same)
            return type(error), str(error).split("\n", 1)[0]
        return rows.schema, sorted(map(repr, rows.to_pylist()))

    def whole(sql: str) -> Any:
        for name in "ab":
            spark.dataSource.register(BackupSource.over(found.of_topic(name), f"whole {name}"))
            spark.read.format(f"whole {name}").load().createOrReplaceTempView(name)
        return spark.sql(sql).toArrow()

    def narrow(sql: str) -> Any:
        return answered(spark, sql, found).rows

    for sql in queries:
        assert (sql, outcome(whole, sql)) == (sql, outcome(narrow, sql))
    assert 50 == sum(one.records for one in answered(spark, queries[0], found).counted)


@pytest.mark.nightly
def test_a_session_reads_a_backup_by_its_options(spark: Any, tmp_path: Path) -> None:
    """In a program of one's own, kbackup's properties are the options of the data source."""
    Backup.in_folder(tmp_path).put("orders", 0, range(10), range(10, 30))
    Backup.in_folder(tmp_path).put("pay", 0, range(7))

    spark.dataSource.register(BackupSource)
    reader = spark.read.format("kbackup").option("store.url", f"file://{tmp_path}")
    table = reader.option("topics", "orders").load()
    some = reader.option("topics", "pay").schema("offset bigint, key binary").load()
    counted = table.where("timestamp >= timestamp_millis(1700000000010)").count()
    everything = reader.option("topics", "orders,pay").load().count()

    assert (20, 37) == (counted, everything)
    assert (6, b"k6") == tuple(some.orderBy("offset").collect()[-1])


def test_statements_that_change_anything_are_refused(spark: Any) -> None:
    """A query may be any, with a comment or a semicolon at its end."""
    queries = ["select 1", "with a as (select 1) select * from a;", "from t select * -- end"]
    others = [
        "drop table orders", "create table a as select * from orders", "set a=b", "add jar a.jar",
        "insert overwrite directory '/tmp/a' using csv select * from orders",
        "with a as (select 1) insert into orders select * from a",
    ]  # fmt: skip
    refused = []

    for sql in [*queries, *others]:
        try:
            check_reads(spark, sql)
        except ConfigurationError:
            refused.append(sql)

    assert others == refused


def test_spark_reads_a_backup_by_the_statements_that_declare_it(spark: Any, tmp_path: Path) -> None:
    """Full records, values in folders by day and block-gzip files, and nothing beside them."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "by-day").mkdir()
    whole, by_day = Backup.in_folder(tmp_path / "whole"), Backup.in_folder(tmp_path / "by-day")
    whole.put("orders.eu", 0, range(10), range(10, 30))
    whole.put("orders.eu", 1, range(5))
    by_day.put_in("year=2026/month=11/day=09", "pay", 0, range(3), views=SIBLINGS)
    by_day.put_in("year=2026/month=11/day=10", "pay", 0, range(3, 10), views=JSON)
    by_day.put_in("tombstone", "pay", 0, range(10, 12), views=SIBLINGS[:1])
    days = {
        "format_class": "json", "value_converter": "json", "partitioner_class": "daily",
        "locale": "en", "timezone": "UTC",
    }  # fmt: skip
    (tmp_path / "blocks").mkdir()
    dated = DatedLayout("logs", file_delim="-", offset_width=12)
    blocks = Backup(Backup.in_folder(tmp_path / "blocks").settings, dated)
    numbers = [b'{"n":%d}' % at for at in range(20)]
    for topic in ("clicks", "clicks-00000-1"):
        for partition in (0, 1):
            blocks.put_blocks("2026-03-05", topic, partition, numbers)
    lines = {"format_class": "block_gzip", "topics_dir": "logs", "topics": "clicks"}
    declared = []
    for backup, options in ((whole, {}), (by_day, days), (blocks, lines)):
        place = {"store_url": backup.settings.url}
        settings = loading.load("ddl", options=place | options, files=(), environ={}).settings
        declared += [one.sql for one in statements(settings, backup.store, "spark", None)]

    for sql in ";".join(declared).split(";"):
        if sql.strip():
            spark.sql(sql)
    partitions = spark.sql(
        "select `partition`, count(*), max(offset), min(cast(value as string)) "
        "from orders_eu group by 1 order by 1"
    ).collect()
    of_day = spark.sql("select day, count(*), sum(n) from pay group by 1 order by 1").collect()

    of_blocks = spark.sql("select count(*), sum(n) from clicks").collect()

    assert [(40, 380)] == [tuple(row) for row in of_blocks]
    assert [(0, 30, 29, '{"n":0}'), (1, 5, 4, '{"n":0}')] == [tuple(row) for row in partitions]
    assert [(9, 3, 3), (10, 7, 42)] == [tuple(row) for row in of_day]
