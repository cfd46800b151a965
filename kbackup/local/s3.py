"""An S3 server on this machine: moto in its own process, whose objects are gone when it stops.

Objects are in the server's memory, those above `SPOOLED_BYTES` in temporary files.
"""

import http.client
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from importlib.util import find_spec
from typing import Final

from kbackup.errors import LocalServiceError
from kbackup.local.process import LocalServer, Service, free_ports

START_SECONDS: Final = 30
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
                "run: pip install 'kbackup[demo]'",
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
        service.wait_until(self._is_open, START_SECONDS)
        return service

    def _is_open(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True
