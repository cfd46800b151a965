"""An S3 server that says no, and settings that cannot work: named at once, with what to do."""

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Fault, S3Faults

from kbackup.errors import (
    ConfigurationError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store
from kbackup.testing import put_bytes
from tests.support.s3_requests import (
    COMPLETE,
    CREATE,
    DELETE,
    GET,
    HEAD,
    LARGE,
    LIST,
    PART,
    PUT,
    SMALL,
    WORK,
    keys,
    said,
    unfinished,
)

KEY = {
    "s3.ssea.name": "AES256",
    "s3.sse.customer.key": base64.b64encode(bytes(32)).decode(),
}
"""A key of the customer's own."""


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        pytest.param("AccessDenied", "allow s3:PutObject", id="denied"),
        pytest.param("SignatureDoesNotMatch", "secret access key", id="wrong secret"),
        pytest.param("InvalidAccessKeyId", "correct the access key", id="unknown key"),
        pytest.param("QuotaExceeded", "free space on the server", id="full"),
    ],
)
def test_a_refusal_is_not_tried_again(
    store: S3Store, proxy: S3Faults, bucket: str, code: str, remedy: str
) -> None:
    """B4: a refused request says at once which permission to grant."""
    proxy.faults = [Fault(PUT, "status", status=403, code=code)]

    what = f"s3:PutObject on s3://{bucket}/a at {proxy.url}: {code}"
    with pytest.raises(StoreError, match=what) as caught:
        put_bytes(store, "a", SMALL)

    assert remedy in caught.value.do
    assert 1 == proxy.seen(PUT)


@pytest.mark.parametrize(
    ("status", "code", "options", "remedy"),
    [
        pytest.param(400, "InvalidRequest", {}, "set s3.sse.customer.key", id="no key"),
        pytest.param(403, "AccessDenied", KEY, "correct s3.sse.customer.key", id="wrong key"),
    ],
)
def test_an_object_under_a_key_that_was_not_given_says_which_key_to_set(
    proxy: S3Faults, settings: StoreSettings, status: int, code: str, options: Any, remedy: str
) -> None:
    """B16: a customer's key that is missing or wrong is named, also by a HEAD, a bare status."""
    proxy.faults = [Fault("(GET|HEAD) .*/a", "status", status=status, code=code)]
    store = S3Store(replace(settings, options={**settings.options, **options}))

    with pytest.raises(StoreError) as by_get:
        store.open("a")
    with pytest.raises(StoreError) as by_head:
        store.head("a")

    assert [True, True] == [remedy in caught.value.do for caught in (by_get, by_head)]


@pytest.mark.parametrize(
    "step", [pytest.param(PART, id="part"), pytest.param(COMPLETE, id="complete")]
)
def test_a_permission_that_ends_in_the_middle_leaves_nothing(
    store: S3Store, proxy: S3Faults, truth: S3Client, bucket: str, step: str
) -> None:
    """B4: an upload denied half-way names the permission, and leaves no object and no parts."""
    proxy.faults = [Fault(step, "status", status=403, code="AccessDenied")]

    with pytest.raises(StoreError, match=r"s3:PutObject on .*AccessDenied") as caught:
        put_bytes(store, "a", LARGE)

    assert ("allow s3:PutObject", 1) == (caught.value.do, proxy.seen(step))
    assert ([], 0) == (keys(truth, bucket), unfinished(truth, bucket))


def test_expired_credentials_are_asked_for_once_more(store: S3Store, proxy: S3Faults) -> None:
    """B4: credentials that ran out on the way are renewed."""
    proxy.faults = [Fault(PUT, "status", status=400, code="ExpiredToken", nth=(1,))]

    assert put_bytes(store, "a", SMALL)
    assert 2 == proxy.seen(PUT)


@pytest.mark.parametrize(
    ("token", "times"),
    [pytest.param("of-a-session", 2, id="a session's"), pytest.param("", 1, id="for good")],
)
def test_a_head_that_may_say_that_credentials_have_expired_renews_them(
    settings: StoreSettings,
    proxy: S3Faults,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    times: int,
) -> None:
    """B4: a 400 without a body means expired credentials only if they belong to a session."""
    own = settings.options
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", own["aws.access.key.id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", own["aws.secret.access.key"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    options = {name: value for name, value in own.items() if not name.startswith("aws.")}
    store = S3Store(replace(settings, options=options), read_timeout=5)
    proxy.faults = [Fault(HEAD, "status", status=400, code="", nth=(1,))]

    if token:
        assert store.head("none") is None
    else:
        with pytest.raises(StoreError, match="400"):
            store.head("none")

    assert times == proxy.seen(HEAD)


