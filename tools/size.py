"""How large the house is: what a reader has to hold, as a table.

::

    python tools/size.py               what can be counted in the files
    python tools/size.py --frames      and the modules that one batch passes, in a real run

The gate prints it, so that growth is seen; it stops nothing.  Words are those of ``wc -w``.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kbackup"
RUN = "kbackup.sink.run"
"""The module whose imports are followed."""

TASKS = {
    "sink": "kbackup/sink/task.py:back_up",
    "restore": "kbackup/restore/task.py:put_back",
}
"""Where the work of a task begins."""

_RECORDER = """
import os, sys, threading
_file, _name = os.environ["SIZE_ENTRY"].split(":")
_root, _seen, _on = os.environ["SIZE_ROOT"], set(), False
def _see(frame, event, _argument):
    global _on
    if event != "call":
        return
    code = frame.f_code
    if not code.co_filename.startswith(_root) or code.co_name == "<module>":
        return
    _on = _on or (code.co_filename.endswith(_file) and code.co_name == _name)
    if _on and code.co_filename not in _seen:
        _seen.add(code.co_filename)
        with open(os.environ["SIZE_OUT"], "a") as out:
            print(code.co_filename, file=out)
threading.setprofile(_see)
sys.setprofile(_see)
"""
"""Notes each file of the package with a frame, from the first call of a task's function on."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", action="store_true", help="run a backup and a restore")
    parser.add_argument("--names", action="store_true", help="name the modules that are counted")
    arguments = parser.parse_args()
    modules = sorted(PACKAGE.rglob("*.py"))
    imported = sorted(_reached(RUN))
    rows = [
        ("Python modules in kbackup/", len(modules)),
        ("lines in kbackup/ (Python)", _lines(modules)),
        ("folders at the top of kbackup/", len({_top(one) for one in modules} - {None})),
        ("loose .py files at the top of kbackup/", len([*PACKAGE.glob("*.py")])),
        (f"modules that {RUN} imports, all the way down", len(imported)),
        ("lines in tests/ (Python)", _lines((ROOT / "tests").rglob("*.py"))),
        ("words in README and docs/, decisions and benchmarks left out", _words()),
    ]
    named = {RUN: imported}
    if arguments.frames:
        for command, files in _frames():
            rows.append((f"modules that one batch passes in a task, {command}", len(files)))
            named[command] = files
    width = max(len(what) for what, _ in rows)
    for what, count in rows:
        print(f"{what:{width}}  {count:>7,}")
    if arguments.names:
        for of, names in named.items():
            print(f"\n{of}:", *names, sep="\n  ")


def _top(module: Path) -> str | None:
    parts = module.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def _lines(files: Iterator[Path] | list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def _words() -> int:
    left_out = {ROOT / "docs" / "reference" / "benchmarks.md"}
    pages = [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page not in left_out and page.parent.name != "decisions"
    ]
    return sum(len(page.read_text().split()) for page in [ROOT / "README.md", *pages])


def _reached(start: str) -> set[str]:
    """Return the modules that *start* imports, lazily or not, and those that these import."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module in found or (file := _file(module)) is None:
            continue
        found.add(module)
        waiting += _imports(module, file)
        waiting += [module.rpartition(".")[0]]
    return found - {start}


def _file(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if module.startswith("kbackup") and file.is_file():
            return file
    return None


def _imports(module: str, file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(), module)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _frames() -> Iterator[tuple[str, list[str]]]:
    """Back up and restore three records of one partition, and yield the files that work passed."""
    sys.path.insert(0, str(ROOT))
    from kbackup.local.kafka import LocalKafka  # noqa: PLC0415  (they take seconds to import)
    from kbackup.local.servers import LocalS3  # noqa: PLC0415
    from tests.support.cluster import Record, TestCluster  # noqa: PLC0415

    with LocalKafka() as kafka, LocalS3() as s3, tempfile.TemporaryDirectory() as folder:
        cluster = TestCluster(kafka.bootstrap_servers)
        cluster.create("orders", 1)
        cluster.write("orders", [Record(b"k", b"v")] * 3)
        Path(folder, "sitecustomize.py").write_text(_RECORDER)
        place = ["-k", kafka.bootstrap_servers, "-b", "size", "-t", "orders", "--json"]
        place += ["--store-url", s3.endpoint_url]
        s3.create_bucket("size")
        for command, entry in TASKS.items():
            out = Path(folder, command)
            more = ["--rename", "copy_of_$0"] if command == "restore" else []
            subprocess.run(  # noqa: S603  (this package)
                [sys.executable, "-m", "kbackup", command, *place, *more],
                env={
                    **os.environ, **s3.environment, "PYTHONPATH": folder, "SIZE_ENTRY": entry,
                    "SIZE_ROOT": str(PACKAGE), "SIZE_OUT": str(out),
                },
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            yield command, sorted(str(Path(one).relative_to(ROOT)) for one in _read(out))


def _read(file: Path) -> set[str]:
    return set(file.read_text().split("\n")) - {""}


if __name__ == "__main__":
    main()
