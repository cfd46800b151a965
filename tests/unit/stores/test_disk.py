"""What a folder store has on the disk when a put returns."""

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbackup.stores import StoreSettings
from kbackup.stores.file import Disk, FileStore
from kbackup.testing.stores import put_bytes


class Power:
    """What would outlast a power cut: what each file, and each folder, held when it was synced."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.syncs: list[int] = []
        self.wait: threading.Event | None = None

    def fsync(self, handle: int) -> None:
        """Take in a file or a folder as it is when its sync begins."""
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(handle) as entries:
                held = {entry.name: entry.inode() for entry in entries}
            self.names.setdefault(found.st_ino, {}).update(held)
        else:
            self.sizes[found.st_ino] = found.st_size
        self.syncs.append(found.st_ino)
        if self.wait is not None:
            self.wait.wait(10)

    def has(self, root: Path, key: str) -> bool:
        """Whether an object is there, whole, under all the names that lead to it."""
        at = root.stat().st_ino
        for name in Path(key).parts:
            at = self.names.get(at, {}).get(name, 0)
        return at != 0 and self.sizes.get(at) == (root / key).stat().st_size


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    """Return what is told of each sync."""
    power = Power()
    monkeypatch.setattr("os.fsync", power.fsync)
    yield power
    if power.wait is not None:
        power.wait.set()


@pytest.mark.parametrize("more", [b"", bytes(2**20)], ids=["small", "large"])
def test_what_a_put_has_stored_outlasts_a_power_cut(
    tmp_path: Path, power: Power, more: bytes
) -> None:
    """Body, facts and the names that lead to them are on the disk when a put returns."""
    (tmp_path / "topics/killed").mkdir(parents=True)
    store = FileStore(StoreSettings(tmp_path.as_uri()))
    keys = [
        f"topics/{topic}/partition={at}/{n}"
        for n in range(2)
        for at in range(5)
        for topic in ("killed", "new")
    ]

    def put(key: str) -> bool:
        put_bytes(store, key, key.encode() + more)
        return power.has(tmp_path, key) and power.has(tmp_path, f".kbackup/facts/{key}")

    with ThreadPoolExecutor(8) as pool:
        lasting = list(pool.map(put, keys))

    assert [True] * len(keys) == lasting


def test_what_another_has_stored_outlasts_a_power_cut_once_it_is_found_there(
    tmp_path: Path, power: Power
) -> None:
    """A put that finds its object there syncs the names, as a killed process may not have."""
    key = "topics/orders/partition=0/a"
    put_bytes(FileStore(StoreSettings(tmp_path.as_uri())), key, b"a")
    power.names.clear()

    put_bytes(FileStore(StoreSettings(tmp_path.as_uri())), key, b"a", if_absent=True)

    assert [True, True] == [power.has(tmp_path, name) for name in (key, f".kbackup/facts/{key}")]


def test_a_put_beside_others_syncs_its_two_files_and_their_folders(
    tmp_path: Path, power: Power
) -> None:
    """The second object of a folder takes four syncs; those above it were synced with the first."""
    store = FileStore(StoreSettings(tmp_path.as_uri()))
    put_bytes(store, "topics/orders/partition=0/a", b"a")
    before = len(power.syncs)
    put_bytes(store, "topics/orders/partition=0/b", b"b")

    assert 4 == len(power.syncs) - before


def test_threads_share_the_sync_of_a_folder(tmp_path: Path, power: Power) -> None:
    """What several threads ask for while a sync goes on is synced once for all of them after it."""
    power.wait, disk = threading.Event(), Disk()
    threads = [threading.Thread(target=disk.sync, args=(tmp_path,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    power.wait.set()
    for thread in threads:
        thread.join()

    assert 2 <= len(power.syncs) < 20


def test_a_sync_that_fails_keeps_no_other_from_being_made(tmp_path: Path) -> None:
    """A path that cannot be synced is an error of its caller, and the next caller's is synced."""
    disk = Disk()

    with pytest.raises(FileNotFoundError):
        disk.sync(tmp_path / "gone")
    disk.sync(tmp_path)
