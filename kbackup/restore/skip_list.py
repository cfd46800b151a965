"""``--skipped-file``: every record and object that a restore leaves out, a JSON line each.

A restore that follows names only the first ones in its summary; this list has them all, for
whoever brings them back in another way.  Each run adds to the file.  A task reports what it has
left out when it ends, so a run that is killed may have left out more.
"""

import json
import os
from pathlib import Path
from typing import Self, TextIO

from kbackup.errors import ConfigurationError, Failure, KbackupError
from kbackup.records import TopicPartition


class SkipList:
    """The file; safe from one thread at a time.

    Args:
        path: Where; None for no list.
        run: The run, which each line names.
    """

    def __init__(self, path: str | None, run: str) -> None:
        self._path, self._run = None if path is None else Path(path), run
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        """Open the file, before anything is restored.

        Raises:
            ConfigurationError: If it cannot be written.
        """
        if self._path is None:
            return self
        try:
            # line by line: whoever follows a restore reads the list meanwhile
            self._file = self._path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"the list of what is skipped, {self._path}, cannot be written",
                error.strerror or str(error),
                "give --skipped-file a path in a folder that exists and can be written",
            ) from error
        return self

    def add(self, failure: Failure, where: TopicPartition | None = None) -> None:
        """Write down something that is left out.

        Args:
            failure: What, and why.
            where: Its partition, where that is known.

        Raises:
            KbackupError: If it cannot be written.
        """
        if self._file is None:
            return
        place = {} if where is None else {"topic": where.topic, "partition": where.partition}
        entry = {"type": "skipped", "run": self._run, **failure.at(**place).to_dict()}
        try:
            self._file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise self._lost(error) from error

    def __exit__(self, *_: object) -> None:
        """Make what was written safe, and close the file.

        Raises:
            KbackupError: If it cannot be written.
        """
        if self._file is None:
            return
        try:
            with self._file as file:
                file.flush()
                if (
                    self._path is not None and self._path.is_file()
                ):  # not a pipe, such as /dev/stderr
                    os.fsync(file.fileno())
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self._file = None

    def _lost(self, error: OSError) -> KbackupError:
        return KbackupError(
            f"the list of what was skipped, {self._path}, is not complete",
            error.strerror or str(error),
            "free space; to get the whole list, restore into a new topic",
        )
