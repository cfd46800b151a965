"""An S3 server that writes to disk, versity's gateway, where its executable is given.

Without it the S3 server of the tests is measured against: a Python program that shares the cores.
"""

import os
from pathlib import Path
from typing import Final

import boto3

from kbackup.local import LocalS3
from kbackup.local.servers import Service

VARIABLE: Final = "KBACKUP_BENCH_GATEWAY"
"""Environment variable: the path of its executable, ``versitygw``."""

_START_S: Final = 30


def s3_server() -> LocalS3:
    """Start the one that the environment names, or that of the tests."""
    executable = os.environ.get(VARIABLE)
    return Gateway(Path(executable)) if executable else LocalS3()


class Gateway(LocalS3):
    """Objects are files in a folder that is removed with it."""

    def __init__(self, executable: Path) -> None:
        """Start it.

        Args:
            executable: Its program.
        """
        self._executable = executable
        super().__init__()

    def create_bucket(self, name: str) -> None:
        """Create an empty bucket, signed, for this server knows its user."""
        boto3.client(
            "s3", endpoint_url=self.endpoint_url, region_name=self.region,
            aws_access_key_id=self.access_key_id, aws_secret_access_key=self.secret_access_key,
        ).create_bucket(Bucket=name)  # fmt: skip

    def _start(self) -> Service:
        folder = self._directory / "buckets"
        folder.mkdir(exist_ok=True)
        who = ("--access", self.access_key_id, "--secret", self.secret_access_key)
        where = ("--port", f"127.0.0.1:{self._port}", "--region", self.region)
        service = Service(
            f"the gateway on {self.endpoint_url}",
            [self._executable, *who, *where, "--quiet", "posix", str(folder)],
            self._directory / "gateway.log",
            scratch=self._directory,
        )
        service.wait_until(self._is_open, _START_S)
        return service
