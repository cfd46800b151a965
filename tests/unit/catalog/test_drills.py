"""Reports of drills: what is altered, forged or taken out is found, however they were stored."""

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from kbackup.catalog import drills
from kbackup.catalog.drills import DrillAge, DrillGroup, DrillReport, DrillTopic, Scratch
from kbackup.catalog.ledger.stream import folder
from kbackup.errors import ConfigurationError, CorruptObjectError, Issue, RefusedError
from kbackup.events import to_json
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore

LAYOUT = Layout()
GOLDEN = Path(__file__).parents[2] / "golden" / "drills"
FIRST = "00000001.json"
REPORT = DrillReport(
    "5c1e09ab", "b1", 1_800_000_000_000, 1_800_000_372_000, 10 * 2**30,
    (DrillTopic("orders", "drill_5c1e09ab_orders", 3, 41, 9000, False, 0, "same"),),
    (DrillGroup("billing", "drill_5c1e09ab_billing", 3, True),),
    (
        DrillAge(TopicPartition("orders", 0), 1_799_999_751_000, 249.0, 1_799_999_750_000),
        DrillAge(TopicPartition("orders", 1), 1_799_999_990_000, 10.0, None),
    ),
    {"plan": 1.5, "restore": 300.25},
    372.0, 6600.5, 7200.0, None,
    (Issue("late", "x", "why", "do", {"topic": "orders"}, exit_code=7),), 0,
)  # fmt: skip


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))


def pem(path: Path, key: Any, mode: int = 0o600) -> Path:
    """A private key's file, and its public half beside it."""
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(text)
    path.chmod(mode)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return pem(tmp_path / "key", Ed25519PrivateKey.generate())


def stored(store: MemoryStore, count: int, key: Path | None = None) -> list[str]:
    """Store reports, and return the keys of their objects."""
    sign = None if key is None else drills.signing_key(key)
    return [
        drills.store_report(store, LAYOUT, replace(REPORT, id=f"{n}"), key=sign)
        for n in range(count)
    ]


def put(store: MemoryStore, key: str, body: bytes) -> None:
    store.put(key, io.BytesIO(body), sha256=sha256(body).hexdigest(), metadata={})


def edit(store: MemoryStore, key: str, old: bytes, new: bytes) -> None:
    """Alter a report, as somebody does who may write to the bucket."""
    body = store.open(key).read()
    assert old in body
    put(store, key, body.replace(old, new))


def swap(store: MemoryStore, one: str, two: str) -> None:
    first, second = store.open(one).read(), store.open(two).read()
    put(store, one, second)
    put(store, two, first)


def wrong(store: MemoryStore, key: Path | None = None) -> list[tuple[int, int]]:
    """Of each report with something wrong, its number and the exit code."""
    proves = None if key is None else drills.checking_key(key.with_suffix(".pub"))
    found = drills.check(store, LAYOUT, "b1", key=proves)
    return [(one.number, issue.exit_code) for one in found for issue in one.issues]


def test_a_report_is_read_as_it_was_stored(store: MemoryStore) -> None:
    """All of it, and the digest of the one before."""
    keys = stored(store, 2)
    newest, oldest = drills.newest_first(store, LAYOUT)

    assert replace(REPORT, id="0") == oldest
    digest = sha256(store.open(keys[0]).read()).hexdigest()
    assert replace(REPORT, id="1", previous=digest) == newest
    assert (True, 249.0) == (newest.has_passed, newest.rpo_s)


def test_reports_of_version_1_are_checked_for_ever(store: MemoryStore) -> None:
    """As they lie in buckets: two, of which the second is signed, and vouches for the first."""
    for file in GOLDEN.glob("0*"):
        put(store, f"{folder(LAYOUT, 'drills')}{file.name}", file.read_bytes())

    found = drills.check(store, LAYOUT, "b1", key=drills.checking_key(GOLDEN / "public.pem"))

    assert [("none", ()), ("right", ())] == [(one.signature, one.issues) for one in found]
    newest, oldest = drills.newest_first(store, LAYOUT)
    assert replace(REPORT, id="0") == oldest
    assert replace(REPORT, id="1", previous=newest.previous) == newest


