"""Who gets the keys of a backup, and what somebody who can write to the bucket alone achieves."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from kbackup.catalog import identity, keys
from kbackup.catalog.keys import KEYS, Encryption
from kbackup.catalog.ledger.rows import table
from kbackup.catalog.ledger.stream import Stream, encoded, new_name
from kbackup.catalog.recipients import KeyOptions, PrivateKey, PublicKey, read_own
from kbackup.clock import Clock, SystemClock
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    NewerVersionError,
    NoKeyError,
    RefusedError,
)
from kbackup.naming import Layout
from kbackup.stores import Seals, Store, StoreSettings, open_store
from kbackup.testing.stores import open_bytes, put_bytes

LAYOUT, CLOCK = Layout(), SystemClock()
KEY = "topics/orders/partition=0/orders+0+0000000000.record.zstd.parquet"

SECP224K1 = (
    "ME4wEAYHKoZIzj0CAQYFK4EEACADOgAErgnq9GMvYcljxo5tjoFPQX6zLYpfV3lK"
    "c5LisWH6hTrtZzyk6LO6EjdYP/++R3YCx0Pkmbt7IWo="
)
LOW_ORDER = "MCowBQYDK2VuAyEA" + "A" * 43 + "="


@pytest.fixture
def store() -> Store:
    """A new backup, as it is without encryption."""
    found = open_store(StoreSettings(f"memory://{uuid4()}"))
    identity.ensure(found, LAYOUT, "here", CLOCK.now())
    return found


def private_key(path: Path) -> Path:
    """Write a private key."""
    key = X25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    return path


def public_key(path: Path) -> str:
    """Return the public key beside a private one."""
    return PrivateKey.read(path).name


def sinks(tmp_path: Path, *recipients: Path, own: str = "own") -> Encryption:
    """Return what a sink's host has."""
    names = tuple(map(public_key, recipients))
    return Encryption(KeyOptions(names, own_file=str(tmp_path / own)), LAYOUT, CLOCK)


def readers(path: Path) -> Encryption:
    """Return what a host has that reads."""
    return Encryption(KeyOptions(identity_file=str(path)), LAYOUT, CLOCK)


def run(encryption: Encryption, store: Store, name: str = "run") -> Store:
    """Begin a run of a sink; return the store that it writes to."""
    found = encryption.wrap(store)
    encryption.establish(store, name)
    encryption.begin(store, name)
    return found


def test_each_run_has_a_data_key_that_every_recipient_can_open(
    store: Store, tmp_path: Path
) -> None:
    """What two runs have stored, each of two recipients reads, and the runs' host does not."""
    one, two = (private_key(tmp_path / name) for name in ("one", "two"))
    put_bytes(run(sinks(tmp_path, one, two), store), KEY, b"first")
    later = KEY.replace("0000000000", "0000000001")
    mine = run(sinks(tmp_path, one, two), store)
    put_bytes(mine, later, b"second")

    for path in (one, two):
        there = readers(path).wrap(store)
        assert (b"first", b"second") == (open_bytes(there, KEY), open_bytes(there, later))
    assert b"second" == open_bytes(mine, later)
    with pytest.raises(NoKeyError, match="only public keys were given"):
        mine.open(KEY)


def test_a_recipient_that_is_configured_later_reads_what_comes_later(
    store: Store, tmp_path: Path
) -> None:
    """It gets the backup's own key and each new data key, and no older one."""
    one, two = (private_key(tmp_path / name) for name in ("one", "two"))
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"first")
    later = KEY.replace("0000000000", "0000000001")
    put_bytes(run(sinks(tmp_path, one, two), store), later, b"second")

    there = readers(two).wrap(store)
    assert b"second" == open_bytes(there, later)
    with pytest.raises(NoKeyError, match="is not wrapped for the key that was given"):
        there.open(KEY)


def test_a_reader_that_goes_on_learns_new_data_keys(store: Store, tmp_path: Path) -> None:
    """A standby reads what runs have stored that began after it."""
    one = private_key(tmp_path / "one")
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"first")
    there = readers(one).wrap(store)
    later = KEY.replace("0000000000", "0000000001")
    put_bytes(run(sinks(tmp_path, one), store), later, b"second")

    assert (b"first", b"second") == (open_bytes(there, KEY), open_bytes(there, later))


