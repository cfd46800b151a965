"""S3 misbehaves: rows B1 to B18 of the fault matrix, by a proxy in front of an HTTP server."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Action, Fault, S3Faults

from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store
from kbackup.testing import etag, open_bytes, put_bytes

SMALL = b"orders" * 100
LARGE = bytes(range(256)) * 9  # three parts of the fixture's settings, the last of 256 bytes

PUT, CREATE, PART, COMPLETE = (
    "PUT [^?]*$",
    r"POST .*\?uploads",
    "PUT .*partNumber=2",
    "POST .*uploadId",
)
GET, LIST, HEAD, DELETE, ABORT = (
    "GET [^?]*/a$",
    "list-type=2",
    "HEAD ",
    "DELETE [^?]*$",
    "DELETE .*uploadId",
)


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def store(settings: StoreSettings, pauses: list[float]) -> S3Store:
    return S3Store(settings, read_timeout=5, sleep=pauses.append)


@pytest.fixture
def bucket(settings: StoreSettings) -> str:
    return settings.url.removeprefix("s3://")


def keys(truth: S3Client, bucket: str) -> list[str]:
    return [one["Key"] for one in truth.list_objects_v2(Bucket=bucket).get("Contents", [])]


def unfinished(truth: S3Client, bucket: str) -> int:
    return len(truth.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def content(truth: S3Client, bucket: str, key: str = "a") -> bytes:
    return truth.get_object(Bucket=bucket, Key=key)["Body"].read()


WORK: dict[str, Callable[[S3Store], Any]] = {
    PUT: lambda store: put_bytes(store, "a", SMALL),
    CREATE: lambda store: put_bytes(store, "a", LARGE),
    PART: lambda store: put_bytes(store, "a", LARGE),
    COMPLETE: lambda store: put_bytes(store, "a", LARGE),
    GET: lambda store: open_bytes(store, "a"),
    LIST: lambda store: [one.key for one in store.list("")],
    HEAD: lambda store: (store.head("a"), store.head("none")),
    DELETE: lambda store: (store.delete("a"), store.head("a")),
}
"""What meets a fault, by the request that is broken."""

EVERY_REQUEST = [
    pytest.param(PUT, id="put"),
    pytest.param(CREATE, id="create"),
    pytest.param(PART, id="part"),
    pytest.param(COMPLETE, id="complete"),
    pytest.param(GET, id="get"),
    pytest.param(LIST, id="list"),
    pytest.param(HEAD, id="head"),
    pytest.param(DELETE, id="delete"),
]


@pytest.mark.parametrize("request_line", EVERY_REQUEST)
@pytest.mark.parametrize(
    ("do", "status", "nth"),
    [
        pytest.param("status", 503, (1, 2), id="503 twice"),
        pytest.param("status", 500, (1,), id="500"),
        pytest.param("status", 429, (1,), id="429"),
        pytest.param("reset", 0, (1, 2), id="reset twice"),
        pytest.param("status_after", 502, (1,), id="done, 502"),
        pytest.param("reset_after", 0, (1,), id="done, reset"),
    ],
)
def test_passing_faults_cost_time_only(
    store: S3Store,
    settings: StoreSettings,
    proxy: S3Faults,
    truth: S3Client,
    pauses: list[float],
    caplog: pytest.LogCaptureFixture,
    request_line: str,
    do: Action,
    status: int,
    nth: tuple[int, ...],
) -> None:
    """
    B1, B3, B6: what passes within the budget changes no result, and is said once a time.
    """
    bucket = settings.url.removeprefix("s3://")
    put_bytes(store, "a", SMALL)
    expected = WORK[request_line](store)
    put_bytes(store, "a", SMALL)
    if request_line == HEAD:
        expected = WORK[request_line](store)
    proxy.faults = [Fault(request_line, do, nth=nth, status=status)]

    found = WORK[request_line](store)

    assert expected == found
    assert len(nth) == len(pauses) == len(caplog.records)
    assert all(0.0005 * 2**n <= pause <= 0.001 * 2**n for n, pause in enumerate(pauses))
    assert 0 == unfinished(truth, bucket) or request_line == CREATE  # its id was lost


@pytest.mark.parametrize("request_line", EVERY_REQUEST)
def test_lasting_faults_end_in_an_error(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, request_line: str
) -> None:
    """
    B2: the budget is spent, then the error names action and object; nothing half done is visible.
    """
    truth.put_object(Bucket=bucket, Key="a", Body=SMALL)
    proxy.faults = [Fault(request_line, "status")]

    with pytest.raises(
        StoreError, match=f"s3:[A-Za-z]+ on s3://{bucket}/.*(SlowDown|503)"
    ) as caught:
        WORK[request_line](store)

    assert 6 == caught.value.exit_code
    assert 3 == proxy.seen(request_line)
    assert (["a"], SMALL) == (keys(truth, bucket), content(truth, bucket))
    assert 0 == unfinished(truth, bucket)


def test_the_warning_names_error_object_and_attempt(
    store: S3Store, proxy: S3Faults, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    B1: who reads the log knows what is slow, and how long it may still take.
    """
    proxy.faults = [Fault(PART, "status", nth=(1,))]
    put_bytes(store, "a\u202eb", LARGE)

    said = f"s3 503 SlowDown on s3://{bucket}/a\\u202eb part 2, attempt 2 of 3 in 0.0s"
    assert [said] == caplog.messages