def test_a_report_is_stored_as_version_1_has_it(store: MemoryStore) -> None:
    """A change of the form is a change of its version."""
    (key,) = stored(store, 1)

    mine, golden = json.loads(store.open(key).read()), json.loads((GOLDEN / FIRST).read_bytes())

    assert [*golden] == [*mine]
    assert {**golden, "version": ""} == {**mine, "version": ""}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("id", None), ("ended_ms", ""), ("ended_ms", 1 << 63), ("rto_s", []), ("rto_whole_s", {}),
        ("ages", [{"topic": 5, "partition": 0}]),
        ("ages", [{"topic": "a", "partition": 0, "rpo_s": "1"}]),
    ],
)  # fmt: skip
def test_a_report_that_no_drill_has_written_is_damaged(
    store: MemoryStore, name: str, said: object
) -> None:
    """Whoever shows one relies on its types."""
    (key,) = stored(store, 1)
    put(store, key, json.dumps({**json.loads(store.open(key).read()), name: said}).encode())

    assert ([(1, 7)], None) == (wrong(store), drills.last(store, LAYOUT))


def test_a_later_reader_may_add_fields(store: MemoryStore) -> None:
    """What this version does not know is left out; a later version of the form is refused."""
    (name,) = stored(store, 1)
    said = json.loads(store.open(name).read())
    said["new"] = said["topics"][0]["new"] = said["ages"][0]["new"] = 1
    put(store, name, json.dumps(said).encode())

    assert [replace(REPORT, id="0")] == [*drills.newest_first(store, LAYOUT)]

    put(store, name, json.dumps({**said, "v": 2}).encode())

    assert [] == [*drills.newest_first(store, LAYOUT)]
    assert [(1, 2)] == wrong(store)


def remove(number: int) -> Callable[[MemoryStore, list[str]], None]:
    return lambda store, keys: store.delete(keys[number - 1])


@pytest.mark.parametrize(
    ("is_signed", "harm", "numbers"),
    [
        (False, lambda _store, _keys: None, []),
        (False, lambda store, keys: edit(store, keys[1], b'"records": 41', b'"records": 42'), [3]),
        (False, lambda store, keys: put(store, keys[1], b"{}"), [2]),
        (False, lambda store, keys: put(store, keys[3], b"\0"), [4]),
        (False, remove(1), [1]),
        (False, remove(2), [2]),
        (False, remove(4), []),  # of the newest, nothing can tell without a signature
        (False, lambda store, keys: swap(store, keys[1], keys[2]), [2, 3, 4]),
        (False, lambda store, keys: swap(store, keys[0], keys[3]), [1, 2, 4]),
        (True, lambda _store, _keys: None, []),
        (True, lambda store, keys: edit(store, keys[3], b'"exit_code": 0', b'"exit_code": 3'), [4]),
        (True, lambda store, keys: put(store, sig(keys[1]), store.open(sig(keys[2])).read()), [2]),
        (True, lambda store, keys: store.delete(sig(keys[3])), [4]),
        (True, lambda store, keys: store.delete(sig(keys[1])), []),  # the third vouches for it
        (True, remove(4), [4]),  # its signature is left
        (True, lambda store, _keys: stored(store, 1), [5]),
    ],
)
def test_what_was_done_to_a_chain_is_found(
    store: MemoryStore,
    key: Path,
    is_signed: bool,
    harm: Callable[[MemoryStore, list[str]], None],
    numbers: list[int],
) -> None:
    """Altered, replaced, taken out, or in another order; the newest too where they are signed."""
    signs = key if is_signed else None
    harm(store, stored(store, 4, signs))

    assert [(number, 7) for number in numbers] == wrong(store, signs)


def sig(name: str) -> str:
    return name.replace(".json", ".sig")


def test_who_writes_all_anew_lacks_the_key(store: MemoryStore, key: Path, tmp_path: Path) -> None:
    """A chain without flaw that nobody has signed, or somebody else has."""
    stored(store, 2)

    assert [] == wrong(store)
    assert [(1, 7), (2, 7)] == wrong(store, key)

    other = pem(tmp_path / "other", Ed25519PrivateKey.generate())
    stored(store, 1, other)

    assert [(1, 7), (2, 7), (3, 7)] == wrong(store, key)
    assert [] == wrong(store, other)


def test_signing_may_begin_at_any_time(store: MemoryStore, key: Path) -> None:
    """The first report that is signed vouches for those before it."""
    stored(store, 2)
    stored(store, 1, key)

    assert [] == wrong(store, key)
    found = drills.check(store, LAYOUT, "b1")
    assert ["none", "none", "not checked"] == [one.signature for one in found]


