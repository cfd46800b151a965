"""Measure, and print a table and JSON lines."""

import json
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from benchmarks import encryption, many, memory, query, report, restores, spans, stages
from benchmarks.cases import BARE, CLIENTS, Bench, Case
from benchmarks.peer import VARIABLE, Peer, PeerMissingError
from benchmarks.records import CODECS, LOADS, PROCESSES, Load, loads
from benchmarks.services import Services

Row = dict[str, Any]


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Share of the records to measure.")
@click.option("--repeat", default=3, show_default=True, help="Measurements of each case.")
@click.option(
    "--load",
    "names",
    multiple=True,
    default=LOADS,
    show_default=True,
    help="Records and the size of their values, such as 20M-100B or 5M-1KB; may be repeated.",
)
@click.option(
    "--codec",
    "codecs",
    multiple=True,
    type=click.Choice(CODECS),
    default=CODECS[:1],
    show_default=True,
    help="How the batches of the topics are compressed; may be repeated.",
)
@click.option(
    "--batch-bytes",
    default=0,
    help="The most in a batch of the topics, such as 16384, or 1 for batches of one record.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice(CLIENTS),
    default=CLIENTS[:1],
    show_default=True,
    help="kafka.client of kbackup; may be repeated.",
)
@click.option(
    "--only",
    multiple=True,
    help="Only what has this text in its name, such as 'sink auto s3 1M-1KB', restore, peer, "
    "loop, stages, query, formats, memory, many, encryption or spans; may be repeated. The "
    "bare loop of the same direction and load is measured with it.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Put the JSON lines there too.")
def main(
    scale: float,
    repeat: int,
    names: tuple[str, ...],
    codecs: tuple[str, ...],
    batch_bytes: int,
    clients: tuple[str, ...],
    only: tuple[str, ...],
    output: Path | None,
) -> None:
    """Measure sink and restore beside Kafka's own tools and bare loops of the Python client.

    JSON lines go to stdout, one for each measurement, and the medians; the table goes to stderr.
    The cases alternate, so that what else the machine does falls on all of them.  Where
    KBACKUP_BENCH_PEER names the executable of osodevops/kafka-backup, it is measured too.
    """
    try:
        chosen = loads(scale, names, codecs, batch_bytes)
    except ValueError as failure:
        raise click.BadParameter(str(failure), param_hint="--load") from None
    screen = Console(stderr=True, width=150)
    lines = [_machine(scale)]
    with Services() as services:
        try:
            peer = Peer.given(services.scratch)
        except PeerMissingError as failure:
            raise click.UsageError(f"{failure}; unset {VARIABLE} or correct it") from None
        bench = Bench(services, clients, peer)
        rows: list[Row] = []
        for row in _measured(bench, chosen, repeat, only, screen):
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
        if not only or "many" in only:
            lines += [{"type": "many", **row} for row in many.measured(services, scale)]
        if "encryption" in only:  # two dozen runs more than most want
            sealed = encryption.measured(services, chosen, repeat)
            lines += [{"type": "encryption", **row} for row in sealed]
        if "spans" in only:  # nine runs more than most want
            lines += [{"type": "spans", **row} for row in spans.measured(services, scale)]
    for line in lines:
        print(json.dumps(line))
    if output is not None:
        output.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *rows]))
    report.show(result, screen)
    report.show_stages([line for line in lines if line["type"] == "stage"], screen)
    report.show_queries([line for line in lines if line["type"] == "query"], screen)
    report.show_restores([line for line in lines if line["type"] == "restore"], screen)
    report.show_memory([line for line in lines if line["type"] == "memory"], screen)
    report.show_many([line for line in lines if line["type"] == "many"], screen)
    encryption.show([line for line in lines if line["type"] == "encryption"], screen)
    spans.show([line for line in lines if line["type"] == "spans"], screen)


def _measured(
    bench: Bench, chosen: Sequence[Load], repeat: int, only: tuple[str, ...], screen: Console
) -> Iterator[Row]:
    for repetition in range(repeat):
        for load in chosen:
            for case in _chosen(list(bench.cases(load)), only):
                screen.print(f"{repetition + 1}/{repeat} {case.label} ", end="")
                row = case.run()
                screen.print(f"{row['seconds']} s, {row['records_per_s']:,} records/s")
                place = {"case": case.name, "client": case.client, "store": case.store}
                yield {
                    "type": "measurement", "repetition": repetition, "direction": case.direction,
                    **place, "load": load.name, **row,
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
