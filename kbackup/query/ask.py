"""One query of a backup."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kbackup.engine.settings import EngineSettings
from kbackup.engine.sql import session
from kbackup.errors import (
    ConfigurationError,
    Failure,
    IncompleteBackupError,
    KbackupError,
    SparkError,
)
from kbackup.plurals import counted, form
from kbackup.query.source import FAILURE, BackupSource, Found
from kbackup.records import TopicPartition

_TOO_LARGE: Final = "maxResultSize"
_SQL_STATE: Final = re.compile(r"SQLSTATE: *\w+")


def ask(sql: str, found: Found, names: Sequence[str], settings: EngineSettings) -> pa.Table:
    """Return the result of a query; each topic is a table of the same name.

    Args:
        sql: Spark SQL.  Names with a dot or a dash are in backquotes.
        found: What the backup holds.
        names: The topics that become tables: those `mentioned`.
        settings: Spark's properties.

    Raises:
        ConfigurationError: If Spark does not understand *sql*, or it is no query.
        KbackupError: If an object that it needs is bad.
        SparkError: If Spark fails, or the result is too large to be printed.
    """
    from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415

    with session(settings) as spark:
        try:
            check_reads(spark, sql)
            if len({name.lower() for name in names}) < len(names):
                spark.conf.set("spark.sql.caseSensitive", "true")  # else one view hides another
            for name in names:
                source = BackupSource.over(found.of_topic(name))
                spark.dataSource.register(source)
                spark.read.format(BackupSource.name()).load().createOrReplaceTempView(f"`{name}`")
            answer: pa.Table = spark.sql(sql).toArrow()
        except AnalysisException as error:
            raise _misunderstood(sql, str(error), names) from error
        except Exception as error:  # py4j's errors have no common class that is worth the import
            if (failure := _of_a_task(str(error))) is not None:
                raise failure from error
            if _TOO_LARGE in str(error):
                raise SparkError(
                    "the answer is too large to be printed",
                    f"it has more than {settings.conf.get('spark.driver.maxResultSize', '256 MB')}",
                    "aggregate, add a where or a limit, or give more: "
                    "--spark-conf spark.driver.maxResultSize=2g",
                ) from error
            if isinstance(error, PySparkException):
                raise SparkError("Spark could not answer", _first_line(str(error))) from error
            raise
    return answer


def check_reads(spark: Any, sql: str) -> None:
    """Check that *sql* is a query, and no statement that writes, drops or sets anything.

    Raises:
        ConfigurationError: If it is one.
        ParseException: If Spark does not understand *sql*.
    """
    from pyspark.errors import ParseException  # noqa: PLC0415

    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001  (no way of Python's)
    parser.parsePlan(sql)
    try:
        parser.parsePlan("\n".join(("select * from (", sql.rstrip("; \n"), ")")))  # queries nest
    except ParseException as error:
        raise ConfigurationError(
            "the statement is not a query",
            "restore query reads, and changes nothing",
            "begin with select or with",
        ) from error


def mentioned(sql: str, topics: Iterable[str]) -> list[str]:
    """Return the topics whose names appear in *sql*, sorted.

    Case does not matter, except between topics that differ only by case.

    Raises:
        ConfigurationError: If there is none, or if *sql* is ambiguous.
    """
    there = sorted(topics)
    alike: dict[str, list[str]] = {}
    for name in there:
        alike.setdefault(name.lower(), []).append(name)
    found: list[str] = []
    for word, names in alike.items():
        if word in sql.lower():
            meant = names if len(names) == 1 else [name for name in names if name in sql]
            if not meant:
                raise ConfigurationError(
                    f"the query does not make clear which topic {word} is",
                    f"there are {' and '.join(names)}",
                    "write the name with its capitals",
                )
            found += meant
    if not found:
        raise ConfigurationError(
            "the query names no topic of the backup",
            f"there are: {', '.join(there[:10])}{' ...' if len(there) > 10 else ''}",
            "each topic is a table: select count(*) from `NAME`",
        )
    return sorted(found)


def incomplete(missing: Mapping[TopicPartition, Sequence[str]]) -> IncompleteBackupError:
    """Return the error that objects in the ledger are missing, and so not in the result."""
    count = sum(map(len, missing.values()))
    where, keys = next(iter(missing.items()))
    return IncompleteBackupError(
        f"{counted(count, 'object')} {form(count, 'is', 'are')} missing from what was asked for",
        f"such as {keys[0]}",
        "see which: kbackup restore verify",
        topic=where.topic,
        partition=where.partition,
    )


def _of_a_task(text: str) -> KbackupError | None:
    """Return the error of a task, which Spark wraps in its own."""
    _, mark, rest = text.partition(FAILURE)
    if not mark:
        return None
    try:
        said, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    return Failure.from_dict(said).error()


def _misunderstood(sql: str, text: str, names: Sequence[str]) -> ConfigurationError:
    awkward = [name for name in names if not re.fullmatch(r"\w+", name) and f"`{name}`" not in sql]
    do = f"write `{awkward[0]}` in backquotes" if awkward else "see Spark's SQL reference"
    return ConfigurationError("Spark does not understand the query", _first_line(text), do)


def _first_line(text: str) -> str:
    line: Any = text.strip().split("\n", 1)[0]
    return _SQL_STATE.sub("", line).strip()
