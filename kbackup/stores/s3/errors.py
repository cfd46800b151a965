"""What S3's errors mean: whether to retry, and what the operator can do.

Judged by type, status and error code, never by text: texts are localised, and a server may say
what it likes.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  # botocore's own name for it
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from kbackup.errors import ConfigurationError, KbackupError, ObjectNotFoundError, StoreError
from kbackup.stores.s3.options import CUSTOMER_KEY
from kbackup.stores.s3.transfer import NOT_IMPLEMENTED

NETWORK: Final = (ConnectionError, HTTPClientError, IncompleteReadError, HTTPError)
"""Refused, reset, timed out, broken off."""

FOREIGN: Final = (BotoCoreError, ClientError, ResponseParserError, HTTPError)
"""All that botocore raises for faults of a server or the network."""

EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})

_PASSING: Final = frozenset(
    {
        "BadDigest",  # damaged on its way to the server
        "ConditionalRequestConflict",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "SlowDown",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_ACTIONS: Final = {
    "list_objects_v2": "s3:ListBucket",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "put_object_tagging": "s3:PutObjectTagging",
    "delete_object": "s3:DeleteObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
    "list_parts": "s3:ListMultipartUploadParts",
    "restore_object": "s3:RestoreObject",
}
_READS: Final = frozenset({"get_object", "head_object"})
_KEY_MISSING: Final = frozenset({"400", "InvalidRequest"})
"""What S3 answers to whoever reads an object without the customer's key it was stored with."""

_FULL: Final = ("507", "InsufficientStorage", "XMinioStorageFull", "QuotaExceeded")
"""What servers other than Amazon's answer where they have no room: 507, MinIO's, Ceph's code."""

_REMEDIES: Final = {
    "NoSuchBucket": "create the bucket, or correct its name",
    "InvalidObjectState": "the object is archived: kbackup restore thaw requests it",
    "InvalidAccessKeyId": "correct the access key",
    "SignatureDoesNotMatch": "correct the secret access key",
    "InvalidToken": "correct the session token",
    **dict.fromkeys(_FULL, "free space on the server, or raise its quota"),
    **dict.fromkeys(EXPIRED, "renew the session's credentials"),
}


def action(operation: str) -> str:
    """Return the permission that a client method needs."""
    return _ACTIONS.get(operation, "s3:PutObject")  # parts and all


def code(error: Exception) -> str:
    """Return S3's error code, the status as text where there is none, or the error's type."""
    if isinstance(error, ClientError):
        found = error.response.get("Error", {}).get("Code")
        return str(found or _status(error))
    return type(error).__name__


def transient(error: Exception) -> str | None:
    """Return in a few words why a retry may help; None if it cannot."""
    if isinstance(error, ClientError):
        status = _status(error)
        passing = status == 429 or (status >= 500 and status != NOT_IMPLEMENTED)
        if passing or code(error) in _PASSING:
            return f"{status} {code(error)}".removesuffix(f" {status}")
        return None
    if isinstance(error, (*NETWORK, FlexibleChecksumError, ResponseParserError)):
        return f"{type(error).__name__} ({_reason(error)})"
    return None


def translated(
    error: Exception,
    operation: str,
    resource: str,
    host: str,
    hidden: Iterable[str] = (),
    *,
    has_key: bool = False,
) -> KbackupError:
    """Return our error for botocore's.

    Args:
        error: One of `FOREIGN`.
        operation: The client's method, such as ``put_object``.
        resource: What it was about, such as ``s3://lake/topics/orders/...``.
        host: The server's name and port.
        hidden: Credentials, masked wherever the server repeats them.
        has_key: The request carried a customer's key (SSE-C).

    Returns:
        A `StoreError` with ``status`` and ``s3_code`` in its *place*, an `ObjectNotFoundError`,
        or a `ConfigurationError` where no server was asked.
    """
    what = f"{action(operation)} on {resource}"
    if isinstance(error, ClientError):
        return _refused(error, what, operation, host, hidden, has_key=has_key)
    if isinstance(error, ParamValidationError):
        return ConfigurationError(what, " ".join(str(error).split()), "correct the name or value")
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        do = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or aws.access.key.id"
        return StoreError(what, str(error), do)
    do = "check store.url, the bucket's name, the network and its proxies"
    return StoreError(what, f"{host}: {_reason(error)}", do, s3_code=code(error))


def _refused(
    error: ClientError,
    what: str,
    operation: str,
    host: str,
    hidden: Iterable[str],
    *,
    has_key: bool,
) -> StoreError:
    name, status = code(error), _status(error)
    said = error.response.get("Error", {}).get("Message") or ""
    for secret in hidden:
        said = said.replace(secret, "********")
    place: dict[str, Any] = {"status": status, "s3_code": name}
    missing = name == "NoSuchKey" or (status == 404 and name in ("404", "NotFound"))
    if missing and operation in ("get_object", "head_object", "restore_object"):
        return ObjectNotFoundError(what, "no such object", **place)
    if "Skewed" in name:
        said = f"the clock differs by {_skew_seconds(error)} s from the server's"
    why = f"{host} answered {status}" if name == str(status) else f"{name} ({status})"
    do = _remedy(error, operation, has_key=has_key)
    return StoreError(what, f"{why}: {said}" if said else why, do, **place)


def _remedy(error: ClientError, operation: str, *, has_key: bool) -> str:
    name, status = code(error), _status(error)
    if "Skewed" in name:
        return "set this host's clock"
    if name in _REMEDIES:
        return _REMEDIES[name]
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response["Error"].get("Region")
    if status in (301, 307, 308) or (status == 400 and region):
        return f"set s3.region to {region or 'the region the bucket is in'}"
    if status == 403:
        also = " and s3:ListBucket, without which a missing object is denied too"
        allow = f"allow {action(operation)}{also if operation == 'head_object' else ''}"
        key = f"; or correct {CUSTOMER_KEY.name}, for another key is denied too"
        return f"{allow}{key if has_key and operation in _READS else ''}"
    if status == 429 or status >= 500:
        return "try again later, with fewer tasks, or raise s3.part.retries"
    return _about_key(name) if operation in _READS else ""


def _about_key(name: str) -> str:
    """Return what to do if an object may be encrypted with a customer's key, else nothing."""
    if name not in _KEY_MISSING:
        return ""
    do = f"set {CUSTOMER_KEY.name} if a key of your own encrypted the object"
    # the answer to a HEAD has no body, and so no code
    return do if name != "400" else f"{do}, or renew credentials that have expired"


def _skew_seconds(error: ClientError) -> int:
    said: Mapping[str, Any] = dict(error.response.get("Error", {}))
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        if "ServerTime" in said:
            server = datetime.fromisoformat(said["ServerTime"])
        else:
            server = parsedate_to_datetime(headers["date"])
    except (KeyError, TypeError, ValueError):
        return 900  # what S3 allows, at the least
    return round(abs((datetime.now(UTC) - server).total_seconds()))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _reason(error: BaseException) -> str:
    """Return what the operating system or the TLS library said, from under all wrappers."""
    seen: list[BaseException] = [error]
    for outer in seen:  # grows while it is walked
        inner = [*outer.args, getattr(outer, "kwargs", {}).get("error"), outer.__cause__]
        seen += [e for e in inner if isinstance(e, BaseException) and e not in seen]
    system = [e for e in seen if isinstance(e, OSError) and e.strerror]
    if system:
        return str(system[-1].strerror)
    return str(seen[-1]) or type(seen[-1]).__name__
