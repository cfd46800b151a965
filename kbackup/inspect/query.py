"""``restore query``: one query of a backup, and its result in the requested form.

A data source in Python is never told which columns are wanted.  So a query is planned before it is
run, over tables without rows, and then run over tables in which what it does not need is null.
Which result it has cannot depend on that, for Spark's optimizer has removed every use of it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kbackup import clock
from kbackup.errors import (
    ConfigurationError,
    IncompleteBackupError,
    Issue,
    KbackupError,
    SparkError,
    counted,
    form,
)
from kbackup.inspect.peek import shown_bytes
from kbackup.inspect.source import COLUMNS, FAILURE, OPERATORS, BackupSource, Counted, Found, ddl
from kbackup.records import TopicPartition
from kbackup.spark.java import EngineSettings

_TOO_LARGE: Final = "maxResultSize"
_SQL_STATE: Final = re.compile(r"SQLSTATE: *\w+")


_ALIKE: Final = frozenset({"topic", "partition", "offset"})
"""Columns that name and facts of an object say enough of."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a query needs of a table.

    Attributes:
        columns: The columns that it uses, in the table's order.
        comparisons: Operators and numbers with which it compares the offset, if rows of one object
            differ in nothing else that it uses; None where they do.
    """

    columns: tuple[str, ...]
    comparisons: tuple[tuple[str, int], ...] | None = None


def needs(plan: Any, tables: Sequence[str]) -> dict[str, Used]:
    """Return what a query needs of each table that it needs at all.

    *plan* is Spark's optimized one, over tables with the columns that `stand_in` gives them.
    """
    nodes, leaves = list[_Node](), set[str]()
    for one in _all(plan):
        if one.children().isEmpty():
            leaves |= _names(one.output())
        else:
            nodes.append(_Node(one, _names(one.references().toSeq())))
    return {
        name: _need(nodes, stand_in(number))
        for number, name in enumerate(tables)
        if leaves.issuperset(stand_in(number).values())
    }


def stand_in(table: int) -> dict[str, str]:
    """Return the name of each column in a plan: one that no other table has, nor any query."""
    return {name: f"{table}:{name}" for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class _Node:
    """One of a plan's nodes, and the names of all that it refers to."""

    node: Any
    uses: frozenset[str]


