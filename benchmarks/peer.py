"""Another backup tool in the same run: osodevops/kafka-backup, where its binary is given.

It backs up to a folder or to S3, compressed as kbackup's files are, once through the topic and no
further, and without the headers that it would add to each record.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from kbackup.stores import Store

VARIABLE: Final = "KBACKUP_BENCH_PEER"
"""Environment variable: the path of its executable."""

_BACKUP: Final = "bench"
_MANIFEST: Final = f"{_BACKUP}/manifest.json"

Storage = Mapping[str, object]
"""Where its backup lies, as its configuration says it."""


class PeerMissingError(Exception):
    """The variable names no executable."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other tool.

    Attributes:
        executable: What is run as ``EXECUTABLE backup|restore --config FILE``.
        scratch: A folder for its configuration and its notes on offsets.
    """

    STORE: ClassVar[str] = "peer"
    """Under which its backups are kept apart from ours."""

    executable: Path
    scratch: Path

    @classmethod
    def given(cls, scratch: Path) -> Self | None:
        """Return the one that the environment names, None where it names none.

        Raises:
            PeerMissingError: If it names what cannot be run.
        """
        name = os.environ.get(VARIABLE)
        if not name:
            return None
        executable = Path(name).absolute()
        if not os.access(executable, os.X_OK) or executable.is_dir():
            raise PeerMissingError(f"{VARIABLE}={name} is no executable file")
        return cls(executable, scratch)

    def backup(self, servers: str, topic: str, storage: Storage) -> list[str]:
        """Return the command that backs *topic* up to an empty folder or bucket."""
        return self._command(
            "backup",
            storage,
            source={"bootstrap_servers": [servers], "topics": {"include": [topic]}},
            backup={
                "stop_at_current_offsets": True,
                "include_offset_headers": False,
                "compression": "zstd",
                "compression_level": 1,
                "max_concurrent_partitions": 8,
            },
        )

    def restore(self, servers: str, topic: str, target: str, storage: Storage) -> list[str]:
        """Return the command that restores *topic* to *target*, which is there."""
        return self._command(
            "restore",
            storage,
            target={"bootstrap_servers": [servers], "topics": {"include": [topic]}},
            restore={"topic_mapping": {topic: target}},
        )

    def records(self, store: Store) -> int:
        """Return how many records the backup in *store* says it holds."""
        [key] = [each.key for each in store.list("") if each.key.endswith(_MANIFEST)]
        with store.open(key) as body:
            manifest = json.loads(body.read())
        return sum(
            segment["record_count"]
            for topic in manifest["topics"]
            for partition in topic["partitions"]
            for segment in partition["segments"]
        )

    def _command(self, mode: str, storage: Storage, **sections: dict[str, Any]) -> list[str]:
        own = Path(tempfile.mkdtemp(dir=self.scratch))
        config = {
            "mode": mode,
            "backup_id": _BACKUP,
            "storage": storage,
            "offset_storage": {"db_path": str(own / "offsets.db")},
            "metrics": {"enabled": False},
            **sections,
        }
        file = own / f"{mode}.yaml"
        file.write_text(json.dumps(config))  # all of JSON is YAML
        return [str(self.executable), mode, "--config", str(file)]
