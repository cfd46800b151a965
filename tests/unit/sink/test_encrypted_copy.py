"""A copy of an encrypted backup: the stored bytes, read there with the same private key."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import identity
from kbackup.catalog.keys import WrappedKey, data_stream, recipients_stream
from kbackup.catalog.ledger.rows import rows_of
from kbackup.catalog.recipients import PublicKey
from kbackup.catalog.rekeying import KeyKeeper
from kbackup.clock import Clock, SystemClock
from kbackup.events import Warned
from kbackup.naming import Layout
from kbackup.runs.report import Summary
from kbackup.stores import Store, StoreSettings, open_store
from kbackup.testing import FaultyStore
from kbackup.testing.stores import open_bytes, put_bytes
from tests.support.copying import copy_run, verified
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.sinks import run_sink
from tests.unit.catalog.test_keys import (
    KEY,
    hide,
    private_key,
    public_key,
    readers,
    run,
    sinks,
)
from tests.unit.catalog.test_rekeying import LATER, one, stands, two

__all__ = ["one", "two"]

LAYOUT = Layout()


@pytest.fixture
def place() -> Store:
    """Where the copy is to be."""
    return open_store(StoreSettings(f"memory://{uuid4()}"))


@pytest.fixture
def stored(tmp_path: Path, one: Path, two: Path) -> Store:
    """A backup of both, of one object."""
    found = open_store(StoreSettings(f"memory://{uuid4()}"))
    identity.ensure(found, LAYOUT, "here", SystemClock().now())
    put_bytes(run(sinks(tmp_path, one, two), found), KEY, b"first")
    return found


def test_an_encrypted_backup_is_copied_as_it_is_stored(tmp_path: Path) -> None:
    """The host that copies has no key; the same private key reads both."""
    key = private_key(tmp_path / "identity.pem")
    kafka, stored = FakeKafka(), StoreSettings(f"memory://{uuid4()}")
    kafka.create("orders", 12)
    there = replace(stored, wrapper=sinks(tmp_path, key))
    done = run_sink(kafka, there, clock=HandClock(), topics="orders", flush_size=5)
    assert 0 == done["exit_code"]
    place, summary = StoreSettings(f"memory://{uuid4()}"), Summary("r", "sink copy")

    copy = copy_run(open_store(stored), open_store(place), summary)
    assert [3] == [row.sent for row in copy()]  # type: ignore[attr-defined]

    assert 0 == summary.exit_code()
    copied = open_store(place)
    keys = [one.key for one in copied.list("topics/")]
    assert [b"KBE1"] * 3 == [copied.open(key).read(4) for key in keys]
    ours, theirs = (open_store(replace(at, wrapper=readers(key))) for at in (stored, place))
    assert [ours.open(key).read() for key in keys] == [theirs.open(key).read() for key in keys]
    assert 0 == verified(theirs, LAYOUT).exit_code()


def test_no_key_is_hidden_in_a_copy_that_has_removed_a_recipient(
    tmp_path: Path, one: Path, two: Path, place: Store
) -> None:
    """What the source had got before comes after it, and counts."""
    stored = open_store(StoreSettings(f"memory://{uuid4()}"))
    identity.ensure(stored, LAYOUT, "here", SystemClock().now())
    early = HandClock(SystemClock().ms() - 7_200_000)
    host = replace(sinks(tmp_path, one, two), clock=early)

    def copy(clock: Clock) -> None:
        summary = Summary("r", "sink copy")
        list(copy_run(stored, place, summary, clock=clock)())
        assert 0 == summary.exit_code()

    put_bytes(run(replace(host), stored), KEY, b"first")
    copy(early)
    put_bytes(run(replace(host), stored), LATER, b"second")
    list(KeyKeeper(place, readers(one)).remove([public_key(two)]))
    copy(SystemClock())

    there = readers(one).wrap(place)
    assert (b"first", b"second") == (open_bytes(there, KEY), open_bytes(there, LATER))
    assert "removed" == stands(place)[public_key(two)][0]


def warnings(stored: Store, place: Store) -> list[str]:
    """What a copy warns of."""
    summary = Summary("r", "sink copy")
    found = [*copy_run(stored, place, summary)()]
    assert 0 == summary.exit_code()
    return [each.text for each in found if isinstance(each, Warned)]


def has_key_for(place: Store, recipient: str) -> bool:
    """Whether any file has a key for a recipient."""
    streams = (of(place, LAYOUT, SystemClock()) for of in (recipients_stream, data_stream))
    rows = [row for each in streams for row in rows_of(WrappedKey, each.superseded())]
    return any(row.wrapped and row.recipient == recipient for row in rows)


def test_a_copy_says_that_it_keeps_keys_of_recipients_that_were_removed(
    one: Path, two: Path, stored: Store
) -> None:
    """Until they are removed there too; who was never there is none of them."""
    early, late = (open_store(StoreSettings(f"memory://{uuid4()}")) for _ in range(2))

    def copied(place: Store) -> list[str]:
        return warnings(stored, place)

    def held(place: Store) -> bool:
        return has_key_for(place, public_key(two))

    assert [] == copied(early)
    list(KeyKeeper(stored, readers(one)).remove([public_key(two)]))
    told = [copied(early), copied(early), copied(late)]

    assert [1, 1, 0] == [*map(len, told)]
    assert f"keys remove {public_key(two)}" in told[0][0]
    assert (True, False, False) == (held(early), held(late), held(stored))
    assert "removed" == stands(early)[public_key(two)][0]
    list(KeyKeeper(early, readers(one)).remove([public_key(two)]))
    assert ([], False) == (copied(early), held(early))
    assert b"first" == open_bytes(readers(one).wrap(early), KEY)


@pytest.mark.parametrize("how", ["null", "no key", "another key"])
def test_a_new_copy_has_the_keys_that_somebody_elses_rows_hide(
    two: Path, stored: Store, place: Store, how: str
) -> None:
    """Who copies has no key to tell which row is forged: who reads the copy has one."""
    hide(stored, how)

    warnings(stored, place)

    assert b"first" == open_bytes(readers(two).wrap(place), KEY)


def test_damaged_keys_are_not_what_reindex_builds_anew(stored: Store, place: Store) -> None:
    """Who is told so would wait for nothing: there is another copy of them, or none."""
    (key,) = (one.key for one in stored.list("_kbackup/keys/") if "/data/" in one.key)
    put_bytes(stored, key, b"what")
    summary = Summary("r", "sink copy")

    list(copy_run(stored, place, summary)())

    said = summary.finish()
    assert (7, ["restore it from a copy of the bucket"]) == (
        summary.exit_code(), [error.do for error in said.errors if error.what == key]
    )  # fmt: skip


def test_no_old_key_comes_back_into_a_copy_that_has_removed_a_recipient(
    tmp_path: Path, one: Path, two: Path, stored: Store, place: Store
) -> None:
    """With new ones, which are for others alone."""
    assert [] == warnings(stored, place)
    list(KeyKeeper(place, readers(one)).remove([public_key(two)]))

    three = PublicKey(public_key(private_key(tmp_path / "three")))
    list(KeyKeeper(stored, readers(one)).add([three]))

    assert [] == warnings(stored, place)
    assert (True, False) == tuple(
        has_key_for(place, name) for name in (three.name, public_key(two))
    )


@pytest.mark.parametrize("folder", ["recipients", "data"])
def test_a_copy_says_which_keys_it_brought_as_their_recipient_was_removed(
    folder: str, tmp_path: Path, one: Path, two: Path, stored: Store, place: Store
) -> None:
    """Another copy, or its owner, has removed it there since this one has looked."""
    assert [] == warnings(stored, place)
    list(KeyKeeper(stored, readers(one)).add([PublicKey(public_key(private_key(tmp_path / "3")))]))
    put_bytes(run(sinks(tmp_path, one, two), stored), LATER, b"second")
    happens = [lambda: list(KeyKeeper(place, readers(one)).remove([public_key(two)]))]

    class Late(FaultyStore):
        def put(self, key: str, *given: Any, **more: Any) -> bool:
            if happens and f"/{folder}/" in key:
                happens.pop()()
            return super().put(key, *given, **more)

    told = warnings(stored, Late("", place))

    assert has_key_for(place, public_key(two)) == bool(told)
    assert [True] == [f"keys remove {public_key(two)}" in text for text in told]
