"""Run servers in processes of their own that end when we end, however we end; among them S3's.

The S3 server is moto, with its objects in memory, those above `SPOOLED_BYTES` in temporary files.
"""

import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from kbackup.errors import LocalServiceError, with_extra

_GUARD: Final = """
scratch=$1
shift
exec 3<&0 </dev/null
( read -r _ <&3 || { kill -9 $$; rm -rf -- "$scratch"; } ) &
exec "$@" 3<&-
"""
"""Becomes the server and leaves a guard that reads our pipe.

A line releases the guard; the end of the pipe without a line means that we have died, even by
SIGKILL.  Unlike Linux's parent death signal, this works elsewhere, and does not mistake the end of
the thread that started the server for the end of the process.
"""

_PORTS: Final = range(20_000, 32_000)
"""Below every system's ephemeral ports: while a server is down, no connection gets one of them as
its own port, not even a client that tries to reach that server again."""


def free_ports(number: int) -> list[int]:
    """Return *number* different loopback ports that nothing listens on; they are not reserved.

    Raises:
        LocalServiceError: If there are not that many.
    """
    found: list[int] = []
    for port in random.sample(_PORTS, 500):
        if len(found) < number and _is_free(port):
            found.append(port)
    if len(found) < number:
        raise LocalServiceError(f"no free port on 127.0.0.1 from {_PORTS.start} to {_PORTS.stop}")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # as servers set it: a port whose last connections are still in TIME_WAIT is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class LocalService(ABC):
    """A server that starts when it is created; a context manager that stops it."""

    @abstractmethod
    def stop(self) -> None:
        """End it and remove all of its data; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class LocalServer(LocalService):
    """A server process, and the directory with all of its data, which is removed with it.

    Raises:
        LocalServiceError: If it does not start.
    """

    def __init__(self, prefix: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            self._prepare()
            self._service = self._start()
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    @abstractmethod
    def _prepare(self) -> None:
        """Choose ports, and write what the server reads when it starts."""

    @abstractmethod
    def _start(self) -> "Service":
        """Start it, and wait until it serves."""

    @property
    def pid(self) -> int:
        """Its process id; another one after a restart."""
        return self._service.pid

    @property
    def is_running(self) -> bool:
        """Whether its process is alive."""
        return self._service.is_running

    def stop(self) -> None:
        """End it and remove its data; may be repeated, but it cannot be started again."""
        self._service.kill()  # an orderly end would only save what is removed next
        shutil.rmtree(self._directory, ignore_errors=True)


class Service:
    """A running server process, in its own session so that no signal meant for us reaches it.

    Args:
        log: File that its output is appended to.
        scratch: Directory to remove if we die without stopping it.

    Raises:
        LocalServiceError: If there is no POSIX shell to start it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.name, self.log = name, log
        guarded = ["/bin/sh", "-c", _GUARD, "guard", str(scratch or ""), *map(str, command)]
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603  (our own servers)
                    guarded,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,
                )
        except OSError as error:
            raise LocalServiceError(f"{name} could not be started", str(error)) from error

    @property
    def pid(self) -> int:
        """The server's own process id: the shell that guards it has become the server."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is alive; a stopped (SIGSTOP) one is."""
        return self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return as soon as *ready()* is true.

        Raises:
            LocalServiceError: If the process ends or *seconds* pass before that; the reason has
                its last lines, and it is no longer running.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.is_running:
                raise self._failed(f"ended with exit code {self._process.returncode}")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failed(f"was not ready after {seconds:.0f} s")
            time.sleep(0.02)

    def stop(self, seconds: float = 20) -> None:
        """Ask it to end (SIGTERM) and kill it if it has not after *seconds*; may be repeated."""
        if self.is_running:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL); may be repeated."""
        if self.is_running:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._dismiss_guard()

    def log_tail(self) -> str:
        """Return the last 15 lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _dismiss_guard(self) -> None:
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        with suppress(BrokenPipeError):  # the guard was killed before us
            pipe.write(b"\n")
            pipe.close()

    def _failed(self, how: str) -> LocalServiceError:
        self._dismiss_guard()
        return LocalServiceError(f"{self.name} {how}", self.log_tail())


_S3_START_S: Final = 30
"""How long a start may take; under 1 s is usual."""

SPOOLED_BYTES: Final = 64 << 20
"""Size above which an object or a part goes to disk; moto's own 5 MB halve its speed."""

_REQUIRED: Final = ("moto", "flask", "flask_cors")


class LocalS3(LocalServer):
    """One S3 server on 127.0.0.1, without TLS; it starts when created.

    A context manager that stops it.  It ends when the process that created it ends, however
    that ends; a signal to that process's group does not reach it.  It answers requests in
    parallel, one thread each, and accepts any credentials.

    Raises:
        LocalServiceError: If moto is not installed or does not start.
    """

    access_key_id: Final = "local"
    secret_access_key: Final = "local-server"  # noqa: S105  (no secret: any is accepted)
    region: Final = "us-east-1"

    def __init__(self) -> None:
        if missing := [name for name in _REQUIRED if find_spec(name) is None]:
            raise LocalServiceError(
                "the S3 server cannot be started",
                f"not installed: {', '.join(missing)}",
                with_extra("demo"),
            )
        super().__init__("kbackup-s3-")

    @property
    def endpoint_url(self) -> str:
        """Where it listens, such as ``http://127.0.0.1:21034``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that give a client of this server its credentials and region."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_DEFAULT_REGION": self.region,
        }

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket; an existing one stays as it is.

        Raises:
            LocalServiceError: If the server refuses the name or does not answer.
        """
        url = f"{self.endpoint_url}/{urllib.parse.quote(name, safe='')}"
        request = urllib.request.Request(url, data=b"", method="PUT")  # noqa: S310  (http, ours)
        try:
            # do not use a proxy from the environment for the loopback
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read().decode(errors="replace")
            raise LocalServiceError(f"bucket {name!r} was not made", answer) from error
        except (OSError, http.client.HTTPException) as error:
            raise LocalServiceError(f"bucket {name!r} was not made", str(error)) from error

    def _prepare(self) -> None:
        (self._port,) = free_ports(1)

    def _start(self) -> Service:
        service = Service(
            f"the S3 server on {self.endpoint_url}",
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            self._directory / "moto.log",
            environment={
                # its spooled objects belong in the directory that is removed with it
                "TMPDIR": str(self._directory),
                "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(SPOOLED_BYTES),
            },
            scratch=self._directory,
        )
        service.wait_until(self._is_open, _S3_START_S)
        return service

    def _is_open(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True
