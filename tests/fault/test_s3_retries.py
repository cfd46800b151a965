"""An S3 server that fails for a while, or for good: what passes costs time only."""

import socket
from dataclasses import replace

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Action, Fault, S3Faults

from kbackup.errors import (
    StoreError,
)
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store
from kbackup.testing import put_bytes
from tests.support.s3_requests import (
    ABORT,
    CREATE,
    EVERY_REQUEST,
    HEAD,
    LARGE,
    PART,
    PUT,
    SMALL,
    WORK,
    content,
    keys,
    said,
    unfinished,
)


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
    """B1, B3, B6: what passes within the budget changes no result, and is said once a time."""
    bucket = settings.url.removeprefix("s3://")
    put_bytes(store, "a", SMALL)
    expected = WORK[request_line](store)
    put_bytes(store, "a", SMALL)
    if request_line == HEAD:
        expected = WORK[request_line](store)
    proxy.faults = [Fault(request_line, do, nth=nth, status=status)]

    found = WORK[request_line](store)

    assert expected == found
    assert len(nth) == len(pauses) == len(said(caplog))
    assert all(0.0005 * 2**n <= pause <= 0.001 * 2**n for n, pause in enumerate(pauses))
    assert 0 == unfinished(truth, bucket) or request_line == CREATE  # its id was lost


@pytest.mark.parametrize("request_line", EVERY_REQUEST)
def test_lasting_faults_end_in_an_error(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, request_line: str
) -> None:
    """B2: the budget is spent, then the error names action and object; nothing is half done."""
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
    """B1: a retry is logged with the object, the attempt and the wait."""
    proxy.faults = [Fault(PART, "status", nth=(1,))]
    put_bytes(store, "a\u202eb", LARGE)

    retried = f"s3 503 SlowDown on s3://{bucket}/a\\u202eb part 2 at {proxy.url}, attempt 2"
    assert [f"{retried} of 3 in 0.0s"] == said(caplog)


def test_parts_are_thrown_away_through_faults(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str
) -> None:
    """B1: an upload that fails leaves no parts to be paid for, though the abort fails at first."""
    proxy.faults = [Fault(PART, "status", status=403), Fault(ABORT, "status", nth=(1,))]

    with pytest.raises(StoreError):
        put_bytes(store, "a", LARGE)

    assert (0, 2) == (unfinished(truth, bucket), proxy.seen(ABORT))


@pytest.mark.parametrize("status", [503, 429])
def test_a_failed_upload_spends_one_budget(
    store: S3Store, proxy: S3Faults, pauses: list[float], status: int
) -> None:
    """B2: if all attempts to upload a part fail, the upload is aborted once, and not retried."""
    proxy.faults = [Fault(f"{PART}|{ABORT}", "status", status=status)]

    with pytest.raises(StoreError, match="part 2"):
        put_bytes(store, "a", LARGE)

    assert (3, 1, 2) == (proxy.seen(PART), proxy.seen(ABORT), len(pauses))


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
    """B9: host and reason, after the budget is spent."""
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
    """B2: three attempts are three: looking what became of a put that failed is not three more."""
    url = proxy.url if fault == "503" else "http://127.0.0.1:9"
    store = S3Store(replace(settings, endpoint_url=url), sleep=pauses.append)
    proxy.faults = [Fault(PUT, "status"), Fault(HEAD, "status")]

    with pytest.raises(StoreError):
        put_bytes(store, "a", SMALL, if_absent=True)

    assert 2 == len(pauses)
    assert fault == "unreachable" or (3, 1) == (proxy.seen(PUT), proxy.seen(HEAD))
