import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import StoreSettings, metadata_of
from kbackup.stores.file import FileStore
from kbackup.testing import open_bytes, put_bytes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "my lake"
    root.mkdir()
    return root


@pytest.fixture
def store(root: Path) -> FileStore:
    return FileStore(StoreSettings(f"file://{root}"))


def keys(store: FileStore, prefix: str = "") -> list[str]:
    return [one.key for one in store.list(prefix)]


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("file://{root}", id="as it is"),
        pytest.param("file://localhost{root}", id="with a host"),
        pytest.param("file://{quoted}", id="quoted"),
    ],
)
def test_a_url_names_a_folder(root: Path, url: str) -> None:
    """Objects are files in the folder, at their keys."""
    place = url.format(root=root, quoted=str(root).replace(" ", "%20"))
    put_bytes(FileStore(StoreSettings(place)), "topics/a", b"x")

    assert b"x" == (root / "topics/a").read_bytes()


def test_who_opens_an_object_knows_its_metadata(store: FileStore, root: Path) -> None:
    """A restore of many small objects asks for each of them once."""
    put_bytes(store, "topics/ours", b"x")
    (root / "topics/theirs").write_bytes(b"y")

    found = []
    for key in ("topics/ours", "topics/theirs"):
        with store.open(key) as body:
            found.append(metadata_of(body))

    heads = [store.head(key) for key in ("topics/ours", "topics/theirs")]
    assert [head.metadata for head in heads if head is not None] == found
    assert ["7", None] == [each.get("records") for each in found if each is not None]


def test_a_listing_reads_no_folder_before_its_own(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a topic of a thousand partitions, each partition's listing reads its own folder."""
    for key in ("topics/t/p=1/a", "topics/t/p=10/b", "topics/t/p=1/c/d"):
        put_bytes(store, key, b"x")
    read, scan = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda at: (read.append(str(at)), scan(at))[1])

    found = [keys(store, prefix) for prefix in ("topics/t/p=1/", "topics/t/p=1/c/d")]

    assert [["topics/t/p=1/a", "topics/t/p=1/c/d"], ["topics/t/p=1/c/d"]] == found
    below = root / "topics/t/p=1"
    assert [str(at) for at in (below, below / "c", below / "c")] == read
    no_keys = ("no/such/", "topics/t/p=1/a/", "/topics/", "topics/../topics/", ".kbackup/", "\0/")
    assert [[]] * 6 == [keys(store, prefix) for prefix in no_keys]


@pytest.mark.parametrize("url", ["file://tmp", "file://", "file://host/tmp"])
def test_a_url_that_is_no_local_folder_is_refused(url: str) -> None:
    """A file URL with two slashes is refused, because its folder would be a host."""
    with pytest.raises(ConfigurationError, match="not a local folder"):
        FileStore(StoreSettings(url))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("topics/../../etc/x+0+0.avro", id="up and out"),
        pytest.param("topics/../a", id="up and back"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("", id="empty"),
        pytest.param("a//b", id="empty name"),
        pytest.param("a/", id="a folder"),
        pytest.param("./a", id="a dot"),
        pytest.param("a\0b", id="NUL"),
        pytest.param(".kbackup/lock", id="our own"),
        pytest.param("a/" + "é" * 128, id="name of 256 bytes"),
    ],
)
def test_a_key_is_never_a_path_out_of_the_root(store: FileStore, root: Path, key: str) -> None:
    """G2: what cannot be a file below the root is refused, whatever is asked of it."""
    for work in (store.open, store.head, store.delete, lambda key: put_bytes(store, key, b"x")):
        with pytest.raises(ObjectKeyError) as caught:
            work(key)

        assert key == caught.value.key

    assert [] == [*root.iterdir()]