def test_rows_that_others_wrote_count_for_nothing(store: Store, tmp_path: Path) -> None:
    """Who has no key but can write to the bucket becomes no recipient, and forges no object."""
    one, mallory = (private_key(tmp_path / name) for name in ("one", "mallory"))
    encryption = sinks(tmp_path, one)
    run(encryption, store)
    ring, theirs = encryption.require(), PrivateKey.read(mallory)
    forged = replace(ring, own=secrets.token_bytes(32))
    row = keys.wrapped_for(forged, theirs, keys.own_id(ring.own), secrets.token_bytes(32))
    keys.recipients_stream(store, LAYOUT, CLOCK).append(table([row], KEYS))
    key_id, data_key = secrets.token_bytes(16), secrets.token_bytes(32)
    public = PublicKey(public_key(one))
    fake = keys.wrapped_for(forged, public, key_id.hex(), data_key)
    keys.data_stream(store, LAYOUT, CLOCK).append(table([fake], KEYS))

    put_bytes(run(sinks(tmp_path, one), store), KEY, b"orders")
    assert public_key(mallory) not in _recipients(store)
    forged.new = key_id, data_key
    mine = Encryption(encryption.options, LAYOUT, CLOCK, forged)
    put_bytes(mine.wrap(store), KEY, b"forged")
    with pytest.raises(CorruptObjectError, match="was not stored by a sink of this backup"):
        readers(one).wrap(store).open(KEY)


def test_no_row_that_others_wrote_keeps_a_recipient_from_its_keys(
    store: Store, tmp_path: Path
) -> None:
    """Who is configured gets each new data key, whatever the bucket says of it."""
    one, two = (private_key(tmp_path / name) for name in ("one", "two"))
    encryption = sinks(tmp_path, one, two)
    run(encryption, store)
    ring = encryption.require()
    forged = replace(ring, own=secrets.token_bytes(32))
    row = keys.wrapped_for(forged, PrivateKey.read(two), keys.own_id(ring.own), ring.own)
    keys.recipients_stream(store, LAYOUT, CLOCK).append(table([row], KEYS))

    put_bytes(run(sinks(tmp_path, one, two), store), KEY, b"orders")
    assert b"orders" == open_bytes(readers(two).wrap(store), KEY)


def hide(store: Store, how: str = "null") -> None:
    """Hide every row behind one of somebody who has no key of the backup."""
    backup = identity.read(store, LAYOUT, "").id
    for stream_of in (keys.recipients_stream, keys.data_stream):
        stream, rows = stream_of(store, LAYOUT, CLOCK), []
        for row in keys.key_rows(stream):
            other = PublicKey(row.recipient).wrap(bytes(32), keys.about(backup, row.id))
            wrapped = {"null": None, "no key": b"what", "another key": other}[how]
            rows.append(replace(row, wrapped=wrapped, mac=bytes(32)))
        stream.append(table(rows, KEYS))
        stream.fold(1)


@pytest.mark.parametrize("how", ["null", "no key", "another key"])
def test_no_row_that_others_wrote_hides_a_key(store: Store, tmp_path: Path, how: str) -> None:
    """Neither from the private key alone, nor from a recipient that the bucket alone names."""
    one, two = (private_key(tmp_path / name) for name in ("one", "two"))
    put_bytes(run(sinks(tmp_path, one, two), store), KEY, b"first")
    hide(store, how)

    assert b"first" == open_bytes(readers(two).wrap(store), KEY)
    later = KEY.replace("0000000000", "0000000001")
    put_bytes(run(sinks(tmp_path, one), store), later, b"second")
    assert b"second" == open_bytes(readers(two).wrap(store), later)
    with pytest.raises(NoKeyError, match="is not a recipient"):
        readers(private_key(tmp_path / "three")).wrap(store)


def _recipients(store: Store) -> set[str]:
    rows = keys.data_stream(store, LAYOUT, CLOCK).read().rows
    return set(rows["recipient"].to_pylist())


def test_an_object_that_names_no_key_of_the_backup_is_altered(store: Store, tmp_path: Path) -> None:
    """That is no fault of the key that was given; nor does odd metadata end a run."""
    one = private_key(tmp_path / "one")
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"orders")
    body = open_bytes(store, KEY)
    put_bytes(store, KEY, body[:9] + bytes([body[9] ^ 1]) + body[10:])

    there = readers(one).wrap(store)
    with pytest.raises(CorruptObjectError, match="the backup has no data key"):
        there.open(KEY)
    assert isinstance(there, Seals)
    assert not there.can_read({"data-key": "what?"})


