"""Bodies that break or are damaged, and listings that are not whole."""

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Action, Fault, S3Faults

from kbackup.errors import (
    CorruptObjectError,
    StoreError,
)
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store
from kbackup.testing import open_bytes, put_bytes
from tests.support.s3_requests import GET, LARGE, LIST, PUT, SMALL


def test_an_answer_that_never_comes_is_asked_for_again(
    settings: StoreSettings, proxy: S3Faults
) -> None:
    """B10: a server that stops sending is given up after a timeout."""
    store = S3Store(settings, read_timeout=0.2)
    proxy.faults = [Fault(PUT, "hang", seconds=1, nth=(1,))]

    assert put_bytes(store, "a", SMALL)
    assert 2 == proxy.seen(PUT)


@pytest.mark.parametrize("rst", [pytest.param(False, id="FIN"), pytest.param(True, id="RST")])
def test_a_broken_body_is_read_on_where_it_broke(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, rst: bool
) -> None:
    """B11: a download that breaks twice still returns every byte once."""
    truth.put_object(Bucket=bucket, Key="a", Body=LARGE)
    proxy.faults = [Fault(GET, "truncate", count=1000, nth=(1, 2), rst=rst)]

    assert LARGE == open_bytes(store, "a")
    assert 3 == proxy.seen(GET)


def test_a_server_without_ranges_is_read_from_the_start(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """B11: the whole body in answer to a range is not appended to what is there."""
    put_bytes(store, "a", SMALL)
    whole = Fault(GET, "status", status=200, header="range", body=SMALL, headers=(("ETag", '"x"'),))
    proxy.faults = [Fault(GET, "truncate", count=100, nth=(1,)), whole]

    assert SMALL == open_bytes(store, "a")


def test_a_body_that_always_breaks_is_an_error(store: S3Store, proxy: S3Faults) -> None:
    """B11: part of an object is never taken for the whole."""
    put_bytes(store, "a", SMALL)
    proxy.faults = [Fault(GET, "truncate", count=10)]

    with pytest.raises(StoreError, match="after 30 of 600 bytes"):
        store.open("a")

    assert 3 == proxy.seen(GET)


def test_an_object_replaced_while_it_is_read_is_not_mixed(store: S3Store, proxy: S3Faults) -> None:
    """B15: the tail of a replaced object is never appended to the head of the original."""
    put_bytes(store, "a", SMALL)
    proxy.faults = [
        Fault(GET, "status", status=412, code="PreconditionFailed", header="if-match"),
        Fault(GET, "truncate", count=10),
    ]

    with pytest.raises(CorruptObjectError, match="replaced while it was read"):
        store.open("a")


@pytest.mark.parametrize(
    "do", [pytest.param("corrupt", id="a bit"), pytest.param("lengthen", id="length")]
)
def test_a_damaged_body_is_read_once_more(store: S3Store, proxy: S3Faults, do: Action) -> None:
    """B12: damage on the way is not damage in the store."""
    put_bytes(store, "a", SMALL)
    proxy.faults = [Fault(GET, do, nth=(1,))]

    assert SMALL == open_bytes(store, "a")
    assert 2 == proxy.seen(GET)


@pytest.mark.parametrize(
    "do", [pytest.param("corrupt", id="a bit"), pytest.param("lengthen", id="length")]
)
def test_a_damaged_object_is_named_with_both_checksums(
    store: S3Store, proxy: S3Faults, bucket: str, do: Action
) -> None:
    """B12: exit 7, which object, what it should be and what it is."""
    put_bytes(store, "a", SMALL)
    proxy.faults = [Fault(GET, do)]

    what = f"s3://{bucket}/a at {proxy.url}: .*; .* was stored"
    with pytest.raises(CorruptObjectError, match=what) as caught:
        store.open("a")

    assert (7, 2) == (caught.value.exit_code, proxy.seen(GET))


def test_a_foreign_object_is_checked_against_the_servers_checksum(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """B12: an object of another tool is checked against the checksum that the server has of it."""
    truth.put_object(Bucket=bucket, Key="a", Body=SMALL, ChecksumAlgorithm="SHA256")
    proxy.faults = [Fault(GET, "corrupt")]

    with pytest.raises(CorruptObjectError):
        store.open("a")

    assert 2 == proxy.seen(GET)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("continuation-token", "status", nth=(1, 2)), id="503 twice"),
        pytest.param(Fault("continuation-token", "truncate", count=300, nth=(1,)), id="cut short"),
        pytest.param(Fault("continuation-token", "corrupt", nth=(9,)), id="no fault"),
    ],
)
def test_a_listing_is_complete_through_faults(
    store: S3Store, proxy: S3Faults, fault: Fault
) -> None:
    """B13: a listing page that fails is requested again, and no key is missed."""
    names = [f"topics/{n}" for n in range(7)]
    for name in names:
        put_bytes(store, name, b"x")
    proxy.page_keys, proxy.faults = 2, [fault]

    assert names == [one.key for one in store.list("topics/")]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("continuation-token", "status"), id="503"),
        pytest.param(Fault("continuation-token", "truncate", count=300), id="cut short"),
    ],
)
def test_part_of_a_listing_is_never_the_whole(
    store: S3Store, proxy: S3Faults, fault: Fault
) -> None:
    """B13: a listing that cannot be completed is an error, never half a list."""
    for n in range(5):
        put_bytes(store, f"topics/{n}", b"x")
    proxy.page_keys, proxy.faults = 2, [fault]

    with pytest.raises(StoreError, match="s3:ListBucket"):
        [*store.list("topics/")]


def listing(*names: str, more: str = "") -> bytes:
    rest = "<Size>1</Size><ETag>x</ETag><LastModified>2026-01-01T00:00:00Z</LastModified>"
    found = "".join(f"<Contents><Key>{name}</Key>{rest}</Contents>" for name in names)
    kind = f"<EncodingType>url</EncodingType>{more}"
    return f"<ListBucketResult>{kind}{found}</ListBucketResult>".encode()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(listing("b", "a"), id="out of order"),
        pytest.param(listing("a", "a"), id="repeated"),
        pytest.param(listing("a", more="<IsTruncated>true</IsTruncated>"), id="more, not where"),
    ],
)
def test_a_listing_that_cannot_be_trusted_is_refused(
    store: S3Store, proxy: S3Faults, page: bytes
) -> None:
    """B13: a server that repeats keys may leave out others."""
    proxy.faults = [Fault(LIST, "status", status=200, body=page)]

    with pytest.raises(StoreError, match="the listing is not complete"):
        [*store.list("")]


def test_a_key_with_a_newline_is_listed_as_it_is(store: S3Store, proxy: S3Faults) -> None:
    """B13: record text can be in a key, newlines too."""
    proxy.faults = [Fault(LIST, "status", status=200, body=listing("a%0Ab+c%2Bd%25"))]

    assert ["a\nb c+d%"] == [one.key for one in store.list("")]


def test_a_server_that_does_not_begin_behind_a_key_gives_the_same_listing(
    store: S3Store, proxy: S3Faults
) -> None:
    """B13: what comes before the key that was named is left out here."""
    proxy.faults = [Fault(LIST, "status", status=200, body=listing("a", "b", "c"))]

    assert ["c"] == [one.key for one in store.list("", after="b")]
