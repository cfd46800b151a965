"""``--summary-file``: the summary for a monitor, the old one or the new one, never half of one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from kbackup import durable, moments
from kbackup.cli.json_lines import json_line
from kbackup.cli.reasons import LOCKED
from kbackup.errors import ConfigurationError, KbackupError


class SummaryFile:
    """Writes the summary beside its place and moves it there.

    The file holds the summary line and ``last_success``, as `RunRecord.success` defines it: up to
    when the backup is complete, taken over from the old file where this run does not say, null
    where none ever did.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._is_usable = False

    def __enter__(self) -> Self:
        """Check that the file can be written before the work begins, not after.

        Raises:
            ConfigurationError: If it cannot.
        """
        folder = self._path.parent
        if not folder.is_dir():
            raise self._error(f"{folder} is not a folder")
        if self._path.exists() and not self._path.is_file():
            raise self._error("it exists and is not a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise self._error(f"no permission to write in {folder}")
        self._is_usable = True
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the summary comes with `finish`."""

    def tell(self, event: Mapping[str, Any]) -> None:
        """Do nothing: only the summary counts."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Put *summary* in place of the old one.

        A run that found the lock held leaves the file to the run that holds it.  Nothing is
        written where entering has failed.

        Raises:
            KbackupError: If it cannot be written; the old file is then whole.
        """
        if summary["exit_code"] == LOCKED or not self._is_usable:
            return
        last_success = self._last_success(summary)
        try:
            line = json_line({**summary, "last_success": last_success}) + "\n"
            durable.replace_file(self._path, line.encode())
        except OSError as error:
            raise KbackupError(
                f"summary file {self._path} was not written",
                error.strerror or str(error),
                "free space or permissions, then run again; the old file is unchanged",
            ) from error

    def _last_success(self, summary: Mapping[str, Any]) -> str | None:
        """Return the time of the last good run; a damaged old file knows of none."""
        from kbackup.runs.record import RunRecord  # noqa: PLC0415

        try:
            old = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            old = None
        carried = old.get("last_success") if isinstance(old, dict) else None
        success = RunRecord(summary).success or RunRecord({"last_success": carried}).success
        return None if success is None else moments.text(success)

    def _error(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"summary file {self._path} cannot be written",
            why,
            "give --summary-file a path in a folder that exists and can be written",
        )