def test_of_two_first_runs_one_gives_the_backup_its_key(store: Store, tmp_path: Path) -> None:
    """The other one is refused, and its host is told which file it needs."""
    one = private_key(tmp_path / "one")
    late = sinks(tmp_path, one, own="mine")
    late.wrap(store)
    run(sinks(tmp_path, one, own="theirs"), store)

    with pytest.raises(NoKeyError, match="mine is not this backup's own key"):
        late.establish(store, "late")
    put_bytes(run(sinks(tmp_path, one, own="theirs"), store), KEY, b"orders")
    assert b"orders" == open_bytes(readers(one).wrap(store), KEY)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({"recipients": ("MCowBQ",)}, "is not a recipient", id="no public key"),
        pytest.param({"recipients": (SECP224K1,)}, "is not a recipient", id="an unknown curve"),
        pytest.param({"recipients": (LOW_ORDER,)}, "is not a recipient", id="a point of low order"),
        pytest.param({"kms_key": "arn:aws:kms"}, "is not a KMS key", id="no ARN"),
        pytest.param({"identity_file": "/nowhere"}, "cannot be read", id="no private key"),
        pytest.param({"passphrase_file": "/nowhere"}, "cannot be read", id="no passphrase"),
        pytest.param({"recipients_file": "/nowhere"}, "cannot be read", id="no file"),
    ],
)
def test_what_is_no_key_is_said(given: dict[str, str], why: str) -> None:
    """A file or a text that is no key ends the run before it does anything."""
    options = KeyOptions(**given)  # type: ignore[arg-type]

    def read() -> None:
        options.passphrase()
        options.private_key()
        list(options.others())

    with pytest.raises(ConfigurationError, match=why):
        read()


@pytest.mark.parametrize("which", [0, 1])
def test_no_recipient_is_left_out_as_its_key_is_cut(which: int, tmp_path: Path) -> None:
    """The backup would be encrypted for the others alone."""
    keys = (public_key(private_key(tmp_path / name)) for name in ("one", "two"))
    blocks = [f"-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n" for key in keys]
    path = tmp_path / "recipients.pem"
    path.write_text("".join(blocks))
    assert 2 == len([*KeyOptions(recipients_file=str(path)).public_keys()])

    blocks[which] = blocks[which].partition("-----END")[0]
    path.write_text("".join(blocks))
    with pytest.raises(
        ConfigurationError, match=f"is cut short: block {which + 1} has no END line"
    ):
        list(KeyOptions(recipients_file=str(path)).public_keys())


def test_nobody_is_told_to_write_over_a_private_key(tmp_path: Path) -> None:
    """One that has a passphrase may be the only one that opens the backup."""
    path = tmp_path / "one"
    secret = BestAvailableEncryption(b"words")
    key = X25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    path.chmod(0o600)

    with pytest.raises(ConfigurationError, match="a key without a passphrase") as refused:
        KeyOptions(identity_file=str(path)).private_key()
    assert f"-in {path}" in refused.value.do
    assert f"-out {path}" not in refused.value.do


def test_a_private_key_is_not_shown_where_a_public_one_is_wanted(tmp_path: Path) -> None:
    """Neither its file's text, nor what was typed."""
    path = private_key(tmp_path / "one")
    secret = path.read_text().splitlines()[1]

    for given in ({"recipients_file": str(path)}, {"recipients": (secret,)}):
        with pytest.raises(ConfigurationError) as refused:
            list(KeyOptions(**given).public_keys())
        assert secret[20:] not in str(refused.value)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """Private keys, passphrases and the backup's own key are their owner's alone."""
    path = private_key(tmp_path / "one")
    path.chmod(0o640)
    options = KeyOptions(identity_file=str(path), passphrase_file=str(path))

    for read in (options.private_key, options.passphrase, lambda: read_own(path)):
        with pytest.raises(RefusedError, match="0640"):
            read()


