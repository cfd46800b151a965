"""Who can decrypt what after keys were added, removed and rotated."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import pyarrow as pa
import pytest

from kbackup.catalog.keys import (
    KEYS,
    Encryption,
    WrappedKey,
    data_stream,
    key_rows,
    own_id,
    recipients_stream,
    wrapped_for,
)
from kbackup.catalog.ledger.rows import table
from kbackup.catalog.ledger.stream import Stream
from kbackup.catalog.recipients import KeyOptions, PublicKey, named
from kbackup.catalog.rekeying import KeyKeeper, recipient_of
from kbackup.errors import ConfigurationError, CorruptObjectError, NoKeyError, RefusedError
from kbackup.stores import Store
from kbackup.testing.stores import open_bytes, put_bytes
from tests.unit.catalog.test_keys import (
    CLOCK,
    KEY,
    LAYOUT,
    hide,
    private_key,
    public_key,
    readers,
    run,
    sinks,
    store,
)

__all__ = ["store"]

LATER = KEY.replace("0000000000", "0000000001")


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return private_key(tmp_path / "one")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return private_key(tmp_path / "two")


@pytest.fixture
def backed_up(store: Store, tmp_path: Path, one: Path) -> Store:
    """A backup that one recipient reads."""
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"first")
    return store


def host(tmp_path: Path) -> Encryption:
    """A sink's host, whose recipients are in the bucket alone."""
    return Encryption(KeyOptions(own_file=str(tmp_path / "own")), LAYOUT, CLOCK)


def stands(store: Store) -> dict[str, tuple[str, int, int]]:
    """What each recipient opens, seen without a key."""
    keeper = KeyKeeper(store, Encryption(KeyOptions(), LAYOUT, CLOCK))
    return {row.recipient: (row.state, row.opens, row.of) for row in keeper.recipients()}


def recipient(path: Path) -> PublicKey:
    return PublicKey(public_key(path))


def test_who_is_added_with_a_private_key_reads_all(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """Old data keys are wrapped again, and new ones for both."""
    assert [] == list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))
    put_bytes(run(host(tmp_path), backed_up), LATER, b"second")

    there = readers(two).wrap(backed_up)
    assert (b"first", b"second") == (open_bytes(there, KEY), open_bytes(there, LATER))
    assert {("current", 2, 2)} == set(stands(backed_up).values())


def test_who_is_added_without_a_private_key_reads_what_comes(
    backed_up: Store, tmp_path: Path, two: Path
) -> None:
    """It is said that older data keys stay closed."""
    [warned] = KeyKeeper(backed_up, host(tmp_path)).add([recipient(two)])
    put_bytes(run(host(tmp_path), backed_up), LATER, b"second")

    there = readers(two).wrap(backed_up)
    assert "1 older data key could not be wrapped" in warned.text
    assert b"second" == open_bytes(there, LATER)
    with pytest.raises(NoKeyError):
        there.open(KEY)


def test_who_is_removed_reads_nothing_and_finds_no_key(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """No file below keys/ holds a key for it, and no run wraps another."""
    list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))
    before = {entry.key for entry in backed_up.list("")}

    [warned] = KeyKeeper(backed_up, host(tmp_path)).remove([public_key(one)])
    put_bytes(run(host(tmp_path), backed_up), LATER, b"second")

    assert "still open 1 data key" in warned.text
    assert ("removed", 0, 2) == stands(backed_up)[public_key(one)]
    with pytest.raises(NoKeyError, match="is not a recipient"):
        readers(one).wrap(backed_up)
    left = [entry.key for entry in backed_up.list("_kbackup/keys/") if entry.key in before]
    assert [] == left
    assert b"first" == open_bytes(readers(two).wrap(backed_up), KEY)


def test_a_removal_that_was_killed_is_done_again(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """Whoever counts as removed may still have keys there."""
    list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))
    append, calls = Stream.append, iter((True, False))

    def once(stream: Stream, rows: pa.Table) -> None:
        if not next(calls):
            raise TimeoutError
        append(stream, rows)

    with patch.object(Stream, "append", once), pytest.raises(TimeoutError):
        list(KeyKeeper(backed_up, host(tmp_path)).remove([public_key(one)]))
    assert ("removed", 1, 1) == stands(backed_up)[public_key(one)]

    list(KeyKeeper(backed_up, host(tmp_path)).remove([public_key(one)]))
    assert ("removed", 0, 1) == stands(backed_up)[public_key(one)]


