"""The examples do what they say."""

import configparser
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from backup_samples import Backup, batch
from click.testing import CliRunner

from kbackup import config
from kbackup.cli import root
from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup
from tests.support.invoked import invoke

EXAMPLES = Path(__file__).parents[2] / "examples"
CHECKOUT = EXAMPLES.parent

CONFIGURATIONS = [
    "quickstart-s3.properties", "s3.json", "block-gzip-sink.properties", "kbackup.yaml",
    "avro-sink.properties", "raw-bytes-sink.properties", "parquet-by-field.json",
    "json-by-hour.properties",
]  # fmt: skip


def run(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", [*CONFIGURATIONS, "copy-of-s3-topic.properties"])
def test_a_configuration_has_no_errors(name: str) -> None:
    """
    Every example configuration is accepted as it is.
    """
    result = invoke(
        "config", "check", "--config", str(EXAMPLES / name), "--json", KAFKA_PASSWORD="secret"
    )

    assert 0 == result.code, result.stdout
    assert [] == [line for line in result.of("check") if line["level"] == "fail"]


@pytest.mark.parametrize(
    ("name", "view", "flush_size", "group"),
    [
        pytest.param("quickstart-s3.properties", "value", 3, "connect-s3-sink", id="properties"),
        pytest.param("s3.json", "value", 10_000, "connect-orders-to-s3", id="connector's JSON"),
        pytest.param(
            "block-gzip-sink.properties", "value", 10_000_000, "connect-s3-sink", id="block-gzip"
        ),
        pytest.param("kbackup.yaml", "record", 500_000, "nightly-backup", id="YAML"),
    ],
)
def test_a_configuration_means_what_it_says(
    name: str, view: str, flush_size: int, group: str
) -> None:
    """
    A connector's file chooses the connectors' layout and takes over the connector's offsets.
    """
    loaded = config.load(
        "sink",
        options={"bootstrap_servers": "broker:9092"},
        files=[EXAMPLES / name],
        environ={"KAFKA_PASSWORD": "secret"},
    )

    found = loaded.settings
    assert (view, flush_size, group) == (found.view, found.flush_size, found.group)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_one_file_serves_sink_and_restore(name: str) -> None:
    """
    A restore accepts a sink's configuration file unchanged.
    """
    loaded = config.load(
        "restore",
        options={"bootstrap_servers": "broker:9092"},
        files=[EXAMPLES / name],
        environ={"KAFKA_PASSWORD": "secret"},
    )

    assert "s3://backups" == loaded.settings.url


def typed(name: str) -> list[str]:
    text = (EXAMPLES / name).read_text(encoding="utf-8").replace(r"\%", "%")
    lines = re.findall(r"^(?![#\s]).*?\bkbackup ((?:sink|restore) .*)$", text, re.MULTILINE)
    return [line.replace("$(date +%u)", "1") for line in lines]


@pytest.mark.parametrize("line", [*typed("crontab"), *typed("kbackup.service")])
def test_scheduled_commands_are_such_that_kbackup_takes(line: str) -> None:
    """
    Every scheduled command is one that kbackup accepts.
    """
    result = CliRunner().invoke(root, [*shlex.split(line), "--help"], prog_name="kbackup")

    assert 0 == result.exit_code, result.output


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/cron.md", "examples/crontab"])
def test_what_cron_runs_is_found_by_cron(page: str) -> None:
    """
    A line of a crontab has no user, and the full path of a command that the page installs.
    """
    lines = (CHECKOUT / page).read_text(encoding="utf-8").splitlines()
    jobs = [line.split()[5] for line in lines if re.match(r"[*/\d]+ [*/\d]+ \S+ \S+ \S+  ", line)]

    assert jobs
    assert {"/opt/kbackup/bin/kbackup"} == set(jobs)
    assert [] != [line for line in lines if "python3 -m venv /opt/kbackup" in line]


def test_there_are_scheduled_commands() -> None:
    """
    The examples have scheduled commands, so the check of them checks something.
    """
    assert (4, 1) == (len(typed("crontab")), len(typed("kbackup.service")))


@pytest.mark.parametrize(
    ("name", "section"),
    [
        pytest.param("kbackup.service", "Service", id="service"),
        pytest.param("kbackup.timer", "Timer", id="timer"),
    ],
)
def test_systemd_units_can_be_read(name: str, section: str) -> None:
    """
    Every systemd unit has its sections, and every line in them is a setting.
    """
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string((EXAMPLES / name).read_text(encoding="utf-8"))

    assert {"Unit", section} <= set(unit.sections())


def test_a_backup_is_read_without_kbackup(tmp_path: Path) -> None:
    """
    Full records are Parquet that anybody can read, tombstones and null keys told apart.
    """
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, range(3), range(3, 5))
    backup.put("orders", 1, batch([7], value=None), batch([9], key=None))

    result = run(EXAMPLES / "read_with_pyarrow.py", tmp_path, "orders")

    assert "" == result.stderr
    assert [
        "7 records of orders",
        "1 tombstones, 1 null keys",
        "partition 0 ends at offset 5",
        "partition 1 ends at offset 10",
        "2023-11-14 22:00 7 records",
        "0 0 b'k0' [('trace', b't0')] b'{\"n\":0}'",
        "0 1 b'k1' [('trace', b't1')] b'{\"n\":1}'",
        "0 2 b'k2' [('trace', b't2')] b'{\"n\":2}'",
    ] == result.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([], "usage: ", id="nothing"),
        pytest.param(["nowhere", "orders"], "error: orders cannot be read", id="no such folder"),
        pytest.param([str(EXAMPLES), "orders"], "error: orders cannot be read", id="no such topic"),
    ],
)
def test_what_is_no_backup_is_said_to_be_none(words: list[str], said: str) -> None:
    """
    A mistyped folder or topic ends in one sentence, not a traceback.
    """
    result = run(EXAMPLES / "read_with_pyarrow.py", *words)

    assert (2, True, 1) == (
        result.returncode,
        result.stderr.startswith(said),
        len(result.stderr.splitlines()),
    )


