"""Wrap and unwrap the keys of an encrypted backup, its own and its data keys, for each recipient.

Each run that stores objects encrypts them with a data key of its own, which it forgets.  The bucket
holds each data key wrapped for every recipient, and so the backup's own key::

    _kbackup/keys/7f3a90c1/recipients/...     the backup's own key, for each recipient
    _kbackup/keys/7f3a90c1/data/...           data keys

Both are streams, as the ledger is one.  The backup's own key opens no object of records.  It lies
on the hosts of sinks: for keyed digests, so that a sink knows its own objects again; for captures
and schemas, which a sink has to read; and to authenticate the rows here, so that whoever can write
to the bucket alone adds no recipient and no data key, but what was there before and was removed.
Who has private keys alone cannot tell a backup that somebody else has made from this one.
"""

import hmac
import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup import files
from kbackup.catalog import identity
from kbackup.catalog.ledger.rows import StreamForm, latest, rows_of, table
from kbackup.catalog.ledger.stream import Stream, folder
from kbackup.catalog.recipients import (
    PASSPHRASE,
    KeyOptions,
    KmsKey,
    Opener,
    Passphrase,
    Recipient,
    by_name,
    read_own,
    write_own,
)
from kbackup.clock import Clock
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    NoKeyError,
    ObjectKeyError,
    RefusedError,
    some,
    with_extra,
)
from kbackup.naming import INDEX_EXTENSION, Layout
from kbackup.stores import Store, StoreSettings
from kbackup.stores.encrypted import ID_BYTES, KEY_BYTES, EncryptedStore

_log = logging.getLogger(__name__)

_SHARED_ID: Final = bytes(ID_BYTES)
"""The id of the key for captures and schemas, which follows from the backup's own."""

_ID: Final = re.compile(r"[0-9a-f]{32}")

_CAPTURES: Final = ("groups/", "cluster/", "schemas/")
"""What is encrypted beside objects of records, below ``_kbackup/``."""


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """One row: a key, for one recipient.

    Attributes:
        id: Of the key: random for a data key, `own_id` for the backup's own.
        recipient: Who can unwrap it: a public key, or how else.
        wrapped: The key; None once the recipient is to have it no more.
        mac: Of the row, under the backup's own key.
        is_retired: Of the backup's own key: the recipient gets no new data keys.
    """

    id: str
    recipient: str
    wrapped: bytes | None
    mac: bytes
    run: str | None = None
    time: int = 0
    counter: int | None = None
    is_retired: bool = False

    @property
    def said(self) -> bytes:
        """What is authenticated."""
        wrapped = None if self.wrapped is None else self.wrapped.hex()
        return orjson.dumps([self.id, self.recipient, wrapped, self.is_retired])

    @property
    def is_current(self) -> bool:
        """Whether the recipient is to get what comes."""
        return self.wrapped is not None and not self.is_retired


def _merged(rows: pa.Table) -> pa.Table:
    """Of each key, for each recipient, the latest row counts."""
    return latest(rows, pc.binary_join_element_wise(rows["id"], rows["recipient"], " "))


IF_DAMAGED: Final = "restore it from a copy of the bucket"
"""What to do about a damaged file: nothing builds it anew."""

KEYS: Final = StreamForm.of(
    WrappedKey,
    _merged,
    is_purged=True,
    forged=f"{IF_DAMAGED}; if that has no such file, move it away, and keep it: it may hold keys",
)
"""Both streams: rows of `WrappedKey`."""