def test_credentials_that_stay_expired_end_in_an_error(store: S3Store, proxy: S3Faults) -> None:
    """B4: expired credentials are renewed once; if that does not help, the run ends in an error."""
    proxy.faults = [Fault(PUT, "status", status=400, code="ExpiredToken")]

    with pytest.raises(StoreError, match="ExpiredToken") as caught:
        put_bytes(store, "a", SMALL)

    assert ("renew the session's credentials", 2) == (caught.value.do, proxy.seen(PUT))


@pytest.mark.parametrize("work", [PUT, CREATE, GET, LIST, DELETE])
def test_a_missing_bucket_is_an_error_at_first_use(settings: StoreSettings, work: str) -> None:
    """B5: a missing bucket is an error, not an empty backup."""
    store = S3Store(replace(settings, url="s3://no-such-bucket"))

    with pytest.raises(StoreError, match="NoSuchBucket") as caught:
        WORK[work](store)

    assert not isinstance(caught.value, ObjectNotFoundError)
    assert "create the bucket" in caught.value.do


def test_the_right_region_is_named(store: S3Store, proxy: S3Faults) -> None:
    """B5: a bucket in another region is reported with its region."""
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
            {"options": {"s3.proxy.password": "SECRETCANARY"}}, id="half of a proxy's credentials"
        ),
    ],
)
def test_malformed_settings_are_refused(settings: StoreSettings, changes: dict[str, Any]) -> None:
    """B5: settings that cannot work are a configuration error that repeats no credential."""
    with pytest.raises(ConfigurationError) as caught:
        S3Store(replace(settings, **changes))

    assert "CANARY" not in str(caught.value.issue())


def test_a_name_no_bucket_can_have_is_refused(settings: StoreSettings) -> None:
    """B5: an illegal bucket name is refused without asking a server."""
    store = S3Store(replace(settings, url="s3://No_Bucket!"))

    with pytest.raises(ConfigurationError, match="No_Bucket!"):
        [*store.list("")]


def test_a_wrong_clock_is_explained(store: S3Store, proxy: S3Faults) -> None:
    """B18: the error states how far the clock is off, in seconds."""
    server = datetime.now(UTC) - timedelta(hours=1)
    extra = f"<ServerTime>{server:%Y-%m-%dT%H:%M:%SZ}</ServerTime>"
    proxy.faults = [Fault(PUT, "status", status=403, code="RequestTimeTooSkewed", extra=extra)]

    with pytest.raises(StoreError, match=r"clock differs by 36\d\d s") as caught:
        put_bytes(store, "a", SMALL)

    assert "set this host's clock" == caught.value.do


def test_a_redirect_to_another_host_is_not_followed(store: S3Store, proxy: S3Faults) -> None:
    """G10: requests and their signatures go to the configured host alone."""
    with S3Faults(proxy.upstream) as elsewhere:
        there = (("Location", f"{elsewhere.url}/lake/a"),)
        proxy.faults = [Fault("", "status", status=307, code="TemporaryRedirect", headers=there)]

        with pytest.raises(StoreError, match="TemporaryRedirect"):
            store.open("a")

        assert [] == elsewhere.log


def test_credentials_in_a_servers_answer_are_masked(store: S3Store, proxy: S3Faults) -> None:
    """P8: an error never repeats a secret that a server sent back."""
    said = "key AKIACANARY, secret SECRETCANARY"
    proxy.faults = [Fault(PUT, "status", status=403, code="AccessDenied", message=said)]

    with pytest.raises(StoreError, match=r"key \*{8}, secret \*{8}") as caught:
        put_bytes(store, "a", SMALL)

    assert "CANARY" not in str(caught.value.issue())


def test_no_credentials_is_an_error_with_a_remedy(
    settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B4: missing credentials are an error that says where they can be."""
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
    """A connection that is closed as surplus to the pool causes no warning."""
    put_bytes(store, "a", SMALL)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda _: store.head("a"), range(400)))

    assert [] == said(caplog)
