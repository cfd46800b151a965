"""The demo, run as a user runs it."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.in_process import WITHOUT_SPARK

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.integration

RESULT = re.compile(
    r"(\S+)\s+records\s+in\s+10\s+partitions:\s+the\s+copy\s+equals\s+the\s+original,\s+"
    r"key,\s+value,\s+headers\s+and\s+timestamps\n"
)


@pytest.fixture
def kbackup(tmp_path: Path, request: pytest.FixtureRequest) -> Kbackup:
    """The command, with a folder for temporary files to look into and settings to ignore.

    In tests marked ``one_process`` its commands are without Spark.
    """
    environment = {"TMPDIR": str(tmp_path), "KBACKUP_TOPICS_DIR": "ignored"}
    if request.node.get_closest_marker("one_process") is not None:
        return Kbackup(environment, WITHOUT_SPARK)
    return Kbackup(environment)


@pytest.fixture
def demo(kbackup: Kbackup) -> Iterator["subprocess.Popen[str]"]:
    """A running demo of the smallest sample."""
    process = kbackup.start("demo", "--records", "1000", "--keep")
    with process:
        yield process
        process.kill()


def until(process: "subprocess.Popen[str]", text: str) -> str:
    """Return what the process says, up to the line that has *text* in it."""
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(f"{text!r} is not in:\n{said}")


def family(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def finish(process: "subprocess.Popen[str]", number: int) -> tuple[int, str, str]:
    """Send a signal; return exit code, stdout and the rest of stderr."""
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def assert_nothing_is_left(started: list[psutil.Process], folder: Path) -> None:
    _, alive = psutil.wait_procs(started, timeout=20)
    assert [] == alive
    assert [] == list(folder.iterdir())


@pytest.mark.one_process
def test_the_demo_says_that_the_copy_equals_the_original(demo: Any, tmp_path: Path) -> None:
    """The demo prints its commands, compares copy and original, and leaves nothing unless asked."""
    said = until(demo, "export KBACKUP_STORE_URL")
    started = family(demo)

    code, out, _ = finish(demo, signal.SIGINT)

    assert 0 == code
    found = RESULT.search(out)
    assert found is not None
    assert 900 < int(re.sub(r"\W", "", found[1])) <= 1000
    assert re.search(
        r"\n\$ kbackup sink -k 127\S+ -t \S+ -b demo --store-url http://127\S+\n", said
    )
    assert re.search(r"\n\$ kbackup restore -k .* --rename 'copy_of_\$0'\n", said)
    assert started
    assert_nothing_is_left(started, tmp_path)


@pytest.mark.nightly
def test_a_copy_that_differs_ends_the_demo_with_7(demo: Any) -> None:
    """A copy that changes during the demo ends it with exit code 7."""
    said = until(demo, "$ kbackup restore -k")
    servers = re.search(r"-k (\S+)", said)
    assert servers is not None
    cluster = TestCluster(servers[1])
    while "copy_of_clicks" not in cluster.admin.list_topics(timeout=10).topics:
        assert demo.poll() is None
        time.sleep(0.1)

    cluster.write("copy_of_clicks", [Record(b"foreign", b"record")])
    rest = until(demo, "export KBACKUP_STORE_URL")
    code, out, _ = finish(demo, signal.SIGINT)

    assert 7 == code, rest
    assert "equals the original" not in out


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [
        pytest.param("Apache Kafka", signal.SIGTERM, 143, id="starting"),
        pytest.param("$ kbackup sink", signal.SIGINT, 130, id="between"),
        pytest.param("sink start", signal.SIGTERM, 143, id="sink"),
    ],
)
def test_a_stopped_demo_leaves_nothing_behind(
    demo: Any, tmp_path: Path, moment: str, number: int, status: int
) -> None:
    """A signal at any moment stops the running command, both servers, and removes their data."""
    until(demo, moment)
    started = family(demo)

    code, out, err = finish(demo, number)

    assert status == code
    assert "equals" not in out
    assert "Traceback" not in err
    assert_nothing_is_left(started, tmp_path)


@pytest.mark.nightly
def test_quiet_says_nothing_of_success(kbackup: Kbackup) -> None:
    """With --quiet a successful demo prints nothing."""
    done = kbackup("demo", "--records", "1000", "--quiet")

    assert (0, "", "") == (done.code, done.stdout, done.stderr)
