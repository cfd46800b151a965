"""Commands that run in front of whoever watches ours, and signals on their way to them."""

import os
import signal
import sys
import threading
import time

import pytest

from kbackup.cli.foreground import Foreground
from kbackup.errors import StoppedError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
]  # fmt: skip


def send_later(*signals: int) -> None:
    def send() -> None:
        for number in signals:
            time.sleep(0.5)
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize(
    ("program", "code"),
    [
        pytest.param("raise SystemExit(7)", 7, id="exit code"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 137, id="killed"),
        pytest.param("import sys; sys.exit(len(sys.stdin.read()))", 0, id="no input"),
    ],
)
def test_the_exit_code_is_the_shells(program: str, code: int) -> None:
    """
    A command's exit code is what a shell would say, and it cannot wait for input.
    """
    assert code == Foreground().call([sys.executable, "-c", program], os.environ)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, 143, id="SIGHUP"),
    ],
)
def test_a_signal_stops_the_command_and_us(number: int, status: int) -> None:
    """
    One signal ends the running command, and then what is around it.
    """
    foreground = Foreground()
    send_later(number)

    with foreground.stoppable(), pytest.raises(StoppedError) as caught:
        foreground.call(SLEEPER, os.environ)

    assert status == caught.value.exit_status


def test_the_second_signal_ends_a_command_that_does_not_stop() -> None:
    """
    Who presses Ctrl-C twice does not wait for a command that takes its time.
    """
    foreground = Foreground()
    send_later(signal.SIGINT, signal.SIGINT)
    began = time.monotonic()

    with foreground.stoppable(), pytest.raises(StoppedError):
        foreground.call(STUBBORN, os.environ)

    assert time.monotonic() - began < 30


def test_a_signal_before_the_command_stops_us_there() -> None:
    """
    Outside a command the signal is an exception like any other, so that servers are stopped.
    """
    with Foreground().stoppable(), pytest.raises(StoppedError):
        os.kill(os.getpid(), signal.SIGTERM)