@pytest.mark.parametrize("key", ["a\nb", "C:\\x", "a\u202eb", "-rf", "~", "$(x)", "..."])
def test_odd_keys_are_files_like_others(store: FileStore, key: str) -> None:
    """G2: an object is stored and found whatever its key looks like."""
    put_bytes(store, key, b"x")

    assert ([key], b"x") == (keys(store), open_bytes(store, key))


def test_a_missing_root_is_not_an_empty_backup(tmp_path: Path) -> None:
    """An unmounted disk is an error, for reading and for writing."""
    store = FileStore(StoreSettings(f"file://{tmp_path}/nfs"))

    works = (
        lambda: store.head("a"), lambda: store.open("a"), lambda: keys(store),
        lambda: put_bytes(store, "a", b"x"),
    )  # fmt: skip
    for work in works:
        with pytest.raises(StoreError, match="nfs: no such folder"):
            work()

    assert not (tmp_path / "nfs").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("file", "it is a file, not a folder", id="a file"),
        pytest.param("x" * 300, "File name too long", id="what the disk does not even look for"),
    ],
)
def test_a_root_that_is_no_folder_is_said_to_be_none(tmp_path: Path, name: str, why: str) -> None:
    """A root that cannot be a folder is an error that says why, and nobody is told to create it."""
    (tmp_path / "file").touch()
    store = FileStore(StoreSettings(f"file://{tmp_path}/{name}"))

    with pytest.raises(StoreError, match=why) as caught:
        store.head("a")

    assert "mkdir" not in caught.value.do


def test_links_are_not_followed_out_of_the_root(
    store: FileStore, root: Path, tmp_path: Path
) -> None:
    """A link below the root is named, neither read, written through nor left out of a list."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "a").symlink_to(outside / "a")

    for key in ("a", "folder/a"):
        for work in (store.open, store.head, lambda key: put_bytes(store, key, b"x")):
            with pytest.raises(StoreError, match="symbolic link"):
                work(key)
    for prefix in ("", "a", "folder/"):
        with pytest.raises(StoreError, match="symbolic link"):
            keys(store, prefix)
    assert b"secret" == (outside / "a").read_bytes()
    assert [] == keys(store, "topics/")


def test_an_altered_object_is_named_with_both_checksums(store: FileStore, root: Path) -> None:
    """B12: a bit that flipped on the disk is found when the object is read."""
    put_bytes(store, "a", b"orders")
    (root / "a").write_bytes(b"orderz")

    with pytest.raises(CorruptObjectError, match=r"a: its sha256 is .*; .* was stored"):
        store.open("a")


def test_an_object_put_there_by_others_is_read(store: FileStore, root: Path) -> None:
    """A folder copied from a bucket is a backup too."""
    (root / "topics").mkdir()
    (root / "topics/a").write_bytes(b"x")
    head = store.head("topics/a")

    assert b"x" == open_bytes(store, "topics/a")
    assert head is not None
    assert {} == head.metadata
    assert not put_bytes(store, "topics/a", b"y", if_absent=True)
    assert put_bytes(store, "topics/a", b"x", if_absent=True)


@pytest.mark.parametrize("stored", [b"old", b"new"])
def test_facts_of_a_write_that_was_cut_short_do_no_harm(
    store: FileStore, root: Path, stored: bytes
) -> None:
    """Between facts and object either may be there: the content says which facts apply."""
    facts = []
    for data in (b"old", b"new"):
        put_bytes(store, "a", data)
        facts += json.loads((root / ".kbackup/facts/a").read_bytes())
    put_bytes(store, "a", stored)
    (root / ".kbackup/facts/a").write_text(json.dumps(facts))
    head = store.head("a")

    assert stored == open_bytes(store, "a")
    assert head is not None
    assert facts[[b"old", b"new"].index(stored)] == head.metadata


_CRASH = """
import hashlib, io, os, sys
from kbackup.stores import StoreSettings
from kbackup.stores.file import FileStore

root, left = sys.argv[1], 0

def crash(event, args):
    global left
    if event in ("os.rename", "os.mkdir", "os.remove") or event == "open" and root in str(args[0]):
        left -= 1
        if left < 0:
            os._exit(9)

