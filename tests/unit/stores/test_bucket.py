"""Questions about a bucket, answered as servers answer them."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from kbackup.errors import StoreError
from kbackup.stores import LifecycleRule
from kbackup.stores.s3.bucket import S3Bucket
from kbackup.stores.s3.options import ObjectSettings

Answer = dict[str, Any] | StoreError | list[dict[str, Any]]


def refused(code: str, status: int = 403) -> StoreError:
    return StoreError("s3:x on s3://lake/", f"{code} ({status})", status=status, s3_code=code)


class Server:
    """Answers each operation as it is told, or page by page, and remembers what was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.of_objects = ObjectSettings.of({})
        self.asked: list[str] = []
        self.params: list[dict[str, Any]] = []

    def send(self, operation: str, _about: str, **params: Any) -> Any:
        self.asked.append(operation)
        self.params.append(params)
        answer = self.answers.get(operation, {})
        if isinstance(answer, StoreError):
            raise answer
        return answer.pop(0) if isinstance(answer, list) else answer

    def resource(self, about: str) -> str:
        return f"s3://lake/{about}"


def facts(**answers: Answer) -> Any:
    return S3Bucket(Server(**answers)).bucket_facts()  # type: ignore[arg-type]


def test_a_bucket_without_anything_is_told_from_one_that_would_not_say() -> None:
    """A setting that is off is not confused with one that may not be read."""
    bare = facts(
        get_object_lock_configuration=refused("ObjectLockConfigurationNotFoundError", 404),
        get_bucket_lifecycle_configuration=refused("NoSuchLifecycleConfiguration", 404),
    )
    denied = facts(
        get_bucket_versioning=refused("AccessDenied"),
        get_object_lock_configuration=refused("NotImplemented", 501),
        get_bucket_lifecycle_configuration=refused("MethodNotAllowed", 405),
    )

    assert ("", "", ()) == (bare.versioning, bare.object_lock, bare.rules)
    assert (None, None, None) == (denied.versioning, denied.object_lock, denied.rules)
    assert "NotImplemented (501)" == denied.untold["object_lock"]


def test_a_server_that_is_gone_is_an_error() -> None:
    """A server that does not answer is an error, and is not taken for a denial."""
    gone = StoreError("s3:ListBucket on s3://lake/", "Connection refused")
    with pytest.raises(StoreError) as caught:
        facts(get_bucket_versioning=gone)

    assert gone is caught.value


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_the_date_of_an_answer_is_the_servers_clock(seconds: int) -> None:
    """The server's clock is read from the date of an answer, without writing an object."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    page = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    assert seconds == pytest.approx(facts(list_objects_v2=page).clock_ahead_s, abs=5)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Sat, 21 Nov 2026 09:53:51 -0000"])
def test_a_date_that_says_nothing_is_unknown(date: str | None) -> None:
    """A missing or spoilt date is unknown, since a proxy may drop or alter it."""
    headers = {} if date is None else {"date": date}

    found = facts(list_objects_v2={"ResponseMetadata": {"HTTPHeaders": headers}})

    assert found.clock_ahead_s is None
    assert "clock_ahead_s" in found.untold


@pytest.mark.parametrize(
    ("configuration", "text", "days"),
    [
        ({}, "", 0),
        ({"ObjectLockEnabled": "Enabled"}, "on", 0),
        (
            {"ObjectLockEnabled": "Enabled",
             "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 30}}},
            "GOVERNANCE 30 days", 30,
        ),
        (
            {"ObjectLockEnabled": "Enabled",
             "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Years": 1}}},
            "COMPLIANCE 1 years", 365,
        ),
    ],
)  # fmt: skip
def test_a_lock_is_told_with_its_mode_and_time(
    configuration: dict[str, Any], text: str, days: int
) -> None:
    """What is locked cannot be deleted by a ransom note's author either."""
    found = facts(get_object_lock_configuration={"ObjectLockConfiguration": configuration})

    assert (text, days) == (found.object_lock, found.lock_days)


