"""Send requests to one bucket: the client, its way to the server, its retries, its errors.

Errors are judged by type, status and error code, never by text: texts are localised, and a server
may say what it likes.
"""

import base64
import functools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from boto3.session import Session
from botocore import UNSIGNED
from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
    ReadOnlyCredentials,
)
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
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError
from botocore.session import Session as Core
from botocore.session import get_session
from urllib3.exceptions import HTTPError

from kbackup.errors import (
    ConfigurationError,
    KbackupError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.files import Section
from kbackup.options import check_needs
from kbackup.stores import StoreSettings, shown
from kbackup.stores.s3.options import (
    ACCELERATE,
    ACCESS_KEY_ID,
    ANONYMOUS,
    ATTEMPTS,
    BACKOFF_MS,
    CUSTOMER_KEY,
    OPTIONS,
    PROVIDER,
    PROXY_PASSWORD,
    REGION,
    ROLE,
    ROLE_ARN,
    ROLE_EXTERNAL_ID,
    ROLE_REGION,
    ROLE_SESSION,
    SECRET_ACCESS_KEY,
    STATIC,
    ObjectSettings,
    addressing_style,
    chosen_provider,
    proxies_of,
)
from kbackup.stores.s3.transfer import NOT_IMPLEMENTED

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

_SESSION: Final = "kbackup"
"""Name of a role's session where none is given."""


def session_of(core: Core, options: Mapping[str, Any]) -> Session:
    """Return a session, around a *core* of its own, with the credentials that *options* ask for.

    Raises:
        ConfigurationError: If there is no such source.
    """
    chosen = chosen_provider(options)
    keys, role = _static(options), ROLE_ARN.of(options)
    resolver = core.get_component("credential_provider")
    if chosen and chosen[0] not in (ROLE, STATIC, ANONYMOUS):
        kept = [one for one in resolver.providers if one.METHOD in chosen]
        resolver = CredentialResolver(kept)
        core.register_component("credential_provider", resolver)
    if role is not None:
        assumed = _Role(core, resolver if keys is None else Credentials(*keys), role, options)
        core.register_component("credential_provider", CredentialResolver([assumed]))
        keys = None
    access_key, secret_key = keys or (None, None)
    return Session(access_key, secret_key, region_name=REGION.of(options), botocore_session=core)


def is_anonymous(options: Mapping[str, Any]) -> bool:
    """Whether requests are not signed."""
    return chosen_provider(options) == (ANONYMOUS,) and _static(options) is None


def _static(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the keys that were given, or those of the variables that only Java's SDK knows."""
    access_key, secret_key = ACCESS_KEY_ID.of(options), SECRET_ACCESS_KEY.of(options)
    if access_key is not None and secret_key is not None:
        return access_key, secret_key
    if "AWS_ACCESS_KEY_ID" in os.environ or PROVIDER.of(options) is not None:
        return None
    found = os.environ.get("AWS_ACCESS_KEY"), os.environ.get("AWS_SECRET_KEY")
    return (found[0], found[1]) if found[0] and found[1] else None


class _Role(CredentialProvider):
    """A role that is assumed with other credentials, and assumed again before it runs out."""

    METHOD = "assume-role"

    def __init__(
        self,
        core: Core,
        source: Credentials | CredentialResolver,
        role: str,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(core)
        self._core, self._source, self._role, self._options = core, source, role, options

    def load(self) -> DeferredRefreshableCredentials:
        """Return the role's credentials; they are asked for when they are used."""
        options, given = self._options, self._source
        source = given.load_credentials() if isinstance(given, CredentialResolver) else given
        if source is None:
            raise NoCredentialsError
        more = {"RoleSessionName": ROLE_SESSION.of(options) or _SESSION}
        if (external_id := ROLE_EXTERNAL_ID.of(options)) is not None:
            more["ExternalId"] = external_id
        region = ROLE_REGION.of(options) or REGION.of(options) or "us-west-2"
        fetcher = AssumeRoleCredentialFetcher(
            functools.partial(self._core.create_client, region_name=region),
            source, self._role, more,
        )  # fmt: skip
        return DeferredRefreshableCredentials(
            method=self.METHOD, refresh_using=fetcher.fetch_credentials
        )


LONGEST_WAIT_S: Final = 20.0
"""No single wait is longer, however many attempts there were."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """A budget of attempts for one request.

    Attributes:
        total: Attempts in all, 1 for no retry.
        backoff_ms: Base of the wait: before retry *n* between half of ``backoff_ms * 2**(n - 1)``
            and all of it.
    """

    total: int
    backoff_ms: int
    sleep: Callable[[float], None] = time.sleep

    def run(
        self, call: Callable[[], _T], about: str, transient: Callable[[Exception], str | None]
    ) -> _T:
        """Return what *call* returns, retrying while the budget lasts; *about* is for the log.

        *transient* says in a few words why an error is worth another attempt; None: it is not.

        Raises:
            Exception: The last error of *call*.
        """
        attempt = 1
        while True:
            try:
                return call()
            except Exception as error:
                why = transient(error)
                if why is None or attempt >= self.total:
                    raise
                attempt = self.wait(attempt, about, why)

    def wait(self, attempt: int, about: str, why: str) -> int:
        """Log why attempt number *attempt* failed, wait, and return the number of the next."""
        longest = min(LONGEST_WAIT_S, self.backoff_ms / 1000 * 2 ** (attempt - 1))
        seconds = longest * random.uniform(0.5, 1)  # noqa: S311  # spreads clients, hides nothing
        _log.warning(
            "s3 %s on %s, attempt %d of %d in %.1fs",
            why,
            about,
            attempt + 1,
            self.total,
            seconds,
        )
        self.sleep(seconds)
        return attempt + 1


DEFAULT_REGION: Final = "us-west-2"
"""Where neither settings nor the credential chain name one; the connectors' default."""

_DESCRIPTION: Final = ("service-2", "endpoint-rule-set-1")
"""The parts of it that botocore reads to make a client."""

_CONNECTIONS: Final = 16
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class Requests:
    """A client of one bucket.  Safe to use from several threads.

    Retries are ours and botocore's are off, so there is one budget and one log line for each.

    Attributes:
        endpoint_url: The server's, None for Amazon's own.
        host: The server's name and port, for messages.
        of_objects: What requests for objects carry.
    """

    def __init__(
        self, settings: StoreSettings, read_timeout: float, sleep: Callable[[float], None]
    ) -> None:
        url, endpoint = urlsplit(settings.url), urlsplit(settings.endpoint_url or "")
        if not url.netloc or url.path.strip("/"):
            do = "write s3://BUCKET, and folders as topics.dir"
            raise ConfigurationError(f"{settings.url!r} is not a bucket", do=do)
        if "@" in endpoint.netloc:
            do = "give them as aws.access.key.id and aws.secret.access.key"
            raise ConfigurationError("store.url holds credentials", do=do)
        check_needs(OPTIONS, settings.options)
        self.of_objects = ObjectSettings.of(settings.options)
        self.bucket, self.endpoint_url = url.netloc, settings.endpoint_url
        self._settings = settings
        self._read_timeout = read_timeout
        self._lock = threading.Lock()
        self._session, self._client = self._connect()
        self.attempts = Attempts(
            ATTEMPTS.of(settings.options), BACKOFF_MS.of(settings.options), sleep
        )
        self.host = urlsplit(self._client.meta.endpoint_url).netloc

    def send(
        self,
        operation: str,
        about: str,
        *,
        body: IO[bytes] | Section | None = None,
        is_tried_again: bool = True,
        **params: Any,
    ) -> Any:
        """Return the server's answer, within the budget of attempts.

        Args:
            operation: The client's method, such as ``put_object``.
            about: The object's key or a prefix, for messages.
            body: Sent as ``Body``, each time from 0.
            is_tried_again: Whether the budget of attempts may be spent; one attempt if not.
            params: The method's, but for ``Bucket``.

        Raises:
            ObjectNotFoundError: No such object.
            StoreError: Refused, not reachable, or the budget is spent; ``s3_code`` and, where
                there was an answer, ``status`` are in its *place*.
            ConfigurationError: It cannot be asked, such as a bucket's name that none can have.
        """

        def once() -> Any:
            if body is not None:
                body.seek(0)
                params["Body"] = body
            more = self.of_objects.params(operation, params.get("Key", ""), params.get("Metadata"))
            return getattr(self._client, operation)(Bucket=self.bucket, **more, **params)

        client, where = self._client, self.resource(about)
        attempts = self.attempts if is_tried_again else replace(self.attempts, total=1)
        try:
            try:
                return attempts.run(once, where, transient)
            except FOREIGN as error:
                if not self._may_have_expired(error, operation):
                    raise
                self._renew(client)
                return attempts.run(once, where, transient)
        except FOREIGN as error:
            of_version = f"{operation}_version" if "VersionId" in params else operation
            raise translated(
                error, of_version if of_version in _ACTIONS else operation, where, self.host,
                self._secrets(),
                has_key=CUSTOMER_KEY.of(self._settings.options) is not None,
            ) from error  # fmt: skip

    def etag(self, answer: Mapping[str, Any], key: str) -> str:
        """Return the ETag that an answer about an object has.

        Raises:
            StoreError: If it has none, as that of a server over a folder into which files were
                copied: a replaced object would go unnoticed.
        """
        if not (found := answer.get("ETag", "").strip('"')):
            raise StoreError(
                f"{self.resource(key)} has no ETag",
                f"{self.host} did not store it itself",
                "copy it into the bucket through S3, not into the server's own folder",
            )
        return str(found)

    def _may_have_expired(self, error: Exception, operation: str) -> bool:
        """Whether other credentials may help; the answer to a HEAD has no body to say so."""
        name = code(error)
        if name in EXPIRED:
            return True
        return operation == "head_object" and name == "400" and self._has_token()

    def resource(self, about: str) -> str:
        """Return the name that *about* has for people; two servers may have buckets of one name."""
        server = "" if self.endpoint_url is None else f" at {self.endpoint_url}"
        return f"s3://{self.bucket}/{shown(about)}{server}"

    def _connect(self) -> tuple[Session, "S3Client"]:
        settings = self._settings
        is_local = urlsplit(settings.endpoint_url or "").hostname in _LOOPBACK
        # more threads than connections is no fault: what is over the pool's size is closed
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        options = settings.options
        proxies = proxies_of(options)
        config = Config(
            proxies={} if is_local and proxies is None else proxies,  # None: the environment's
            signature_version=UNSIGNED if is_anonymous(options) else None,
            s3={
                "addressing_style": addressing_style(options, settings.endpoint_url),
                "use_accelerate_endpoint": ACCELERATE.of(options),
            },
            retries={"total_max_attempts": 1},
            max_pool_connections=_CONNECTIONS,
            connect_timeout=10,
            read_timeout=self._read_timeout,
            tcp_keepalive=True,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            core = get_session()
            core.register_component("data_loader", _loader())
            session = session_of(core, options)
            client = session.client(
                "s3",
                region_name=session.region_name or DEFAULT_REGION,
                endpoint_url=settings.endpoint_url,
                config=config,
            )
        except (*FOREIGN, ValueError) as error:
            do = "check store.url, region, profile and credentials"
            raise ConfigurationError(f"no client for {settings.url}", str(error), do) from error
        client.meta.events.register_first("needs-retry.s3", _stay)
        client.meta.events.register("choose-signer.s3", _signer)  # type: ignore[arg-type]
        return session, client

    def _renew(self, old: "S3Client") -> None:
        """Ask the credential chain again: what it gave has run out before its time."""
        with self._lock:
            if self._client is old:
                self._session, self._client = self._connect()

    def _secrets(self) -> list[str]:
        options = self._settings.options
        mine = [PROXY_PASSWORD.of(options), CUSTOMER_KEY.of(options)]
        if (frozen := self._credentials()) is not None:
            mine += [frozen.secret_key, frozen.token, frozen.access_key]
        return [secret for secret in mine if secret]

    def _has_token(self) -> bool:
        """Whether the credentials are a session's, which ends."""
        frozen = self._credentials()
        return frozen is not None and bool(frozen.token)

    def _credentials(self) -> ReadOnlyCredentials | None:
        try:
            found = self._session.get_credentials()
            return None if found is None else found.get_frozen_credentials()
        except FOREIGN:  # such as a role that cannot be assumed: the error at hand says so
            return None


def _stay(request_dict: dict[str, Any], **_: Any) -> None:
    """Keep botocore from following a bucket to another region."""
    # on an endpoint of one's own it asks for the region, is redirected again, and never ends
    request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


class _ChecksumSigner(S3SigV4Auth):
    """Signs the checksum that a body is sent with; botocore would read the body for another."""

    NAME: Final = "s3v4-checksum"

    def payload(self, request: AWSRequest) -> str:
        """Return the sha256 of the body in hexadecimal, or the word for none."""
        given: str | None = request.headers.get("x-amz-checksum-sha256")
        return super().payload(request) if given is None else base64.b64decode(given).hex()


AUTH_TYPE_MAPS[_ChecksumSigner.NAME] = _ChecksumSigner


def _signer(signature_version: object, **_: Any) -> str | None:
    return _ChecksumSigner.NAME if signature_version in ("s3v4", "v4") else None


def read_ahead() -> None:
    """Load what a client needs, 0.1 s of CPU, so that every process forked from this one has it."""
    import_module("boto3.s3.inject")  # with all that it imports: a client's own first step
    for part in _DESCRIPTION:
        _loader().load_service_model("s3", part)


@functools.cache
def _loader() -> Loader:
    """Return the one reader of S3's description: a second client takes 12 ms in place of 77."""
    return create_loader()


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
    "list_object_versions": "s3:ListBucketVersions",
    "get_object_retention": "s3:GetObjectRetention",
    "get_object_legal_hold": "s3:GetObjectLegalHold",
    "get_object_version": "s3:GetObjectVersion",
    "head_object_version": "s3:GetObjectVersion",
    "delete_object_version": "s3:DeleteObjectVersion",
    "get_object_lock_configuration": "s3:GetBucketObjectLockConfiguration",
    "get_bucket_versioning": "s3:GetBucketVersioning",
    "get_bucket_lifecycle_configuration": "s3:GetLifecycleConfiguration",
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
        resource: What it was about, such as ``s3://lake/topics/orders/...``.
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
    is_gone = name in ("NoSuchKey", "NoSuchVersion")
    missing = is_gone or (status == 404 and name in ("404", "NotFound"))
    if missing and operation.removesuffix("_version") in (*_READS, "restore_object"):
        return ObjectNotFoundError(what, "no such object", **place)
    if "Skewed" in name:
        said = f"the clock differs by {_skew_seconds(error)} s from the server's"
    why = f"{host} answered {status}" if name == str(status) else f"{name} ({status})"
    do = _remedy(error, operation, has_key=has_key)
    return StoreError(what, f"{why}: {said}" if said else why, do, **place)


def _remedy(error: ClientError, operation: str, *, has_key: bool) -> str:
    name, status = code(error), _status(error)
    is_read = operation.removesuffix("_version") in _READS
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
        key = f"; or correct {CUSTOMER_KEY.name}, as a wrong key is denied too"
        return f"{allow}{key if has_key and is_read else ''}"
    if status == 429 or status >= 500:
        return "try again later, with fewer tasks, or raise s3.part.retries"
    return _about_key(name) if is_read else ""


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
