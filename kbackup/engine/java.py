"""The process of Spark's JVM, where we start it ourselves."""

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

from kbackup.engine.complaints import exit_sentence

_LOOK_S: Final = 0.005
_START_S: Final = 180.0
"""How long a JVM may take to say where it listens: a second or two, a minute on a busy machine."""

_ROOM_BYTES: Final = 64 << 10
"""What it writes to its folder before it listens, generously."""

_FOLDER: Final = "kbackup-jvm-"
_OWNER: Final = "owner"
"""In each folder: a file that its process holds with flock, so that the kernel frees it."""

_STALE_S: Final = 3600.0
"""A folder that is younger may not have been locked yet."""

_SAID: Final = "gateway"
_NOT_NEEDED: Final = "it is no longer needed"


@dataclass(slots=True)
class Java:
    """A JVM that we started ourselves.

    Attributes:
        process: It.
        folder: Where it says where it listens, and where Spark puts what it needs for a while.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    _owner: IO[bytes]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_taken: bool = False
    _is_dropped: bool = False

    @classmethod
    def run(cls, command: Sequence[str], environment: Mapping[str, str], log: Any) -> Self:
        """Start one; what it prints goes to *log*.

        Raises:
            OSError: If it cannot be started, or there is no room for what it has to say.
        """
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        _sweep(folder.parent)
        said = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _SAID)}
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            owner = undo.enter_context((folder / _OWNER).open("wb"))
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _check_room(folder)
            process = subprocess.Popen(  # noqa: S603  (a Java that was found, options of ours)
                [command[0], f"-Djava.io.tmpdir={folder}", *command[1:]],
                stdin=subprocess.PIPE,  # when it breaks, the JVM ends
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, **said},
                process_group=0,  # Ctrl-C is for the run, which then ends the JVM
            )
            undo.pop_all()
        return cls(process, folder, owner)

    def gateway(self, connect: Callable[[], Any]) -> Any:
        """Return pyspark's connection to the JVM, once it listens.

        Raises:
            OSError: If the JVM ended first, did not listen in time, or was dropped.
        """
        try:
            said = self._said()
        except BaseException:
            self.clean()
            raise
        port, length = struct.unpack(">ii", said[:8])
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port),
                       "PYSPARK_GATEWAY_SECRET": said[8 : 8 + length].decode()}  # fmt: skip
        try:  # this is how pyspark is told that there is a JVM already
            gateway = connect()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        return gateway

    def _said(self) -> bytes:
        """Return what it says of where it listens, and take it."""
        deadline = time.monotonic() + _START_S
        while not (self.folder / _SAID).is_file():  # it appears whole, by a rename
            if self.process.poll() is not None:
                raise OSError(exit_sentence(self.process.returncode))
            if time.monotonic() > deadline:
                raise OSError(f"Java did not say where it listens within {_START_S:.0f} s")
            time.sleep(_LOOK_S)
        with self._lock:
            if self._is_dropped:
                raise OSError(_NOT_NEEDED)
            self._is_taken = True
        return (self.folder / _SAID).read_bytes()

    def drop(self) -> None:
        """End a JVM that nobody needs, at once, unless someone is connected to it already."""
        with self._lock:
            self._is_dropped = not self._is_taken
            if self._is_dropped:
                self.process.kill()

    def kill(self) -> None:
        """End the JVM at once, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.clean()

    def clean(self) -> None:
        """Remove what a JVM that has ended may have left in its folder."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._owner.close()


def _sweep(parent: Path) -> None:
    """Remove the folders in *parent* that processes have left that were killed."""
    for left in parent.glob(f"{_FOLDER}*"):
        with suppress(OSError):  # it is in use, or not ours
            if left.stat().st_mtime < time.time() - _STALE_S:
                with (left / _OWNER).open("rb+") as owner:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left, ignore_errors=True)


def _check_room(folder: Path) -> None:
    """Refuse to start a JVM that could not say where it listens.

    It would neither end nor have room to say why: its main thread dies, and others keep it alive.

    Raises:
        OSError: If *folder* is on a disk that is full.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_ROOM_BYTES))
        file.flush()
