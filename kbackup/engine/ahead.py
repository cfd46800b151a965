"""The Python that Spark's workers are forked from, started beside Java.

It takes half a second to start and to import what tasks need, which is just about what Java needs.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from kbackup import worker

_END_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """A process that waits to become Spark's Python daemon."""

    process: subprocess.Popen[bytes]
    folder: Path

    @classmethod
    def start(cls, log: int, modules: Sequence[str] = ()) -> Self | None:
        """Start one; None where that is not possible, for Spark can do without.

        Args:
            log: Descriptor of a file for what it prints.
            modules: What to import beside what all tasks need.
        """
        try:
            folder = Path(tempfile.mkdtemp(prefix="kbackup-py-"))
        except OSError:
            return None
        try:
            process = subprocess.Popen(  # noqa: S603  (this very Python)
                [sys.executable, "-m", worker.__name__, "--ahead", f"{folder}/socket", *modules],
                stdin=subprocess.PIPE,  # when it breaks, the process ends
                stdout=log,
                stderr=log,
                process_group=0,
            )
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return cls(process, folder)

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the process that Spark starts where this one is."""
        return {worker.SOCKET: str(self.folder / "socket")}

    def kill(self) -> None:
        """End the process and its workers at once: none is at work."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End the process if Spark has not taken it over, else wait until Spark has ended it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