def _all(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan and of its subqueries."""
    yield plan
    for each in (*_items(plan.children()), *_items(plan.subqueries())):
        yield from _all(each)


def _names(attributes: Any) -> frozenset[str]:
    return frozenset(each.name() for each in _items(attributes))


def _items(seq: Any) -> Iterator[Any]:
    """Yield what a sequence of Scala's holds."""
    return (seq.apply(at) for at in range(seq.size()))


def _need(nodes: Sequence[_Node], names: Mapping[str, str]) -> Used:
    used = frozenset[str]().union(*(each.uses for each in nodes))
    columns = tuple(name for name, stands in names.items() if stands in used)
    comparisons: list[tuple[str, int]] = []
    for each in nodes:
        if names["offset"] not in each.uses:
            continue
        if each.node.nodeName() != "Filter":
            return Used(columns)
        condition = _tree(iter(json.loads(each.node.condition().toJSON())))
        found = _comparisons(condition, names["offset"])
        if found is None:
            return Used(columns)
        comparisons += found
    return Used(columns, tuple(dict.fromkeys(comparisons)) if _ALIKE.issuperset(columns) else None)


@dataclass(frozen=True, slots=True)
class _Expression:
    kind: str
    said: Mapping[str, Any]
    below: Sequence["_Expression"]

    @property
    def number(self) -> int | None:
        """Which offset it stands for; None where it is something else."""
        is_one = self.kind == "Literal" and self.said["dataType"] == "long"
        return int(self.said["value"]) if is_one and self.said["value"] is not None else None


def _tree(nodes: Iterator[Mapping[str, Any]]) -> _Expression:
    """Return an expression that Spark has written as JSON, each before its operands."""
    said = next(nodes)
    below = [_tree(nodes) for _ in range(said["num-children"])]
    return _Expression(said["class"].rpartition(".")[2], said, below)


_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _comparisons(condition: _Expression, offset: str) -> list[tuple[str, int]] | None:
    """Return with what a condition compares the offset; None where it does more with it."""
    places = [at for at, each in enumerate(condition.below) if each.said.get("name") == offset]
    if not places:
        parts = [_comparisons(each, offset) for each in condition.below]
        return None if None in parts else [one for part in parts for one in part or ()]
    if condition.kind in ("IsNull", "IsNotNull"):  # every record has one
        return []
    numbers = [each.number for at, each in enumerate(condition.below) if at not in places]
    operator = "=" if condition.kind == "In" else OPERATORS.get(condition.kind)
    if operator is None or len(places) > 1 or None in numbers or (numbers[1:] and places != [0]):
        return None
    if places == [1]:
        operator = _TURNED[operator]
    return [(operator, number) for number in numbers if number is not None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query has found, and the records that it has *counted* without reading them."""

    rows: pa.Table
    counted: Sequence[Counted] = ()


def number_of_rows(topic: str, found: Found, name: str = "count(1)") -> Answer | None:
    """Return how many rows a topic has, as Spark would; None where they have to be read."""
    if topic not in found.topics:  # which of them is meant is for Spark to say
        return None
    part = found.of_topic(topic).by_facts(())
    if any(part.sets.values()):
        return None
    rows = pa.array([sum(one.records for one in part.known)], pa.int64())
    return Answer(pa.table({name: rows}), part.known)


def ask(sql: str, found: Found, settings: EngineSettings, session: Callable[[], Any]) -> Answer:
    """Return the answer to a query; each topic is a table of the same name.

    Names with a dot or a dash are in backquotes in *sql*; the topics of *found* become tables that
    are `mentioned`.

    Raises:
        ConfigurationError: If Spark does not understand *sql*, or it is no query.
        KbackupError: If an object that it needs is bad.
        SparkError: If Spark fails, or the result is too large to be printed.
    """
    from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415

    spark = session()
    try:
        check_reads(spark, sql)
        return answered(spark, sql, found)
    except AnalysisException as error:
        raise misunderstood(sql, str(error), found.topics) from error
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
            do = "check the query, such as its casts; --debug shows all that Spark said"
            raise SparkError("Spark could not answer", _first_line(str(error)), do) from error
        raise


def answered(spark: Any, sql: str, found: Found) -> Answer:
    """Return the answer to a query that `check_reads` has let pass.

    It is planned before it is run: what it does not need is not read.
    """
    if len({name.lower() for name in found.topics}) < len(found.topics):
        spark.conf.set("spark.sql.caseSensitive", "true")  # else one view hides another
    counted = list[Counted]()
    for name, need in needed(spark, sql, found.topics).items():
        part = found.of_topic(name)
        if need.comparisons is not None:
            part = part.by_facts(need.comparisons)
        _table(spark, name, part, need.columns).createOrReplaceTempView(f"`{name}`")
        counted += part.known
    return Answer(spark.sql(sql).toArrow(), counted)


def needed(spark: Any, sql: str, names: Sequence[str]) -> dict[str, Used]:
    """Return what a query needs of each table that it needs at all; all are there then, empty."""
    nothing = spark.sparkContext.emptyRDD()
    for number, name in enumerate(names):
        columns = stand_in(number)
        schema = ", ".join(f"`{stands}` {COLUMNS[column]}" for column, stands in columns.items())
        table = spark.createDataFrame(nothing, schema).toDF(*columns)
        table.createOrReplaceTempView(f"`{name}`")
    plan = spark.sql(sql)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  (no way of Python's)
    return needs(plan, names)


def _table(spark: Any, name: str, found: Found, columns: Sequence[str]) -> Any:
    """Return a topic as a table in which all but *columns* is null."""
    if found.known and not any(found.sets.values()):
        rows = ", ".join(_literals(found.known))
        part = spark.sql(_COUNTED.format(rows=rows), {"topic": name})
    else:  # one source: Spark's optimizer fails at some queries of unions
        source = BackupSource.over(found, f"kbackup of {name.encode().hex()}")
        spark.dataSource.register(source)
        reader = spark.read.format(source.name()).schema(ddl(columns or ("partition",)))
        part = reader.load()
    return part.selectExpr(
        *(f"`{one}`" if one in part.columns else f"cast(null as {kind}) as `{one}`"
          for one, kind in COLUMNS.items())
    )  # fmt: skip


_COUNTED: Final = """
    select nullif(:topic, '') as topic, nullif(partition, -1) as partition,
        nullif(offset, -1) as offset
    from values {rows} as counted (partition, offset, records)
    lateral view explode(sequence(1, records)) as number
"""
"""Rows that Spark makes, without a Python; like those of others, their columns may be null."""

_AT_ONCE: Final = 2**20
"""How many of them it makes of one."""


def _literals(known: Sequence[Counted]) -> Iterator[str]:
    for one in known:
        for done in range(0, one.records, _AT_ONCE):
            records = min(_AT_ONCE, one.records - done)
            yield f"({one.where.partition}, {one.offset}L, {records})"


def check_reads(spark: Any, sql: str) -> None:
    """Raise `ConfigurationError` if *sql* is no query: if it writes, drops or sets anything.

    What Spark does not understand raises its `ParseException`.
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
    """Return the topics whose names appear in *sql*, sorted; `ConfigurationError` if none does.

    Case does not matter, except between topics that differ only by case: there it may be ambiguous.
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
                    "write the name in its own upper and lower case",
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
        **where.place,
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
    return Issue.from_dict(said).error()


def misunderstood(sql: str, text: str, names: Sequence[str]) -> ConfigurationError:
    """Return the error of a query that Spark refused with *text*; *names* are the topics."""
    awkward = [name for name in names if not re.fullmatch(r"\w+", name) and f"`{name}`" not in sql]
    do = f"write `{awkward[0]}` in backquotes" if awkward else "see Spark's SQL reference"
    return ConfigurationError("Spark does not understand the query", _first_line(text), do)


def _first_line(text: str) -> str:
    line: Any = text.strip().split("\n", 1)[0]
    return _SQL_STATE.sub("", line).strip()


def columns(answer: pa.Table) -> dict[str, bool]:
    """Return whether each column holds numbers; repeated names are numbered."""
    kinds = (field.type for field in answer.schema)
    return dict(zip(_distinct(answer.column_names), map(_is_number, kinds), strict=True))


def text_rows(answer: pa.Table) -> Iterator[list[str | None]]:
    """Yield the cells of each row as text; None is null."""
    for row in _rows(answer):
        yield [_text(value) for value in row.values()]


def as_bytes(answer: pa.Table, form: str) -> bytes:
    """Return a result as the contents of a file.

    Args:
        form: ``json`` for an object per line, with bytes as ``restore cat`` shows them and times
            in RFC 3339; ``parquet``; or CSV, where null is an empty field and an empty text is
            ``""``, so that they stay distinct.
    """
    if form == "json":
        lines = (
            json.dumps({name: _json(one) for name, one in row.items()}) for row in _rows(answer)
        )
        return b"".join(line.encode() + b"\n" for line in lines)
    out = BytesIO()
    if form == "parquet":
        pq.write_table(answer.rename_columns(list(columns(answer))), out, compression="zstd")
    else:
        pa_csv.write_csv(_as_text(answer), out)
    return out.getvalue()


def _as_text(answer: pa.Table) -> pa.Table:
    """Return a result with everything but numbers as text."""
    texts = list(zip(*text_rows(answer), strict=True)) or [()] * answer.num_columns
    return pa.table(
        {
            name: found if is_number else pa.array(text, pa.string())
            for (name, is_number), found, text in zip(
                columns(answer).items(), answer.columns, texts, strict=True
            )
        }
    )


def _rows(answer: pa.Table) -> Iterator[dict[str, Any]]:
    names = answer.column_names  # two columns may have the same name
    for batch in answer.to_batches(max_chunksize=1024):
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(_distinct(names), values, strict=True))


def _distinct(names: list[str]) -> list[str]:
    """Return *names*, with repeated ones numbered."""
    found: list[str] = []
    for name in names:
        number, one = 2, name
        while one in found:
            number, one = number + 1, f"{name}_{number}"
        found.append(one)
    return found


def _json(value: Any) -> Any:
    match value:
        case bytes():
            return shown_bytes(value)
        case datetime():
            return value.isoformat() if value.tzinfo is None else clock.rfc3339_in_zone(value)
        case dict():
            return {name: _json(one) for name, one in value.items()}
        case list() | tuple():
            return [_json(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)  # a decimal, a date


def _text(value: Any) -> str | None:
    shown = _json(value)
    if shown is None or isinstance(shown, str):
        return shown
    return json.dumps(shown, ensure_ascii=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