def test_parts_are_thrown_away_through_faults(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """
    B1: an upload that fails leaves no parts to be paid for, though the abort fails at first.
    """
    proxy.faults = [Fault(PART, "status", status=403), Fault(ABORT, "status", nth=(1,))]

    with pytest.raises(StoreError):
        put_bytes(store, "a", LARGE)

    assert (0, 2) == (unfinished(truth, bucket), proxy.seen(ABORT))


@pytest.mark.parametrize("status", [503, 429])
def test_a_failed_upload_spends_one_budget(
    store: S3Store, proxy: S3Faults, pauses: list[float], status: int
) -> None:
    """
    B2: a server that has not taken a part in all attempts is asked to abort once, and not again.
    """
    proxy.faults = [Fault(f"{PART}|{ABORT}", "status", status=status)]

    with pytest.raises(StoreError, match="part 2"):
        put_bytes(store, "a", LARGE)

    assert (3, 1, 2) == (proxy.seen(PART), proxy.seen(ABORT), len(pauses))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        pytest.param("AccessDenied", "allow s3:PutObject", id="denied"),
        pytest.param("SignatureDoesNotMatch", "secret access key", id="wrong secret"),
        pytest.param("InvalidAccessKeyId", "correct the access key", id="unknown key"),
    ],
)
def test_a_refusal_is_not_tried_again(
    store: S3Store, proxy: S3Faults, bucket: str, code: str, remedy: str
) -> None:
    """
    B4: who is not allowed is told what to allow, at once.
    """
    proxy.faults = [Fault(PUT, "status", status=403, code=code)]

    with pytest.raises(StoreError, match=f"s3:PutObject on s3://{bucket}/a: {code}") as caught:
        put_bytes(store, "a", SMALL)

    assert remedy in caught.value.do
    assert 1 == proxy.seen(PUT)


@pytest.mark.parametrize(
    "step", [pytest.param(PART, id="part"), pytest.param(COMPLETE, id="complete")]
)
def test_a_permission_that_ends_in_the_middle_leaves_nothing(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, step: str
) -> None:
    """
    B4: an upload that is denied half-way names the permission, and leaves no object and no parts.
    """
    proxy.faults = [Fault(step, "status", status=403, code="AccessDenied")]

    with pytest.raises(StoreError, match=r"s3:PutObject on .*AccessDenied") as caught:
        put_bytes(store, "a", LARGE)

    assert ("allow s3:PutObject", 1) == (caught.value.do, proxy.seen(step))
    assert ([], 0) == (keys(truth, bucket), unfinished(truth, bucket))


