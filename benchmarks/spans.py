"""One partition in the hands of one task and of two, and the same records in four partitions."""

import json
import sys
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import loops
from benchmarks.cases import row
from benchmarks.process_tree import MeasuredCommandError, measure
from benchmarks.records import PROCESSES, Load
from benchmarks.services import Services

Row = dict[str, Any]

REPEAT: Final = 3
WAYS: Final = ((1, 1), (1, PROCESSES), (4, PROCESSES))
"""Partitions and cores; the first number of a way names its topic."""


def measured(services: Services, scale: float) -> list[Row]:
    """Back up 4 million records of 100 B each way in turn, three times; return a row each."""
    records = round(4_000_000 * scale / 4) * 4
    loads = {partitions: Load(f"spans-{partitions}", 100, records) for partitions, _ in WAYS}
    for partitions, load in loads.items():
        services.create_topic(load.topic, partitions)
        measure(loops.commands("produce", services.servers, load.topic, load, partitions), {})
    rows = []
    for repetition in range(REPEAT):
        for partitions, cores in WAYS:
            place = services.fresh_place("dir")
            found = _sink(services, loads[partitions], cores, place.options)
            services.empty(place)
            way = {"partitions": partitions, "cores": cores, "repetition": repetition}
            rows.append({"case": "sink spans", **way, **found})
    for load in loads.values():
        services.delete_topic(load.topic)
    return rows


def _sink(services: Services, load: Load, cores: int, place: tuple[str, ...]) -> Row:
    command = [
        sys.executable, "-m", "kbackup", "sink", "run", "-t", load.topic, *place,
        "-k", services.servers, "--group", f"{load.topic}-{cores}-{place[-1]}",
        "--master", f"local[{cores},4]", "--json",
    ]  # fmt: skip
    used = measure([command], services.environment)
    summary = json.loads(used.outputs[0].splitlines()[-1])
    if summary["records"] != load.records:
        raise MeasuredCommandError(f"{load.records} records, but {summary['records']} were moved")
    timings = summary["timings"]
    return {**row(load, used, used.wall_s - timings["spark_start_s"]), **timings}


def show(rows: list[Row], console: Console) -> None:
    """Print the medians of each way."""
    if not rows:
        return
    table = Table(title="A sink of the same records, median of three", title_justify="left")
    for name in ("partitions", "cores", "records", "wall s", "work s", "CPU s", "peak MiB"):
        table.add_column(name, justify="right")
    for partitions, cores in WAYS:
        mine = [one for one in rows if (one["partitions"], one["cores"]) == (partitions, cores)]
        middle = {
            name: sorted(one[name] for one in mine)[len(mine) // 2]
            for name in ("records", "wall_s", "work_s", "cpu_s", "peak_mib")
        }
        table.add_row(str(partitions), str(cores), *(f"{number:,}" for number in middle.values()))
    console.print(table)
