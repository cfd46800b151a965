"""Puts whose answer is lost, that are late, or that meet a server with fewer features."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Action, Fault, S3Faults

from kbackup.errors import (
    StoreError,
)
from kbackup.stores.s3 import S3Store
from kbackup.testing import etag, put_bytes
from tests.support.s3_requests import COMPLETE, CREATE, LARGE, PUT, SMALL, content, keys, unfinished


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
    """B6: an object that was stored although the answer was lost is recognised as ours."""
    proxy.faults = [Fault(PUT, do, nth=nth), Fault(COMPLETE, do, nth=nth)]

    assert put_bytes(store, "a", data, if_absent=True)
    assert (["a"], data) == (keys(truth, bucket), content(truth, bucket))
    assert 0 == unfinished(truth, bucket)


def test_a_lost_answer_does_not_make_another_object_ours(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """B6: 412 is success only if what is stored is ours."""
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
    """B6: the second attempt finds another etag, which is that of the first attempt's object."""
    put_bytes(store, "a", b"before")
    before = etag(store, "a")
    proxy.faults = [Fault(PUT, do, nth=(1,)), Fault(COMPLETE, do, nth=(1,))]

    assert put_bytes(store, "a", data, if_match=before)
    assert (["a"], data) == (keys(truth, bucket), content(truth, bucket))
    assert 0 == unfinished(truth, bucket)


def test_a_slow_replacement_does_not_land_on_a_newer_object(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """D5: while a replacing put is held up on its way, another run puts more; the more stays."""
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
    """B17: where there is no conditional replacement, the etag is compared just before."""
    proxy.faults = [Fault("", "status", status=501, code="NotImplemented", header="if-match")]
    put_bytes(store, "a", b"before")
    before = etag(store, "a")

    first = put_bytes(store, "a", data, if_match=before)
    late = put_bytes(store, "a", b"late", if_match=before)

    assert (True, False, data) == (first, late, content(truth, bucket))


def test_an_error_within_200_is_tried_again(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """B7: an upload is not complete because the status says so."""
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
    """B7: 200 for ever, and no object: that is a failure."""
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
    """B8: after NoSuchUpload an object is looked for, and uploaded again if it is not there."""
    proxy.faults = [Fault(COMPLETE, do, status=404, code="NoSuchUpload", nth=(1,))]

    assert put_bytes(store, "a", LARGE)
    assert (LARGE, uploads) == (content(truth, bucket), proxy.seen(CREATE))
    assert 0 == unfinished(truth, bucket)


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
    """B17: without conditional writes or checksums the promises hold, and it is said once."""
    proxy.faults = [Fault("", "status", status=501, code="NotImplemented", header=header)]

    first = put_bytes(store, "a", data, if_absent=True)
    again = put_bytes(store, "a", data, if_absent=True)
    other = put_bytes(store, "a", data[1:], if_absent=True)

    assert (True, True, False) == (first, again, other)
    assert data == content(truth, bucket)
    assert 1 == sum(" has no " in line or " takes no " in line for line in caplog.messages)
    assert 0 == unfinished(truth, bucket)
