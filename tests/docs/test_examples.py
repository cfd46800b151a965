"""The examples do what they say."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from backup_samples import Backup, batch
from click.testing import CliRunner

from kbackup.cli import root
from kbackup.config import loading
from kbackup.runs.metrics import LABELS, METRICS, OWN_LABELS, MetricValues
from tests.support.invoked import invoke
from tests.support.scripts import run

EXAMPLES = Path(__file__).parents[2] / "examples"
CHECKOUT = EXAMPLES.parent

CONFIGURATIONS = [
    "quickstart-s3.properties", "s3.json", "block-gzip-sink.properties", "kbackup.yaml",
    "avro-sink.properties", "raw-bytes-sink.properties", "parquet-by-field.json",
    "json-by-hour.properties",
]  # fmt: skip


@pytest.mark.parametrize("name", [*CONFIGURATIONS, "copy-of-s3-topic.properties", "dr.properties"])
def test_a_configuration_has_no_errors(name: str) -> None:
    """Every example configuration is accepted as it is."""
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
    """A connector's file chooses the connectors' layout and takes over the connector's offsets."""
    loaded = loading.load(
        "sink",
        options={"bootstrap_servers": "broker:9092"},
        files=[EXAMPLES / name],
        environ={"KAFKA_PASSWORD": "secret"},
    )

    found = loaded.settings
    assert (view, flush_size, group) == (found.view, found.flush_size, found.group)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_one_file_serves_sink_and_restore(name: str) -> None:
    """A restore accepts a sink's configuration file unchanged."""
    loaded = loading.load(
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
    """Every scheduled command is one that kbackup accepts."""
    result = CliRunner().invoke(root, [*shlex.split(line), "--help"], prog_name="kbackup")

    assert 0 == result.exit_code, result.output


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/schedule.md", "examples/crontab"])
def test_what_cron_runs_is_found_by_cron(page: str) -> None:
    """A line of a crontab has no user, and the full path of a command that the page installs."""
    lines = (CHECKOUT / page).read_text(encoding="utf-8").splitlines()
    jobs = [line.split()[5] for line in lines if re.match(r"[*/\d]+ [*/\d]+ \S+ \S+ \S+  ", line)]

    assert jobs
    assert {"/opt/kbackup/bin/kbackup"} == set(jobs)
    assert [] != [line for line in lines if "python3 -m venv /opt/kbackup" in line]


def test_there_are_scheduled_commands() -> None:
    """The examples have scheduled commands, so the check of them checks something."""
    assert (4, 1) == (len(typed("crontab")), len(typed("kbackup.service")))


@pytest.mark.parametrize(
    ("name", "section"),
    [
        pytest.param("kbackup.service", "Service", id="service"),
        pytest.param("kbackup.timer", "Timer", id="timer"),
    ],
)
def test_systemd_units_can_be_read(name: str, section: str) -> None:
    """Every systemd unit has its sections, and every line in them is a setting."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string((EXAMPLES / name).read_text(encoding="utf-8"))

    assert {"Unit", section} <= set(unit.sections())


def test_a_backup_is_read_without_kbackup(tmp_path: Path) -> None:
    """Full records are Parquet that anybody can read, tombstones and null keys told apart."""
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
    """A mistyped folder or topic ends in one sentence, not a traceback."""
    result = run(EXAMPLES / "read_with_pyarrow.py", *words)

    assert (2, True, 1) == (
        result.returncode,
        result.stderr.startswith(said),
        len(result.stderr.splitlines()),
    )


CLUSTER = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))


def documents() -> list[dict[str, Any]]:
    """What the Kubernetes examples declare."""
    return [one for path in CLUSTER for one in yaml.safe_load_all(path.read_text("utf-8"))]


def pods() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The job and the pod of each workload, by name."""
    found = {}
    for one in documents():
        if one["kind"] in ("CronJob", "Deployment"):
            job = one["spec"]
            job = job["jobTemplate"]["spec"] if one["kind"] == "CronJob" else job
            found[one["metadata"]["name"]] = job, job["template"]["spec"]
    return found


@pytest.mark.parametrize("name", sorted(pods()))
def test_what_kubernetes_runs_is_such_that_kbackup_takes_it(name: str) -> None:
    """Each container has a command that kbackup accepts, on a file that the ConfigMap holds."""
    _, pod = pods()[name]
    for container in pod["containers"]:
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == "config")
        files = [file for one in documents() for file in one.get("data", ())]
        held = {f"{mount['mountPath']}/{file}" for file in files}

        result = CliRunner().invoke(root, [*container["args"], "--help"], prog_name="kbackup")

        assert 0 == result.exit_code, result.output
        assert {word for word in container["args"] if word.startswith("/")} <= held
        assert (True, True) == (
            pod["securityContext"]["runAsNonRoot"],
            container["securityContext"]["readOnlyRootFilesystem"],
        )


