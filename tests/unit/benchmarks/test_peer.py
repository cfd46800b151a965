"""The other backup tool of the benchmarks."""

import json
from pathlib import Path

import pytest

from benchmarks.peer import VARIABLE, Peer, PeerMissingError
from kbackup.stores import StoreSettings, open_store


def test_without_the_variable_there_is_no_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment names no other tool, none is measured."""
    monkeypatch.delenv(VARIABLE, raising=False)

    assert Peer.given(tmp_path) is None


def test_what_cannot_be_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names no executable file is an error, not a run without the peer."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "absent"))

    with pytest.raises(PeerMissingError, match="is no executable file"):
        Peer.given(tmp_path)


def test_backup_and_restore_share_one_folder(tmp_path: Path) -> None:
    """The configuration of the restore names the backup's folder and the topic's new name."""
    peer = Peer(Path("/bin/peer"), tmp_path)
    storage = {"backend": "filesystem", "path": str(tmp_path / "backup")}

    commands = [peer.backup("b:1", "t", storage), peer.restore("b:1", "t", "u", storage)]

    configs = [json.loads(Path(command[-1]).read_text()) for command in commands]
    assert ["backup", "restore"] == [command[1] for command in commands]
    assert [storage] * 2 == [config["storage"] for config in configs]
    assert {"t": "u"} == configs[1]["restore"]["topic_mapping"]


def test_records_are_counted_from_the_manifest(tmp_path: Path) -> None:
    """What a backup holds is the sum over all segments of all partitions."""
    partitions = [{"segments": [{"record_count": 2}, {"record_count": 3}]}, {"segments": []}]
    manifest = tmp_path / "bench" / "manifest.json"
    manifest.parent.mkdir()
    manifest.write_text(json.dumps({"topics": [{"partitions": partitions}]}))

    store = open_store(StoreSettings(tmp_path.as_uri()))
    found = Peer(Path("/bin/peer"), tmp_path).records(store)

    assert 5 == found