def test_expired_credentials_are_asked_for_once_more(store: S3Store, proxy: S3Faults) -> None:
    """
    B4: credentials that ran out on the way are renewed.
    """
    proxy.faults = [Fault(PUT, "status", status=400, code="ExpiredToken", nth=(1,))]

    assert put_bytes(store, "a", SMALL)
    assert 2 == proxy.seen(PUT)


def test_credentials_that_stay_expired_end_in_an_error(store: S3Store, proxy: S3Faults) -> None:
    """
    B4: renewing is tried once.
    """
    proxy.faults = [Fault(PUT, "status", status=400, code="ExpiredToken")]

    with pytest.raises(StoreError, match="ExpiredToken") as caught:
        put_bytes(store, "a", SMALL)

    assert ("renew the session's credentials", 2) == (caught.value.do, proxy.seen(PUT))


@pytest.mark.parametrize("work", [PUT, CREATE, GET, LIST, DELETE])
def test_a_missing_bucket_is_an_error_at_first_use(settings: StoreSettings, work: str) -> None:
    """
    B5: no bucket is not an empty bucket.
    """
    store = S3Store(replace(settings, url="s3://no-such-bucket"))

    with pytest.raises(StoreError, match="NoSuchBucket") as caught:
        WORK[work](store)

    assert not isinstance(caught.value, ObjectNotFoundError)
    assert "create the bucket" in caught.value.do


def test_the_right_region_is_named(store: S3Store, proxy: S3Faults) -> None:
    """
    B5: a bucket elsewhere says where it is.
    """
    where = (("x-amz-bucket-region", "eu-north-1"),)
    proxy.faults = [Fault(PUT, "status", status=301, code="PermanentRedirect", headers=where)]

    with pytest.raises(StoreError, match="PermanentRedirect") as caught:
        put_bytes(store, "a", SMALL)

    assert "set s3.region to eu-north-1" == caught.value.do


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"url": "s3://"}, id="no bucket"),
        pytest.param({"url": "s3://lake/topics"}, id="a folder in it"),
        pytest.param({"endpoint_url": "nonsense"}, id="endpoint without scheme"),
        pytest.param({"endpoint_url": "http://AKIACANARY:SECRETCANARY@h"}, id="credentials in it"),
        pytest.param(
            {"options": {"aws.access.key.id": "AKIACANARY"}}, id="half of the credentials"
        ),
    ],
)
def test_malformed_settings_are_refused(settings: StoreSettings, changes: dict[str, Any]) -> None:
    """
    B5: what cannot work is a matter of configuration, and no credential is repeated.
    """
    with pytest.raises(ConfigurationError) as caught:
        S3Store(replace(settings, **changes))

    assert "CANARY" not in str(caught.value.to_dict())


def test_a_name_no_bucket_can_have_is_refused(settings: StoreSettings) -> None:
    """
    B5: no server is asked for it.
    """
    store = S3Store(replace(settings, url="s3://No_Bucket!"))

    with pytest.raises(ConfigurationError, match="No_Bucket!"):
        [*store.list("")]


@pytest.mark.parametrize(
    "data", [pytest.param(SMALL, id="put"), pytest.param(LARGE, id="complete")]
)
@pytest.mark.parametrize("nth", [pytest.param((1,), id="once"), pytest.param((), id="for ever")])
@pytest.mark.parametrize("do", ["status_after", "reset_after"])
def test_a_lost_answer_is_no_lost_object(
    store: S3Store,
    proxy: S3Faults,
    truth: S3Client,
    bucket: str,
    data: bytes,
    nth: tuple[int, ...],
    do: Action,
) -> None:
    """
    B6: what was stored though nobody said so is recognised as ours.
    """
    proxy.faults = [Fault(PUT, do, nth=nth), Fault(COMPLETE, do, nth=nth)]

    assert put_bytes(store, "a", data, if_absent=True)
    assert (["a"], data) == (keys(truth, bucket), content(truth, bucket))
    assert 0 == unfinished(truth, bucket)


