"""Encrypt objects on their way into another store, and decrypt them on their way out.

An encrypted object is a header, then its content in chunks::

    KBE1  id of the data key  salt      52 bytes: 4, 16, 32
    chunk                               65,536 bytes and a tag of 16; the last one may be shorter
    ...

Each chunk is AES-256-GCM under a key of the object's own, HKDF-SHA256 of data key and salt.  Its
nonce is its number, in 11 bytes, and a byte that is 1 for the last: chunks that were left out,
moved or cut off do not fit.  Authenticated with each is the header, the backup's id and the
object's name within the backup: an object in another's place does not fit either.

Sizes and ``sha256`` that the store below tells are of what is stored.  Two puts of one content have
different bytes, so ``content`` beside an object is a digest under a key of the backup: by that a
put that is repeated finds its own.
"""

import hashlib
import io
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, Final, Protocol

from kbackup.errors import CorruptObjectError, NoKeyError, ObjectNotFoundError
from kbackup.files import DerivedFile, Spool, file_sha256
from kbackup.stores import (
    KEYED,
    Archive,
    Bucket,
    Earlier,
    Names,
    ObjectHead,
    Ranges,
    Served,
    Store,
    StoredObject,
    Untold,
    Uploads,
    Versions,
    metadata_of,
)

MAGIC: Final = b"KBE1"
"""What an encrypted object begins with."""

KEY_BYTES: Final = 32
ID_BYTES: Final = 16
_SALT_BYTES: Final = 32
HEADER_BYTES: Final = len(MAGIC) + ID_BYTES + _SALT_BYTES
CHUNK_BYTES: Final = 1 << 16
_TAG_BYTES: Final = 16
_FULL_BYTES: Final = CHUNK_BYTES + _TAG_BYTES

CONTENT: Final = "content"
"""The metadata that says which content an object has, by a keyed digest."""

DATA_KEY: Final = "data-key"
"""The metadata that says with which data key an object is encrypted."""

DIGEST: Final = "digest"
"""The metadata of records that is kept keyed."""

_HELD_BYTES: Final = 25 * 2**20
"""What the content of an object may hold in memory: as much as the store below, by default."""

_HEADS_MOST: Final = 1024
"""Objects of which a store remembers what a range of them needs."""


class Keys(Protocol):
    """What encrypts the objects of one backup."""

    def name(self, key: str) -> bytes | None:
        """Return the name of an object within its backup, None where it is not encrypted."""
        ...

    def for_new(self, key: str) -> tuple[bytes, bytes]:
        """Return the id of the data key for a new object, and the data key.

        Raises:
            NoKeyError: If there is none.
        """
        ...

    def of(self, key_id: bytes, key: str) -> bytes:
        """Return a data key, to read *key*.

        Raises:
            NoKeyError: If it cannot be had.
            CorruptObjectError: If the backup has no such data key.
        """
        ...

    def has(self, key_id: bytes) -> bool:
        """Whether a data key can be had, without asking anybody else."""
        ...

    def keyed(self, text: str) -> str:
        """Return a digest of *text* under a key of the backup, in hexadecimal."""
        ...

    @property
    def takes_plain(self) -> bool:
        """Whether objects are read that are not encrypted, and should be."""
        ...


def stored_size(size: int) -> int:
    """Return the bytes of an encrypted object of *size* bytes."""
    return HEADER_BYTES + size + _TAG_BYTES * _chunks(size)