@dataclass(slots=True)
class Keyring:
    """The keys of a backup, as far as they are here.

    Attributes:
        openers: Who can open data keys here.
        wrapped: Data keys for these, by their ids; None for those that are for others alone.
        new: What new objects are encrypted with: an id and a data key.
    """

    backup: str
    layout: Layout
    own: bytes = field(repr=False)
    openers: Mapping[str, Opener] = field(default_factory=dict, repr=False)
    wrapped: Mapping[bytes, WrappedKey | None] = field(default_factory=dict, repr=False)
    new: tuple[bytes, bytes] | None = field(default=None, repr=False)
    _opened: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    @property
    def can_read(self) -> bool:
        """Whether data keys of other runs can be had."""
        return bool(self.openers)

    def has(self, key_id: bytes) -> bool:
        """Whether a data key is here: `Keys.has`."""
        mine = b"" if self.new is None else self.new[0]
        return key_id in (_SHARED_ID, mine) or self.wrapped.get(key_id) is not None

    def of(self, key_id: bytes, key: str) -> bytes:
        """Return a data key: `Keys.of`."""
        if key_id == _SHARED_ID and key.startswith(self.layout.records_prefix()):
            return derived(self.own, "captures")
        if self.new is not None and key_id == self.new[0]:
            return self.new[1]
        if key_id not in self._opened:
            self._opened[key_id] = self._unwrapped(key_id, key)
        return self._opened[key_id]

    def _unwrapped(self, key_id: bytes, key: str) -> bytes:
        if not self.openers:
            raise NoKeyError(
                f"{key} is encrypted",
                "only public keys were given, and they cannot decrypt it",
                "set encryption.identity.file to the private key of a recipient",
                key=key,
            )
        if key_id not in self.wrapped:
            raise CorruptObjectError(
                key, f"the backup has no data key {key_id.hex()}",
                "replace it, or the keys, with another copy", key=key,
            )  # fmt: skip
        row = self.wrapped[key_id]
        if row is None or row.wrapped is None:
            raise NoKeyError(
                f"{key} is encrypted",
                f"its data key {key_id.hex()} is not wrapped for the key that was given",
                "use the key of another recipient: kbackup keys list shows them",
                key=key,
            )
        if not is_authentic(self.own, row):
            raise CorruptObjectError(
                key, f"its data key {key_id.hex()} was not stored by a sink of this backup",
                "put the keys back from a copy, and replace it with another copy", key=key,
            )  # fmt: skip
        try:
            return self.openers[row.recipient].unwrap(row.wrapped, about(self.backup, row.id))
        except ValueError as error:
            what = f"the data key {key_id.hex()} of {key} cannot be opened"
            raise NoKeyError(what, str(error), key=key) from error


def place_of(layout: Layout, key: str) -> str | None:
    """Return where in a backup an object is that is to be encrypted, wherever the backup is.

    None for what stays readable: the ledger, run records, locks, and indexes of blocks.
    """
    records = layout.records_prefix()
    if key.startswith(records):
        place = key.removeprefix(records)
        return f"k {place}" if place.startswith(_CAPTURES) else None
    try:
        parts = layout.parse(key)
    except ObjectKeyError:
        return None
    is_index = parts.extension == INDEX_EXTENSION
    return None if is_index else f"t {key.removeprefix(layout.prefix())}"


def own_id(own: bytes) -> str:
    """Return the id of a backup's own key."""
    return derived(own, "id").hex()[: 2 * ID_BYTES]


def derived(own: bytes, purpose: str) -> bytes:
    """Return the key of one purpose that follows from the backup's own."""
    return hmac.digest(own, f"kbackup {purpose}".encode(), "sha256")


def about(backup: str, key_id: str) -> bytes:
    """Return what a wrapped key is bound to."""
    return f"kbackup key {key_id} of {backup}".encode()


def is_authentic(own: bytes, row: WrappedKey) -> bool:
    """Whether a row was written by who has the backup's own key."""
    return hmac.compare_digest(row.mac, _mac(own, row))


def _mac(own: bytes, row: WrappedKey) -> bytes:
    return hmac.digest(derived(own, "rows"), row.said, "sha256")


def wrapped_for(ring: Keyring, recipient: Recipient, key_id: str, key: bytes) -> WrappedKey:
    """Return the row that gives a recipient a key."""
    wrapped = recipient.wrap(key, about(ring.backup, key_id))
    return authenticated(ring.own, WrappedKey(key_id, recipient.name, wrapped, b""))


def authenticated(own: bytes, row: WrappedKey) -> WrappedKey:
    """Return *row* as one that was written by who has the backup's own key."""
    return replace(row, mac=_mac(own, row))


def recipients_stream(store: Store, layout: Layout, clock: Clock) -> Stream:
    """Return the stream of the backup's own key."""
    return Stream(store, f"{folder(layout, 'keys')}recipients/", KEYS, clock)


def data_stream(store: Store, layout: Layout, clock: Clock) -> Stream:
    """Return the stream of data keys."""
    return Stream(store, f"{folder(layout, 'keys')}data/", KEYS, clock)


