"""A store that encrypts keeps every promise of a store, and shows nothing of what is in it."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.contract.product import (
    CHUNK_BYTES,
    Archive,
    Bucket,
    CorruptObjectError,
    EncryptedStore,
    LocalS3,
    Names,
    Ranges,
    Seals,
    Store,
    StoreContract,
    StoreSettings,
    Uploads,
    metadata_of,
    open_bytes,
    open_store,
    put_bytes,
)
from tests.contract.test_stores import STORES, refuse_backslash, settings_for


@dataclass
class Everything:
    """One data key for all there is."""

    backup: str = "a backup"
    takes_plain: bool = False
    key: tuple[bytes, bytes] = field(
        default_factory=lambda: (secrets.token_bytes(16), secrets.token_bytes(32))
    )

    def name(self, key: str) -> bytes | None:
        return f"{self.backup}\0{key}".encode()

    def for_new(self, _: str) -> tuple[bytes, bytes]:
        return self.key

    def of(self, key_id: bytes, _: str) -> bytes:
        assert key_id == self.key[0]
        return self.key[1]

    def has(self, key_id: bytes) -> bool:
        return key_id == self.key[0]

    def keyed(self, text: str) -> str:
        return hashlib.sha256(self.key[1] + text.encode()).hexdigest()


@pytest.fixture(params=STORES)
def below(request: pytest.FixtureRequest, tmp_path: Path, s3_server: LocalS3) -> Store:
    """The store in which the encrypted objects are."""
    settings = settings_for(request, tmp_path, s3_server)
    refuse_backslash(request, settings.url)
    return open_store(settings)


@pytest.fixture
def keys() -> Everything:
    return Everything()


@pytest.fixture
def store(below: Store, keys: Everything) -> Store:
    return EncryptedStore(below, keys)


class TestEncrypted(StoreContract):
    """Sizes and checksums are those of what is stored; all else is as of any store."""

    def test_facts_are_kept_with_the_object(self, store: Store) -> None:
        """
        An object's metadata can be read without its body, and without a key.
        """
        assert isinstance(store, Seals)
        put_bytes(store, "a", b"orders")

        head, stored = store.head("a"), _stored(store, "a")

        assert head is not None
        assert store.stored_size(6) == head.size == len(stored)
        assert "7" == head.metadata["records"]
        assert hashlib.sha256(stored).hexdigest() == head.metadata["sha256"]

    def test_a_put_replaces_object_and_facts(self, store: Store) -> None:
        """
        A key holds what was put last, and the etag distinguishes it from what was there before.
        """
        put_bytes(store, "a", b"first")
        before = store.head("a")
        put_bytes(store, "a", b"second")
        after = store.head("a")

        assert b"second" == open_bytes(store, "a")
        assert before is not None
        assert after is not None
        assert hashlib.sha256(_stored(store, "a")).hexdigest() == after.metadata["sha256"]
        assert before.etag != after.etag

    def test_a_listing_is_in_the_order_of_utf8_bytes(self, store: Store) -> None:
        """
        Listings are in the order of whole keys; a slash is a character like any other.
        """
        assert isinstance(store, Seals)
        keys = ["a-b", "a.b/c", "a/b", "a/b-c", "a0", "b/c/d", "z", "é", "\uffee", "😀"]
        for key in reversed(keys):
            put_bytes(store, key, key.encode())

        found = [*store.list("")]

        assert sorted(keys, key=str.encode) == [one.key for one in found]
        assert [store.stored_size(len(one.key.encode())) for one in found] == [
            one.size for one in found
        ]

    @pytest.mark.parametrize(
        ("start", "length"),
        [
            pytest.param(0, 1, id="the first byte"),
            pytest.param(CHUNK_BYTES - 1, 2, id="over an edge"),
            pytest.param(CHUNK_BYTES, CHUNK_BYTES, id="a chunk"),
            pytest.param(5, 2 * CHUNK_BYTES, id="three chunks"),
            pytest.param(2 * CHUNK_BYTES, 7, id="all of the last"),
            pytest.param(2 * CHUNK_BYTES + 6, 1, id="the last byte"),
        ],
    )
    def test_a_part_is_decrypted_alone(self, store: Store, start: int, length: int) -> None:
        """
        A range of bytes is that of the content.
        """
        data = secrets.token_bytes(2 * CHUNK_BYTES + 7)
        put_bytes(store, "a", data)
        if not isinstance(store, Ranges):
            return

        with store.open_range("a", start, length) as part:
            assert data[start : start + length] == part.read()
        with pytest.raises(CorruptObjectError):
            store.open_range("a", len(data) - 3, 4)


def _stored(store: Store, key: str) -> bytes:
    with store.open(key) as body:
        stored: Any = body
        with stored.stored() as file:
            data: bytes = file.read()
            return data


SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES)

CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the header": lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:],
    "a bit of the content": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "a bit of the last tag": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "a byte more": lambda data: data + b"\0",
    "a byte less": lambda data: data[:-1],
    "a tag less": lambda data: data[:-16],
    "the header alone": lambda data: data[:52],
    "half of the header": lambda data: data[:26],
    "nothing": lambda _: b"",
    "not encrypted": lambda _: b"orders",
}


@pytest.mark.parametrize("change", [pytest.param(make, id=name) for name, make in CHANGES.items()])
@pytest.mark.parametrize("size", SIZES)
def test_what_was_altered_is_not_read(
    tmp_path: Path, keys: Everything, size: int, change: Callable[[bytes], bytes]
) -> None:
    """Whatever is changed in an object, with its checksum, is noticed before a byte is read."""
    below = open_store(_folder(tmp_path))
    store = EncryptedStore(below, keys)
    put_bytes(store, "a", bytes(size))

    put_bytes(below, "a", change(open_bytes(below, "a")))

    with pytest.raises(CorruptObjectError, match=r"^a: "):
        store.open("a")


@pytest.mark.parametrize("cut", [1, 2])
def test_whole_chunks_do_not_go_missing(tmp_path: Path, keys: Everything, cut: int) -> None:
    """An object that ends earlier, or whose chunks changed places, is not read."""
    below = open_store(_folder(tmp_path))
    store, full = EncryptedStore(below, keys), CHUNK_BYTES + 16
    put_bytes(store, "a", bytes(3 * CHUNK_BYTES))
    stored = open_bytes(below, "a")
    header, chunks = stored[:52], [stored[52 + full * n :][:full] for n in range(3)]

    for left in (chunks[:-cut], chunks[cut:], [chunks[1], chunks[0], chunks[2]]):
        put_bytes(below, "a", header + b"".join(left))
        with pytest.raises(CorruptObjectError, match=r"^a: "):
            store.open("a")


def test_an_object_is_read_in_its_place_alone(tmp_path: Path, keys: Everything) -> None:
    """A copy under another name, or in another backup, is not taken for the object there."""
    below = open_store(_folder(tmp_path))
    store = EncryptedStore(below, keys)
    put_bytes(store, "a.keys", b"key")
    put_bytes(below, "a", open_bytes(below, "a.keys"))

    with pytest.raises(CorruptObjectError, match=r"^a: "):
        store.open("a")
    keys.backup = "another"
    with pytest.raises(CorruptObjectError, match=r"^a.keys: "):
        EncryptedStore(below, keys).open("a.keys")


def test_no_two_objects_are_alike(tmp_path: Path, keys: Everything) -> None:
    """Of one content nothing shows that it is there twice; a repeated put still knows its own."""
    below = open_store(_folder(tmp_path))
    store = EncryptedStore(below, keys)
    put_bytes(store, "a", b"orders", if_absent=True)
    first = open_bytes(below, "a")
    put_bytes(store, "b", b"orders")

    assert put_bytes(store, "a", b"orders", if_absent=True)
    assert first == open_bytes(below, "a")
    assert first[16:] != open_bytes(below, "b")[16:]
    assert b"orders" not in first


def test_who_opens_an_object_knows_its_metadata(tmp_path: Path, keys: Everything) -> None:
    """What the store below has at hand is not asked for once more."""
    store = EncryptedStore(open_store(_folder(tmp_path)), keys)
    put_bytes(store, "a", b"orders")

    with store.open("a") as body:
        told = metadata_of(body)

    head = store.head("a")
    assert head is not None
    assert head.metadata == told


def test_plain_objects_are_read_where_that_is_said(tmp_path: Path, keys: Everything) -> None:
    """What was stored before a backup was encrypted can be read on demand, else it is damage."""
    below = open_store(_folder(tmp_path))
    put_bytes(below, "a", b"orders")
    store = EncryptedStore(below, keys)

    with pytest.raises(CorruptObjectError, match="it is not encrypted"):
        open_bytes(store, "a")
    keys.takes_plain = True

    assert b"orders" == open_bytes(store, "a")


def test_it_can_do_what_the_store_below_can(tmp_path: Path, keys: Everything) -> None:
    """Optional abilities are those of the store that holds the objects."""
    file = EncryptedStore(open_store(_folder(tmp_path)), keys)
    assert [False, False, False, True, False] == [
        isinstance(file, ability) for ability in (Archive, Bucket, Uploads, Names, Ranges)
    ]


def _folder(path: Path) -> StoreSettings:
    return StoreSettings(f"file://{path}")