def _chunks(size: int) -> int:
    return max(1, -(-size // CHUNK_BYTES))


def _content_size(stored: int) -> int:
    """Return the bytes of the content; negative where no content has such an object."""
    chunks = max(1, -(-(stored - HEADER_BYTES) // _FULL_BYTES))
    return stored - HEADER_BYTES - _TAG_BYTES * chunks


@dataclass(frozen=True, slots=True)
class _Seal:
    """The encryption of one object."""

    header: bytes
    cipher: Any
    bound: bytes

    @classmethod
    def of(cls, header: bytes, data_key: bytes, name: bytes) -> "_Seal":
        """Return what encrypts and decrypts the object *name* behind *header*."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  (an extra)
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        salt = header[-_SALT_BYTES:]
        own = HKDF(SHA256(), KEY_BYTES, salt, b"kbackup object").derive(data_key)
        return cls(header, AESGCM(own), header + hashlib.sha256(name).digest())

    def chunk(self, number: int, content: bytes, *, is_last: bool) -> bytes:
        """Return a chunk as it is stored."""
        found: bytes = self.cipher.encrypt(_nonce(number, is_last), content, self.bound)
        return found

    def opened(self, number: int, chunk: bytes, *, is_last: bool) -> bytes:
        """Return the content of a chunk; `InvalidTag` says that it is not what was stored there."""
        found: bytes = self.cipher.decrypt(_nonce(number, is_last), chunk, self.bound)
        return found


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11) + (b"\1" if is_last else b"\0")


class _Sealed(DerivedFile):
    """A file as it is stored: each part is encrypted as it is read, to the same bytes each time."""

    def __init__(self, seal: _Seal, content: BinaryIO) -> None:
        self._seal, self._content = seal, content
        self._content_size = content.seek(0, os.SEEK_END)
        super().__init__(stored_size(self._content_size))
        self._held: tuple[int, bytes] = -1, b""

    def bytes_at(self, at: int, most: int) -> bytes:
        """Return bytes of the header, or of the chunk at hand: `DerivedFile.bytes_at`."""
        if at < HEADER_BYTES:
            return self._seal.header[at : at + most]
        number, start = divmod(at - HEADER_BYTES, _FULL_BYTES)
        if self._held[0] != number:
            self._content.seek(number * CHUNK_BYTES)
            content = self._content.read(CHUNK_BYTES)
            is_last = number == _chunks(self._content_size) - 1
            self._held = number, self._seal.chunk(number, content, is_last=is_last)
        return self._held[1][start : start + most]


class Opened(Spool):
    """The content of an encrypted object."""

    def __init__(self, expected_bytes: int, store: Store, key: str) -> None:
        super().__init__(_HELD_BYTES, expected_bytes=expected_bytes, is_hashed=False)
        self._below, self._key = store, key

    def stored(self) -> BinaryIO:
        """Open the object as it is stored: `Store.open`."""
        return self._below.open(self._key)


class EncryptedStore:
    """Another store, in which objects are encrypted that `Keys` has names for.

    What else the other one can do, this one can too: it has the same optional abilities, but that
    of bringing objects from elsewhere, which belong to a place.
    """

    @staticmethod
    def check_url(url: str) -> None:
        """Accept any: the store below has looked at its own."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._below, self._keys = store, keys
        more = {
            Archive: ("thawed", "thaw"),
            Bucket: ("bucket_facts", "probe_upload", "probe_conditions"),
            Uploads: ("unfinished", "stored_bytes", "abort"),
            Names: ("check_name",),
            Served: ("puts",),
            Untold: ("untold",),
            Versions: ("is_locked", "locked_until", "delete_versions"),
        }
        for ability, methods in more.items():
            if isinstance(store, ability):
                vars(self).update({name: getattr(store, name) for name in methods})
        if isinstance(store, Ranges):
            self._ranges = store
            self.open_range = self._open_range
            self._heads = lru_cache(_HEADS_MOST)(self._begin)
        if isinstance(store, Earlier):
            self.earlier = store.earlier
            self.at = lambda versions: EncryptedStore(store.at(versions), keys)

    def put(
        self,
        key: str,
        body: BinaryIO,
        *,
        sha256: str,
        metadata: Mapping[str, str],
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> bool:
        """Encrypt, and put: `Store.put`."""
        name = self._keys.name(key)
        if name is None:
            return self._below.put(
                key, body, sha256=sha256, metadata=metadata, if_absent=if_absent, if_match=if_match
            )
        key_id, data_key = self._keys.for_new(key)
        header = MAGIC + key_id + secrets.token_bytes(_SALT_BYTES)
        sealed = _Sealed(_Seal.of(header, data_key, name), body)
        content = self.keyed(f"f1:{sha256}")
        facts = {**metadata, CONTENT: content, DATA_KEY: key_id.hex()}
        if DIGEST in facts:
            facts[DIGEST] = self.keyed(facts[DIGEST])
        done = self._below.put(
            key, io.BufferedReader(sealed, 2 * _FULL_BYTES), sha256=file_sha256(sealed).hex(),
            metadata=facts, if_absent=if_absent, if_match=if_match,
        )  # fmt: skip
        if done:
            return True
        there = self._below.head(key)
        return there is not None and there.metadata.get(CONTENT) == content

    def open(self, key: str) -> BinaryIO:
        """Fetch and decrypt all of it, which is then known to be what was stored: `Store.open`."""
        body = self._below.open(key)
        name = self._keys.name(key)
        header = b"" if name is None else body.read(HEADER_BYTES)
        if name is None or not header.startswith(MAGIC):
            body.seek(0)
            return body if name is None else self._plain(key, body)
        with body:
            stored = body.seek(0, os.SEEK_END)
            body.seek(HEADER_BYTES)
            content = Opened(max(0, _content_size(stored)), self._below, key)
            try:
                seal = self._seal(header, key, name)
                for part in _decrypted(seal, key, body, 0, stored):
                    content.write(part)
            except BaseException:
                content.close()
                raise
            content.metadata = metadata_of(body)
            content.seek(0)
            return content

    def _open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Fetch and decrypt the chunks that hold a part: `Ranges.open_range`."""
        name = self._keys.name(key)
        if name is None:
            return self._ranges.open_range(key, start, length)
        try:
            return self._part(key, name, start, length)
        except CorruptObjectError:  # it may have been replaced since it was looked at
            self._heads.cache_clear()
            return self._part(key, name, start, length)

    def _part(self, key: str, name: bytes, start: int, length: int) -> BinaryIO:
        header, stored = self._heads(key)
        if not header.startswith(MAGIC):
            return self._plain(key, self._ranges.open_range(key, start, length))
        if start + length > _content_size(stored):
            why = f"it ends before byte {start + length}"
            raise CorruptObjectError(key, why, key=key)
        seal = self._seal(header, key, name)
        first = start // CHUNK_BYTES
        begin = HEADER_BYTES + first * _FULL_BYTES
        last = max(first, (start + length - 1) // CHUNK_BYTES)
        end = min(stored, HEADER_BYTES + (last + 1) * _FULL_BYTES)
        with self._ranges.open_range(key, begin, end - begin) as body:
            found = Spool(_HELD_BYTES, expected_bytes=end - begin, is_hashed=False)
            skipped = start - first * CHUNK_BYTES
            for part in _decrypted(seal, key, body, first, stored):
                wanted = part[skipped : skipped + length - found.size]
                skipped = max(0, skipped - len(part))
                found.write(wanted)
            found.metadata = metadata_of(body)
        found.seek(0)
        return found

    def _begin(self, key: str) -> tuple[bytes, int]:
        """Return the header of an object, and its size."""
        head = self._below.head(key)
        if head is None:
            raise ObjectNotFoundError(key, "no such object", key=key)
        with self._ranges.open_range(key, 0, min(head.size, HEADER_BYTES)) as body:
            return body.read(), head.size

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List what is stored: `Store.list`."""
        return self._below.list(prefix, after=after)

    def head(self, key: str) -> ObjectHead | None:
        """Return what is known of what is stored: `Store.head`."""
        return self._below.head(key)

    def delete(self, key: str) -> None:
        """Delete: `Store.delete`."""
        self._below.delete(key)

    def stored_size(self, size: int) -> int:
        """Return the bytes of an encrypted object: `Seals.stored_size`."""
        return stored_size(size)

    def keyed(self, digest: str) -> str:
        """Return a digest under the backup's key, which names its method: `Seals.keyed`."""
        if digest.startswith(KEYED):
            return digest
        return f"{KEYED}{digest.partition(':')[0]}:{self._keys.keyed(digest)}"

    def can_read(self, metadata: Mapping[str, str]) -> bool:
        """Whether the data key is at hand: `Seals.can_read`."""
        key_id = metadata.get(DATA_KEY)
        try:
            return key_id is None or self._keys.has(bytes.fromhex(key_id))
        except ValueError:  # somebody else has written it
            return False

    def _plain(self, key: str, body: BinaryIO) -> BinaryIO:
        """Return an object that is not encrypted, where those are taken."""
        if self._keys.takes_plain:
            return body
        body.close()
        raise CorruptObjectError(
            key,
            "it is not encrypted, and the backup is",
            "replace it with another copy; if it was stored before the backup was encrypted, set "
            "encryption.mixed=true",
            key=key,
        )

    def _seal(self, header: bytes, key: str, name: bytes) -> _Seal:
        if len(header) < HEADER_BYTES:
            raise _altered(key)
        key_id = header[len(MAGIC) : len(MAGIC) + ID_BYTES]
        return _Seal.of(header, self._keys.of(key_id, key), name)


def check_open(key: str, body: BinaryIO) -> None:
    """Check that what a store has opened is not encrypted still; leaves *body* at its start.

    Raises:
        NoKeyError: If it is: the store was opened without keys.
    """
    is_sealed = body.read(len(MAGIC)) == MAGIC
    body.seek(0)
    if is_sealed:
        raise NoKeyError(
            f"{key} is encrypted",
            "no key was given",
            "set encryption.identity.file to the private key of a recipient",
            key=key,
        )


def _decrypted(seal: _Seal, key: str, body: BinaryIO, first: int, stored: int) -> Iterator[bytes]:
    """Yield the content of chunks; *body* begins with *first*, of an object *stored* so long."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  (an extra)

    last = _chunks(max(0, _content_size(stored))) - 1
    number = first
    while chunk := body.read(_FULL_BYTES):
        try:
            yield seal.opened(number, chunk, is_last=number == last)
        except (InvalidTag, ValueError):
            raise _altered(key) from None
        number += 1
    if number == first:
        raise _altered(key)


def _altered(key: str) -> CorruptObjectError:
    return CorruptObjectError(
        key,
        "it was altered or cut, or is another object's: it does not decrypt in this place",
        "replace it with another copy",
        key=key,
    )