def key_rows(stream: Stream) -> list[WrappedKey]:
    """Return the rows of a stream; those without an id are somebody else's.

    A damaged file raises `CorruptObjectError`.
    """
    found = stream.read()
    for issue in found.damage:
        raise CorruptObjectError(issue.what, issue.why, IF_DAMAGED, key=issue.what)
    return [row for row in rows_of(WrappedKey, found.rows) if _ID.fullmatch(row.id)]


def true_rows(stream: Stream, own: bytes) -> list[WrappedKey]:
    """Return the rows that who has the backup's own key wrote: no other row hides one.

    What it hides is in older files: only `Stream.purge` deletes any.
    """
    rows = key_rows(stream)
    if all(is_authentic(own, row) for row in rows):
        return rows
    every = [row for row in rows_of(WrappedKey, stream.superseded()) if is_authentic(own, row)]
    return [*rows_of(WrappedKey, _merged(table(every, KEYS)))]


def show_hidden(stream: Stream, rows: Sequence[WrappedKey], own: bytes) -> bool:
    """Write those of `true_rows` again that *rows* of the stream hide; return whether any was."""
    if all(is_authentic(own, row) for row in rows):
        return False
    shown = {row.mac for row in rows}
    hidden = [row for row in true_rows(stream, own) if row.mac not in shown]
    if hidden:
        stream.append(table(hidden, KEYS))
    return bool(hidden)


def own_rows(stream: Stream) -> list[WrappedKey]:
    """Return the rows of the backup's own key: of two runs that gave it one, the first's."""
    rows = key_rows(stream)
    first = min(rows, key=lambda row: (row.counter or 0, row.id), default=None)
    return [row for row in rows if first is not None and row.id == first.id]


