"""Medians, ratios to the bare loops, and a table of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import BARE, PEERS

Row = dict[str, Any]

_COLUMNS = {
    "wall s": ("wall_s", ",.1f"),
    "Spark s": ("spark_start_s", ",.1f"),
    "workers s": ("worker_start_s", ",.1f"),
    "s without": ("seconds", ",.1f"),
    "CPU s": ("cpu_s", ",.1f"),
    "task us": ("task_cpu_us", ",.2f"),
    "peak MiB": ("peak_mib", ",.0f"),
    "records/s": ("records_per_s", ",.0f"),
    "MB/s": ("mb_per_s", ",.0f"),
    "of loop": ("ratio", ".0%"),
    "of peer": ("peer_ratio", ",.2f"),
    "stored MB": ("stored_mb", ",.1f"),
}


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Return *rows* with the ratio of each to the bare loop of its load and repetition.

    Beside it is how many times as fast each whole process was as the peer's, where that ran.
    """
    loops: dict[Any, float] = {}
    peers: dict[Any, float] = {}
    for row in rows:
        of = row["direction"], row["load"], row["repetition"]
        if row["case"] == BARE[row["direction"]]:
            loops[of] = row["records_per_s"]
        if row["case"] in PEERS:
            peers[*of, row["store"]] = row["wall_s"]
    found = []
    for row in rows:
        of = row["direction"], row["load"], row["repetition"]
        ratio = round(row["records_per_s"] / loops[of], 3) if of in loops else None
        their_s = peers.get((*of, row["store"]))
        peer = None if their_s is None else round(their_s / row["wall_s"], 3)
        found.append({**row, "ratio": ratio, "peer_ratio": peer})
    return found


def medians(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each case, every number the median of its repetitions."""
    groups: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["case"], row["client"], row["load"], row["store"]].append(row)
    found = []
    for repeated in groups.values():
        first = repeated[0]
        merged: Row = {}
        for name, value in first.items():
            numbers = [row[name] for row in repeated if row[name] is not None]
            is_number = isinstance(value, int | float) and name != "repetition"
            merged[name] = median(numbers) if is_number else value
        del merged["repetition"]
        found.append({**merged, "repetitions": len(repeated)})
    return found


def show(rows: Iterable[Row], console: Console) -> None:
    """Print medians as a table for each direction and load."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["direction"], row["load"]].append(row)
    for (direction, load), group in groups.items():
        verb = {"read": "from Kafka", "write": "to Kafka"}[direction]
        title = f"{load}, {verb}: {group[0]['records']:,} records"
        table = Table(title=title, title_justify="left")
        table.add_column("")
        for name in _COLUMNS:
            table.add_column(name, justify="right")
        for row in group:
            label = " ".join(filter(None, (row["case"], row["client"], row["store"])))
            cells = [_cell(row.get(name), form) for name, form in _COLUMNS.values()]
            table.add_row(label, *cells)
        console.print(table)


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def show_queries(rows: Sequence[Row], console: Console) -> None:
    """Print what questions to a backup cost, Spark's start included."""
    if not rows:
        return
    table = Table(title=f"Queries of {rows[0]['records']:,} records", title_justify="left")
    table.add_column("")
    columns = ("wall s", "CPU s", "peak MiB", "records/s", "MB/s")
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [_cell(row.get(name), form) for name, form in (_COLUMNS[at] for at in columns)]
        table.add_row(f"{row['query']} {row['store']}", *cells)
    console.print(table)


def show_restores(rows: Sequence[Row], console: Console) -> None:
    """Print how fast each layout is restored, and which share of the loop's rate that is."""
    if not rows:
        return
    table = Table(title=f"Restores of {rows[0]['records']:,} records", title_justify="left")
    table.add_column("")
    columns = ("wall s", "s without", "CPU s", "peak MiB", "records/s", "MB/s", "of loop")
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [_cell(row.get(name), form) for name, form in (_COLUMNS[at] for at in columns)]
        table.add_row(row["layout"], *cells)
    console.print(table)


def show_many(rows: Sequence[Row], console: Console) -> None:
    """Print what many small partitions take, there and back."""
    if not rows:
        return
    title = f"{rows[0]['partitions']:,} partitions in a folder, and back"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    columns = ("wall s", "s without", "CPU s", "peak MiB")
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [_cell(row.get(name), form) for name, form in (_COLUMNS[at] for at in columns)]
        table.add_row(f"{row['shape']}, {row['direction']}", *cells)
    console.print(table)


def show_short(rows: Sequence[Row], console: Console) -> None:
    """Print what short runs take, with something to do and without."""
    if not rows:
        return
    table = Table(title="One partition, medians", title_justify="left")
    for name in ("", "store", "new records", "wall s", "CPU s", "peak MiB"):
        table.add_column(name, justify="right")
    for row in rows:
        figures = f"{row['wall_s']:.2f}", f"{row['cpu_s']:.2f}", f"{row['peak_mib']:,}"
        table.add_row(row["direction"], row["store"], row["found"], *figures)
    console.print(table)


def show_memory(rows: Sequence[Row], console: Console) -> None:
    """Print what a backup takes with few partitions and with many."""
    if not rows:
        return
    table = Table(title="Memory of a sink with two tasks", title_justify="left")
    for name in ("partitions", "records", "MB", "wall s", "peak MiB"):
        table.add_column(name, justify="right")
    for row in rows:
        numbers = row["partitions"], row["records"], round(row["bytes"] / 1e6)
        table.add_row(*(f"{n:,}" for n in (*numbers, row["wall_s"], row["peak_mib"])))
    console.print(table)


def show_stages(rows: Sequence[Row], console: Console) -> None:
    """Print what each stage costs a record."""
    if not rows:
        return
    sizes = list(dict.fromkeys(row["load"] for row in rows))
    table = Table(title="us of CPU a record", title_justify="left")
    table.add_column("stage")
    for load in sizes:
        table.add_column(load, justify="right")
    costs = {(row["stage"], row["load"]): row["us"] for row in rows}
    for stage in dict.fromkeys(row["stage"] for row in rows):
        table.add_row(stage, *(f"{costs[stage, load]:.2f}" for load in sizes))
    console.print(table)