def test_a_report_of_another_backup_is_none_of_this(store: MemoryStore) -> None:
    """Its chain may be whole, and its signature right."""
    drills.store_report(store, LAYOUT, replace(REPORT, backup_id="b2"))

    assert [(1, 7)] == wrong(store)


def test_drills_that_end_at_once_come_one_after_the_other(store: MemoryStore, key: Path) -> None:
    """Each has a predecessor of its own."""
    sign = drills.signing_key(key)
    with ThreadPoolExecutor(8) as pool:
        keep = partial(drills.store_report, store, LAYOUT, key=sign)
        names = list(pool.map(keep, [replace(REPORT, id=f"{n}") for n in range(8)]))

    assert 8 == len(set(names))
    assert [] == wrong(store, key)


def test_a_key_that_others_may_read_signs_nothing(tmp_path: Path) -> None:
    """It says nothing about who has signed."""
    path = pem(tmp_path / "key", Ed25519PrivateKey.generate(), 0o644)

    with pytest.raises(RefusedError, match="0644"):
        drills.signing_key(path)


def test_what_is_no_key_is_named(tmp_path: Path) -> None:
    """Another kind of key, no key, no file, a public one."""
    other = pem(tmp_path / "x", X25519PrivateKey.generate())
    own = pem(tmp_path / "own", Ed25519PrivateKey.generate())
    empty = tmp_path / "empty"
    empty.touch(0o600)
    own.with_suffix(".pub").chmod(0o600)

    for path in (other, empty, tmp_path / "none", own.with_suffix(".pub")):
        with pytest.raises(ConfigurationError, match=path.name):
            drills.signing_key(path)
    for path in (other.with_suffix(".pub"), empty, tmp_path / "none", own):
        with pytest.raises(ConfigurationError, match=path.name):
            drills.checking_key(path)


def test_scratch_is_known_until_it_is_forgotten(store: MemoryStore) -> None:
    """Its names before there is anything, its topics' ids after that."""
    first = Scratch("a1", 1, "c", {"drill_a1_orders": None}, ("drill_a1_billing",))
    second = Scratch("b2", 2, "c", {"drill_b2_orders": "id"})
    stored(store, 1)
    drills.keep_scratch(store, LAYOUT, replace(second, topics={"drill_b2_orders": None}))
    drills.keep_scratch(store, LAYOUT, first)
    drills.keep_scratch(store, LAYOUT, second)

    assert [first, second] == drills.left_over(store, LAYOUT)
    assert {"drill_a1_orders", "drill_b2_orders"} == drills.scratch_topics(store, LAYOUT)

    drills.forget(store, LAYOUT, "a1")

    assert [second] == drills.left_over(store, LAYOUT)
    assert [] == drills.left_over(store, Layout("other"))


def test_damaged_scratch_is_named(store: MemoryStore) -> None:
    """Nothing is deleted by what cannot be read."""
    drills.keep_scratch(store, LAYOUT, Scratch("a1", 1, "c", {}))
    (entry,) = store.list("_kbackup/drills/")
    put(store, entry.key, b"[]")

    with pytest.raises(CorruptObjectError, match="a1") as caught:
        drills.left_over(store, LAYOUT)

    advice = "delete topics drill_a1_... by hand if a drill made them, then this object"
    assert advice == caught.value.do


@pytest.mark.parametrize(
    "forged",
    [
        Scratch("a1", 1, "c", {"drill_a1_orders": "id", "orders": None}),
        Scratch("a1", 1, "c", {"drill_a1": None}),
        Scratch("a1", 1, "c", {"drill_b2_orders": "id"}),
        Scratch("a1", 1, "c", {}, ("billing",)),
        Scratch("b2", 1, "c", {"drill_b2_orders": "id"}),
    ],
    ids=["a topic", "a group of positions", "another drill's", "a group", "another drill"],
)
def test_scratch_names_only_what_its_drill_creates(store: MemoryStore, forged: Scratch) -> None:
    """Anybody may have written it: nothing else is deleted by it, nor called a drill's."""
    key = f"{folder(LAYOUT, 'drills')}scratch/a1.json"
    put(store, key, json.dumps({"v": 1, **to_json(forged)}).encode())

    with pytest.raises(CorruptObjectError, match="does not begin with drill_a1_"):
        drills.left_over(store, LAYOUT)
    with pytest.raises(CorruptObjectError):
        drills.scratch_topics(store, LAYOUT)