@dataclass(slots=True)
class Encryption:
    """The encryption of a backup: `kbackup.stores.Wrapper`.  Plain data, which crosses a process.

    Its keys are unlocked by the first that opens the store, before anything is read; *ring* is None
    until then, and for a backup that has none yet.
    """

    options: KeyOptions
    layout: Layout
    clock: Clock
    ring: Keyring | None = None

    def wrap(self, store: Store) -> Store:
        """Return the store that encrypts and decrypts what is in *store*.

        Raises:
            ConfigurationError: If a key is wrong, or what is needed is not installed.
            CorruptObjectError: If keys in the bucket are damaged.
        """
        check_installed()
        files.encrypt_spools()
        if self.ring is None:
            self.ring = self._unlocked(store)
        return EncryptedStore(store, _Late(self, store))

    def require(self) -> Keyring:
        """Return the keys; `NoKeyError` if the backup has none."""
        if self.ring is None:
            raise NoKeyError(
                f"the backup under {self.layout.place} has no keys",
                "it was never encrypted, or its keys are lost",
                f"restore {folder(self.layout, 'keys')} from a copy, or leave out encryption.*",
            )
        return self.ring

    def require_readable(self) -> None:
        """Check that what other runs have stored can be read; `NoKeyError` if it cannot."""
        if not self.require().can_read:
            raise NoKeyError(
                "the backup is encrypted, and no key was given to read it",
                "with public keys alone it can only be written",
                "set encryption.identity.file, or encryption.phrase.file",
            )

    def establish(self, store: Store, run: str) -> None:
        """See to it that the backup has a key of its own, wrapped for all recipients.

        Raises:
            ConfigurationError: If there is nobody to wrap it for, or no place for it.
            NoKeyError: If it had one, which is lost.
            RefusedError: If objects are there that are not encrypted, or a recipient was removed.
        """
        options = self.options
        others = options.passphrase_file, options.kms_key
        if options.own_file is None and (options.identity_file or others == (None, None)):
            raise ConfigurationError(
                "encryption.key.file is not set",
                "with public keys alone, whoever can write to the bucket could pass off another "
                "key as the backup's: a sink must keep the backup's key itself",
                "set it to a path on this host; the backup's first run creates the file",
            )
        found = identity.read(store, self.layout, "")
        stream = recipients_stream(store, self.layout, self.clock)
        there = own_rows(stream)
        if self.ring is None:
            is_lost = found.is_encrypted and not there
            self.ring = self.require() if is_lost else self._founded(store, found.id)
        ring = self.ring
        self._check_own(there)
        if show_hidden(stream, there, ring.own):
            there = own_rows(stream)
        rows = {row.recipient: row for row in there if is_authentic(ring.own, row)}
        missing = []
        words = options.passphrase()
        if words is not None and not any(name.startswith(PASSPHRASE) for name in rows):
            known = Passphrase.of(words)
            ring.openers = {**ring.openers, known.name: known}
        for one in self._recipients(ring):
            row = rows.get(one.name)
            if row is None:
                missing.append(wrapped_for(ring, one, own_id(ring.own), ring.own))
            elif not row.is_current:
                raise RefusedError(
                    f"{one.name} was removed from the recipients, but is configured as one",
                    "it could decrypt again what is stored from now on",
                    "take it out of encryption.recipients; or add it again: kbackup keys add",
                )
        if not missing and not any(row.is_current for row in rows.values()):
            raise ConfigurationError(
                "nobody could decrypt the backup", "no recipient is given",
                "set encryption.recipients to the public keys of two",
            )  # fmt: skip
        if missing:
            now = self.clock.ms()
            stream.append(table([replace(row, run=run, time=now) for row in missing], KEYS))
            self._check_own(own_rows(stream))
        if not found.is_encrypted:  # now that it has a key, which from now on would be missed
            identity.mark_encrypted(store, self.layout)
        if options.own_file is not None and read_own(Path(options.own_file)) is None:
            write_own(Path(options.own_file), ring.own)  # this host has another way to it

    def begin(self, store: Store, run: str) -> None:
        """Make a data key for what *run* stores, and wrap it for all recipients."""
        ring = self.require()
        if ring.new is not None:
            return
        ours = {one.name: one for one in self._recipients(ring)}
        key_id, data_key = secrets.token_bytes(ID_BYTES), secrets.token_bytes(KEY_BYTES)
        now, seen, wrapped = self.clock.ms(), set[str](), set[str]()
        current = self._current(store, ring)
        while new := [name for name in current if name not in seen]:
            seen.update(new)
            found = []
            for name in new:
                if name.startswith(PASSPHRASE) and name not in ours:
                    _log.warning(
                        "a passphrase was not given: it will not decrypt what this run stores"
                    )
                    continue
                row = wrapped_for(ring, ours.get(name) or by_name(name), key_id.hex(), data_key)
                found.append(replace(row, run=run, time=now))
            if found:
                data_stream(store, self.layout, self.clock).append(table(found, KEYS))
            wrapped.update(row.recipient for row in found)
            # who has taken another's place meanwhile may not have seen that there is this key
            current = self._current(store, ring)
        if wrapped.isdisjoint(current):
            raise NoKeyError("nothing can be encrypted", "there is no recipient to wrap keys for")
        ring.new = key_id, data_key

    def recipients(self, store: Store) -> set[str]:
        """Return for whom the next run wraps its data key."""
        named = {one.name for one in self.options.others()}
        if self.ring is None:
            return named | ({PASSPHRASE} if self.options.passphrase_file else set())
        return named.union(self._current(store, self.ring))

    def _current(self, store: Store, ring: Keyring) -> list[str]:
        """Return the recipients that get what comes."""
        rows = own_rows(recipients_stream(store, self.layout, self.clock))
        return [row.recipient for row in rows if row.is_current and is_authentic(ring.own, row)]

    def fold(self, store: Store) -> None:
        """Fold both streams, where that is due."""
        for of in (recipients_stream, data_stream):
            of(store, self.layout, self.clock).fold()

    def _check_own(self, rows: Iterable[WrappedKey]) -> None:
        """Check that no other run was faster, and has given the backup another key."""
        if any(row.id != own_id(self.require().own) for row in rows):
            raise self._not_its_key()

    def _recipients(self, ring: Keyring) -> Iterator[Recipient]:
        """Yield those that are configured, or here."""
        yield from self.options.others()
        yield from ring.openers.values()

    def _unlocked(self, store: Store) -> Keyring | None:
        """Return the keys; None for a backup that has none yet."""
        backup = identity.read(store, self.layout, "").id
        stream = recipients_stream(store, self.layout, self.clock)
        rows = own_rows(stream) if backup else []
        if not rows:
            return None
        try:
            openers, own = self._opened(backup, rows)
            is_sound = all(is_authentic(own, row) for row in rows)
        except NoKeyError:  # a row of somebody else's may hide the one that would open it
            every = [*rows_of(WrappedKey, stream.superseded())]
            try:
                _, own = self._opened(backup, [row for row in every if row.id == rows[0].id])
            except NoKeyError as error:
                if any(row.id != rows[0].id for row in every):
                    raise _of_several(error, stream, rows[0].id) from error
                raise
            is_sound = False
        if not is_sound:
            openers = self._openers(backup, true_rows(stream, own))
        wrapped = self.data_keys(store, openers, own) if openers else {}
        return Keyring(backup, self.layout, own, openers, wrapped)

    def data_keys(
        self, store: Store, openers: Mapping[str, Opener], own: bytes
    ) -> Mapping[bytes, WrappedKey | None]:
        """Return the data keys as they are wrapped for who is here: `Keyring.wrapped`."""
        stream = data_stream(store, self.layout, self.clock)
        rows = key_rows(stream)
        found: dict[bytes, WrappedKey | None] = {bytes.fromhex(row.id): None for row in rows}
        mine = [row for row in rows if row.recipient in openers]
        if not all(is_authentic(own, row) for row in mine):
            mine += [row for row in true_rows(stream, own) if row.recipient in openers]
        return found | {bytes.fromhex(row.id): row for row in mine if row.wrapped}

    def _opened(
        self, backup: str, rows: Sequence[WrappedKey]
    ) -> tuple[Mapping[str, Opener], bytes]:
        """Return who is here, and the backup's own key; `NoKeyError` if that is not to be had."""
        openers = self._openers(backup, rows)
        own = self._own(backup, rows, openers)
        if own is None:
            raise NoKeyError(
                "the backup is encrypted, and no key was given that opens it",
                "nothing of it can be read or written without its own key",
                "set encryption.identity.file to a recipient's private key, or encryption.key.file "
                "on a sink's host",
            )
        return openers, own

    def _openers(self, backup: str, rows: Sequence[WrappedKey]) -> Mapping[str, Opener]:
        return {one.name: one for one in self._those_here(backup, rows)}

    def _those_here(self, backup: str, rows: Sequence[WrappedKey]) -> Iterator[Opener]:
        """Yield who is here of the recipients; a key that is no recipient's raises `NoKeyError`."""
        names = {row.recipient for row in rows if row.wrapped}
        private, words = self.options.private_key(), self.options.passphrase()
        if private is not None:
            if private.name not in names:
                raise NoKeyError(
                    f"{self.options.identity_file} does not open this backup",
                    f"its public key {private.name} is not a recipient",
                    "use a recipient's: kbackup keys list shows them",
                )
            yield private
        if self.options.kms_key in names:
            yield KmsKey(self.options.kms_key)
        if words is None:
            return
        known = [row for row in rows if row.recipient.startswith(PASSPHRASE)]
        current = (row for row in known if row.wrapped)
        fitting = [one for row in current if (one := _fitting(words, row, backup)) is not None]
        if known and not fitting:
            raise NoKeyError(
                f"{self.options.passphrase_file} does not open this backup",
                "it holds another passphrase, or one that was removed",
                "give the right one; or add this one: kbackup keys add",
            )
        yield from fitting

    def _own(
        self, backup: str, rows: Sequence[WrappedKey], openers: Mapping[str, Opener]
    ) -> bytes | None:
        own = None if self.options.own_file is None else read_own(Path(self.options.own_file))
        failed = ""
        for row in rows:
            opener = openers.get(row.recipient)
            if row.wrapped is None or opener is None:
                continue
            if own is not None and isinstance(opener, KmsKey):  # who stores may lack kms:Decrypt
                continue
            try:
                found = opener.unwrap(row.wrapped, about(backup, row.id))
            except ValueError as error:
                failed = str(error)
                continue
            if own_id(found) != row.id:  # anybody can wrap a key for a public one
                failed = "it opens another key, which is not this backup's own"
                continue
            if own not in (None, found):
                raise self._not_its_key()
            own = found
        if own is None and failed:
            what = "the key that was given does not open this backup"
            raise NoKeyError(what, failed, "give the right one")
        if own is not None and own_id(own) != rows[0].id:
            raise self._not_its_key()
        return own

    def _not_its_key(self) -> NoKeyError:
        return NoKeyError(
            f"{self.options.own_file or 'the key that was made'} is not this backup's own key",
            "it is another backup's, or another run made this backup's key first",
            "copy the right file from another sink's host; if this is the right one, somebody who "
            "can write to the bucket has overwritten files in "
            f"{folder(self.layout, 'keys')}recipients/: put back their earlier versions, or those "
            "in a copy of the bucket, and change the bucket's credentials",
        )

    def _founded(self, store: Store, backup: str) -> Keyring:
        """Return the keys of a backup that gets the first of them now."""
        layout, options = self.layout, self.options
        ours = layout.records_prefix()
        every = store.list(layout.prefix())
        if not options.takes_plain and any(not one.key.startswith(ours) for one in every):
            raise RefusedError(
                f"{layout.prefix()} holds objects that are not encrypted",
                "a restore could not tell them from what somebody else put there",
                "choose another topics.dir; or set encryption.mixed=true, for restores too",
            )
        private = options.private_key()
        own = None
        if options.own_file is not None:
            own = read_own(Path(options.own_file)) or write_own(Path(options.own_file))
        own = own or secrets.token_bytes(KEY_BYTES)
        openers = {} if private is None else {private.name: private}
        return Keyring(backup, layout, own, openers)