sha256 = hashlib.sha256(b"new").hexdigest()
for line in sys.stdin:
    child = os.fork()
    if not child:
        left, code = int(line), 1
        sys.addaudithook(crash)
        try:
            store = FileStore(StoreSettings("file://" + root))
            store.put("topics/a", io.BytesIO(b"new"), sha256=sha256, metadata={})
            code = 0
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Reads before which step a process is to die, lets one put an object, and prints how it ended."""


def test_a_crash_at_any_step_leaves_a_whole_object(store: FileStore, root: Path) -> None:
    """P2: killed before any step of a put, the object is the old or the new one, and verifies."""
    seen, status, step = [], 9, 0
    run = [sys.executable, "-c", _CRASH, str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(run, stdin=pipe, stdout=pipe, text=True, bufsize=1) as processes:
        assert processes.stdin is not None
        assert processes.stdout is not None
        while status:
            put_bytes(store, "topics/a", b"old")
            processes.stdin.write(f"{step}\n")
            status = int(processes.stdout.readline())
            seen.append(open_bytes(store, "topics/a"))
            step += 1

    assert (0, ["topics/a"]) == (status, keys(store))
    assert sorted(seen, reverse=True) == seen  # old, and from some step on new
    assert {b"old", b"new"} == {*seen[:-1]}  # crashes on both sides of the move


def test_a_body_that_differs_from_its_checksum_is_refused(store: FileStore, root: Path) -> None:
    """What is stored is what was hashed, or nothing."""
    with (root.parent / "body").open("w+b") as body, pytest.raises(StoreError, match="sha256"):
        store.put("a", body, sha256="0" * 64, metadata={})

    assert [] == keys(store)
    assert [] == [*(root / ".kbackup/new").iterdir()]


def test_what_a_killed_process_left_is_swept_after_a_day(root: Path, store: FileStore) -> None:
    """Bodies on their way are never listed; stale ones go, fresh ones may belong to somebody."""
    put_bytes(store, "a", b"x")
    for name, age in (("fresh", 60), ("stale", 90_000)):
        left = root / ".kbackup/new" / name
        left.touch()
        os.utime(left, (time.time() - age,) * 2)
    put_bytes(FileStore(StoreSettings(f"file://{root}")), "b", b"x")

    assert ["a", "b"] == keys(store)
    assert ["fresh"] == [left.name for left in (root / ".kbackup/new").iterdir()]


def test_a_body_that_another_task_has_moved_is_not_swept(root: Path, store: FileStore) -> None:
    """What is listed as unfinished may have its name by the time its age is asked for."""
    put_bytes(store, "a", b"x")
    gone = root / ".kbackup/new/gone"
    gone.symlink_to(root / "moved")  # listed, and not there: what the other task leaves

    assert put_bytes(FileStore(StoreSettings(f"file://{root}")), "b", b"x")
    assert ["a", "b"] == keys(store)


def test_what_others_do_meanwhile_is_no_error(root: Path) -> None:
    """An object put, replaced and deleted all the time is whole or absent to its readers."""
    stores = [FileStore(StoreSettings(f"file://{root}")) for _ in range(4)]
    bodies = [b"first" * 1000, b"second" * 1000]
    is_over = threading.Event()

    def write(store: FileStore) -> None:
        for step in range(24):
            put_bytes(store, "topics/a", bodies[step % 2])
            if step % 3 == 2:
                store.delete("topics/a")
        is_over.set()

    def read(store: FileStore) -> set[object]:
        seen: set[object] = set()
        while not is_over.is_set():
            head = store.head("topics/a")
            seen.add(head and head.metadata.get("sha256", "no facts"))
            with suppress(ObjectNotFoundError):
                seen.add(hashlib.sha256(open_bytes(store, "topics/a")).hexdigest())
            assert {*keys(store)} <= {"topics/a"}
        return seen

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, store) for store in stores[1:]]
        pool.submit(write, stores[0]).result()

    seen = set().union(*(reader.result() for reader in readers))
    assert seen <= {None, *(hashlib.sha256(body).hexdigest() for body in bodies)}


def test_an_object_put_there_by_others_can_be_deleted_first(root: Path, store: FileStore) -> None:
    """A folder in which kbackup has not written yet takes a delete like any other."""
    (root / "a").write_bytes(b"x")

    store.delete("a")

    assert [] == keys(store)


def test_a_folder_that_goes_while_it_is_listed_is_empty(root: Path, store: FileStore) -> None:
    """A listing does not fail if somebody removes a topic's folder meanwhile."""
    for key in ("a", "b/1", "c/1"):
        put_bytes(store, key, b"x")

    listing = store.list("")
    first = next(listing).key
    shutil.rmtree(root / "b")

    assert ["a", "c/1"] == [first, *(one.key for one in listing)]


