"""The examples that run programs do what they say."""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup
from tests.support.in_process import WITHOUT_SPARK
from tests.support.scripts import run

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = CHECKOUT / "examples"


def test_json_lines_can_be_followed_from_python() -> None:
    """A program learns how a command ended from its summary, and exits as it did."""
    script, wrong = EXAMPLES / "follow_summary.py", str(EXAMPLES / "none.json")
    good = run(script, "config", "check", "--config", EXAMPLES / "s3.json")
    bad = run(script, "config", "check", "--config", wrong)

    assert (0, "config check ok: 0 records\n") == (good.returncode, good.stdout)
    assert 2 == bad.returncode
    assert "configuration: " in bad.stdout


PLUGINS = sorted(EXAMPLES.glob("*_plugin"))
a_plugin = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder in which the examples' packages are as if installed."""
    for plugin in PLUGINS:
        project = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for module in plugin.glob("kbackup_*.py"):
            (tmp_path / module.name).write_bytes(module.read_bytes())
        info = tmp_path / f"{project['name'].replace('-', '_')}-1.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        points = io.StringIO()
        for group, entries in project["entry-points"].items():
            points.write(f"[{group}]\n")
            points.writelines(f"{name} = {target}\n" for name, target in entries.items())
        (info / "entry_points.txt").write_text(points.getvalue())
    return str(tmp_path)


def test_plugins_of_ones_own_are_found(installed: str) -> None:
    """Plugins of an installed package are listed beside the built-in ones."""
    result = run("-m", "kbackup", "plugins", "--json", PYTHONPATH=installed)

    found = [json.loads(line) for line in result.stdout.splitlines()]
    mine = [line for line in found if line.get("package", "?") not in ("kbackup-kafka", "?")]
    assert [
        ("formats", "netstring", "kbackup-netstring"),
        ("converters", "hex", "kbackup-hex"),
        ("partitioners", "bucket", "kbackup-bucket"),
        ("extractors", "header", "kbackup-header-time"),
        ("stores", "sqlite", "kbackup-sqlite"),
        ("transforms", "drop_large", "kbackup-drop-large"),
    ] == [
        (line["extension_point"], line["name"], line["package"])
        for line in mine
        if line["package"] != "kbackup-toys"
    ]


@a_plugin
def test_a_plugin_of_ones_own_passes_the_suite_of_its_extension_point(
    plugin: Path, installed: str
) -> None:
    """An installed plugin passes the public suites, as the built-in ones do."""
    own = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", plugin,
        *plugin.glob("test_*.py"), PYTHONPATH=installed,
    )  # fmt: skip

    assert 0 == own.returncode, own.stdout
    assert re.search(r"\b[1-9]\d* passed", own.stdout)


def test_a_format_of_ones_own_passes_the_contract_suite(installed: str) -> None:
    """The suite for built-in formats holds for the example, because it is registered."""
    result = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", CHECKOUT,
        CHECKOUT / "tests" / "contract" / "test_formats.py", "-k", "netstring",
        PYTHONPATH=installed,
    )  # fmt: skip

    assert 0 == result.returncode, result.stdout
    assert re.search(r"\b[1-9]\d* passed", result.stdout)


def test_a_converter_of_ones_own_goes_with_each_format_that_holds_what_it_gives(
    installed: str, tmp_path: Path
) -> None:
    """A third party's converter of text feeds JSON files; a format of bytes refuses it by name."""
    found = []
    for form in ("json", "bytes"):
        path = tmp_path / f"{form}.properties"
        path.write_text(
            "s3.bucket.name=b\ntopics=orders\nflush.size=3\nbootstrap.servers=h:1\n"
            f"format.class={form}\nvalue.converter=hex\n"
        )
        words = ("-m", "kbackup", "config", "check", "--json", "--config")
        result = run(*words, path, PYTHONPATH=installed)
        found.append((result.returncode, "writes bytes files of: bytes" in result.stdout))

    assert [(0, False), (2, True)] == found


def test_a_store_of_ones_own_is_a_store_url(installed: str, tmp_path: Path) -> None:
    """A third party's store is chosen by the scheme of --store-url, and checks its own URLs."""
    words = ("-m", "kbackup", "restore", "list", "--json", "--store-url")
    good = run(*words, f"sqlite://{tmp_path}/backup.db", PYTHONPATH=installed)
    bad = run(*words, "sqlite://backup.db", PYTHONPATH=installed)
    unknown = run(*words, "zip:///backup.zip", PYTHONPATH=installed)

    summaries = [json.loads(end.stdout.splitlines()[-1]) for end in (good, bad, unknown)]
    assert [7, 2, 2] == [summary["exit_code"] for summary in summaries], good.stdout
    assert "expected a file's full path" in bad.stdout
    assert "no store named 'zip'" in unknown.stdout or "installed are: az, file" in unknown.stdout


@pytest.mark.integration
@pytest.mark.one_process
def test_restore_elsewhere_looks_plans_and_restores(
    kbackup: Kbackup, cluster: TestCluster, topic: str, tmp_path: Path
) -> None:
    """The script restores what was backed up, and may be run again."""
    cluster.create(topic)
    records = varied(300)
    cluster.write(topic, records)
    kbackup.json("sink", "-t", topic)
    script = ["bash", str(EXAMPLES / "restore-elsewhere.sh"), "elsewhere_$0", topic]
    command = tmp_path / "kbackup"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m {WITHOUT_SPARK} "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, **kbackup.environment, "PATH": path}

    for _ in range(2):
        done = subprocess.run(script, env=environ, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr

    assert records == cluster.read(f"elsewhere_{topic}")


@pytest.mark.nightly  # the gate runs it as its session docs
def test_the_site_builds_without_a_warning(
    tmp_path: Path,
) -> None:
    """Every link leads somewhere, and the documentation loads nothing from other servers."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    built = subprocess.run(
        [*command, "--site-dir", str(tmp_path)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == built.returncode, built.stderr
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//[^>]+>")
    pages = sorted(tmp_path.rglob("*.html"))
    assert pages
    assert [] == [tag for page in pages for tag in loaded.findall(page.read_text(encoding="utf-8"))]
