"""Questions to a backup of 1 GB in SQL: what a look at all of it costs, and at a part."""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.cases import MASTER, row, sink
from benchmarks.process_tree import MeasuredCommandError, measure
from benchmarks.records import PARTITIONS, Load, loads
from benchmarks.services import STORES, Place, Services

Row = dict[str, Any]

QUERIES: Final = {
    "count": "select count(*) from `{topic}`",
    "group by key": "select max(n) from (select key, count(*) as n from `{topic}` group by key)",
    "field of the values": "select sum(get_json_object(cast(value as string), '$.order')) "
    "from `{topic}`",
    "a hundredth by offset": "select count(*) from `{topic}` "
    "where partition = 0 and offset < {hundredth}",
}
"""What is asked, by name; each answer is one row."""


def measured(services: Services, scale: float) -> Iterator[Row]:
    """Back up 1 GB, times *scale*, to each store, and yield a row for each store and query."""
    load = loads(scale)[-1]
    load = Load(f"{load.name}-query", load.value_bytes, load.records)
    services.fill(load)
    for store in STORES:
        place = services.fresh_place(store)
        sink(services, load.topic, load, place)
        for name, sql in QUERIES.items():
            hundredth = max(1, load.records // PARTITIONS // 100)
            asked = sql.format(topic=load.topic, hundredth=hundredth)
            expected = {"count": load.records, "a hundredth by offset": hundredth}.get(name)
            yield {"query": name, "store": store, **_asked(services, asked, load, place, expected)}
        services.empty(place)
    services.delete_topic(load.topic)


def _asked(services: Services, sql: str, load: Load, place: Place, expected: int | None) -> Row:
    """Measure one query; it has to find *expected* records, where that is known."""
    command = [
        sys.executable, "-m", "kbackup", "restore", "query", sql, *place.options,
        "--master", MASTER, "--output", "json", "--quiet",
    ]  # fmt: skip
    used = measure([command], services.environment)
    (answer,) = used.outputs[0].splitlines()
    (value,) = json.loads(answer).values()
    if expected is not None and value != expected:
        raise MeasuredCommandError(f"{sql}: {expected} records, but {value} were found")
    return row(load, used, used.wall_s)
