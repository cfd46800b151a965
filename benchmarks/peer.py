"""Another backup tool in the same run: osodevops/kafka-backup, where its binary is given.

It backs up to a local folder, compressed as kbackup's files are, once through the topic and no
further, and without the headers that it would add to each record.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

VARIABLE: Final = "KBACKUP_BENCH_PEER"
"""Environment variable: the path of its executable."""

_BACKUP: Final = "bench"


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

    def backup(self, servers: str, topic: str, folder: Path) -> list[str]:
        """Return the command that backs *topic* up to *folder*, which is empty."""
        return self._command(
            "backup",
            folder,
            source={"bootstrap_servers": [servers], "topics": {"include": [topic]}},
            backup={
                "stop_at_current_offsets": True,
                "include_offset_headers": False,
                "compression": "zstd",
                "compression_level": 1,
                "max_concurrent_partitions": 8,
            },
        )

    def restore(self, servers: str, topic: str, target: str, folder: Path) -> list[str]:
        """Return the command that restores *topic* from *folder* to *target*, which is there."""
        return self._command(
            "restore",
            folder,
            target={"bootstrap_servers": [servers], "topics": {"include": [topic]}},
            restore={"topic_mapping": {topic: target}},
        )

    def records(self, folder: Path) -> int:
        """Return how many records the backup in *folder* says it holds."""
        manifest = json.loads((folder / _BACKUP / "manifest.json").read_text())
        return sum(
            segment["record_count"]
            for topic in manifest["topics"]
            for partition in topic["partitions"]
            for segment in partition["segments"]
        )

    def stored_bytes(self, folder: Path) -> int:
        """Return the size of all files in *folder*."""
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

    def _command(self, mode: str, folder: Path, **sections: dict[str, Any]) -> list[str]:
        own = Path(tempfile.mkdtemp(dir=self.scratch))
        config = {
            "mode": mode,
            "backup_id": _BACKUP,
            "storage": {"backend": "filesystem", "path": str(folder)},
            "offset_storage": {"db_path": str(own / "offsets.db")},
            "metrics": {"enabled": False},
            **sections,
        }
        file = own / f"{mode}.yaml"
        file.write_text(json.dumps(config))  # all of JSON is YAML
        return [str(self.executable), mode, "--config", str(file)]
