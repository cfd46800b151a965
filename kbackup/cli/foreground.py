"""A command that runs other commands, and is stopped as they are."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kbackup.errors import StoppedError


class Foreground:
    """Runs one command at a time in the foreground.

    The first signal stops everything in good order, the second one ends the running command at
    once; what is cleaned up after it is not interrupted.
    """

    def __init__(self) -> None:
        self._signal: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._is_starting = False

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Raise `StoppedError` at the first SIGINT, SIGTERM or SIGHUP, wherever we are."""
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._handle) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def call(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run *command* to its end; return its exit code as a shell would say it.

        It has our output, a session of its own, so that Ctrl-C reaches it once, from here, and no
        input, so that it asks nothing.

        Raises:
            StoppedError: At a signal, when the command has stopped too.
        """
        self._is_starting = True  # a signal waits until there is a process to pass it on to
        try:
            with subprocess.Popen(  # noqa: S603  (our own commands)
                command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            ) as child:
                return self._ended(child)
        finally:
            self._is_starting = False

    def _ended(self, child: "subprocess.Popen[bytes]") -> int:
        self._child = child
        try:
            self._is_starting = False
            self._stop_if_asked()
            code = child.wait()
        except StoppedError:
            child.terminate()  # SIGINT, if it is not up yet, would make it print a traceback
            child.wait()
            raise
        finally:
            self._child = None
        return code if code >= 0 else 128 - code

    def _handle(self, number: int, _frame: object) -> None:
        if self._signal is not None:
            if self._child is not None:
                os.killpg(self._child.pid, signal.SIGKILL)
            return
        self._signal = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        if not self._is_starting:
            self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._signal is not None:
            raise StoppedError("stopped", signal=self._signal)
