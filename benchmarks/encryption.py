"""What encryption costs: the same records to S3 and back, as they are and encrypted, in turn."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.cases import kbackup
from benchmarks.records import Load
from benchmarks.services import Services

Row = dict[str, Any]

WAYS: Final = ("plain", "encrypted")


def measured(services: Services, loads: Sequence[Load], repeat: int) -> Iterator[Row]:
    """Yield a row for each sink and each restore of *loads*."""
    private, public = (services.scratch / name for name in ("identity.pem", "recipients.pem"))
    _openssl("genpkey", "-algorithm", "x25519", "-out", private)
    _openssl("pkey", "-in", private, "-pubout", "-out", public)
    private.chmod(0o600)
    for load in loads:
        services.fill(load)
        for repetition in range(repeat):
            for way in WAYS:
                place = services.fresh_place("s3")
                own = {
                    "encryption.recipients.file": public,
                    "encryption.key.file": services.scratch / f"{place.name}.key",
                }
                words = {"sink": ["sink", "run", "-t", load.topic, *_given(way, own)]}
                own = {"encryption.identity.file": private}
                words["restore"] = ["restore", "run", "--rename", "sealed-$0", *_given(way, own)]
                for case, each in words.items():
                    found = kbackup(services, each, load, place)
                    about = {"case": case, "way": way, "load": load.name}
                    yield {**about, "repetition": repetition, **found}
                services.delete_topic(f"sealed-{load.topic}")
                services.empty(place)
        services.delete_topic(load.topic)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def _given(way: str, properties: dict[str, Path]) -> list[str]:
    if way == WAYS[0]:
        return []
    return [word for name, path in properties.items() for word in ("-X", f"{name}={path}")]


def show(rows: list[Row], console: Console) -> None:
    """Print the medians, and what share of the speed, and of the CPU's work, is left."""
    if not rows:
        return
    repeat = 1 + max(one["repetition"] for one in rows)
    table = Table(title=f"Encryption, median of {repeat}", title_justify="left")
    for name in (
        "case",
        "load",
        *WAYS,
        "speed",
        *(f"{way} task us" for way in WAYS),
        "for a CPU s",
    ):
        table.add_column(name, justify="right")
    for case, load in dict.fromkeys((one["case"], one["load"]) for one in rows):
        mine = [one for one in rows if (one["case"], one["load"]) == (case, load)]
        found = {
            name: [median(one[name] for one in mine if one["way"] == way) for way in WAYS]
            for name in ("seconds", "task_cpu_us")
        }
        shares = {name: f"{plain / sealed:.0%}" for name, (plain, sealed) in found.items()}
        cells = [[f"{number:,.2f}" for number in each] for each in found.values()]
        table.add_row(case, load, *cells[0], shares["seconds"], *cells[1], shares["task_cpu_us"])
    console.print(table)