def test_rules_are_read_in_each_of_their_spellings() -> None:
    """The prefix stands in a filter, in a filter's ``And``, or, in old rules, beside it."""
    rules = [
        {"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "a/"}, "Expiration": {"Days": 1}},
        {
            "ID": "b",
            "Status": "Enabled",
            "Filter": {"And": {"Prefix": "b/", "Tags": []}},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        },
        {"ID": "c", "Status": "Enabled", "Prefix": "c/", "Expiration": {"Days": 3}},
        {"Status": "Enabled", "Filter": {}, "Expiration": {"Days": 4}},
        {
            "ID": "v",
            "Status": "Enabled",
            "Filter": {},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 6},
        },
        {"ID": "off", "Status": "Disabled", "Filter": {}, "Expiration": {"Days": 5}},
        {"ID": "cold", "Status": "Enabled", "Filter": {}, "Transitions": []},
    ]

    assert (
        LifecycleRule("a", "a/", None, 1),
        LifecycleRule("b", "b/", 2, None),
        LifecycleRule("c", "c/", None, 3),
        LifecycleRule("without a name", "", None, 4),
        LifecycleRule("v", "", None, None, 6),
    ) == facts(get_bucket_lifecycle_configuration={"Rules": rules}).rules


def test_a_probe_is_uploaded_once_and_aborted_once() -> None:
    """Both are rights that a sink needs, and neither leaves parts behind."""
    server = Server(create_multipart_upload={"UploadId": "u"}, upload_part={"ETag": "e"})
    S3Bucket(server).probe_upload("k")  # type: ignore[arg-type]

    assert [
        "create_multipart_upload", "upload_part", "complete_multipart_upload",
        "create_multipart_upload", "upload_part", "abort_multipart_upload",
    ] == server.asked  # fmt: skip


def test_a_denied_part_is_aborted() -> None:
    """A probe that is denied a part aborts the upload that it began."""
    server = Server(create_multipart_upload={"UploadId": "u"}, upload_part=refused("AccessDenied"))
    with pytest.raises(StoreError):
        S3Bucket(server).probe_upload("k")  # type: ignore[arg-type]

    assert "abort_multipart_upload" == server.asked[-1]


def test_a_server_that_keeps_to_conditions_is_believed() -> None:
    """Each condition that must fail does, at once and in parts, and leaves no parts behind."""
    taken = refused("PreconditionFailed", 412)
    server = Server(
        put_object=taken,
        create_multipart_upload={"UploadId": "u"},
        upload_part={"ETag": "e"},
        complete_multipart_upload=taken,
    )

    assert () == S3Bucket(server).probe_conditions("k")  # type: ignore[arg-type]
    assert 2 == server.asked.count("abort_multipart_upload")


def test_a_server_that_ignores_conditions_or_has_none_is_named() -> None:
    """A server that ignores conditional writes or answers 501 is reported as unable to do them."""
    server = Server(
        create_multipart_upload={"UploadId": "u"},
        upload_part={"ETag": "e"},
        complete_multipart_upload=refused("NotImplemented", 501),
    )

    assert (
        "If-None-Match on PutObject",
        "If-None-Match on CompleteMultipartUpload",
        "If-Match on PutObject",
        "If-Match on CompleteMultipartUpload",
    ) == S3Bucket(server).probe_conditions("k")  # type: ignore[arg-type]


def test_a_denied_condition_is_an_error() -> None:
    """What fails for another reason says nothing about conditions."""
    with pytest.raises(StoreError, match="AccessDenied"):
        S3Bucket(Server(put_object=refused("AccessDenied"))).probe_conditions("k")  # type: ignore[arg-type]


def page(key: str, **more: Any) -> dict[str, Any]:
    """A page of one upload."""
    return {"Uploads": [{"Key": key, "UploadId": "id", "Initiated": datetime.now(UTC)}]} | more


def test_all_pages_of_unfinished_uploads_are_read() -> None:
    """Each is asked for where the one before it has ended."""
    more = {"IsTruncated": True, "NextKeyMarker": "a", "NextUploadIdMarker": "id"}
    server: Any = Server(list_multipart_uploads=[page("a", **more), page("b")])

    assert ["a", "b"] == [one.key for one in S3Bucket(server).unfinished("t/")]
    assert {"Prefix": "t/", "KeyMarker": "a", "UploadIdMarker": "id"} == server.params[1]


@pytest.mark.parametrize("more", [{}, {"NextKeyMarker": "a", "NextUploadIdMarker": "id"}])
def test_a_listing_that_does_not_go_on_is_an_error(more: dict[str, Any]) -> None:
    """Part of a listing is never taken for the whole, and no listing is read for ever."""
    server: Any = Server(list_multipart_uploads=[page("a", IsTruncated=True, **more)] * 3)

    with pytest.raises(StoreError, match="not complete"):
        list(S3Bucket(server).unfinished("t/"))
