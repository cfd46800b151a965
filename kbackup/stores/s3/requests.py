"""One request to one bucket: the client, its way to the server, its retries, its errors."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from boto3.session import Session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.loaders import Loader, create_loader
from botocore.session import get_session

from kbackup.errors import ConfigurationError, StoreError
from kbackup.files import Section
from kbackup.options import check_needs
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import errors
from kbackup.stores.s3.options import (
    ACCELERATE,
    ATTEMPTS,
    BACKOFF_MS,
    CUSTOMER_KEY,
    OPTIONS,
    PROXY_PASSWORD,
    ObjectSettings,
    addressing_style,
    chosen_provider,
    proxies_of,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
import functools
import os

from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.session import Session as Core

from kbackup.stores.s3.options import (
    ACCESS_KEY_ID,
    ANONYMOUS,
    PROVIDER,
    REGION,
    ROLE,
    ROLE_ARN,
    ROLE_EXTERNAL_ID,
    ROLE_REGION,
    ROLE_SESSION,
    SECRET_ACCESS_KEY,
    STATIC,
)

_SESSION: Final = "kbackup"
"""Name of a role's session where none is given."""


def session_of(core: Core, options: Mapping[str, Any]) -> Session:
    """Return a session with the credentials that *options* ask for.

    Args:
        core: Made for it alone.
        options: Those of the store.

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


_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

LONGEST_WAIT_S: Final = 20.0
"""No single wait is longer, however many attempts there were."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """A budget of attempts for one request.

    Attributes:
        total: Attempts in all, 1 for no retry.
        backoff_ms: Base of the wait: before retry *n* between half of ``backoff_ms * 2**(n - 1)``
            and all of it.
        sleep: Waits that many seconds.
    """

    total: int
    backoff_ms: int
    sleep: Callable[[float], None] = time.sleep

    def run(
        self, call: Callable[[], _T], about: str, transient: Callable[[Exception], str | None]
    ) -> _T:
        """Return what *call* returns, retrying while the budget lasts.

        Args:
            call: May be called several times.
            about: What it does, for the log.
            transient: Says in a few words why an error is worth another attempt; None: it is not.

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
        attempts: The budget of each request.
        bucket: Its name.
        endpoint_url: The server's, None for Amazon's own.
        host: The server's name and port, for messages.
        settings: What requests carry besides.
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
        self.settings = ObjectSettings.of(settings.options)
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
            more = self.settings.params(operation, params.get("Key", ""), params.get("Metadata"))
            return getattr(self._client, operation)(Bucket=self.bucket, **more, **params)

        client, where = self._client, self.resource(about)
        attempts = self.attempts if is_tried_again else replace(self.attempts, total=1)
        try:
            try:
                return attempts.run(once, where, errors.transient)
            except errors.FOREIGN as error:
                if not self._may_have_expired(error, operation):
                    raise
                self._renew(client)
                return attempts.run(once, where, errors.transient)
        except errors.FOREIGN as error:
            raise errors.translated(
                error, operation, where, self.host, self._secrets(),
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
        name = errors.code(error)
        if name in errors.EXPIRED:
            return True
        return operation == "head_object" and name == "400" and self._has_token()

    def resource(self, about: str) -> str:
        """Return the name that *about* has for people, in one line whatever is in a key."""
        shown = (c if c.isprintable() else ascii(c)[1:-1] for c in about)
        return f"s3://{self.bucket}/{''.join(shown)}"

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
        except (*errors.FOREIGN, ValueError) as error:
            do = "check store.url, region, profile and credentials"
            raise ConfigurationError(f"no client for {settings.url}", str(error), do) from error
        client.meta.events.register_first("needs-retry.s3", _stay)
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
        except errors.FOREIGN:  # such as a role that cannot be assumed: the error at hand says so
            return None


def _stay(request_dict: dict[str, Any], **_: Any) -> None:
    """Keep botocore from following a bucket to another region."""
    # on an endpoint of one's own it asks for the region, is redirected again, and never ends
    request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


def read_ahead() -> None:
    """Load what a client needs, 0.1 s of CPU, so that every process forked from this one has it."""
    import_module("boto3.s3.inject")  # with all that it imports: a client's own first step
    for part in _DESCRIPTION:
        _loader().load_service_model("s3", part)


@cache
def _loader() -> Loader:
    """Return the one reader of S3's description: a second client takes 12 ms in place of 77."""
    return create_loader()