def test_a_key_file_that_cannot_be_looked_for_is_an_error(tmp_path: Path) -> None:
    """It may be there, as in a folder that this user may not search: none is made instead."""
    (tmp_path / "file").touch()

    assert None is read_own(tmp_path / "folder" / "own")
    for path in (tmp_path / ("a" * 300), tmp_path / "file" / "own", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            read_own(path)


@pytest.mark.parametrize("reads", [False, True])
def test_a_sink_needs_a_place_for_the_backups_own_key(
    store: Store, tmp_path: Path, reads: bool
) -> None:
    """Without it, no later run would know the objects of this one, or the backup's key."""
    one = private_key(tmp_path / "one")
    options = KeyOptions((public_key(one),), identity_file=str(one) if reads else None)
    encryption = Encryption(options, LAYOUT, CLOCK)
    encryption.wrap(store)

    with pytest.raises(ConfigurationError, match=r"encryption\.key\.file is not set"):
        encryption.establish(store, "run")


def test_who_can_write_to_the_bucket_gives_the_backup_no_other_key(
    store: Store, tmp_path: Path
) -> None:
    """Public keys lie in the bucket: anybody can wrap a key for them, and for one more."""
    one, mallory = (private_key(tmp_path / name) for name in ("one", "mallory"))
    encryption = sinks(tmp_path, one)
    run(encryption, store)
    for entry in [*store.list("_kbackup/keys/")]:
        store.delete(entry.key)
    forged = replace(encryption.require(), own=secrets.token_bytes(32))
    rows = [
        keys.wrapped_for(forged, PrivateKey.read(path), keys.own_id(forged.own), forged.own)
        for path in (one, mallory)
    ]
    keys.recipients_stream(store, LAYOUT, CLOCK).append(table(rows, KEYS))

    given = KeyOptions(identity_file=str(one), own_file=str(tmp_path / "own"))
    with pytest.raises(NoKeyError, match="own is not this backup's own key") as caught:
        Encryption(given, LAYOUT, CLOCK).wrap(store)
    assert "put back their earlier versions" in caught.value.do


@pytest.mark.parametrize("given", ["own", "identity"])
def test_a_key_that_was_put_before_the_backups_own_is_named_with_its_file(
    store: Store, tmp_path: Path, given: str
) -> None:
    """It ends each run, as nothing tells it from a first run that was faster; not for long."""
    one, mallory = (private_key(tmp_path / name) for name in ("one", "mallory"))
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"orders")
    theirs = keys.Keyring(identity.read(store, LAYOUT, "").id, LAYOUT, secrets.token_bytes(32))
    there = {entry.key for entry in store.list("_kbackup/keys/")}
    row = keys.wrapped_for(theirs, PrivateKey.read(mallory), keys.own_id(theirs.own), theirs.own)
    stream = keys.recipients_stream(store, LAYOUT, CLOCK)
    stream.adopt(table([replace(row, counter=0)], KEYS))
    stream.fold(1)
    new = {entry.key for entry in store.list("_kbackup/keys/")} - there
    encryption = sinks(tmp_path, one) if given == "own" else readers(one)

    with pytest.raises(NoKeyError) as caught:
        encryption.wrap(store)

    assert 2 == len(new)
    assert all(key in caught.value.why and key in caught.value.do for key in new)
    for key in new:
        store.delete(key)
    assert b"orders" == open_bytes(readers(one).wrap(store), KEY)
    put_bytes(run(sinks(tmp_path, one), store), KEY.replace("000000", "000001"), b"more")


def test_a_folder_that_is_the_whole_bucket_can_be_encrypted(tmp_path: Path) -> None:
    """What kbackup keeps beside objects is none of them."""
    store, layout = open_store(StoreSettings(f"memory://{uuid4()}")), Layout("")
    identity.ensure(store, layout, "here", CLOCK.now())
    encryption = replace(sinks(tmp_path, private_key(tmp_path / "one")), layout=layout)
    encryption.wrap(store)

    encryption.establish(store, "run")

    assert encryption.require().own == read_own(tmp_path / "own")


def test_keys_that_are_lost_are_missed(store: Store, tmp_path: Path) -> None:
    """A backup whose keys were deleted is not taken for one that was never encrypted."""
    one = private_key(tmp_path / "one")
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"orders")
    for entry in [*store.list("_kbackup/keys/")]:
        store.delete(entry.key)

    with pytest.raises(NoKeyError, match="the backup under topics has no keys"):
        readers(one).wrap(store).open(KEY)
    mixed = replace(sinks(tmp_path, one).options, takes_plain=True)
    with pytest.raises(NoKeyError, match="the backup under topics has no keys"):
        run(Encryption(mixed, LAYOUT, CLOCK), store)


@pytest.mark.parametrize("of", [keys.recipients_stream, keys.data_stream])
def test_a_file_that_claims_a_later_version_is_named_with_the_way_out(
    store: Store, tmp_path: Path, of: Callable[[Store, Layout, Clock], Stream]
) -> None:
    """It is moved away, and not deleted; without it the backup is read as before."""
    one = private_key(tmp_path / "one")
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"orders")
    forged = f"{of(store, LAYOUT, CLOCK).prefix}{new_name(CLOCK.ms() + 1)}"
    later = {b"kbackup.ledger": "9"}
    put_bytes(store, forged, encoded(table([], KEYS), KEYS.schema, later))

    with pytest.raises(NewerVersionError) as caught:
        open_bytes(readers(one).wrap(store), KEY)

    assert forged in caught.value.what
    assert caught.value.do.endswith(
        "if no kbackup wrote it, restore it from a copy of the bucket; if that has no such file, "
        "move it away, and keep it: it may hold keys"
    )
    store.delete(forged)
    assert b"orders" == open_bytes(readers(one).wrap(store), KEY)


def test_data_keys_of_a_year_are_folded(store: Store, tmp_path: Path) -> None:
    """A reader opens one snapshot and few parts, however many runs there were."""
    one = private_key(tmp_path / "one")
    for number in range(70):
        run(sinks(tmp_path, one), store, f"run {number}")
    encryption = sinks(tmp_path, one)
    encryption.wrap(store)
    encryption.fold(store)

    contents = keys.data_stream(store, LAYOUT, CLOCK).read()
    assert (0, 70) == (contents.loose, len(contents.rows))
