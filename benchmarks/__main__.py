"""Measure, and print a table and JSON lines."""

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import psutil
from rich.console import Console

from benchmarks import encryption, many, memory, query, report, restores, short, spans, stages
from benchmarks.cases import BARE, CLIENTS, Bench, Case
from benchmarks.peer import VARIABLE, Peer, PeerMissingError
from benchmarks.records import CODECS, LOADS, PROCESSES, Load, loads
from benchmarks.services import Services

Row = dict[str, Any]


class _Extra(NamedTuple):
    """What is measured besides the cases: from services, scale, repetitions and loads."""

    type: str
    measured: Callable[[Services, float, int, Sequence[Load]], Iterable[Row]]
    show: Callable[[list[Row], Console], None]


_EXTRAS: Final = {
    "stages": _Extra("stage", lambda on, scale, *_: stages.measured(on, scale), report.show_stages),
    "query": _Extra("query", lambda on, scale, *_: query.measured(on, scale), report.show_queries),
    "formats": _Extra(
        "restore", lambda on, scale, *_: restores.measured(on, scale), report.show_restores
    ),
    "memory": _Extra(
        "memory", lambda on, scale, *_: memory.measured(on, scale), report.show_memory
    ),
    "many": _Extra("many", lambda on, scale, *_: many.measured(on, scale), report.show_many),
    "short": _Extra(
        "short", lambda on, _scale, repeat, _: short.measured(on, repeat), report.show_short
    ),
    "encryption": _Extra(
        "encryption",
        lambda on, _, repeat, chosen: encryption.measured(on, chosen, repeat),
        encryption.show,
    ),
    "spans": _Extra("spans", lambda on, scale, *_: spans.measured(on, scale), spans.show),
}

_ASKED_FOR: Final = frozenset({"encryption", "spans"})
"""Of those, the ones that are measured only where named: dozens of runs more than most want."""


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
    "loop, stages, query, formats, memory, many, short, encryption or spans; may be repeated. The "
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
        for name, extra in _EXTRAS.items():
            if name in only or (not only and name not in _ASKED_FOR):
                found = extra.measured(services, scale, repeat, chosen)
                lines += [{"type": extra.type, **row} for row in found]
    for line in lines:
        print(json.dumps(line))
    if output is not None:
        output.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *rows]))
    report.show(result, screen)
    for extra in _EXTRAS.values():
        extra.show([line for line in lines if line["type"] == extra.type], screen)


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
