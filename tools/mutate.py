"""Put defects into the code, one at a time, and see that the tests named for each find it.

::

    python tools/mutate.py             every list
    python tools/mutate.py catalog     those of ``tests/mutations/catalog.yaml``

A list holds ``{file, find, replace, tests, says}``: the text *find* stands in *file* exactly once
and is replaced; each of *tests* is what pytest takes.  The checkout stays as it is: a copy of it
is changed.  The exit code is 1 if a defect was not found, or a list is out of date.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests" / "mutations"
LIMIT_S = 120
"""A defect is found in seconds, or its list names the wrong tests."""

_PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist")
_COPIED = ("kbackup", "tests", "docs", "examples", "tools", "benchmarks")
_ALSO = ("pyproject.toml", "noxfile.py", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")


@dataclass(frozen=True)
class Mutation:
    """A defect that can be put into the code.

    Attributes:
        file: Where, from the top of the checkout.
        find: What stands there exactly once.
        replace: What stands there instead.
        tests: The tests that find it.
        says: The defect, in one line.
    """

    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    says: str

    def problem(self) -> str | None:
        """Why it cannot be put in; None if it can."""
        place = ROOT / self.file
        if not place.is_file():
            return f"{self.file} is not there"
        count = place.read_text().count(self.find)
        if count != 1 or self.find == self.replace:
            return f"its text stands {count} times in {self.file}"
        missing = [test for test in self.tests if not _is_there(test)]
        return (
            f"{', '.join(missing) or 'a test'} is not there" if missing or not self.tests else None
        )


def read(room: str) -> list[Mutation]:
    """Return the list of a room."""
    found = yaml.safe_load((LISTS / f"{room}.yaml").read_text())
    return [Mutation(**{**entry, "tests": tuple(entry["tests"])}) for entry in found]


def rooms() -> list[str]:
    """Return the rooms that have a list."""
    return sorted(path.stem for path in LISTS.glob("*.yaml"))


def main() -> int:
    """Try the mutations of the rooms that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(rooms())}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        checkout = Path(folder)
        _copy(checkout)
        for room in parser.parse_args().rooms or rooms():
            failed += sum(not is_found for is_found in _tried(room, checkout))
    return min(failed, 1)


def _tried(room: str, checkout: Path) -> Iterator[bool]:
    """Try each mutation of a room, print how it went, and yield whether it was found."""
    mutations = read(room)
    tests = sorted({test for one in mutations if one.problem() is None for test in one.tests})
    if tests and (why := _outcome(checkout, tests, limit_s=600)) != "NOT FOUND":
        print(f"{room}: its tests do not pass without any mutation: {why}")
        yield False
        return
    for one in mutations:
        how = one.problem()
        if how is None:
            place = checkout / one.file
            text = place.read_text()
            _write(place, text.replace(one.find, one.replace))
            how = _outcome(checkout, one.tests, LIMIT_S)
            _write(place, text)
        else:
            how = f"STALE: {how}"
        print(f"{how:<9}  {room}: {one.says}", flush=True)
        yield how == "found"


def _outcome(checkout: Path, tests: Sequence[str], limit_s: float) -> str:
    try:
        done = subprocess.run(  # noqa: S603  (the tests of this checkout)
            [sys.executable, *_PYTEST, *tests],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"NO END within {limit_s:.0f} s"
    last = next(iter(done.stdout.strip().splitlines()[-1:]), done.stderr[-200:])
    return {0: "NOT FOUND", 1: "found"}.get(done.returncode, f"BROKEN: {last}")


def _is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    place = ROOT / file
    function = name.rpartition("::")[2].partition("[")[0]
    return place.exists() and (not function or f"def {function}(" in place.read_text())


def _copy(checkout: Path) -> None:
    """Copy what the tests need: files as links to the same content where the disk can."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, checkout / name, copy_function=_link)
    for name in _ALSO:
        _link(str(ROOT / name), str(checkout / name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _write(place: Path, text: str) -> None:
    """Write a file anew, so that what it was a link to stays as it is."""
    place.unlink()
    place.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
