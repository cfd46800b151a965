"""Azure's and Google's emulators behind a proxy that breaks requests: nothing is lost or mixed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from s3fault import Action, Fault, S3Faults

from kbackup.errors import StoreError
from kbackup.stores import Store, StoreSettings, open_store
from kbackup.testing import PART_BYTES, open_bytes, put_bytes
from tests.support.emulators import BY_NIGHT, Emulator

pytestmark = [*BY_NIGHT]

LARGE = bytes(range(256)) * (3 * PART_BYTES // 256)
SMALL = LARGE[:600]


@dataclass(frozen=True)
class Cloud:
    """An emulator behind a proxy, seen through it, and without it."""

    proxy: S3Faults
    store: Store
    truth: Store


@pytest.fixture(params=["azurite", "fake_gcs"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    emulator: Emulator = request.getfixturevalue(request.param)
    options = {"s3.part.size": PART_BYTES, "s3.retry.backoff.ms": 1}
    place = emulator.place()
    server, slashes, path = emulator.endpoint_url.partition("://")[2].partition("/")
    with S3Faults(f"http://{server}") as proxy:
        through = StoreSettings(place, f"{proxy.url}{slashes}{path}", options)
        truth = StoreSettings(place, emulator.endpoint_url, options)
        yield Cloud(proxy, open_store(through), open_store(truth))


LOST: list[Action] = ["reset", "reset_after", "status", "status_after"]


@pytest.mark.parametrize("do", LOST)
@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "in parts"])
@pytest.mark.parametrize("kind", ["new", "any", "in place"])
def test_a_put_whose_answer_is_lost_has_been_done_once(
    cloud: Cloud, do: Action, body: bytes, kind: str
) -> None:
    """One's own object is never taken for another's, and what is there is whole."""
    etag = None
    if kind == "in place":
        put_bytes(cloud.truth, "a", b"before")
        head = cloud.truth.head("a")
        assert head is not None
        etag = head.etag
    cloud.proxy.faults = [Fault("^(PUT|POST) ", do, nth=(1, 3))]

    assert put_bytes(cloud.store, "a", body, if_absent=kind == "new", if_match=etag)
    assert body == open_bytes(cloud.truth, "a")


@pytest.mark.parametrize("do", LOST)
def test_another_ones_object_stays(cloud: Cloud, do: Action) -> None:
    """A lost answer is no reason to believe that one has won."""
    put_bytes(cloud.truth, "a", b"other")
    cloud.proxy.faults = [Fault("^PUT ", do, nth=(1,))]

    assert not put_bytes(cloud.store, "a", SMALL, if_absent=True)
    assert b"other" == open_bytes(cloud.truth, "a")


def test_a_server_that_stays_away_is_an_error(cloud: Cloud) -> None:
    """Nothing is there, and nobody says that it is."""
    cloud.proxy.faults = [Fault("", "status", status=503)]

    for call in (
        lambda: put_bytes(cloud.store, "a", SMALL),
        lambda: cloud.store.open("a"),
        lambda: cloud.store.head("a"),
        lambda: cloud.store.delete("a"),
        lambda: list(cloud.store.list("")),
    ):
        with pytest.raises(StoreError, match="503") as found:
            call()
        assert 6 == found.value.exit_code
    assert [] == [*cloud.truth.list("")]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_is_asked_again(cloud: Cloud, status: int) -> None:
    """A refusal for the moment is none."""
    put_bytes(cloud.truth, "a", SMALL)
    cloud.proxy.faults = [Fault("", "status", status=status, nth=(1, 2, 4))]

    assert SMALL == open_bytes(cloud.store, "a")
    assert ["a"] == [one.key for one in cloud.store.list("")]


@pytest.mark.parametrize("rst", [False, True])
def test_a_broken_body_is_read_on_where_it_broke(cloud: Cloud, rst: bool) -> None:
    """A download that breaks twice still returns every byte once."""
    put_bytes(cloud.truth, "a", LARGE)
    cloud.proxy.faults = [Fault("^GET ", "truncate", count=100_000, nth=(1, 2), rst=rst)]

    assert LARGE == open_bytes(cloud.store, "a")
    assert 3 == cloud.proxy.seen("^GET ")


def test_a_body_that_always_breaks_is_an_error(cloud: Cloud) -> None:
    """Part of an object is never taken for the whole."""
    put_bytes(cloud.truth, "a", SMALL)
    cloud.proxy.faults = [Fault("^GET ", "truncate", count=10)]

    with pytest.raises(StoreError):
        cloud.store.open("a")


def test_a_damaged_body_is_read_once_more(cloud: Cloud) -> None:
    """Damage on the way is not damage in the store."""
    put_bytes(cloud.truth, "a", SMALL)
    cloud.proxy.faults = [Fault("^GET ", "corrupt", nth=(1,))]

    assert SMALL == open_bytes(cloud.store, "a")


@pytest.mark.parametrize("do", LOST)
def test_a_lost_deletion_is_repeated(cloud: Cloud, do: Action) -> None:
    """A lock whose deletion had no answer is gone."""
    put_bytes(cloud.truth, "a", SMALL)
    cloud.proxy.faults = [Fault("^(POST|DELETE) ", do, nth=(1,))]

    cloud.store.delete("a")

    assert cloud.truth.head("a") is None


def test_an_upload_that_failed_is_aborted(fake_gcs: Emulator) -> None:
    """Google bills parts until their upload is aborted."""
    options = {"s3.part.size": PART_BYTES, "s3.part.retries": 1}
    with S3Faults(fake_gcs.endpoint_url) as proxy:
        store = open_store(StoreSettings(fake_gcs.place(), proxy.url, options))
        proxy.faults = [Fault("PUT .*partNumber=2", "status", status=503)]

        with pytest.raises(StoreError):
            put_bytes(store, "a", LARGE)

        assert 1 == proxy.seen("DELETE .*uploadId")
        assert store.head("a") is None


@pytest.mark.parametrize(
    ("name", "keys"), [("azurite", 5_010), ("fake_gcs", 40)], ids=["azurite", "fake_gcs"]
)
def test_a_listing_has_all_its_pages(request: pytest.FixtureRequest, name: str, keys: int) -> None:
    """Azurite ends a page after 5,000; Google's are made short."""
    emulator: Emulator = request.getfixturevalue(name)
    server, slashes, path = emulator.endpoint_url.partition("://")[2].partition("/")
    expected = [f"topics/{n:05}" for n in range(keys)]
    with S3Faults(f"http://{server}", page_keys=7) as proxy:
        there = StoreSettings(emulator.place(), f"{proxy.url}{slashes}{path}")
        direct = open_store(StoreSettings(there.url, emulator.endpoint_url))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: put_bytes(direct, key, b"x"), expected))
        store = open_store(there)

        assert expected == [one.key for one in store.list("topics/")]
        assert expected[20:] == [one.key for one in store.list("topics/0", after=expected[19])]
        assert proxy.seen("^GET .*(marker|continuation-token)=") > 0