class Meanwhile:
    """A store in which something happens just before its first object is opened, or after."""

    def __init__(self, store: Store, happens: Callable[[], object], *, before: bool) -> None:
        self._store, self._happens, self._before = store, [happens], before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, key: str) -> BinaryIO:
        """Open, and have it happen."""
        happens = self._happens.pop() if self._happens else int
        if self._before:
            happens()
        body = self._store.open(key)
        if not self._before:
            happens()
        return body


def _kept(store: Store) -> list[str]:
    return sorted(row.id[0] for row in key_rows(data_stream(store, LAYOUT, CLOCK)))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("purges", [False, True], ids=["fold", "removal"])
def test_no_key_is_lost_while_others_fold_and_remove(
    store: Store, before: bool, purges: bool
) -> None:
    """A removal deletes what its own snapshot holds, and another snapshot may not."""
    stream = data_stream(store, LAYOUT, CLOCK)

    def enter(key_id: str) -> None:
        stream.append(table([WrappedKey(key_id * 32, "one", b"key", b"")], KEYS))

    def remove() -> None:
        enter("b")
        stream.purge()

    enter("a")
    slow: Any = Meanwhile(store, remove, before=before)
    with suppress(CorruptObjectError):
        late = data_stream(slow, LAYOUT, CLOCK)
        if purges:
            late.purge()
        else:
            late.fold(1)

    assert ["a", "b"] == _kept(store)
    enter("c")
    data_stream(store, LAYOUT, CLOCK).purge()
    assert ["a", "b", "c"] == _kept(store)


def test_a_removal_meanwhile_is_no_damage(store: Store) -> None:
    """Who reads just then reads again."""
    stream = data_stream(store, LAYOUT, CLOCK)
    stream.append(table([WrappedKey("a" * 32, "one", b"key", b"")], KEYS))

    slow: Any = Meanwhile(store, stream.purge, before=True)
    assert ["a"] == _kept(slow)


def test_the_last_who_can_read_is_not_removed(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """Neither the only recipient, nor the only one that opens what is there."""
    with pytest.raises(RefusedError, match="nobody else could decrypt 1 data key"):
        list(KeyKeeper(backed_up, host(tmp_path)).remove([public_key(one)]))
    list(KeyKeeper(backed_up, host(tmp_path)).add([recipient(two)]))
    with pytest.raises(RefusedError, match="nobody else could decrypt 1 data key"):
        list(KeyKeeper(backed_up, host(tmp_path)).remove([public_key(one)]))


def test_rows_that_others_wrote_keep_nobody(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """Who can write to the bucket alone keeps no recipient from being added, nor removed."""
    reader = readers(one)
    reader.wrap(backed_up)
    forged = replace(reader.require(), own=bytes(32))
    for key_id in (secrets.token_hex(16), "no id"):
        row = replace(wrapped_for(forged, recipient(one), "00", bytes(32)), id=key_id)
        data_stream(backed_up, LAYOUT, CLOCK).append(table([row], KEYS))

    row = wrapped_for(forged, recipient(two), own_id(reader.require().own), bytes(32))
    recipients_stream(backed_up, LAYOUT, CLOCK).append(table([row], KEYS))

    listed = KeyKeeper(backed_up, readers(one)).recipients()
    assert {("current", 1, 1), ("forged", 0, 1)} == {(r.state, r.opens, r.of) for r in listed}
    assert [] == list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))
    list(KeyKeeper(backed_up, readers(two)).remove([public_key(one)]))
    assert b"first" == open_bytes(readers(two).wrap(backed_up), KEY)