def test_kubernetes_scrapes_what_is_served() -> None:
    """Each port has its command's number, and the monitor names all of them."""
    _, pod = pods()["kbackup-metrics"]
    (monitor,) = (one for one in documents() if one["kind"] == "PodMonitor")

    ports = {one["ports"][0]["name"]: one["ports"][0]["containerPort"] for one in pod["containers"]}
    served = [int(one["args"][-1].rpartition(":")[2]) for one in pod["containers"]]

    assert served == [*ports.values()]
    assert [*ports] == [one["port"] for one in monitor["spec"]["podMetricsEndpoints"]]


def test_kubernetes_tries_again_what_can_end_differently() -> None:
    """A job is tried again after faults of Kafka, S3 and Spark, not after what stays as it is."""
    rules = {
        name: job["podFailurePolicy"]["rules"] for name, (job, _) in pods().items()
        if "podFailurePolicy" in job
    }  # fmt: skip
    final = {
        name: set(rule["onExitCodes"]["values"])
        for name, given in rules.items()
        for rule in given
        if rule["action"] == "FailJob"
    }

    runs = {f"kbackup-{name}": {2, 3, 4, 7, 8} for name in ("copy", "expire", "sink")}
    assert {**runs, "kbackup-verify": {2, 4, 7}} == final


def test_the_configuration_in_kubernetes_has_no_errors(tmp_path: Path) -> None:
    """What the ConfigMap holds is accepted as it is."""
    ((name, text),) = (pair for one in documents() for pair in one.get("data", {}).items())
    (tmp_path / name).write_text(text)

    result = invoke("config", "check", "--config", str(tmp_path / name), "--json")

    assert 0 == result.code, result.stdout


PROMETHEUS = EXAMPLES / "prometheus"


def expressions() -> list[str]:
    """What the alert rules and the dashboard ask Prometheus."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    dashboard = json.loads((PROMETHEUS / "dashboard.json").read_text())
    return [
        *(rule["expr"] for group in groups for rule in group["rules"]),
        *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"]),
        *(one["definition"] for one in dashboard["templating"]["list"] if "definition" in one),
    ]


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    """Each metric and label that an alert or a panel names is written by kbackup."""
    known = {metric.name for metric in METRICS}
    labels = {"backup", *LABELS, *OWN_LABELS}

    found = expressions()

    assert 20 < len(found)
    assert set() == {name for text in found for name in re.findall(r"\bkbackup_\w+", text)} - known
    used = [re.findall(r"(\w+)\s*=~?\s*\"|by \(([^)]*)\)", text) for text in found]
    names = {name for pairs in used for one, more in pairs for name in [one, *more.split(", ")]}
    assert set() == names - {""} - labels


def test_an_alert_says_what_to_do() -> None:
    """Whoever is woken reads what is wrong and a command that exists, not a name and a number."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        said = rule["annotations"]
        do = said["description"]
        commands = re.findall(r"\bkbackup ((?:[a-z]+ ?)+(?:--[a-z-]+(?: \d+)?)?)", do)

        assert (True, True) == ("summary" in said, bool(commands)), rule["alert"]
        for line in commands:
            found = CliRunner().invoke(root, [*line.split(), "--help"], prog_name="kbackup")
            assert 0 == found.exit_code, f"{rule['alert']}: {line}"


def test_what_was_never_done_is_as_old_as_can_be() -> None:
    """An alert on the age of what may be absent, as that of 100 days ago is, fires all the same."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    ages = [rule["expr"] for group in groups for rule in group["rules"] if "time()" in rule["expr"]]
    own = {metric.name: metric.own for metric in METRICS}
    never = MetricValues("sink", is_up=True, now=datetime.now(UTC), was_read=True)
    absent = {metric.name for metric in METRICS if not [*metric.samples(never)]}

    asked = {re.findall(r"\bkbackup_\w+", expression)[0]: expression for expression in ages}

    assert {"kbackup_last_verify_passed_timestamp_seconds"} < asked.keys() & absent
    for name in asked.keys() & absent:
        beside = f"ignoring ({', '.join(own[name])}) " if own[name] else ""
        is_there = 'kbackup_up{command="sink"} == 1'
        assert f'({name}{{command="sink"}} or {beside}0 * ({is_there}))' in asked[name]


def test_the_dashboard_shows_how_the_last_drill_ended() -> None:
    """When one last passed, how the newest ended, how long a recovery takes, what it loses."""
    panels = json.loads((PROMETHEUS / "dashboard.json").read_text())["panels"]
    text = " ".join(target["expr"] for panel in panels for target in panel["targets"])

    shown = set(re.findall(r"\bkbackup_last_drill_(\w+)", text))

    assert {"passed_timestamp_seconds", "exit_code", "rto_seconds", "rpo_seconds"} == shown


def test_prometheus_takes_the_rules() -> None:
    """promtool finds nothing wrong, where it is installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")

    done = subprocess.run([promtool, "check", "rules", PROMETHEUS / "rules.yaml"], check=False)

    assert 0 == done.returncode
