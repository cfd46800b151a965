"""Change who can decrypt a backup.  Only what is below ``_kbackup/keys/`` is written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from kbackup.catalog.keys import (
    KEYS,
    Encryption,
    Keyring,
    WrappedKey,
    authenticated,
    data_stream,
    is_authentic,
    key_rows,
    own_id,
    own_rows,
    recipients_stream,
    show_hidden,
    true_rows,
    wrapped_for,
)
from kbackup.catalog.ledger.rows import table
from kbackup.catalog.ledger.stream import Stream
from kbackup.catalog.recipients import KeyOptions, Recipient, named
from kbackup.clock import Clock, moment_of, rfc3339
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    NoKeyError,
    RefusedError,
    counted,
)
from kbackup.events import Warned
from kbackup.naming import Layout
from kbackup.stores import Store, StoreSettings

OLD_KEYS: Final = "old_data_keys"
"""The warning that what is stored already is as readable as before."""


@dataclass(frozen=True, slots=True)
class RecipientState:
    """What a recipient can decrypt: so many data keys *of* all.

    *state* is ``current``: it gets each new data key; ``retired``: none that is new; ``removed``:
    none is kept for it; or ``forged``: somebody without the backup's own key wrote it there.
    """

    HEAD: ClassVar = {"type": "recipient"}

    recipient: str
    state: str
    opens: int
    of: int
    since: str | None


@dataclass(frozen=True, slots=True)
class KeyKeeper:
    """Lists and changes the recipients of a backup in a store, as it is without encryption."""

    store: Store
    encryption: Encryption

    @classmethod
    def of(cls, place: StoreSettings, layout: Layout, clock: Clock) -> Self:
        """Return what changes the recipients of the backup in *place*."""
        known = place.wrapper
        if not isinstance(known, Encryption):
            known = Encryption(KeyOptions(), layout, clock)
        return cls(replace(place, wrapper=None).open(), known)

    def recipients(self) -> Iterator[RecipientState]:
        """Yield who can decrypt what; no key is needed, but only with one is a forged row known.

        A backup without keys raises `NoKeyError`.
        """
        rows = own_rows(self._own)
        if not rows:
            self.encryption.require()
        if self.encryption.options.is_given:
            with suppress(NoKeyError):  # what others can decrypt is to be seen without
                self.encryption.wrap(self.store)
        ring, data = self.encryption.ring, self._data_keys()
        if ring is not None:
            true = {row.recipient: row for row in true_rows(self._own, ring.own)}
            rows = [true.get(row.recipient, row) for row in rows]
        for row in sorted(rows, key=lambda row: (row.time, row.recipient)):
            state = "removed" if row.wrapped is None else "retired" if row.is_retired else "current"
            if ring is not None and not is_authentic(ring.own, row):
                state = "forged"
            opens = sum(row.recipient in held for held in data.values())
            since = moment_of(row.time)
            yield RecipientState(
                row.recipient, state, opens, len(data), None if since is None else rfc3339(since)
            )

    def add(self, recipients: Sequence[Recipient]) -> Iterator[Warned]:
        """Wrap keys for more recipients: each that is here, and from now on each new one.

        Where the backup's own key is not, `NoKeyError`.
        """
        ring, now = self._unlocked(), self.encryption.clock.ms()
        own = [wrapped_for(ring, one, own_id(ring.own), ring.own) for one in recipients]
        self._own.append(table([replace(row, time=now) for row in own], KEYS))
        rows, lacking = list[WrappedKey](), set[str]()
        for key_id, held in self._data_keys().items():
            if not (missing := [one for one in recipients if one.name not in held]):
                continue
            if (data_key := _opened(ring, key_id)) is None:
                lacking.add(key_id)
                continue
            new = (wrapped_for(ring, one, key_id, data_key) for one in missing)
            rows += [replace(row, time=now) for row in new]
        if rows:
            self._data.append(table(rows, KEYS))
        if lacking:
            yield _not_wrapped(len(lacking))

    def remove(self, names: Sequence[str]) -> Iterator[Warned]:
        """Have nothing kept any longer for recipients, and delete what was.

        `NoKeyError`: the backup's own key is not here.  `RefusedError`: nobody would be left who
        can decrypt all that they can.  `ConfigurationError`: one is none.
        """
        ring, rows = self._unlocked(), self._known(names)
        self._check_left(ring, names)
        now = self.encryption.clock.ms()

        def gone(key_id: str, name: str) -> WrappedKey:
            return authenticated(ring.own, WrappedKey(key_id, name, None, b"", time=now))

        self._own.append(table([gone(own_id(ring.own), name) for name in names], KEYS))
        try:
            data = self._check_left(ring, names)
        except RefusedError:  # somebody else has removed others meanwhile
            self._own.append(table([rows[name] for name in names], KEYS))
            raise
        of_data = [gone(at, name) for at, held in data.items() for name in names if name in held]
        if of_data:
            self._data.append(table(of_data, KEYS))
        for stream in (self._own, self._data):
            stream.purge()
        yield Warned(
            OLD_KEYS,
            "keys that it has unwrapped, and copies and older versions of _kbackup/keys/, still "
            f"open {counted(len(of_data), 'data key')}: revoke the removed recipient's access "
            "to the bucket too; sinks that run keep using their data keys until they are restarted",
        )

    def rotate(self, name: str, new: Recipient) -> Iterator[Warned]:
        """Put a recipient in another's place; it raises as `add` and `remove`.

        With a private key, the old one is removed; without, it keeps the data keys that it has, for
        nobody else might open them, and gets no new one.
        """
        if name == new.name:
            raise ConfigurationError(f"{name[:80]!r} cannot be replaced by itself")
        ring = self._unlocked()
        self._known([name])
        yield from self.add([new])
        if ring.can_read and all(new.name in held for held in self._data_keys().values()):
            yield from self.remove([name])
            return
        row = next(row for row in own_rows(self._own) if row.recipient == name)
        retired = replace(row, is_retired=True, time=self.encryption.clock.ms())
        self._own.append(table([authenticated(ring.own, retired)], KEYS))

    @property
    def _own(self) -> Stream:
        return recipients_stream(self.store, self.encryption.layout, self.encryption.clock)

    @property
    def _data(self) -> Stream:
        return data_stream(self.store, self.encryption.layout, self.encryption.clock)

    def _unlocked(self) -> Keyring:
        self.encryption.wrap(self.store)
        ring = self.encryption.require()
        for stream in (self._own, self._data):
            show_hidden(stream, key_rows(stream), ring.own)
        return ring

    def _known(self, names: Sequence[str]) -> Mapping[str, WrappedKey]:
        rows = {row.recipient: row for row in own_rows(self._own)}
        for name in names:
            if name not in rows:  # a removal that was killed is done again
                raise ConfigurationError(
                    f"{name[:80]!r} is not a recipient", "", "kbackup keys list shows them"
                )
        return rows

    def _check_left(self, ring: Keyring, names: Sequence[str]) -> Mapping[str, set[str]]:
        """Return for whom data keys are wrapped; `RefusedError` if *names* alone open something."""
        data = self._data_keys()
        left = [
            row
            for name, row in self._known(names).items()
            if row.wrapped is not None and name not in names and is_authentic(ring.own, row)
        ]
        others = {row.recipient for row in left}
        lost = sum(not held.isdisjoint(names) and held.isdisjoint(others) for held in data.values())
        if lost or not any(row.is_current for row in left):
            what = f"{counted(lost, 'data key')}" if lost else "what is stored from now on"
            raise RefusedError(
                f"{', '.join(names)} cannot be removed",
                f"nobody else could decrypt {what}",
                "add another recipient first, with a private key: kbackup keys add",
            )
        return data

    def _data_keys(self) -> dict[str, set[str]]:
        """Return for whom each data key is wrapped; what others wrote does not count, if known."""
        found: dict[str, set[str]] = {}
        ring = self.encryption.ring
        for row in key_rows(self._data) if ring is None else true_rows(self._data, ring.own):
            held = found.setdefault(row.id, set())
            if row.wrapped is not None:
                held.add(row.recipient)
        return found


def _opened(ring: Keyring, key_id: str) -> bytes | None:
    try:
        return ring.of(bytes.fromhex(key_id), f"data key {key_id}")
    except (NoKeyError, CorruptObjectError):  # or of a run that has begun since
        return None


def _not_wrapped(number: int) -> Warned:
    return Warned(
        OLD_KEYS,
        f"{counted(number, 'older data key')} could not be wrapped: no private key was given that "
        "opens them, so the new recipient can read only what is stored from now on; run the "
        "command again with encryption.identity.file",
    )


def recipient_of(text: str) -> Recipient:
    """Return the one recipient that the command line names, as `named`; several are refused."""
    one, *more = named(text)
    if more:
        raise ConfigurationError(f"{text} names several recipients", "", "name one")
    return one