def test_json_lines_can_be_followed_from_python() -> None:
    """
    A program learns how a command ended from its summary, and exits as it did.
    """
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
    """
    Plugins of an installed package are listed beside the built-in ones.
    """
    result = run("-m", "kbackup", "plugins", "--json", PYTHONPATH=installed)

    found = [json.loads(line) for line in result.stdout.splitlines()]
    mine = [line for line in found if line.get("package", "kbackup") not in ("kbackup", "?")]
    assert [
        ("formats", "netstring", "kbackup-netstring"),
        ("converters", "hex", "kbackup-hex"),
        ("partitioners", "bucket", "kbackup-bucket"),
        ("extractors", "header", "kbackup-header-time"),
        ("stores", "sqlite", "kbackup-sqlite"),
        ("transforms", "drop_large", "kbackup-drop-large"),
    ] == [
        (line["seam"], line["name"], line["package"])
        for line in mine
        if line["package"] != "kbackup-toys"
    ]


@a_plugin
def test_a_plugin_of_ones_own_passes_the_suite_of_its_seam(plugin: Path, installed: str) -> None:
    """
    The author of a plugin can run the public suite, and an installed plugin passes the same suites
    as the built-in ones.
    """
    own = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", plugin,
        *plugin.glob("test_*.py"), PYTHONPATH=installed,
    )  # fmt: skip

    assert 0 == own.returncode, own.stdout
    assert re.search(r"\b[1-9]\d* passed", own.stdout)


def test_a_format_of_ones_own_passes_the_contract_suite(installed: str) -> None:
    """
    The suite for built-in formats holds for the example, because it is registered.
    """
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
    """
    A third party's converter of text feeds JSON files; with a format of bytes, it is refused at the
    start by name.
    """
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
    """
    A third party's store is chosen by the scheme of --store-url, and checks its own URLs.
    """
    words = ("-m", "kbackup", "restore", "topics", "--json", "--store-url")
    good = run(*words, f"sqlite://{tmp_path}/backup.db", PYTHONPATH=installed)
    bad = run(*words, "sqlite://backup.db", PYTHONPATH=installed)
    unknown = run(*words, "zip:///backup.zip", PYTHONPATH=installed)

    summaries = [json.loads(end.stdout.splitlines()[-1]) for end in (good, bad, unknown)]
    assert [7, 2, 2] == [summary["exit_code"] for summary in summaries], good.stdout
    assert "expected a file's full path" in bad.stdout
    assert "no store named 'zip'" in unknown.stdout or "installed are: file" in unknown.stdout


@pytest.mark.integration
def test_restore_elsewhere_looks_plans_and_restores(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """
    The script restores what was backed up, and may be run again.
    """
    cluster.create(topic)
    records = varied(300)
    cluster.write(topic, records)
    kbackup.json("sink", "-t", topic)
    script = ["bash", str(EXAMPLES / "restore-elsewhere.sh"), "elsewhere_$0", topic]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, **kbackup.environment, "PATH": path}

    for _ in range(2):
        done = subprocess.run(script, env=environ, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr

    assert records == cluster.read(f"elsewhere_{topic}")
