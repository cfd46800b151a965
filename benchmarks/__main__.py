"""Measure, and print a table and JSON lines."""

import json
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from benchmarks import memory, query, report, restores, stages
from benchmarks.cases import BARE, Bench, Case
from benchmarks.records import PROCESSES, loads
from benchmarks.services import Services

Row = dict[str, Any]


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Share of the records to measure.")
@click.option("--repeat", default=3, show_default=True, help="Measurements of each case.")
@click.option(
    "--only",
    multiple=True,
    help="Only what has this text in its name, such as 'sink s3 1KB', loop, stages, query, formats "
    "or memory; may be repeated. The bare loop of the same direction and size is measured with it.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Put the JSON lines there too.")
def main(scale: float, repeat: int, only: tuple[str, ...], output: Path | None) -> None:
    """Measure sink and restore beside Kafka's own tools and bare loops of the Python client.

    JSON lines go to stdout, one for each measurement, and the medians; the table goes to stderr.
    The cases alternate, so that what else the machine does falls on all of them.
    """
    screen = Console(stderr=True, width=120)
    lines = [_machine(scale)]
    with Services() as services:
        rows: list[Row] = []
        for row in _measured(services, scale, repeat, only, screen):
            print(json.dumps(row), flush=True)
            rows.append(row)
        result = report.medians(report.with_ratios(rows))
        lines += [{**row, "type": "median"} for row in result]
        if not only or "stages" in only:
            lines += [{"type": "stage", **row} for row in stages.measured(services, scale)]
        if not only or "query" in only:
            lines += [{"type": "query", **row} for row in query.measured(services, scale)]
        if not only or "formats" in only:
            lines += [{"type": "restore", **row} for row in restores.measured(services, scale)]
        if not only or "memory" in only:
            lines += [{"type": "memory", **row} for row in memory.measured(services, scale)]
    for line in lines:
        print(json.dumps(line))
    if output is not None:
        output.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *rows]))
    report.show(result, screen)
    report.show_stages([line for line in lines if line["type"] == "stage"], screen)
    report.show_queries([line for line in lines if line["type"] == "query"], screen)
    report.show_restores([line for line in lines if line["type"] == "restore"], screen)
    report.show_memory([line for line in lines if line["type"] == "memory"], screen)


def _measured(
    services: Services, scale: float, repeat: int, only: tuple[str, ...], screen: Console
) -> Iterator[Row]:
    bench = Bench(services)
    for repetition in range(repeat):
        for load in loads(scale):
            for case in _chosen(list(bench.cases(load)), only):
                screen.print(f"{repetition + 1}/{repeat} {case.label} ", end="")
                row = case.run()
                screen.print(f"{row['seconds']} s, {row['records_per_s']:,} records/s")
                place = {"case": case.name, "store": case.store, "load": load.name}
                yield {
                    "type": "measurement", "repetition": repetition, "direction": case.direction,
                    **place, **row,
                }  # fmt: skip


def _chosen(cases: list[Case], only: tuple[str, ...]) -> list[Case]:
    if not only:
        return cases
    chosen = [case for case in cases if any(text in case.label for text in only)]
    needed = {BARE[case.direction] for case in chosen}
    return [case for case in cases if case in chosen or case.name in needed]


def _machine(scale: float) -> Row:
    return {
        "type": "machine",
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processes": PROCESSES,
        "scale": scale,
        **{name: version(name) for name in ("pyspark", "confluent-kafka", "pyarrow")},
    }


if __name__ == "__main__":
    main()
