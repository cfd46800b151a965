"""The installed command, run as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from kbackup.local import LocalS3


def _others() -> dict[str, str]:
    """The variables of this process but kbackup's; the tests' ``KBACKUP_OBJECTS`` is none of it."""
    return {name: text for name, text in os.environ.items() if not name.startswith("KBACKUP_")}


def places(servers: str, s3: "LocalS3", bucket: str, **more: str) -> dict[str, str]:
    """Return the variables that say where a command's cluster and bucket are, and *more*."""
    return {
        "KBACKUP_BOOTSTRAP_SERVERS": servers,
        "KBACKUP_STORE_URL": s3.endpoint_url,
        "KBACKUP_S3_BUCKET_NAME": bucket,
        **s3.environment,
        **more,
    }


class Result(NamedTuple):
    """What a finished command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """The last JSON line."""
        return self.lines[-1]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one type."""
        return [line for line in self.lines if line["type"] == kind]


@dataclass(frozen=True)
class Kbackup:
    """``kbackup`` with an environment, or another *module* that runs it."""

    environment: Mapping[str, str] = field(default_factory=dict)
    module: str = "kbackup"

    def with_environment(self, **more: str) -> Self:
        """The same, and run the same way, with further variables."""
        return replace(self, environment={**self.environment, **more})

    def start(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", self.module, *words],
            env={**_others(), "PYTHONFAULTHANDLER": "1", **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )

    def __call__(self, *words: str, timeout: float = 480) -> Result:
        """Run a command to its end; one that finds none says where each of its threads was."""
        process = self.start(*words)
        try:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)
                out, err = process.communicate(timeout=10)
                raise AssertionError(f"no end in {timeout:.0f} s: {words}\n{out}\n{err}") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return Result(process.returncode, out, err)

    def json(self, *words: str, expect: int = 0, timeout: float = 480) -> Result:
        """Run a command with ``--json`` that must end with *expect*."""
        result = self(*words, "--json", timeout=timeout)
        assert expect == result.code, f"{result.stdout}\n{result.stderr}"
        return result