def test_what_others_hide_is_not_removed_with_a_recipient(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """A removal deletes files: what somebody without a key has hidden there is kept."""
    list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))
    hide(backed_up)
    listed = KeyKeeper(backed_up, host(tmp_path)).recipients()
    assert [("current", 1, 1)] * 2 == [(each.state, each.opens, each.of) for each in listed]

    list(KeyKeeper(backed_up, host(tmp_path)).remove([public_key(one)]))

    assert b"first" == open_bytes(readers(two).wrap(backed_up), KEY)
    assert ("current", 1, 1) == stands(backed_up)[public_key(two)]


def test_nobody_stays_for_a_recipient_that_is_forged(
    store: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """The last one would be removed, and the next run have nobody to encrypt for."""
    sink = sinks(tmp_path, one)
    sink.wrap(store)
    sink.establish(store, "run")
    ring = sink.require()
    row = wrapped_for(replace(ring, own=bytes(32)), recipient(two), own_id(ring.own), bytes(32))
    recipients_stream(store, LAYOUT, CLOCK).append(table([row], KEYS))

    with pytest.raises(RefusedError, match="what is stored from now on"):
        list(KeyKeeper(store, host(tmp_path)).remove([public_key(one)]))


def test_a_key_is_rotated_whole_with_a_private_key(backed_up: Store, one: Path, two: Path) -> None:
    """The new one opens all, the old one nothing."""
    list(KeyKeeper(backed_up, readers(one)).rotate(public_key(one), recipient(two)))

    assert b"first" == open_bytes(readers(two).wrap(backed_up), KEY)
    assert {"removed", "current"} == {state for state, _, _ in stands(backed_up).values()}


def test_a_key_is_rotated_for_what_comes_without_one(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """The old one opens what it did, and gets no new data key."""
    [warned] = KeyKeeper(backed_up, host(tmp_path)).rotate(public_key(one), recipient(two))
    put_bytes(run(host(tmp_path), backed_up), LATER, b"second")

    old, new = readers(one).wrap(backed_up), readers(two).wrap(backed_up)
    assert "older data key" in warned.text
    assert ("retired", 1, 2) == stands(backed_up)[public_key(one)]
    assert (b"first", b"second") == (open_bytes(old, KEY), open_bytes(new, LATER))
    with pytest.raises(NoKeyError):
        old.open(LATER)
    with pytest.raises(RefusedError, match="was removed from the recipients"):
        run(sinks(tmp_path, one), backed_up)


def test_nobody_takes_the_own_place(backed_up: Store, one: Path, two: Path) -> None:
    """That would remove who is named."""
    list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))
    with pytest.raises(ConfigurationError, match="cannot be replaced by itself"):
        list(KeyKeeper(backed_up, readers(one)).rotate(public_key(two), recipient(two)))


