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
from kbackup.spark.java import Jvm
from tests.support.invoked import invoke

COUNTED = [Counted(TopicPartition("orders", at), 0, 1, 1) for at in range(2)]


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_what_was_not_read_is_said_beside_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    """One line on stderr, whatever the form; stdout has the rows alone."""
    Backup.in_folder(tmp_path).put("orders", 0, range(2))
    rows = pa.table({"n": [2]})
    monkeypatch.setattr(query, "ask", lambda *_: Answer(rows, COUNTED))
    monkeypatch.setattr("kbackup.cli.restore.find_jvm", lambda: Jvm("nowhere"))
    monkeypatch.setattr(engine, "session", nullcontext)
    asked = ("restore", "query", "select count(*) n from orders", "--json", *quiet)

    result = invoke(*asked, "--store-url", f"file://{tmp_path}")

    said = [line for line in result.stderr.splitlines() if "2 records in 2 objects" in line]
    assert (0, '{"n": 2}\n', 0 if quiet else 1) == (result.code, result.stdout, len(said))