def test_a_lost_answer_does_not_make_another_object_ours(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """
    B6: 412 is success only if what is stored is ours.
    """
    truth.put_object(Bucket=bucket, Key="a", Body=b"other")
    proxy.faults = [Fault(PUT, "reset_after", nth=(1,))]

    assert not put_bytes(store, "a", SMALL, if_absent=True)
    assert b"other" == content(truth, bucket)


@pytest.mark.parametrize("do", ["status_after", "reset_after"])
@pytest.mark.parametrize(
    "data", [pytest.param(SMALL, id="put"), pytest.param(LARGE, id="complete")]
)
def test_a_lost_answer_is_no_lost_replacement(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, data: bytes, do: Action
) -> None:
    """
    B6: the second attempt finds another etag, which is that of the first attempt's object.
    """
    put_bytes(store, "a", b"before")
    before = etag(store, "a")
    proxy.faults = [Fault(PUT, do, nth=(1,)), Fault(COMPLETE, do, nth=(1,))]

    assert put_bytes(store, "a", data, if_match=before)
    assert (["a"], data) == (keys(truth, bucket), content(truth, bucket))
    assert 0 == unfinished(truth, bucket)


def test_a_slow_replacement_does_not_land_on_a_newer_object(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """
    D5: while a replacing put is held up on its way, another run puts more; the more stays.
    """
    put_bytes(store, "a", b"ten")
    ten = etag(store, "a")
    proxy.faults = [Fault(PUT, "delay", nth=(1,), seconds=1.0)]

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_bytes, store, "a", b"twenty", if_match=ten)
        while not proxy.seen(PUT):
            time.sleep(0.01)
        truth.put_object(Bucket=bucket, Key="a", Body=b"thirty")

        assert not late.result()
    assert b"thirty" == content(truth, bucket)


@pytest.mark.parametrize("data", [pytest.param(SMALL, id="put"), pytest.param(LARGE, id="parts")])
def test_a_server_without_if_match_is_looked_at_before(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, data: bytes
) -> None:
    """
    B17: where there is no conditional replacement, the etag is compared just before.
    """
    proxy.faults = [Fault("", "status", status=501, code="NotImplemented", header="if-match")]
    put_bytes(store, "a", b"before")
    before = etag(store, "a")

    first = put_bytes(store, "a", data, if_match=before)
    late = put_bytes(store, "a", b"late", if_match=before)

    assert (True, False, data) == (first, late, content(truth, bucket))


def test_an_error_within_200_is_tried_again(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """
    B7: an upload is not complete because the status says so.
    """
    proxy.faults = [Fault(COMPLETE, "status", status=200, code="InternalError", nth=(1,))]

    assert put_bytes(store, "a", LARGE)
    assert (LARGE, 2) == (content(truth, bucket), proxy.seen(COMPLETE))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="error"),
        pytest.param(b"<CompleteMultipartUploadResult/>", id="no etag"),
    ],
)
def test_an_upload_without_etag_is_never_done(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, body: bytes
) -> None:
    """
    B7: 200 for ever, and no object: that is a failure.
    """
    proxy.faults = [Fault(COMPLETE, "status", status=200, code="InternalError", body=body)]

    with pytest.raises(StoreError):
        put_bytes(store, "a", LARGE)

    assert ([], 0) == (keys(truth, bucket), unfinished(truth, bucket))


