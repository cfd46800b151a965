"""Commands that run in front of whoever watches ours, and signals on their way to them."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from kbackup.cli.prepare import Foreground
from kbackup.errors import StoppedError
from tests.support.running import wait_until

SLEEPER = """
import sys, time
from pathlib import Path
Path(sys.argv[1], "runs").touch()
time.sleep(300)
"""
STUBBORN = """
import signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (folder / "asked").touch())
(folder / "runs").touch()
while True:
    time.sleep(300)
"""


def send(folder: Path, **signals: int) -> None:
    """Send each signal to ourselves once the command has left the file of that name."""

    def wait() -> None:
        for name, number in signals.items():
            wait_until(lambda name=name: (folder / name).exists(), name)  # type: ignore[misc]
            os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize(
    ("program", "code"),
    [
        pytest.param("raise SystemExit(7)", 7, id="exit code"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 137, id="killed"),
        pytest.param("import sys; sys.exit(len(sys.stdin.read()))", 0, id="no input"),
    ],
)
def test_the_exit_code_is_the_shells(program: str, code: int) -> None:
    """A command's exit code is what a shell would say, and it cannot wait for input."""
    assert code == Foreground().call([sys.executable, "-c", program], os.environ)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, 143, id="SIGHUP"),
    ],
)
def test_a_signal_stops_the_command_and_us(number: int, status: int, tmp_path: Path) -> None:
    """One signal ends the running command and then the demo itself."""
    foreground = Foreground()
    send(tmp_path, runs=number)

    with foreground.stoppable(), pytest.raises(StoppedError) as caught:
        foreground.call([sys.executable, "-c", SLEEPER, str(tmp_path)], os.environ)

    assert status == caught.value.exit_status


def test_the_second_signal_ends_a_command_that_does_not_stop(tmp_path: Path) -> None:
    """A second Ctrl-C does not wait for a slow command."""
    foreground = Foreground()
    send(tmp_path, runs=signal.SIGINT, asked=signal.SIGINT)
    began = time.monotonic()

    with foreground.stoppable(), pytest.raises(StoppedError):
        foreground.call([sys.executable, "-c", STUBBORN, str(tmp_path)], os.environ)

    assert time.monotonic() - began < 200


def test_a_signal_before_the_command_stops_us_there() -> None:
    """Outside a command the signal is an exception like any other, so that servers are stopped."""
    with Foreground().stoppable(), pytest.raises(StoppedError):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_destructor_swallows_ends_the_wait() -> None:
    """Python ignores what is raised there: who waits has to look whether a signal has come."""

    class Interrupted:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    foreground = Foreground()
    with foreground.stoppable():
        Interrupted()
        with pytest.raises(StoppedError):
            foreground.wait()
