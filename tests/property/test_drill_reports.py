"""A chain of reports of drills: whatever is done to it is found."""

import io
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from uuid import uuid4

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kbackup.catalog import drills
from kbackup.naming import Layout
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.unit.catalog.test_drills import REPORT

LAYOUT, KEY = Layout(), Ed25519PrivateKey.generate()

Objects = dict[str, bytes]
Harm = Callable[[Objects], Objects]


def proves(body: bytes, signature: bytes) -> bool:
    """Whether a signature is that of the key."""
    try:
        KEY.public_key().verify(signature, body)
    except InvalidSignature:
        return False
    return True


def chain(count: int, *, is_signed: bool) -> Objects:
    """Reports, and their signatures."""
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    for at in range(count):
        report = replace(REPORT, id=f"{at}")
        drills.store_report(store, LAYOUT, report, key=KEY.sign if is_signed else None)
    return {entry.key: store.open(entry.key).read() for entry in store.list("")}


def wrong(objects: Objects, *, is_signed: bool) -> list[int]:
    """The reports with which something is wrong."""
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    for key, body in objects.items():
        store.put(key, io.BytesIO(body), sha256=sha256(body).hexdigest(), metadata={})
    found = drills.check(store, LAYOUT, "b1", key=proves if is_signed else None)
    return [one.number for one in found if one.issues]


def name(objects: Objects, number: int, extension: str = "json") -> str:
    """The key of a report, or of its signature."""
    prefix = next(iter(objects)).rpartition("/")[0]
    return f"{prefix}/{number:08d}.{extension}"


def moved(objects: Objects, places: dict[int, int]) -> Objects:
    """Reports with their signatures, at other places."""
    found = {}
    for old, new in places.items():
        for extension in ("json", "sig"):
            if (key := name(objects, old, extension)) in objects:
                found[name(objects, new, extension)] = objects[key]
    return found


@st.composite
def harmed(draw: st.DrawFn) -> tuple[Objects, Objects, bool]:
    """A chain, what somebody has made of it, and whether it is signed.

    Of a chain that is not signed nothing vouches for the newest report: that one is left alone.
    """
    count, is_signed = draw(st.integers(2, 5)), draw(st.booleans())
    objects = chain(count, is_signed=is_signed)
    last = count if is_signed else count - 1
    at = draw(st.integers(1, last))
    places = {number: number for number in range(1, count + 1)}
    match draw(st.sampled_from(["alter", "remove", "order", "repeat", "insert", "cut"])):
        case "alter":
            kinds = ["json", "sig"] if is_signed else ["json"]
            key = name(objects, at, draw(st.sampled_from(kinds)))
            altered = bytearray(objects[key])
            altered[draw(st.integers(0, len(altered) - 1))] ^= draw(st.integers(1, 255))
            return objects, {**objects, key: bytes(altered)}, is_signed
        case "remove":  # its signature stays
            kept = {key: body for key, body in objects.items() if key != name(objects, at)}
            return objects, kept, is_signed
        case "order":
            order = draw(st.permutations(range(1, count + 1)))
            return objects, moved(objects, dict(zip(places, order, strict=True))), is_signed
        case "repeat":
            rest = {n: n + 1 for n in range(at, count + 1)}
            found = moved(objects, {n: n for n in range(1, at)} | rest)
            twice = moved(objects, {draw(st.integers(1, count)): at})
            return objects, {**found, **twice}, is_signed
        case "insert":  # right in all but the signature
            found = moved(objects, {n: n if n < at else n + 1 for n in places})
            before = objects.get(name(objects, at - 1))
            previous = None if before is None else sha256(before).hexdigest()
            store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
            drills.store_report(store, LAYOUT, replace(REPORT, id="forged"))
            (key,) = (entry.key for entry in store.list(""))
            text = b"null" if previous is None else f'"{previous}"'.encode()
            body = store.open(key).read().replace(b'"previous": null', b'"previous": ' + text)
            return objects, {**found, name(objects, at): body}, is_signed
        case _:  # one of the middle, and all others moved up
            gone = draw(st.integers(1, count - 1))
            kept_places = {n: n if n < gone else n - 1 for n in places if n != gone}
            return objects, moved(objects, kept_places), is_signed


@given(harmed())
def test_whatever_was_done_to_a_chain_is_found(
    done: tuple[Objects, Objects, bool],
) -> None:
    """Any byte altered, any report removed, inserted, repeated or in another order."""
    before, after, is_signed = done

    assert [] == wrong(before, is_signed=is_signed)
    assert (before == after) == (not wrong(after, is_signed=is_signed))
