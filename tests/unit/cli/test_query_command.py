"""``kbackup restore query``, without Spark."""

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from backup_samples import Backup

from kbackup.inspect import query
from kbackup.inspect.query import Answer
from kbackup.inspect.source import Counted
from kbackup.records import TopicPartition
from kbackup.spark import engine
from kbackup.spark.java import Java
from tests.support.invoked import invoke
from tests.support.ledgers import backup_with_ledger

COUNTED = [Counted(TopicPartition("orders", at), 0, 1, 1) for at in range(2)]


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_what_was_not_read_is_said_beside_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    """One line on stderr, whatever the form; stdout has the rows alone."""
    Backup.in_folder(tmp_path).put("orders", 0, range(2))
    rows = pa.table({"n": [2]})
    monkeypatch.setattr(query, "ask", lambda *_: Answer(rows, COUNTED))
    monkeypatch.setattr("kbackup.cli.restore.find_java", lambda: Java(Path("nowhere")))
    monkeypatch.setattr(engine, "session", nullcontext)
    asked = ("restore", "query", "select count(*) n from orders", "--json", *quiet)

    result = invoke(*asked, "--store-url", f"file://{tmp_path}")

    said = [line for line in result.stderr.splitlines() if "2 records in 2 objects" in line]
    assert (0, '{"n": 2}\n', 0 if quiet else 1) == (result.code, result.stdout, len(said))


class SparkStartedError(Exception):
    """A query has asked for Spark."""


@pytest.fixture
def sparkless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is not to be started, nor Java to be looked for."""

    def started(*_: object) -> None:
        raise SparkStartedError

    monkeypatch.setattr("kbackup.cli.restore.find_java", started)
    monkeypatch.setattr(engine, "session", started)


@pytest.mark.usefixtures("sparkless")
@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("select count(*) from orders", "count(1)"),
        (" SELECT COUNT( * )\n  FROM `orders` ; ", "count(1)"),
        ("select count(*) as n from orders", "n"),
        ("select count(*) n from orders", "n"),
    ],
)
def test_a_count_that_the_ledger_knows_starts_no_spark(tmp_path: Path, sql: str, name: str) -> None:
    """That takes longer than all else of such a query."""
    backup_with_ledger(range(3), range(3, 10), into=Backup.in_folder(tmp_path))

    asked = invoke("restore", "query", sql, "--json", "--store-url", f"file://{tmp_path}")

    assert (0, f'{{"{name}": 10}}\n') == (asked.code, asked.stdout)


@pytest.mark.usefixtures("sparkless")
@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from orders where offset > 3",
        "select count(*), max(offset) from orders",
        "select count(*) from orders limit 0",
        "select count(value) from orders",
        "select count(*) from ORDERS",
        "select count(*) from orders -- all",
        "select count(*) from from orders",
        "select count(*) 1 from orders",
    ],
)
def test_another_query_is_for_spark(tmp_path: Path, sql: str) -> None:
    """Also one that says the same in other words."""
    backup_with_ledger(range(3), into=Backup.in_folder(tmp_path))

    asked = invoke("restore", "query", sql, "--store-url", f"file://{tmp_path}")

    assert "SparkStartedError" in asked.stderr


@pytest.mark.usefixtures("sparkless")
def test_a_count_of_what_no_ledger_knows_is_for_spark(tmp_path: Path) -> None:
    """Overlapping objects have to be read."""
    backup_with_ledger(range(5), range(3, 10), into=Backup.in_folder(tmp_path))

    asked = invoke(
        "restore", "query", "select count(*) from orders", "--store-url", f"file://{tmp_path}"
    )

    assert "SparkStartedError" in asked.stderr