def _fitting(words: bytes, row: WrappedKey, backup: str) -> Passphrase | None:
    """Return the recipient of a row, if that is its passphrase."""
    found = Passphrase.of(words, row.recipient)
    try:
        found.unwrap(row.wrapped or b"", about(backup, row.id))
    except ValueError:
        return None
    return found


def check_readable(place: StoreSettings) -> None:
    """Check that records can be read, where keys were given; `NoKeyError` if they cannot."""
    if isinstance(place.wrapper, Encryption):
        place.wrapper.require_readable()


@dataclass(frozen=True, slots=True)
class _Late:
    """`kbackup.stores.encrypted.Keys`, asked for late: a new backup may get them meanwhile."""

    encryption: Encryption
    store: Store
    _missed: set[bytes] = field(default_factory=set, init=False)

    @property
    def takes_plain(self) -> bool:
        return self.encryption.options.takes_plain

    def name(self, key: str) -> bytes | None:
        place = place_of(self.encryption.layout, key)
        return None if place is None else f"{self.encryption.require().backup}\0{place}".encode()

    def for_new(self, key: str) -> tuple[bytes, bytes]:
        ring = self.encryption.require()
        if key.startswith(ring.layout.records_prefix()):
            return _SHARED_ID, derived(ring.own, "captures")
        if ring.new is None:
            raise NoKeyError(f"{key} cannot be stored", "this command has no data key", key=key)
        return ring.new

    def of(self, key_id: bytes, key: str) -> bytes:
        ring = self.encryption.require()
        if ring.can_read and not ring.has(key_id) and key_id not in self._missed:
            self._missed.add(key_id)  # of a run that has begun since, as a standby meets them
            ring.wrapped = self.encryption.data_keys(self.store, ring.openers, ring.own)
        return ring.of(key_id, key)

    def has(self, key_id: bytes) -> bool:
        ring = self.encryption.ring
        return ring is not None and ring.has(key_id)

    def keyed(self, text: str) -> str:
        own = self.encryption.require().own
        return hmac.digest(derived(own, "digests"), text.encode(), "sha256").hex()


def _of_several(error: NoKeyError, stream: Stream, first: str) -> NoKeyError:
    """Return *error* of a backup of which several keys are said to be its own."""
    names = some(stream.files_with("id", first), 3)
    return NoKeyError(
        error.what,
        f"{error.why}; {stream.prefix} names several keys as the backup's own, and the first "
        f"counts, which is in {names}",
        "if another host's first run wrote that, copy its encryption.key.file here; if not, "
        f"somebody who can write to the bucket did: move {names} away, run the command again, and "
        "change the bucket's credentials; Object Lock does not prevent moving it: locked versions "
        "stay, but no longer count",
    )


def check_installed() -> None:
    """Check that what encrypts could be imported; `ConfigurationError` if it could not."""
    try:
        from cryptography.hazmat.primitives import hpke  # noqa: F401, PLC0415
    except ImportError as error:
        why = "cryptography 50 or later is not installed"
        raise ConfigurationError(
            "nothing can be encrypted or decrypted", why, with_extra("encryption")
        ) from error