@pytest.mark.parametrize(
    ("do", "uploads"),
    [
        pytest.param("status_after", 1, id="stored: done"),
        pytest.param("status", 2, id="not stored: sent again"),
    ],
)
def test_a_forgotten_upload_is_looked_for_and_sent_again(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, do: Action, uploads: int
) -> None:
    """
    B8: NoSuchUpload may mean that all is well.
    """
    proxy.faults = [Fault(COMPLETE, do, status=404, code="NoSuchUpload", nth=(1,))]

    assert put_bytes(store, "a", LARGE)
    assert (LARGE, uploads) == (content(truth, bucket), proxy.seen(CREATE))
    assert 0 == unfinished(truth, bucket)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        pytest.param("http://127.0.0.1:{free}", "", id="refused"),
        pytest.param("http://s3.invalid:9000", "", id="no such host"),
        pytest.param("https://127.0.0.1:{proxy}", "", id="no TLS"),
    ],
)
def test_an_unreachable_server_is_named_with_its_reason(
    settings: StoreSettings, pauses: list[float], proxy: S3Faults, endpoint: str, reason: str
) -> None:
    """
    B9: host and reason, after the budget is spent.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        ports = {"free": taken.getsockname()[1], "proxy": proxy.url.rpartition(":")[2]}
        url = endpoint.format(**ports)
        store = S3Store(replace(settings, endpoint_url=url), sleep=pauses.append)

        with pytest.raises(StoreError) as caught:
            [*store.list("")]

    host = url.partition("://")[2]
    assert caught.value.why.startswith(f"{host}: ")
    assert len(caught.value.why) > len(f"{host}: ")
    assert 2 == len(pauses)


@pytest.mark.parametrize("fault", ["unreachable", "503"])
def test_a_put_spends_its_budget_once(
    settings: StoreSettings, pauses: list[float], proxy: S3Faults, fault: str
) -> None:
    """
    B2: three attempts are three: looking what became of a put that failed is not three more.
    """
    url = proxy.url if fault == "503" else "http://127.0.0.1:9"
    store = S3Store(replace(settings, endpoint_url=url), sleep=pauses.append)
    proxy.faults = [Fault(PUT, "status"), Fault(HEAD, "status")]

    with pytest.raises(StoreError):
        put_bytes(store, "a", SMALL, if_absent=True)

    assert 2 == len(pauses)
    assert fault == "unreachable" or (3, 1) == (proxy.seen(PUT), proxy.seen(HEAD))


def test_an_answer_that_never_comes_is_asked_for_again(
    settings: StoreSettings, proxy: S3Faults
) -> None:
    """
    B10: silence has an end.
    """
    store = S3Store(settings, read_timeout=0.2)
    proxy.faults = [Fault(PUT, "hang", seconds=1, nth=(1,))]

    assert put_bytes(store, "a", SMALL)
    assert 2 == proxy.seen(PUT)


@pytest.mark.parametrize("rst", [pytest.param(False, id="FIN"), pytest.param(True, id="RST")])
def test_a_broken_body_is_read_on_where_it_broke(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, rst: bool
) -> None:
    """
    B11: two breaks, and still every byte once.
    """
    truth.put_object(Bucket=bucket, Key="a", Body=LARGE)
    proxy.faults = [Fault(GET, "truncate", count=1000, nth=(1, 2), rst=rst)]

    assert LARGE == open_bytes(store, "a")
    assert 3 == proxy.seen(GET)


def test_a_server_without_ranges_is_read_from_the_start(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """
    B11: the whole body in answer to a range is not appended to what is there.
    """
    put_bytes(store, "a", SMALL)
    whole = Fault(GET, "status", status=200, header="range", body=SMALL, headers=(("ETag", '"x"'),))
    proxy.faults = [Fault(GET, "truncate", count=100, nth=(1,)), whole]

    assert SMALL == open_bytes(store, "a")


def test_a_body_that_always_breaks_is_an_error(store: S3Store, proxy: S3Faults) -> None:
    """
    B11: part of an object is never taken for the whole.
    """
    put_bytes(store, "a", SMALL)
    proxy.faults = [Fault(GET, "truncate", count=10)]

    with pytest.raises(StoreError, match="after 30 of 600 bytes"):
        store.open("a")

    assert 3 == proxy.seen(GET)


def test_an_object_replaced_while_it_is_read_is_not_mixed(store: S3Store, proxy: S3Faults) -> None:
    """
    B15: the end of one object is not put behind the beginning of another.
    """
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
    """
    B12: damage on the way is not damage in the store.
    """
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
    """
    B12: exit 7, which object, what it should be and what it is.
    """
    put_bytes(store, "a", SMALL)
    proxy.faults = [Fault(GET, do)]

    with pytest.raises(CorruptObjectError, match=f"s3://{bucket}/a: .*, stored was ") as caught:
        store.open("a")

    assert (7, 2) == (caught.value.exit_code, proxy.seen(GET))


def test_a_foreign_object_is_checked_against_the_servers_checksum(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """
    B12: where others stored a checksum, it counts.
    """
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
    """
    B13: a page that fails is asked for again, and no key is missed.
    """
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
    """
    B13: who asks for a list gets an error in place of half of it.
    """
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
    """
    B13: a server that repeats keys may leave out others.
    """
    proxy.faults = [Fault(LIST, "status", status=200, body=page)]

    with pytest.raises(StoreError, match="the listing is not complete"):
        [*store.list("")]


def test_a_key_with_a_newline_is_listed_as_it_is(store: S3Store, proxy: S3Faults) -> None:
    """
    B13: record text can be in a key, newlines too.
    """
    proxy.faults = [Fault(LIST, "status", status=200, body=listing("a%0Ab+c%2Bd%25"))]

    assert ["a\nb c+d%"] == [one.key for one in store.list("")]


@pytest.mark.parametrize("data", [pytest.param(SMALL, id="put"), pytest.param(LARGE, id="parts")])
@pytest.mark.parametrize("header", ["if-none-match", "x-amz-checksum-sha256"])
def test_a_server_with_less_is_enough(
    store: S3Store,
    proxy: S3Faults,
    truth: S3Client,
    bucket: str,
    caplog: pytest.LogCaptureFixture,
    header: str,
    data: bytes,
) -> None:
    """
    B17: without conditional writes or checksums the promises hold, and it is said once.
    """
    proxy.faults = [Fault("", "status", status=501, code="NotImplemented", header=header)]

    first = put_bytes(store, "a", data, if_absent=True)
    again = put_bytes(store, "a", data, if_absent=True)
    other = put_bytes(store, "a", data[1:], if_absent=True)

    assert (True, True, False) == (first, again, other)
    assert data == content(truth, bucket)
    assert 1 == sum(" has no " in line or " takes no " in line for line in caplog.messages)
    assert 0 == unfinished(truth, bucket)


def test_a_wrong_clock_is_explained(store: S3Store, proxy: S3Faults) -> None:
    """
    B18: an hour off, in seconds.
    """
    server = datetime.now(UTC) - timedelta(hours=1)
    extra = f"<ServerTime>{server:%Y-%m-%dT%H:%M:%SZ}</ServerTime>"
    proxy.faults = [Fault(PUT, "status", status=403, code="RequestTimeTooSkewed", extra=extra)]

    with pytest.raises(StoreError, match=r"clock differs by 36\d\d s") as caught:
        put_bytes(store, "a", SMALL)

    assert "set this host's clock" == caught.value.do


def test_a_redirect_to_another_host_is_not_followed(store: S3Store, proxy: S3Faults) -> None:
    """
    G10: requests and their signatures go to the configured host alone.
    """
    with S3Faults(proxy.upstream) as elsewhere:
        there = (("Location", f"{elsewhere.url}/lake/a"),)
        proxy.faults = [Fault("", "status", status=307, code="TemporaryRedirect", headers=there)]

        with pytest.raises(StoreError, match="TemporaryRedirect"):
            store.open("a")

        assert [] == elsewhere.log


def test_credentials_in_a_servers_answer_are_masked(store: S3Store, proxy: S3Faults) -> None:
    """
    P8: a server may repeat what it was sent; we do not.
    """
    said = "key AKIACANARY, secret SECRETCANARY"
    proxy.faults = [Fault(PUT, "status", status=403, code="AccessDenied", message=said)]

    with pytest.raises(StoreError, match=r"key \*{8}, secret \*{8}") as caught:
        put_bytes(store, "a", SMALL)

    assert "CANARY" not in str(caught.value.to_dict())


def test_no_credentials_is_an_error_with_a_remedy(
    settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    B4: who has no credentials is told where they can be.
    """
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3Store(replace(settings, options={}))

    with pytest.raises(StoreError) as caught:
        store.head("a")

    assert "set AWS_ACCESS_KEY_ID" in caught.value.do


def test_more_threads_than_connections_are_no_news(
    store: S3Store, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Nobody is warned of a connection that is closed because the others are enough.
    """
    put_bytes(store, "a", SMALL)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda _: store.head("a"), range(400)))

    assert [] == [record.getMessage() for record in caplog.records]