def test_a_body_whose_facts_a_power_cut_has_taken_gets_them_again(
    root: Path, store: FileStore
) -> None:
    """The same body put again, as a rerun does, is an object of ours with all its facts."""
    put_bytes(store, "topics/a", b"x")
    (root / ".kbackup/facts/topics/a").unlink()

    assert put_bytes(store, "topics/a", b"x", if_absent=True)

    head = store.head("topics/a")
    assert head is not None
    assert "7" == head.metadata["records"]


def test_a_body_never_meets_the_facts_of_another(root: Path, store: FileStore) -> None:
    """Facts that a deleted object has left behind are gone before the next body is there."""
    put_bytes(store, "topics/a", b"old")
    (root / "topics/a").unlink()

    assert put_bytes(store, "topics/a", b"new", if_absent=True)
    assert b"new" == open_bytes(store, "topics/a")


def test_a_root_that_goes_while_it_is_listed_is_an_error(root: Path, store: FileStore) -> None:
    """A listing that was cut short by an unmounted folder is never taken for the whole."""
    for key in ("a", "b/1"):
        put_bytes(store, key, b"x")

    listing = store.list("")
    next(listing)
    root.rename(root.parent / "unmounted")
    root.mkdir()

    with pytest.raises(StoreError, match="unmounted or replaced"):
        list(listing)


def test_an_object_cannot_be_a_folder_too(store: FileStore) -> None:
    """What S3 allows and a file system does not is an error that names the key."""
    put_bytes(store, "a", b"x")
    put_bytes(store, "b/c", b"x")

    for key in ("a/b", "b"):
        with pytest.raises(StoreError, match=f"write .*/{key}"):
            put_bytes(store, key, b"x")
    with pytest.raises(ObjectNotFoundError):
        store.open("b")
    assert store.head("a/b") is None
    assert ["a", "b/c"] == keys(store)


def test_a_name_that_is_not_text_is_left_out_aloud(
    store: FileStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that no key can name is ignored, and the log mentions it."""
    put_bytes(store, "a", b"x")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).touch()

    assert ["a"] == keys(store)
    assert ["not UTF-8" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(
    "facts", [b"", b"{}", b"[1]", b'[{"a": "b"}]', b'[{"sha256": 1}]', b"\xff", b"[" * 50_000]
)
def test_facts_that_are_none_of_ours_are_damage_with_a_remedy(
    store: FileStore, root: Path, facts: bytes
) -> None:
    """Whatever is there instead, the object is neither trusted nor lost."""
    put_bytes(store, "a", b"body")
    (root / ".kbackup/facts/a").write_bytes(facts)

    for look in (store.head, store.open):
        with pytest.raises(
            CorruptObjectError, match=r"facts/a: kbackup did not write it"
        ) as caught:
            look("a")
        assert "remove it" in caught.value.do

    (root / ".kbackup/facts/a").unlink()
    assert b"body" == open_bytes(store, "a")