def test_a_passphrase_takes_the_place_of_another(store: Store, tmp_path: Path, one: Path) -> None:
    """Of two passphrases the one that fits is used, and the new one alone is left."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"{name} passphrase\n")
        (tmp_path / name).chmod(0o600)

    def knowing(name: str) -> Encryption:
        return Encryption(KeyOptions(passphrase_file=str(tmp_path / name)), LAYOUT, CLOCK)

    put_bytes(run(knowing("old"), store), KEY, b"first")
    [old] = stands(store)
    keeper = KeyKeeper(store, knowing("old"))
    list(keeper.rotate(old, recipient_of(f"passphrase:{tmp_path / 'new'}")))

    assert b"first" == open_bytes(knowing("new").wrap(store), KEY)
    with pytest.raises(NoKeyError, match="another passphrase"):
        knowing("old").wrap(store)
    both = KeyKeeper(store, knowing("new"))
    list(both.add([recipient(one)]))
    list(both.remove([name for name in stands(store) if name.startswith("passphrase:")]))
    configured = KeyOptions((public_key(one),), passphrase_file=str(tmp_path / "new"))
    with pytest.raises(NoKeyError, match="one that was removed"):
        run(Encryption(configured, LAYOUT, CLOCK), store)


def test_what_names_no_recipient_is_said(tmp_path: Path, backed_up: Store, one: Path) -> None:
    """A text that is neither key nor file, a file of several where one is asked for, a stranger."""
    several = tmp_path / "several"
    block = f"-----BEGIN PUBLIC KEY-----\n{public_key(one)}\n-----END PUBLIC KEY-----\n"
    other = block.replace(public_key(one), public_key(private_key(tmp_path / "other")))
    several.write_text(block + other)

    assert 2 == len([*named(str(several))])
    with pytest.raises(ConfigurationError, match="several"):
        recipient_of(str(several))
    with pytest.raises(ConfigurationError, match=r"is not a recipient.*no file of that name"):
        recipient_of("nobody" * 99)
    with pytest.raises(ConfigurationError, match="'' is not a recipient"):
        recipient_of("")
    with pytest.raises(ConfigurationError, match="passphrase: names no file"):
        recipient_of("passphrase:")
    with pytest.raises(ConfigurationError, match="is not a recipient"):
        list(KeyKeeper(backed_up, host(tmp_path)).remove(["nobody"]))


@contextmanager
def meanwhile(happens: Callable[[], object], folder: str) -> Iterator[None]:
    """Have something happen once, just before rows are added below keys/FOLDER."""
    append, left = Stream.append, [happens]

    def late(stream: Stream, rows: pa.Table) -> None:
        if left and stream.prefix.endswith(f"/{folder}/"):
            left.pop()()
        append(stream, rows)

    with patch.object(Stream, "append", late):
        yield


def test_what_a_run_stores_is_read_by_who_takes_anothers_place_as_it_begins(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """The run has looked for recipients, and its data key is not there yet to be wrapped."""
    keeper = KeyKeeper(backed_up, readers(one))

    with meanwhile(lambda: list(keeper.rotate(public_key(one), recipient(two))), "data"):
        put_bytes(run(host(tmp_path), backed_up), LATER, b"second")

    there = readers(two).wrap(backed_up)
    assert (b"first", b"second") == (open_bytes(there, KEY), open_bytes(there, LATER))


def test_two_who_remove_each_others_recipient_leave_one(
    backed_up: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """Each has seen that the other one is left."""
    list(KeyKeeper(backed_up, readers(one)).add([recipient(two)]))

    def remove(path: Path) -> None:
        list(KeyKeeper(backed_up, host(tmp_path)).remove([public_key(path)]))

    with meanwhile(lambda: remove(one), "recipients"), pytest.raises(RefusedError):
        remove(two)

    assert ("current", 1, 1) == stands(backed_up)[public_key(two)]
    assert b"first" == open_bytes(readers(two).wrap(backed_up), KEY)
    put_bytes(run(host(tmp_path), backed_up), LATER, b"second")
    assert b"second" == open_bytes(readers(two).wrap(backed_up), LATER)


def test_who_was_removed_before_is_nobody_who_could_decrypt(
    store: Store, tmp_path: Path, one: Path, two: Path
) -> None:
    """A run that was beginning has wrapped its data key for one that is a recipient no more."""
    first = sinks(tmp_path, one, two)
    first.wrap(store)
    first.establish(store, "run")

    with meanwhile(
        lambda: list(KeyKeeper(store, host(tmp_path)).remove([public_key(one)])), "data"
    ):
        put_bytes(run(host(tmp_path), store), KEY, b"first")

    list(KeyKeeper(store, host(tmp_path)).add([recipient(private_key(tmp_path / "three"))]))
    with pytest.raises(RefusedError, match="nobody else could decrypt 1 data key"):
        list(KeyKeeper(store, host(tmp_path)).remove([public_key(two)]))


def test_a_run_begins_for_nobody_whose_passphrase_was_changed_meanwhile(
    store: Store, tmp_path: Path
) -> None:
    """It has the old one alone, which opens nothing any more."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"{name} passphrase\n")
        (tmp_path / name).chmod(0o600)
    knowing = KeyOptions(passphrase_file=str(tmp_path / "old"))
    run(Encryption(knowing, LAYOUT, CLOCK), store)
    [old] = stands(store)
    keeper = KeyKeeper(store, Encryption(knowing, LAYOUT, CLOCK))
    new = recipient_of(f"passphrase:{tmp_path / 'new'}")

    with (
        meanwhile(lambda: list(keeper.rotate(old, new)), "data"),
        pytest.raises(NoKeyError, match="there is no recipient"),
    ):
        run(Encryption(knowing, LAYOUT, CLOCK), store)
